"""What was fitted of each chip on published timings: constants, bands and errors, kept as data with their sources.

The data is ``fitted.json`` beside this file. ``python -m benchmarks.calibrate`` fits the constants of the v5e and the
bands anew, ``python -m benchmarks.chips`` the constants and errors of the others.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.values.status import Refusal, Status

FILE = Path(__file__).with_name("fitted.json")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What a compiled schedule does not say."""

    hbm_efficiency: float
    """Share of the nominal HBM bandwidth that copies in one direction reach."""
    read_issue_cycles: float
    """From the issue of a read until HBM can serve it. A copy that waits in the queue anyway hides it."""
    read_latency_cycles: float
    """From the last byte of a read until its sync flag moves."""
    write_issue_cycles: float
    """From the issue of a write until HBM can serve it."""
    turnaround_cycles: float
    """HBM changes between reading and writing."""
    turnaround_bytes: float
    """After so many bytes of a copy HBM turns around again: the other direction is served in between."""
    turnaround_width: float
    """``turnaround_bytes`` is for pieces of one row of channels; with each doubling of their width, HBM turns around
    sooner by this share."""
    read_spread: float
    """By how many standard deviations of a channel's load the last channel ends late, for a read."""
    write_spread: float
    """Likewise for a write."""
    write_rate: float
    """Share of ``hbm_efficiency`` at which the first bytes of a write are acknowledged."""
    write_rate_bytes: float
    """How many bytes of a write those are."""
    write_piece_cycles: float
    """For which a contiguous piece of a write occupies HBM beyond its bytes: this for a piece of no width, and linearly
    less up to ``ratchet.tpu.machine.hbm.NARROW_WRITE_BYTES``."""
    local_bytes_per_cycle: float
    """DMAs that do not touch HBM."""
    local_latency_cycles: float


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Errors of one chip's modelled latencies, signed ones modelled over measured minus one."""

    rows: int
    """Published timings of the chip that were compared."""
    mean: float
    """Mean of the errors' sizes."""
    largest: float
    bias: float
    compiler: str
    """What compiled the programs whose timings were compared."""
    held_out: bool
    """Whether each timing was predicted by constants that were fitted without its own sweep."""


@functools.cache
def stored() -> Mapping[str, Any]:
    """The whole of ``fitted.json``: by chip, and what was fitted beside that."""
    document: Mapping[str, Any] = json.loads(FILE.read_text())
    return document


def constants(chip: str) -> Constants:
    """Of a chip by its name. Raises Refusal USAGE for a chip that nothing is known of."""
    chips = stored()["chips"]
    if chip not in chips:
        raise Refusal(
            Status.USAGE, f"no schedule constants for {chip}; known: {', '.join(chips)}. Choose one of those."
        )
    fields = chips[chip]["constants"]
    return Constants(**{name: field["value"] for name, field in fields.items() if isinstance(field, Mapping)})


def checked(chip: str) -> Checked | None:
    """Of a chip by its name; None where no timing of it was ever compared."""
    known = stored()["chips"].get(chip, {})
    return Checked(compiler=known["compiler"], **known["errors"]["all"]) if "errors" in known else None
