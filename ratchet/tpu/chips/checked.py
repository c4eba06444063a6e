"""How far the modelled latencies of each chip were compared with published timings.

The data is ``checked.json`` beside this file; ``python -m benchmarks.chips --write`` makes it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("checked.json")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Errors of one chip's modelled latencies, signed ones modelled over measured minus one."""

    rows: int
    """Published timings of the chip that were compared."""
    mean: float
    """Mean of the errors' sizes."""
    largest: float
    bias: float
    held_out: bool
    """Whether each timing was predicted by constants that were fitted without its own sweep."""


@functools.cache
def checked(chip: str) -> Checked | None:
    """Of a chip by its name; None where no timing of it was ever compared."""
    entry = json.loads(FILE.read_text())["chips"].get(chip)
    return Checked(**entry["all"]) if entry else None
