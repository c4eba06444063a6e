"""What earlier experiments say about a loss: one that was removed without a gain is refuted as a suggestion.

An experiment removed a loss where its own kernel has at most half of the cycles that the incumbent had in it, and its
other losses together changed by at most half of what went: else it says nothing of that one. Where it was no faster all
the same, the time was in something else. A later experiment that removes it and is kept withdraws
that again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ratchet.loop.decide import conditions_of, scored
from ratchet.values import Decision, Row
from ratchet.values.loss import FormBound, Key, Loss, MatrixBound, NothingLeft, Refuted, key_of
from ratchet.values.status import Status

REMOVED = 0.5
"""A loss with at most this share of its cycles left was removed; and of what went, how much else may have changed."""


def refuted(
    rows: Iterable[Row], *, kernel: str, like: Row, losses: Callable[[str], tuple[Loss, ...]]
) -> Mapping[Key, Refuted]:
    """The losses that experiments on ``kernel`` under the conditions of the row ``like`` removed without a gain.

    Args:
        rows: of the ledger, oldest first.
        kernel: the path of the kernel file in the ledger.
        like: the row whose losses are judged; rows from it on are not looked at.
        losses: of an experiment, by its id; none where its evidence is not there any more.
    """
    found: dict[Key, Refuted] = {}
    incumbent: Mapping[Key, Loss] = {}
    for row in rows:
        if row.id == like.id:
            break
        too_slow = row.status in (Status.NOT_BETTER.name, Status.UNCHECKED.name)
        if row.kernel != kernel or conditions_of(row) != conditions_of(like) or not (too_slow or scored(row)):
            continue
        known = losses(row.id)
        here = {key_of(loss): loss for loss in known if not isinstance(loss, MatrixBound | FormBound | NothingLeft)}
        kept = row.decision in (Decision.KEPT, Decision.BASELINE)
        if known:
            for key, loss in incumbent.items():
                after = here[key].cycles if key in here else 0
                removed = loss.cycles - after
                if after > REMOVED * loss.cycles or _changed(incumbent, here, but=key) > REMOVED * removed:
                    continue
                if kept:
                    found.pop(key, None)
                elif too_slow:
                    found[key] = Refuted(id=row.id, before_cycles=loss.cycles, after_cycles=after)
        if kept:
            incumbent = here
    return found


def _changed(before: Mapping[Key, Loss], after: Mapping[Key, Loss], *, but: Key) -> int:
    """Cycles by which the other losses changed, up or down."""
    keys = {*before, *after} - {but}
    cycles = [[side[key].cycles if key in side else 0 for side in (before, after)] for key in keys]
    return sum(abs(new - old) for old, new in cycles)
