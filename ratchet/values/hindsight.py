"""What earlier experiments say about a loss, as values."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.values.loss import CrowdedUnit, Loss, LossKind, Outside
from ratchet.values.place import Place

Key = tuple[LossKind, str, Place | None]
"""Losses with the same one are the same suggestion: the kind, the unit of a crowded one, the op outside of kernels."""


@dataclass(frozen=True, kw_only=True)
class Refuted:
    """The newest experiment that removed a loss and was no faster."""

    id: str
    before_cycles: int
    """What removing the loss would have saved at best, in the incumbent."""
    after_cycles: int
    """The same in the experiment."""


def key_of(loss: Loss) -> Key:
    """What makes two losses of different programs the same suggestion."""
    match loss:
        case CrowdedUnit():
            return loss.kind, loss.unit, None
        case Outside():
            return loss.kind, "", loss.place
    return loss.kind, "", None
