"""Blame: every cycle of a run goes to a place and a unit, by region and by kind of grid step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from ratchet.tpu.account.losses import losses
from ratchet.tpu.account.regions import add_up, place_of_listing, regions
from ratchet.tpu.account.shares import Shares
from ratchet.tpu.machine.record import Record
from ratchet.values import LinkUse
from ratchet.values.blame import Blame, StepKind
from ratchet.values.place import Place

KINDS = 6
"""Kinds of grid steps that are kept apart; the rest is put together."""


def blame(record: Record, shares: Mapping[str, Shares], links: Sequence[LinkUse]) -> Blame:
    """Where the cycles of a run went, and what costs most. ``links`` is what the slice's links carried, if any."""
    parts = regions(record, shares)
    kinds = step_kinds(record, shares)
    executions: Counter[Place] = Counter()
    for name, (runs, _) in record.op_cycles.items():
        unit = record.unit_of_op.get(name, name)
        place = place_of_listing(record, unit) if unit in record.units else None
        if place is not None:
            executions[place] += runs
    return Blame(
        lines=add_up(parts),
        regions=tuple(parts),
        steps=kinds,
        losses=losses(
            parts,
            kinds,
            cycles=record.cycles,
            executions=executions,
            hbm_cycles=math.ceil(record.memory.hbm_busy_cycles),
            link_wait_cycles=record.memory.remote_wait_cycles,
            link_busy_cycles=max((link.busy_cycles for link in links), default=0),
        ),
    )


def step_kinds(record: Record, shares: Mapping[str, Shares]) -> tuple[StepKind, ...]:
    """Grid steps by the blocks that they executed, costliest first."""
    kinds = []
    for name, kernel in record.steps.kernels.items():
        for path in kernel.paths:
            times = shares[name].times(path.counts)
            kinds.append(
                StepKind(
                    kernel=name,
                    steps=path.steps,
                    cycles=path.cycles,
                    least_cycles=path.least_cycles,
                    most_cycles=path.most_cycles,
                    stall_cycles=path.steps * int(times[shares[name].empty].sum()),
                    wait_cycles=path.wait_cycles,
                    mxu_cycles=path.steps * int((times @ shares[name].mxu).max()),
                )
            )
    kinds.sort(key=lambda kind: -kind.cycles)
    rest = kinds[KINDS:]
    return tuple(kinds) if len(rest) < 2 else (*kinds[:KINDS], _together(rest))


def _together(kinds: Sequence[StepKind]) -> StepKind:
    return StepKind(
        kernel="",
        steps=sum(kind.steps for kind in kinds),
        cycles=sum(kind.cycles for kind in kinds),
        least_cycles=min(kind.least_cycles for kind in kinds),
        most_cycles=max(kind.most_cycles for kind in kinds),
        stall_cycles=sum(kind.stall_cycles for kind in kinds),
        wait_cycles=sum(kind.wait_cycles for kind in kinds),
        mxu_cycles=sum(kind.mxu_cycles for kind in kinds),
    )
