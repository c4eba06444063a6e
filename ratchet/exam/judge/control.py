"""Whether the schedule machine went the way through a kernel that the value executor went, and goes on others. Pure.

Latency is modelled on one public draw of the problem's inputs, the same for every kernel, and a kernel may know it.
Other draws follow from the problem and from the program itself, so no program can hold them. Only a public run that is
faster than others is suspect. Then what it does has to be what others do, too: one draw in four at every place, one in
twenty for its cycles. One that is met by chance is not enough, or who changes a program often enough would meet one.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from ratchet.exam.judge import copies
from ratchet.exam.problem.problem import Problem, encode
from ratchet.tpu.dump.hlo import HloModule
from ratchet.values import Timeline
from ratchet.values.control import ControlFlow
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

T = TypeVar("T")

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
class Difference:
    """An operation that the two executed differently often."""

    what: str
    """``branch``, ``loop`` or ``copy``."""
    place: str
    executed: int | tuple[int, int]
    modelled: int | tuple[int, int]


def differences(
    executed: ControlFlow,
    modelled: ControlFlow,
    moved: Mapping[str, int] = MappingProxyType({}),
    vectors: Container[str] = (),
) -> tuple[Difference, ...]:
    """Where the executor's run and the machine's differ.

    Compared are the conditionals and loops that are branches of the compiled program, and all DMAs. A DMA may be
    compiled to several; none may be lost but as many as in ``moved``, of which the compiler made vector code, or all of
    a place in ``vectors``.
    """
    found = []
    for place, both in executed.branches.items():
        if place in modelled.branches and modelled.branches[place] != both:
            found.append(Difference(what="branch", place=place, executed=both, modelled=modelled.branches[place]))
    for place, turns in executed.loops.items():
        if place in modelled.loops and modelled.loops[place] != turns:
            found.append(Difference(what="loop", place=place, executed=turns, modelled=modelled.loops[place]))
    for place, starts in executed.copies.items():
        compiled = modelled.copies.get(place, 0)
        if not compiled and place in vectors:
            continue
        left = starts - moved.get(place, 0)
        if compiled != left and not (left > 0 and compiled and compiled % left == 0):
            found.append(Difference(what="copy", place=place, executed=starts, modelled=compiled))
    return tuple(found)


def of_chips(timeline: Timeline) -> ControlFlow | None:
    """Which way the chips went: for each operation the most that one of them did. None where that is not known."""
    flows = [chip.control for chip in timeline.chips or (timeline,)]
    known = [flow for flow in flows if flow is not None]
    if len(known) < len(flows):
        return None
    return ControlFlow(
        branches=_most([flow.branches for flow in known], lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
        loops=_most([flow.loops for flow in known], max),
        copies=_most([flow.copies for flow in known], max),
        issued=known[0].issued if len(known) == 1 else (),
    )


def _most(counts: Sequence[Mapping[str, T]], larger: Callable[[T, T], T]) -> dict[str, T]:
    most: dict[str, T] = {}
    for one in counts:
        for place, count in one.items():
            most[place] = larger(most[place], count) if place in most else count
    return most


def same_modules(executed: frozenset[str], hlo: HloModule) -> None:
    """Refuse a compiled program with a kernel that is not, byte for byte, one that was executed for its values.

    ``executed`` are digests of Mosaic modules.

    Raises:
      Refusal: ``CANNOT_VERIFY``.
    """
    for op in hlo.ops.values():
        if op.is_kernel and op.module_sha256 not in executed:
            raise Refusal(
                Status.CANNOT_VERIFY,
                f"the kernel {op.name} of the compiled program is none of the {len(executed)} that were executed for "
                "their values; wanted the same Mosaic module in both",
            )


def step(executed: ControlFlow, timeline: Timeline, tokens: TokenTable, hlo: HloModule) -> tuple[int, str]:
    """A step of a verdict: refuse a kernel that the machine and the executor did not run alike.

    Returns how many operations were compared.

    Raises:
      Refusal: ``CONTROL_FLOW_DIFFERS``, ``COPIES_DIFFER``; ``CANNOT_VERIFY`` as ``copies.compare``.
    """
    modelled = of_chips(timeline)
    compared = copies.compare(executed, modelled.issued if modelled else (), hlo, tokens)
    _refuse(compared.misplaced)
    if modelled is None:
        _refuse(compared.apart)
        return 0, "not compared: branches depend on computed values, and the machine took them all one way"
    apart = differences(executed, modelled, compared.moved, compared.vectors)
    if apart:
        raise Refusal(Status.CONTROL_FLOW_DIFFERS, "; ".join(_words(one, tokens) for one in apart[:3]))
    _refuse(compared.apart)
    branches = len(set(executed.branches) & set(modelled.branches))
    loops = len(set(executed.loops) & set(modelled.loops))
    return branches + loops + len(executed.copies), (
        f"{branches} branches, {loops} loops and {len(executed.copies)} copies executed as modelled"
        + (f", {compared.copies:,} copies from and to the same places" if compared.copies else "")
    )


def _refuse(other_copies: Sequence[str]) -> None:
    if other_copies:
        raise Refusal(Status.COPIES_DIFFER, "; ".join(other_copies[:3]))


def _words(difference: Difference, tokens: TokenTable) -> str:
    at = f"the {difference.what} at {tokens.explain(difference.place)}"
    executed, modelled = difference.executed, difference.modelled
    if isinstance(executed, tuple) and isinstance(modelled, tuple):
        return (
            f"{at} was entered {executed[0]} times and passed by {executed[1]} times when the kernel was executed for "
            f"its values, {modelled[0]} and {modelled[1]} times when it was modelled"
        )
    return f"{at}: {executed} executions for the kernel's values, {modelled} when it was modelled"


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
