"""Whether a modelled run is one like any other: the inputs that steer it are public, and a kernel may know them. Pure.

Latency is modelled on one public draw of the problem's inputs, the same for every kernel. Other draws follow from the
problem and from the program itself, so no program can hold them. Only a public run that is faster than others is
suspect. Then what it does has to be what others do, too: one draw in four at every place, one in twenty for its cycles.
One that is met by chance is not enough, or who changes a program often enough would meet one.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.exam.judge.control import of_chips
from ratchet.exam.problem.problem import Problem, encode
from ratchet.values import Timeline
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

BATCHES = (3, 5, 16, 36)
"""How many draws are modelled before it is asked again: nearly always the first batch."""
FASTER = 0.02
"""By how much the public run may be faster than others without being suspect."""
FEW = 8
"""Fewer draws than this say nothing of a kernel whose cycles differ from draw to draw."""
PLACE_SHARE, PLACE_LEAST = 1 / 4, 4
CYCLES_SHARE = 1 / 20
"""Of the draws, how many have to be like the public one. A kernel that treats it alone, and one input in twenty, is
met by enough of 8, 24 or 60 draws once in a thousand programs."""
SEED_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Unlike:
    """What happens with the public inputs and with too few of the other draws."""

    what: str
    """``branch``, ``other branch``, ``loop``, ``copy``: executed by one only, or half as often; ``cycles``: fewer."""
    place: str
    public: int
    others: tuple[int, ...]


def seeds(problem: Problem, code_sha256: str) -> Iterator[list[bytes]]:
    """Keys of the draws for one program, batch by batch; the same in every clone.

    The digest is that of the program without names and places of its author's: a comment changes nothing.
    """
    key = hashlib.sha256(encode(problem)).digest() + bytes.fromhex(code_sha256)
    numbers = itertools.count()
    for size in BATCHES:
        yield [hashlib.sha256(key + next(numbers).to_bytes(4, "big")).digest()[:SEED_BYTES] for _ in range(size)]


def unlike(public: Timeline, others: Sequence[Timeline]) -> list[Unlike]:
    """What of the public run too few other draws have shown so far; nothing where it is no faster than they are."""
    cycles = [run.cycles for run in others]
    if public.cycles >= (1 - FASTER) * (statistics.median(cycles) if len(others) >= FEW else max(cycles)):
        return []
    runs = [_counts(run) for run in (public, *others)]
    differing = []
    for what, place in sorted(set().union(*runs)):
        first, *rest = (run.get((what, place), 0) for run in runs)
        if sum(_alike(first, count) for count in rest) < max(PLACE_LEAST, PLACE_SHARE * len(rest)):
            differing.append(Unlike(what=what, place=place, public=first, others=tuple(rest)))
    if sum((1 - FASTER) * one <= public.cycles for one in cycles) < max(1, CYCLES_SHARE * len(cycles)):
        differing.append(Unlike(what="cycles", place="", public=public.cycles, others=tuple(cycles)))
    return differing


def _alike(public: int, other: int) -> bool:
    return (public > 0) == (other > 0) and other <= 2 * public


def refuse(differing: Sequence[Unlike], tokens: TokenTable) -> Refusal:
    """A kernel that no draw was like."""
    one = differing[0]
    usual = statistics.median(one.others)
    if one.what == "cycles":
        what = f"it takes {one.public:,} cycles with the public inputs, and mostly {usual:,.0f} or so"
    else:
        times = f"{one.public} times" if one.public else "never"
        most = f"mostly {usual:.0f} times" if usual else "mostly never"
        what = f"the {one.what} at {tokens.explain(one.place)} is executed {times} with the public inputs, and {most}"
    return Refusal(
        Status.CONTROL_FLOW_DIFFERS,
        f"{what} with {len(one.others)} other draws of what steers it: it seems to know the inputs that latency is "
        "modelled on; wanted a kernel that does with them what it does with any (or, if they are odd by chance, other "
        "inputs in a new problem)",
    )


def _counts(run: Timeline) -> dict[tuple[str, str], int]:
    """How often each place was executed."""
    flow = of_chips(run)
    if flow is None:
        return {}
    counts = {("branch", place): then for place, (then, _) in flow.branches.items()}
    counts |= {("other branch", place): otherwise for place, (_, otherwise) in flow.branches.items()}
    counts |= {("loop", place): turns for place, turns in flow.loops.items()}
    return counts | {("copy", place): starts for place, starts in flow.copies.items()}
