"""Seconds that the schedule machine takes for programs compiled on the spot: parse, translate, run, blame.

    python -m benchmarks.schedule [--quick] [--json FILE]

The naive attention kernel at growing blocks, up to a program of more than fifty thousand bundles, which alone takes the
compiler a minute or more; ``--quick`` leaves it out. CPU seconds of this process, so that what else runs here counts
less; measured here and now. The targets are 1 s for the first row and 4 s for fifty thousand bundles.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show
from ratchet.tpu.account.timeline import timeline_of
from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import TOP, Dumps, load_hlo
from ratchet.tpu.machine.programs import Programs
from ratchet.tpu.machine.run import run, without_collections

BLOCKS = ((128, 256), (512, 512), (1024, 1024), (2048, 2048), (4096, 2048))
ROOM = ("dimension_semantics=", "vmem_limit_bytes=110 * 2**20, dimension_semantics=")
"""The largest blocks do not fit the default VMEM limit."""


def seconds(folder: Path) -> dict[str, Any]:
    """One program, phase by phase."""
    with without_collections():
        marks = [time.process_time()]
        hlo = load_hlo(folder)
        dumps = Dumps(folder, hlo, "installed")
        names = [name for name in dumps.names if name == TOP or name in hlo.ops or name.startswith("<")]
        listings = [dumps.load(name) for name in names]
        marks.append(time.process_time())
        programs = Programs(dumps, hlo, "installed", V5E)
        for name in names:
            programs.unit(name)
        marks.append(time.process_time())
        done = run(programs)
        marks.append(time.process_time())
        timeline = timeline_of(done, chip=V5E, compiler="installed")
        marks.append(time.process_time())
    phases = dict(zip(("parse", "translate", "run", "blame"), map(_between, marks, marks[1:]), strict=False))
    return {
        "bundles": sum(len(listing.bundles) for listing in listings),
        "grid_steps": timeline.grid_steps,
        "modelled_ms": timeline.latency_ms,
        **phases,
        "all": _between(marks[0], marks[-1]),
    }


def _between(start: float, end: float) -> float:
    return round(end - start, 3)


def main() -> None:
    options = command(__doc__, quick="leave out the longest program").parse_args()
    source = (ROOT / "examples" / "naive_attention.py").read_text()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for bq, bkv in BLOCKS[:-1] if options.quick else BLOCKS:
            files.append(folder / f"bq{bq}_bkv{bkv}.py")
            files[-1].write_text(edited(source, BQ=bq, BKV=bkv).replace(*ROOM))
        subprocess.run([sys.executable, "-m", "benchmarks.compiled", folder, *files], cwd=ROOT, check=True)
        for file in files:
            rows.append({"program": file.stem, **seconds(folder / file.stem)})
    show("CPU seconds of the schedule machine, measured here", rows, json_file=options.json)


if __name__ == "__main__":
    main()
