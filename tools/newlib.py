"""What a new libtpu has that nothing here knows: ``python -m tools.newlib VERSION … [--python PATH] [--json FILE]``.

A version is one of ``setup --jax``: ``0.12.0.1+libtpu0.0.52``. The kernels of the tree and the examples on one chip
are exported, compiled, modelled and executed under each, and under the JAX of this environment; so are some programs
with published timings. A line for each version says of how many that is true, how far latencies moved, how far off the
published ones are, and how long it took; below it, once each, what was refused: what the parsers, the machine or the
executor do not know, and what the compiler said. Run it in ``.venv``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax

from benchmarks.fidelity import CROSS_VALIDATED, OTHER
from benchmarks.lib.command import command, say
from benchmarks.lib.published.cases import DATA
from benchmarks.lib.table import show_all
from ratchet.commands.environments import environment_of, make
from ratchet.commands.upgrade_check import sides
from ratchet.exam.candidate import target as targets
from ratchet.upgrade.upgrade import request_of, upgraded
from ratchet.values.change import Side, Upgrade
from ratchet.values.status import Refusal, Status
from tools.documents import ROOT

ELSEWHERE = '"mesh"', "VectorSubcoreMesh"
"""In the text of each kernel file that is not tried, on a v5e: what ``get_tiling_meta`` calls a mesh; SparseCores."""
ALLOWED_SHARE, DEADLINE_SECONDS = 0.02, 300.0
PUBLISHED, EVERY = ("v5e_device_sweeps.csv", "chips/v6e_published_matmul.csv"), 5
"""Files of timings of kernels that are written here, on two chips, and which of their rows are taken: every fifth."""
Row = dict[str, Any]


def options(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="0.12.0.1+libtpu0.0.52")
    parser.add_argument("--python", default="", metavar="PATH", help="the Python of new environments; default: this")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="kernels whose file has one of these")
    return parser


def kernel_files(only: Sequence[str]) -> list[str]:
    """The kernels that are tried, relative to the root of the repository."""
    every = [ROOT / "kernel.py", *sorted(ROOT.glob("examples/*.py"))]
    names = [
        path.relative_to(ROOT).as_posix() for path in every if not any(text in path.read_text() for text in ELSEWHERE)
    ]
    return [name for name in names if any(text in name for text in only)]


def requests(files: Sequence[str]) -> list[dict[str, Any]]:
    return [request_of(targets.parse(name), targets.inline([targets.GENERATOR]), name) for name in files]


def under(version: str, files: Sequence[str]) -> list[Side]:
    """Every kernel under one version."""
    folder = environment_of(version)
    return sides(requests(files), version, folder, values=True, deadline=DEADLINE_SECONDS, say=say)


def published(version: str) -> list[float]:
    """How far the modelled latencies of programs with published ones are off, as shares."""
    python = os.path.realpath(environment_of(version)) + "/bin/python"
    with tempfile.TemporaryDirectory() as name:
        folder, files = Path(name), []
        for source in PUBLISHED:
            head, *lines = (DATA / source).read_text().splitlines(keepends=True)
            files.append(folder / Path(source).name)
            files[-1].write_text("".join((head, *lines[::EVERY])))
        told = folder / "told.json"
        asked = [python, "-m", "benchmarks.fidelity", "--json", told, "--cases", *files]
        done = subprocess.run(
            asked, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            last = "".join(done.stderr.strip().splitlines()[-1:])
            raise Refusal(Status.INFRASTRUCTURE, f"benchmarks.fidelity under jax {version}: {last[:300]}")
        tables = json.loads(told.read_text())
    rows = [one for title in (CROSS_VALIDATED, OTHER) for one in tables[title]]
    return [one["modelled ms"] / one["measured ms"] - 1 for one in rows]


def row(version: str, seconds: float, compared: Sequence[Upgrade], errors: Sequence[float]) -> Row:
    """The line of a version, whose ``errors`` are those of published timings."""
    after = [one.after for one in compared]
    pairs = [(one.before.costs.latency_ms, one.after.costs.latency_ms) for one in compared]
    moved = [new / old - 1 for old, new in pairs if old and new]
    return {
        "version": version,
        "kernels": len(after),
        "compiled": sum(bool(one.costs.vmem_limit_bytes) for one in after),
        "modelled": sum(one.costs.status is Status.PASS for one in after),
        "executed": sum(one.outputs is not None for one in after),
        "same bits": sum(one.values.identical for one in compared),
        "worse": sum(one.worse for one in compared),
        "median %": 100 * median(moved) if moved else None,
        "fastest %": 100 * min(moved) if moved else None,
        "slowest %": 100 * max(moved) if moved else None,
        "published": len(errors),
        "off by %": 100 * sum(map(abs, errors)) / len(errors) if errors else None,
        "at most %": 100 * max(map(abs, errors)) if errors else None,
        "seconds": round(seconds),
    }


def unknown(version: str, compared: Sequence[Upgrade]) -> Iterator[Row]:
    """What was refused under a version and not before, and of which kernels."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in compared:
        side, costs = one.after, one.after.costs
        new = costs.status not in (Status.PASS, one.before.costs.status)
        reasons = [(costs.status.name, costs.reason)] if new else []
        reasons += [("values", side.no_values)] if one.values.limit else []
        reasons += [("finding", text) for text in side.findings if text not in one.before.findings]
        reasons += [("values", one.values.reason or "differ")] if one.values.worse and not side.findings else []
        for what, why in reasons:
            found.setdefault((what, why[:200]), []).append(side.target)
    for (what, why), names in found.items():
        yield {"version": version, "what": what, "why": why, "kernels": ", ".join(names)}


def tried(version: str, python: str, before: Sequence[Side], files: Sequence[str]) -> tuple[Row, list[Row], list[Side]]:
    """One version: its line, what was refused under it, and its kernels; compared with itself if nothing was before."""
    start = time.monotonic()
    try:
        if before:
            make(version, python=python, lock=None)
        after, errors = under(version, files), published(version)
    except Refusal as refusal:
        return {"version": version, "why not": refusal.message}, [], []
    pairs = zip(before or after, after, strict=True)
    compared = [upgraded(*pair, allowed_share=ALLOWED_SHARE) for pair in pairs]
    line = row(version, time.monotonic() - start, compared, errors)
    return line, list(unknown(version, compared)), after


def main(given: Sequence[str]) -> int:
    asked = options(command(__doc__)).parse_args(given)
    files, own = kernel_files(asked.only), jax.__version__
    before: list[Side] = []
    lines, refused = [], []
    for version in (own, *asked.versions):
        line, reasons, sides_under = tried(version, asked.python, before, files)
        before = before or sides_under
        lines.append(line)
        refused += reasons
    tables: Mapping[str, Sequence[Row]] = {f"against jax {own}": lines, "refused": refused}
    show_all(tables, json_file=asked.json and Path(asked.json))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
