"""Blocks for a shape, from a table of the best that were tried.

``tuned.json`` is written by ``python -m benchmarks.tune``; each entry holds one sweep, best first, for one head of
self-attention in bfloat16, with what judged it. The rule for shapes that are not in it: of the entries of the same
kind, causal or not, those whose head dimension occupies as many lanes as asked for, or nearest to that, and of them the
one whose length is nearest in ratio. Then the blocks are made to fit (:mod:`pallas_flash.config`).
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


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Of both passes."""

    forward: ForwardBlocks
    backward: BackwardBlocks


@functools.cache
def table() -> dict[str, Any]:
    """The data: ``evaluator``, ``chip``, ``compiler`` and ``entries``; no entries before anything is tuned."""
    file = resources.files("pallas_flash").joinpath("tuned.json")
    return json.loads(file.read_text()) if file.is_file() else {"entries": []}


def nearest(direction: str, *, dim: int, seq: int, causal: bool) -> dict[str, Any] | None:
    """The entry that the rule picks, None without any; ``direction`` is "forward" or "backward"."""

    def distance(entry: dict[str, Any]) -> tuple[bool, float, float]:
        lanes = math.log2(round_up(entry["dim"], LANES) / round_up(dim, LANES))
        return entry["causal"] != causal, abs(lanes), abs(math.log2(entry["seq"] / seq))

    return min((one for one in table()["entries"] if one["direction"] == direction), key=distance, default=None)


def lookup(shape: Shape) -> Blocks:
    """The blocks to begin with for a shape. A window or a table is none of the rule's business."""
    known = {"seq": shape.q_len, "dim": shape.dim, "causal": shape.right == 0}
    forward, backward = (nearest(direction, **known) for direction in ("forward", "backward"))
    return Blocks(
        forward=ForwardBlocks(**forward["best"][0]["blocks"]) if forward else ForwardBlocks(),
        backward=BackwardBlocks(**backward["best"][0]["blocks"]) if backward else BackwardBlocks(),
    )
