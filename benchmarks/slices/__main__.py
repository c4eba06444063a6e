"""Programs on slices of chips: judged on every topology, and in ways that are wrong.

    python -m benchmarks.slices [--on NAME …] [--only TEXT …] [--wrong | --interpreter] [--json FILE]

Each program of ``benchmarks/slices/programs.py`` is frozen and judged on each topology: a line says whether it was
executed and modelled, and how long the verdict took. ``--wrong`` judges the wrong ones instead, on one topology: a line
says which status each has and what is said. Memory is that of all processes of the judge together, at its highest.
``--interpreter`` executes the right ones on four chips and by JAX's TPU interpreter, and says how far they are apart:
products of float32 pass the matrix unit as bfloat16 here, and not there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.memory import Peak
from benchmarks.lib.table import show_all
from benchmarks.slices.programs import PROGRAMS
from prepare import judge
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import CHIPS
from ratchet.values import Conditions, Verdict
from ratchet.values.status import Status

TOPOLOGIES = {one.topology: (name, one.chips) for name in ("v5e", "v5p", "v6e", "tpu7x") for one in CHIPS[name].slices}
WRONG_ON = "v5e:2x4"
INTERPRETED = "benchmarks.slices.interpreted"


def verdict(source: str, chip: str, workers: Workers) -> Verdict:
    """What the judge says of a kernel file whose problem is its own."""
    conditions = Conditions(evaluator=f"{chip}-model", chip=chip, compiler="", seal="", problem="")
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        root = Path(name)
        kernel = root / "kernel.py"
        kernel.write_text(source)
        request = Request(kernel=kernel, root=root, kernel_rel=kernel.name, conditions=conditions, chip=CHIPS[chip])
        return judge(request, workers=workers)


def rows(on: list[str], only: list[str], *, wrong: bool) -> Iterator[dict[str, Any]]:
    """A row for each program on each topology, or for each wrong one."""
    for topology in on:
        chip, count = TOPOLOGIES[topology]
        with Workers(CHIPS[chip], keep=True) as workers:
            for program in PROGRAMS:
                if not any(text in program.name for text in only):
                    continue
                for what in program.wrong if wrong else ("",):
                    begun = time.monotonic()
                    with Peak.measured() as peak:
                        said = verdict(program.source(count, what), chip, workers)
                    passed = said.status is Status.PASS
                    yield {
                        "program": program.name,
                        **({"wrong": what} if wrong else {}),
                        "topology": topology,
                        "status": said.status.name,
                        "ms": said.score.latency_ms if said.score else None,
                        "seconds": round(time.monotonic() - begun, 1),
                        "GiB": round(peak.bytes / (1 << 30), 2),
                        "why": "" if passed else said.reason[:200],
                    }
                    say(f"{topology}: {program.name} {what}: {said.status.name}")


def beside_interpreter(only: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each program: the largest difference over the largest value, or what stopped one of the two."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        kernel = Path(name, "kernel.py")
        for program in PROGRAMS:
            if any(text in program.name for text in only):
                kernel.write_text(program.source(4))
                asked = [sys.executable, "-m", INTERPRETED, str(kernel)]
                done = subprocess.run(asked, capture_output=True, text=True, check=False)
                said = json.loads(done.stdout) if done.returncode == 0 else f"exit {done.returncode}"
                yield {"program": program.name, "apart": said[:200]}
                say(f"{program.name}: {said[:200]}")


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--on", nargs="+", choices=[*TOPOLOGIES], metavar="NAME", help="topologies; default: all")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="programs whose name has one of these")
    parser.add_argument("--wrong", action="store_true", help=f"the wrong ones, on {WRONG_ON} unless --on says another")
    parser.add_argument("--interpreter", action="store_true", help="values beside those of JAX's TPU interpreter")
    options = parser.parse_args()
    if options.interpreter:
        show_all({"beside JAX's interpreter": list(beside_interpreter(options.only))}, json_file=options.json)
        return
    on = options.on or ([WRONG_ON] if options.wrong else [*TOPOLOGIES])
    listed = list(rows(on, options.only, wrong=options.wrong))
    passed = sum(one["status"] == Status.PASS.name for one in listed)
    most = {f"most {what}": max((one[what] for one in listed), default=0) for what in ("seconds", "GiB")}
    summary = [{"judged": len(listed), "passed": passed, **most}]
    show_all({"on slices": listed, "in all": summary}, json_file=options.json)


if __name__ == "__main__":
    main()
