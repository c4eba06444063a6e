"""Random programs, words and damaged files: who computes the same has to agree, and who reads must not break.

    python -m benchmarks.fuzz [--minutes N | --steps N] [--seed S] [--only KIND...] [--json FILE]

``programs``: random kernels, the value executor against Pallas's interpret mode and against the definition of scalar
arithmetic, and how often it took every branch and loop against the schedule machine's run of the compiled kernel.
``scalars``: single operations on awkward words, four implementations. ``copies``: kernels that move blocks, each copy
of the value executor against each of the schedule machine. ``parsers``: damaged artefacts, dumps, records
and ledgers; each reader has to give a value or refuse, in time, and what reads MLIR does so in a jailed child.

A step is one operation compared on one set of words, one copy, or one damaged file read. Seeds of rounds count on from
``--seed`` times a million, so that a difference is found again by its seed. The exit code is 1 if there is any.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"  # as ratchet/process/boot/start.py does

from benchmarks.fuzz import copies, kernels, parsers, programs, scalars
from benchmarks.fuzz.rounds import Round, added
from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E

KINDS = ("programs", "scalars", "copies", "parsers")
SEEDS = 1_000_000
"""Rounds that one seed has."""
SAID_SECONDS = 30.0
"""How often progress is said."""
Area = Callable[[int], Round]


@contextlib.contextmanager
def opened(only: Sequence[str]) -> Iterator[list[Area]]:
    """The areas in the order of their turns; one that costs little has several."""
    with contextlib.ExitStack() as stack:
        turns: list[Area] = []
        if "scalars" in only:
            turns += [scalars.scalars]
        if "programs" in only or "copies" in only:
            workers = stack.enter_context(Workers(V5E, keep=True, compiles=False))
        if "copies" in only:
            turns.append(lambda seed: copies.moved(seed, workers))
        if "programs" in only:
            turns += [programs.scalars, kernels.blocks] * 3
            turns.append(lambda seed: programs.compiled_scalars(seed, workers))
        if "parsers" in only:
            turns += stack.enter_context(parsers.opened())
        yield turns


def rounds(turns: Sequence[Area], *, seed: int, minutes: float | None, steps: int | None) -> Iterator[Round]:
    """Rounds of all areas by turns, until the time is over or the steps are done."""
    start, said, done = time.monotonic(), time.monotonic(), 0
    for number in range(SEEDS):
        one = turns[number % len(turns)](seed * SEEDS + number)
        done += one.steps
        yield one
        for what in one.differences:
            say(f"{one.area}, seed {one.seed}: {what}")
        now = time.monotonic()
        if now - said > SAID_SECONDS:
            said = now
            say(f"{done:,} steps in {(now - start) / 60:.1f} minutes")
        if (minutes is not None and now - start > 60 * minutes) or (steps is not None and done >= steps):
            return


def main() -> int:
    parser = command(__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="N", help="how long (1, unless --steps says how many)")
    length.add_argument("--steps", type=int, metavar="N", help="how many steps, at least")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all random choices (0)")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS, help="some of the kinds")
    options = parser.parse_args()
    minutes = 1.0 if options.minutes is None and options.steps is None else options.minutes
    start = time.monotonic()
    with opened(options.only) as turns:
        made = list(rounds(turns, seed=options.seed, minutes=minutes, steps=options.steps))
    lines = added(made)
    sums = {name: sum(int(str(line[name])) for line in lines) for name in ("cases", "steps", "differences")}
    total = {"area": "all", **sums, "minutes": round((time.monotonic() - start) / 60, 1)}
    differences = [{"area": one.area, "seed": one.seed, "what": what} for one in made for what in one.differences]
    title = f"Fuzz, seed {options.seed}"
    show_all({title: [*lines, total], "Differences": differences}, json_file=options.json)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
