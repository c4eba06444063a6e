"""Kernels on more than one core of a chip: judged on each chip that has the cores, and in ways that are wrong.

    python -m benchmarks.cores [--on CHIP …] [--only TEXT …] [--wrong] [--json FILE]

Each program of ``benchmarks/cores/programs.py`` is frozen and judged on each chip that it is for: SparseCores on v5p,
v6e and tpu7x, two TensorCores on v5p. A line says whether it was executed, and how long the verdict took. ``--wrong``
judges the wrong ones instead, on one chip: a line says which status each has and what is said.
"""

from __future__ import annotations

from typing import Any

from benchmarks.cores.program import SPARSE
from benchmarks.cores.programs import PROGRAMS
from benchmarks.lib.command import command
from benchmarks.lib.judged import in_all, named, rows
from benchmarks.lib.table import show_all

WRONG_ON = "v5p"


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--on", nargs="+", choices=SPARSE, metavar="CHIP", help="chips; default: all")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="programs whose name has one of these")
    parser.add_argument("--wrong", action="store_true", help=f"the wrong ones, on {WRONG_ON} unless --on says another")
    options = parser.parse_args()
    listed: list[dict[str, Any]] = []
    for chip in options.on or ([WRONG_ON] if options.wrong else SPARSE):
        programs = [one for one in named(PROGRAMS, options.only) if chip in one.chips]
        listed += rows(chip, programs, wrong=options.wrong, chip=chip)
    show_all({"on cores": listed, "in all": in_all(listed)}, json_file=options.json)


if __name__ == "__main__":
    main()
