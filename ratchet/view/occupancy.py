"""Which units are in use along a kernel's program, in words and as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from ratchet.values import Timeline
from ratchet.values.blame import BRANCH, OTHER, RESULTS, STORES, WEIGHTS
from ratchet.values.occupancy import DMA, NOTHING, TURN_END, Limit, Limited, Occupancy, Stretch, Turns
from ratchet.values.place import Code, SourceLine
from ratchet.view.document import Tables, same
from ratchet.view.text import clean, waited, where

UNITS = {
    "MXU": "matrix units",
    "XLU": "cross-lane units",
    "VALU": "vector ALUs",
    "VPOP": "result queues",
    "EUP": "transcendental unit",
    "VLOAD": "vector-load slots",
    "VSTORE": "vector-store slot",
    "SALU": "scalar slots",
    "FILL": "spilled values",
    "SPILL": "spills",
    BRANCH: "branches",
    RESULTS: "results of products",
    WEIGHTS: "weights of the matrix units",
    STORES: "stores to what is loaded",
    OTHER: "the order of the program",
}
OCCUPANCY: Tables = {Stretch: {...: (), **same("cycles")}, Occupancy: {...: (), **same("busy", "turn_cycles")}}
"""What a JSON document has of it besides the fields."""
_WAITED = {"MXU results": "res", "MXU weights": "w", "stores": "sts", "branch": "br", "other": "ord"}
"""Codes of what only empty bundles wait for."""
_CODES = {"VPOP": "pop", "VALU": "alu", "EUP": "eup", "XLU": "xlu", "VLOAD": "ld", "VSTORE": "st", "SPILL": "spl"}
"""Columns of a table, and what is full or waited for there."""
_BAR = 4
_LEAST = 0.005
"""Limits that cost a smaller share of a kernel's cycles are not named."""
_SHORT = 0.002
"""Stretches of a smaller share have no row."""
_LIMITS, _TURNS = 4, 3
"""That are named at most."""


def occupancy_in_words(one: Occupancy) -> str:
    """How much a kernel's unit is in use, what keeps it from more, and what the ends of turns cost.

    ``matrix units in use 95.3% of 558,923 cycles: full for 94.0%; waits for DMAs 1.9% (at kernel.py:64); 1.2% at 0%
    use, where the vector ALUs are full (kernel.py:105); ends of turns 0.7% (6 x 196 cycles at kernel.py:97)``.
    """
    cycles = max(1, one.cycles)
    own = Limit(unit=one.unit, empty=False)
    parts = [f"full for {each.cycles / cycles:.1%}" for each in one.limits if each.limit == own]
    others = sorted((each for each in one.limits if each.limit != own), key=lambda each: each.busy - each.cycles)
    parts += [_limited(one, each) for each in others[:_LIMITS] if each.cycles - each.busy >= _LEAST * cycles]
    return f"{UNITS[one.unit]} in use {one.busy / cycles:.1%} of {one.cycles:,} cycles{': ' if parts else ''}" + (
        "; ".join(parts)
    )


def _limited(one: Occupancy, part: Limited) -> str:
    share = f"{part.cycles / max(1, one.cycles):.1%}"
    if part.limit.unit == DMA:
        return f"waits for DMAs {share}{f' ({waited(part.place)})' if part.place else ''}"
    if part.limit.unit == TURN_END:
        return f"ends of turns {share}{f' ({turns_in_words(one)})' if one.turns else ''}"
    at = f" ({where(part.place)})" if part.place else ""
    return f"{share} at {part.busy / max(1, part.cycles):.0%} use, {limit_in_words(part.limit)}{at}"


def limit_in_words(limit: Limit) -> str:
    """``where the vector-store slot is full``."""
    if limit.unit == NOTHING:
        return "where no slot is full"
    name = UNITS.get(limit.unit, clean(limit.unit))
    if limit.unit == DMA:
        return "where DMAs are waited for"
    if limit.unit == TURN_END:
        return "at ends of turns"
    if limit.empty:
        return f"where bundles are empty for {name}"
    return f"where the {name} {'are' if name.endswith('s') else 'is'} full"


def turns_in_words(one: Occupancy) -> str:
    """``6 x 196 cycles at kernel.py:97, 5 x 588 at grid steps``."""
    costliest = sorted(one.turns, key=lambda turns: -turns.cycles)[:_TURNS]
    return ", ".join(f"{turns.turns:,} x {_each(turns):,} cycles at {loop_in_words(turns)}" for turns in costliest)


def loop_in_words(turns: Turns) -> str:
    """``kernel.py:97``, or ``grid steps``."""
    return "grid steps" if turns.place is Code.PIPELINE else where(turns.place)


def _each(turns: Turns) -> int:
    return round(turns.cycles / max(1, turns.turns))


LEGEND = (
    "a row for each stretch: % of the kernel's cycles, its bundles, how often they",
    "are executed; then in %: use of the unit, weights pushed, use of slots (spl:",
    "spill stores), empty bundles; limit: what is full, or in brackets what the",
    "empty bundles wait for (res: results of products, sts: stores to what is",
    "loaded, br: branches, ord: order), * at an end of a turn; the busiest lines",
)


def occupancy_section(title: str, timeline: Timeline, *, rows: int) -> Iterator[str]:
    """An empty line, ``title``, and ``occupancy_lines``; nothing without kernels."""
    if timeline.occupancy:
        yield from ("", title, *(f"  {line}" for line in LEGEND), *occupancy_lines(timeline, rows=rows))


def occupancy_lines(timeline: Timeline, *, rows: int) -> Iterator[str]:
    """Each kernel with a row for its stretches in the order of the program, the ``rows`` that cost most."""
    for one in timeline.occupancy:
        name = f"{clean(one.kernel)}: " if len(timeline.occupancy) > 1 else ""
        yield f"  {name}{occupancy_in_words(one)}"
        yield from _table(one, rows)


def _table(one: Occupancy, rows: int) -> Iterator[str]:
    cycles = max(1, one.cycles)
    long = [each for each in one.stretches if each.cycles >= _SHORT * cycles]
    best = max(long, key=lambda each: each.busy / each.cycles, default=None)
    shown = sorted(long, key=lambda each: (each is not best, each.busy - 1.1 * each.cycles))[:rows]
    names = "".join(f"{name:>4}" for name in ["w", *_CODES.values(), "emp"])
    yield f"  {'%':>4} {'bundles':>7} {'times':>5} {_code(one.unit):>{_BAR + 4}}{names} limit  lines"
    for stretch in one.stretches:
        if stretch in shown:
            yield f"  {stretch.cycles / cycles * 100:>4.1f} {_row(stretch)}".rstrip()
    rest = [stretch for stretch in one.stretches if stretch not in shown]
    if rest:
        yield f"  {sum(each.cycles for each in rest) / cycles * 100:>4.1f} in {len(rest)} more"


def _row(stretch: Stretch) -> str:
    bundles = max(1, stretch.bundles)
    counts = [stretch.weights, *(stretch.used.get(slot, 0) for slot in _CODES), stretch.empty]
    use = stretch.busy / max(1, stretch.cycles)
    bar = ("█" * round(use * _BAR)).ljust(_BAR)
    shares = "".join(f"{count / bundles * 100:>4.0f}" for count in counts)
    about = f"{stretch.end - stretch.begin:>7} {stretch.executions:>5} {bar}{use * 100:>4.0f}{shares}"
    return f"{about} {limit_code(stretch):6} {lines_in_words(stretch)}"


def limit_code(stretch: Stretch) -> str:
    """``st`` where that slot is full, ``(xlu)`` where empty bundles wait for it; ``st*`` at an end of a turn."""
    code = _code(stretch.limit.unit) or "-"
    return f"{f'({code})' if stretch.limit.empty else code}{'*' if stretch.turn_end else ''}"


def _code(unit: str) -> str:
    return {**_CODES, **_WAITED}.get(unit, clean(unit.lower()))


def lines_in_words(stretch: Stretch) -> str:
    """Numbers of the lines that issue most: ``84,86``."""
    numbers = [str(place.line) for place in stretch.lines if isinstance(place, SourceLine)]
    return ",".join(numbers) or "no line"
