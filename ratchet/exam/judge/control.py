"""Whether the schedule machine went the same way through a kernel as the value executor did. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ratchet.tpu.dump.hlo import HloModule
from ratchet.values import Timeline
from ratchet.values.control import ControlFlow
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An operation that the two executed differently often."""

    what: str
    """``branch``, ``loop`` or ``copy``."""
    place: str
    executed: int | tuple[int, int]
    modelled: int | tuple[int, int]


def differences(executed: ControlFlow, modelled: ControlFlow) -> tuple[Difference, ...]:
    """Where the executor's run and the machine's differ.

    Compared are the conditionals and loops that are branches of the compiled program, and all DMAs. A DMA may be
    compiled to several; none may be lost.
    """
    return tuple(_differences(executed, modelled))


def _differences(executed: ControlFlow, modelled: ControlFlow) -> Iterator[Difference]:
    for place, both in executed.branches.items():
        if place in modelled.branches and modelled.branches[place] != both:
            yield Difference(what="branch", place=place, executed=both, modelled=modelled.branches[place])
    for place, turns in executed.loops.items():
        if place in modelled.loops and modelled.loops[place] != turns:
            yield Difference(what="loop", place=place, executed=turns, modelled=modelled.loops[place])
    for place, starts in executed.copies.items():
        compiled = modelled.copies.get(place, 0)
        if compiled != starts and not (starts and compiled and compiled % starts == 0):
            yield Difference(what="copy", place=place, executed=starts, modelled=compiled)


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


def step(executed: ControlFlow, timeline: Timeline, tokens: TokenTable) -> tuple[int, str]:
    """A step of a verdict: refuse a kernel that the machine and the executor did not run alike.

    Returns how many operations were compared.

    Raises:
      Refusal: ``CONTROL_FLOW_DIFFERS``.
    """
    modelled = of_chips(timeline)
    if modelled is None:
        return 0, "not compared: branches depend on computed values, and the machine took them all one way"
    apart = differences(executed, modelled)
    if apart:
        raise Refusal(Status.CONTROL_FLOW_DIFFERS, "; ".join(_words(one, tokens) for one in apart[:3]))
    branches = len(set(executed.branches) & set(modelled.branches))
    loops = len(set(executed.loops) & set(modelled.loops))
    compared = branches + loops + len(executed.copies)
    return compared, f"{branches} branches, {loops} loops and {len(executed.copies)} copies executed as modelled"


def _words(difference: Difference, tokens: TokenTable) -> str:
    at = f"the {difference.what} at {tokens.explain(difference.place)}"
    executed, modelled = difference.executed, difference.modelled
    if isinstance(executed, tuple) and isinstance(modelled, tuple):
        return (
            f"{at} was entered {executed[0]} times and passed by {executed[1]} times when the kernel was executed for "
            f"its values, {modelled[0]} and {modelled[1]} times when it was modelled"
        )
    return f"{at}: {executed} executions for the kernel's values, {modelled} when it was modelled"
