"""Physical constants of the schedule machine: fitted once, kept as data, each with its source and spread.

The data is ``constants.json`` beside this file. ``python -m benchmarks.calibrate`` fits it anew from compiled programs
that are already on disk; the machine reads it at run time and nothing else depends on it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.values.status import Refusal, Status

FILE = Path(__file__).with_name("constants.json")


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
    source: str
    """What they were fitted on, or why they are believed."""
    checked: str
    """How far latencies of this chip were compared with measured ones, in words."""


@functools.cache
def stored() -> Mapping[str, Any]:
    """The whole of ``constants.json``: values with spread, and what was fitted beside them."""
    document: Mapping[str, Any] = json.loads(FILE.read_text())
    return document


def constants_of(entry: Mapping[str, Any]) -> Constants:
    """One chip's entry of ``constants.json`` as constants."""
    return Constants(**{name: field["value"] if isinstance(field, Mapping) else field for name, field in entry.items()})


def constants_named(name: str) -> Constants:
    """Of a chip by its name. Raises Refusal USAGE for a chip that nothing is known of."""
    chips = stored()["chips"]
    if name not in chips:
        raise Refusal(
            Status.USAGE,
            f"no schedule constants for {name}; known: {', '.join(chips)}. Choose one of those.",
        )
    return constants_of(chips[name])
