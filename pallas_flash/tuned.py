"""Blocks for a shape on a chip, from a table of the best that were tried there.

``tuned.json`` is written by ``python -m benchmarks.tune``; each entry holds one sweep, best first, for one head of
self-attention in bfloat16, with what judged it. The rule for shapes that are not in it: of the entries of the same
kind, causal or not, those whose head dimension occupies as many lanes as asked for, or nearest to that, and of them the
one whose length is nearest in ratio. A chip for which nothing was tried takes the blocks of the v5e. Then the blocks
are made to fit (:mod:`pallas_flash.config`).
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pallas_flash.config import LANES, Shape, round_up
from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks
from pallas_flash.target import HOME


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Of both passes."""

    forward: ForwardBlocks
    backward: BackwardBlocks


@functools.cache
def table() -> dict[str, Any]:
    """By chip: ``evaluator``, ``compiler`` and ``entries``; no chip before anything is tuned."""
    file = resources.files("pallas_flash").joinpath("tuned.json")
    return json.loads(file.read_text()) if file.is_file() else {}


def nearest(direction: str, *, chip: str, dim: int, seq: int, causal: bool) -> dict[str, Any] | None:
    """The entry that the rule picks, None without any; ``direction`` is "forward" or "backward"."""

    def distance(entry: dict[str, Any]) -> tuple[bool, float, float]:
        lanes = math.log2(round_up(entry["dim"], LANES) / round_up(dim, LANES))
        return entry["causal"] != causal, abs(lanes), abs(math.log2(entry["seq"] / seq))

    for name in (chip, HOME):
        own = [one for one in table().get(name, {}).get("entries", ()) if one["direction"] == direction]
        if own:
            return min(own, key=distance)
    return None


def lookup(shape: Shape) -> Blocks:
    """The blocks to begin with for a shape. A window or a table is none of the rule's business."""
    known = {"chip": shape.target.chip, "seq": shape.q_len, "dim": shape.dim, "causal": shape.right == 0}
    forward, backward = (nearest(direction, **known) for direction in ("forward", "backward"))
    return Blocks(
        forward=ForwardBlocks(**forward["best"][0]["blocks"]) if forward else ForwardBlocks(),
        backward=BackwardBlocks(**backward["best"][0]["blocks"]) if backward else BackwardBlocks(),
    )
