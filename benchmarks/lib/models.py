"""Attention shapes of named models and prices per chip, from ``data/models.json`` and ``data/prices.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
PRICES: list[dict[str, Any]] = json.loads((DATA / "prices.json").read_text())["prices"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """What attention needs to know of a model."""

    name: str
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    context: int

    @property
    def long(self) -> bool:
        """The long-context case: another's shapes at a context of its own."""
        return "long context" in self.name

    @staticmethod
    def per_dollar(tokens_per_s: float | None, chips: int) -> dict[str, float | None]:
        """Millions of tokens that a dollar pays for, at each price."""
        return {
            f"Mtokens/$ {price['what']}": None
            if tokens_per_s is None
            else tokens_per_s * 3600 / (chips * price["dollars_per_chip_hour"]) / 1e6
            for price in PRICES
        }


MODELS = tuple(Model(**one) for one in json.loads((DATA / "models.json").read_text())["models"])
