"""What each empty bundle of a listing waits for. Pure.

An empty bundle is a cycle in which the next bundle cannot issue yet. What that one waits for is not written down, but
leaves a trace: the compiler issues it as soon as it can. So an operand that is used at the shortest distance from its
making that this listing ever shows for that pair of opcodes is what was waited for, and likewise an issue to a unit at
the shortest distance from the one before. Where nothing is at its shortest distance (or a pair occurs only once, which
proves nothing) the empty bundle is blamed on the bundle that issues next, waiting for ``?``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ratchet.tpu.account.distances import Executed, distances
from ratchet.tpu.account.lines import Places
from ratchet.tpu.chips.units import slots
from ratchet.tpu.dump.columns import Columns
from ratchet.tpu.dump.instruction import Instruction
from ratchet.values.place import Code, Place

UNKNOWN = "?"
"""Unit of a stall for which no instruction can be named."""
BRANCH = "branch"
"""Unit of a stall in the delay slots of a branch."""

_EVIDENCE = 3
"""How often a shortest distance must be seen before it says anything."""


class Stall(NamedTuple):
    """What empty bundles wait for: shares of them per place, and the unit."""

    start: int
    end: int
    blamed: tuple[tuple[Place, str], ...]
    """Who is blamed, in equal shares; more than one only where the next bundle is blamed."""


class _Run(NamedTuple):
    """Empty bundles one after the other."""

    start: int
    end: int
    ends_block: bool
    """Whether nothing of their block comes behind them."""


_Bound = tuple[int, int, int]
"""A distance that is the shortest of its kind, how often that was seen, and the earlier instruction."""


def unit_of(instruction: Instruction) -> str:
    """The unit that an instruction is booked under: its slot class, with spills and fills apart."""
    classes = slots(instruction.opcode, spill=instruction.form.spill, moves=instruction.moves) or ()
    for name in ("SPILL", "FILL", "EUP"):
        if name in classes:
            return name
    return classes[0] if classes else ""


def stalls(columns: Columns, blocks: Sequence[tuple[int, int]], places: Places, delay_slots: int) -> list[Stall]:
    """Every run of empty bundles and who is blamed for it.

    Args:
        columns: the listing.
        blocks: first and last address (exclusive) of the basic blocks: distances across branches mean nothing.
        places: of :func:`ratchet.tpu.account.lines.places`.
        delay_slots: bundles behind a branch that always execute.
    """
    runs, block_of = _empty(columns, blocks)
    waiting = _waiting(columns, blocks, block_of)
    branches = _branches(columns)
    blamed: list[Stall] = []
    for run in runs:
        follows = None if run.ends_block else run.end
        bound = [] if run.ends_block else [one for one in waiting.get(run.end, ()) if one[0] > run.end - run.start]
        branch = _branch(branches, run.start, follows, delay_slots)
        if branch is not None:
            blame: tuple[tuple[Place, str], ...] = ((places.of(branch), BRANCH),)
        elif follows is None:
            blame = ((Code.PIPELINE, UNKNOWN),)
        elif bound:
            # Several may bind at once. The longest is named: the compiler may put short ones off until they just fit.
            _, _, earlier = max(bound)
            blame = ((places.of(earlier), unit_of(columns.instruction(earlier)) or UNKNOWN),)
        else:
            blame = tuple((places.of(i), UNKNOWN) for i in columns.of_bundle(follows))
        blamed.append(Stall(run.start, run.end, blame))
    return blamed


def _empty(columns: Columns, blocks: Sequence[tuple[int, int]]) -> tuple[list[_Run], dict[int, int]]:
    """Runs of empty bundles, block by block, and the last block in which a bundle comes behind one, by its address."""
    issuing = np.flatnonzero(np.diff(columns.first))
    runs: list[_Run] = []
    block_of: dict[int, int] = {}
    for number, (first, last) in enumerate(blocks):
        low, high = np.searchsorted(issuing, (first, last))
        edges = np.concatenate(([first - 1], issuing[low:high], [last]))
        gaps = np.flatnonzero(np.diff(edges) > 1)
        for start, end in zip((edges[gaps] + 1).tolist(), edges[gaps + 1].tolist(), strict=True):
            runs.append(_Run(start, end, end == last))
            if end < last:
                block_of[end] = number
    return runs, block_of


def _waiting(columns: Columns, blocks: Sequence[tuple[int, int]], block_of: dict[int, int]) -> dict[int, list[_Bound]]:
    """What the bundles behind empty ones may have waited for, by address."""
    executed = Executed(columns, blocks)
    pair, cycles, earlier, later = distances(columns, executed)
    if not len(pair):
        return {}
    shortest = np.full(int(pair.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, pair, cycles)
    is_shortest = cycles == shortest[pair]
    seen = np.bincount(pair[is_shortest], minlength=len(shortest))
    behind = np.full(len(columns.first), -1)
    behind[list(block_of)] = list(block_of.values())
    rows = np.flatnonzero(
        is_shortest & (seen[pair] >= _EVIDENCE) & (behind[executed.address[later]] == executed.block[later])
    )
    waiting: dict[int, list[_Bound]] = {}
    found = (executed.address[later[rows]], cycles[rows], seen[pair[rows]], executed.instruction[earlier[rows]])
    for address, *bound in zip(*(column.tolist() for column in found), strict=True):
        waiting.setdefault(address, []).append((bound[0], bound[1], bound[2]))
    return waiting


def _branches(columns: Columns) -> dict[int, int]:
    """The first branch of each bundle that has one, by the bundle's address."""
    branches = np.flatnonzero(columns.of_opcodes(opcode == "sbr.rel" for opcode in columns.opcodes))[::-1]
    return dict(zip(columns.bundle[branches].tolist(), branches.tolist(), strict=True))


def _branch(branches: dict[int, int], start: int, next_bundle: int | None, delay_slots: int) -> int | None:
    """The branch in whose delay slots the empty bundles from ``start`` on are; None if they are in none."""
    for back in range(1, delay_slots + 1):
        if start - back in branches and (next_bundle is None or next_bundle <= start - back + delay_slots + 1):
            return branches[start - back]
    return None
