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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.judged import in_all, named, rows
from benchmarks.lib.table import show_all
from benchmarks.slices.programs import PROGRAMS
from ratchet.tpu.chips import CHIPS

TOPOLOGIES = {one.topology: (name, one.chips) for name in ("v5e", "v5p", "v6e", "tpu7x") for one in CHIPS[name].slices}
WRONG_ON = "v5e:2x4"
INTERPRETED = "benchmarks.slices.interpreted"


def beside_interpreter(only: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each program: the largest difference over the largest value, or what stopped one of the two."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        kernel = Path(name, "kernel.py")
        for program in named(PROGRAMS, only):
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
    listed: list[dict[str, Any]] = []
    for topology in on:
        chip, count = TOPOLOGIES[topology]
        listed += rows(chip, named(PROGRAMS, options.only), count, wrong=options.wrong, topology=topology)
    show_all({"on slices": listed, "in all": in_all(listed)}, json_file=options.json)


if __name__ == "__main__":
    main()
