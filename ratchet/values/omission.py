"""What the model leaves out or assumes, as values. The sentences are made in ``view/``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Unmodelled(Enum):
    """Omissions without a number."""

    SURROUNDINGS = "surroundings"
    """Clock throttling under power limits, contention for VMEM ports, the launch from the host. In every program."""
    COMPUTED_ASSERTIONS = "computed assertions"
    """Assertions on values that vector code computes are taken to hold."""
    FLOAT_TABLES = "tables from floats"
    """Tables that steer a kernel follow from float inputs: those of the modelled run are public ones."""
    LAUNCH_CHECK = "launch check"
    """The launch barrier's comparison of what each chip was asked to run is taken to agree."""
    STREAMS = "streams of SparseCores"
    """Kernels of the SparseCores have the time of their streams, fitted on few gathers; HBM is not shared fairly."""
    EXCHANGES = "exchanges of SparseCores"
    """Collectives that XLA hands to the SparseCores have the time of their bytes, beginning at once on all chips."""


@dataclass(frozen=True, kw_only=True)
class LocalCopies:
    """DMAs between on-chip memories, whose speed nobody has measured."""

    kind: ClassVar = "local copies"
    bytes: int


@dataclass(frozen=True, kw_only=True)
class UndecidedBranches:
    """Branches on values that vector code computes: all of them taken, then none; the slower run is reported."""

    kind: ClassVar = "undecided branches"
    fast_cycles: int
    slow_cycles: int


@dataclass(frozen=True, kw_only=True)
class LinkModel:
    """The links between chips, whose two numbers rest on few published programs."""

    kind: ClassVar = "link model"
    link_bytes_per_s: float
    """Per link and direction."""
    hop_s: float
    source: str
    """What they rest on."""


@dataclass(frozen=True, kw_only=True)
class OpenSemaphore:
    """A semaphore between chips that does not end at 0."""

    kind: ClassVar = "open semaphore"
    name: str
    value: int


Omission = Unmodelled | LocalCopies | UndecidedBranches | LinkModel | OpenSemaphore
