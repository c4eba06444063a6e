"""What becomes of public Pallas TPU kernels here: compiled for v5e or slices of it, executed, modelled.

    python -m benchmarks.coverage --sources DIR [--only TEXT …] [--resume] [--json FILE] [--page FILE]

The list is in ``benchmarks/coverage``: repositories with commits, and for each kernel how it is called. ``DIR`` holds
a clone of each under the name that the list has for it, and in ``site`` what they import: ``--clone`` prints how.
Every kernel runs in a process of its own, with a time limit. Others' code is executed as you: use a container.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.coverage import page
from benchmarks.coverage.calls import CASES
from benchmarks.coverage.cores import NAMES
from benchmarks.lib.command import command
from benchmarks.lib.repositories import clone_commands
from benchmarks.lib.table import show_all
from ratchet.tpu.compiler.environment import compiler_version

ONE = "benchmarks.coverage.one"
KERNELS = "kernels"

Record = dict[str, Any]


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--sources", type=Path, metavar="DIR", default=Path(".ratchet/corpus"), help="the clones")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", default=[""], help="kernels whose name has one of these in it"
    )
    parser.add_argument("--resume", action="store_true", help="keep what --json FILE has, and go on")
    parser.add_argument("--limit", type=float, metavar="SECONDS", default=600.0, help="for one kernel; default 600")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of the documentation there")
    parser.add_argument("--cores", type=Path, metavar="FILE", help="write that page's section of several cores anew")
    parser.add_argument(
        "--beside", type=Path, metavar="FILE", help="what --json wrote under another JAX: say what changed"
    )
    parser.add_argument("--clone", action="store_true", help="print how the sources are fetched, and end")
    options = parser.parse_args()
    if options.clone:
        print("\n".join(clone_commands(options.sources)))
        return
    if options.resume and not options.json:
        parser.error("--resume goes on with what --json FILE has: name it")
    known = before(options.json) if options.resume else {}
    listed = NAMES if options.cores else CASES
    names = [name for name in listed if any(text in name for text in options.only)]
    for name in names:
        if name not in known:
            known[name] = outcome(name, options.sources, options.limit)
            print(f"{name}: {page.in_words(known[name])}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps({KERNELS: list(known.values())}, indent=1) + "\n")
    records = [known[name] for name in CASES if name in known]
    other = json.loads(options.beside.read_text()) if options.beside else {}
    tables = {"public kernels": [page.row(one) for one in records], "in all": page.totals(records)}
    if other:
        tables[f"changed since {other['compiler']}"] = page.changes(other[KERNELS], records)
    show_all(tables)
    if options.json:
        tables = {"compiler": compiler_version(), **tables, KERNELS: records}
        options.json.write_text(json.dumps(tables, indent=1) + "\n")
    if options.cores:
        options.cores.write_text(page.with_several(options.cores.read_text(), [known[name] for name in names]))
    if options.page:
        beside = {other["compiler"]: list(before(options.beside).values())} if other else {}
        options.page.write_text(page.text(records, compiler_version(), beside))


def before(file: Path) -> dict[str, Record]:
    """What an earlier run wrote, by kernel."""
    if not file.exists():
        return {}
    return {record["name"]: record for record in json.loads(file.read_text())[KERNELS] if record["name"] in CASES}


def outcome(name: str, sources: Path, seconds: float) -> Record:
    """One kernel in a process of its own. One that does not end, or dies, is a record too."""
    asked: Sequence[str] = [sys.executable, "-m", ONE, name, str(sources.resolve())]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "traced": "TIMEOUT", "reasons": {"traced": f"not done in {seconds:.0f} s"}}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return {"name": name, "traced": "DIED", "reasons": {"traced": f"exit {done.returncode}: {last:.300}"}}
    record: Record = json.loads(lines[-1])
    return record


if __name__ == "__main__":
    main()
