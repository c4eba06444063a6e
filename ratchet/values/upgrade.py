"""What one target does under one JAX and its compiler, and what changed from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.values.change import WORSE, Change, ChangeKind, Costs


@dataclass(frozen=True, kw_only=True)
class Output:
    """One output, executed on the same inputs on both sides."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Side:
    """One target on one chip under one JAX."""

    target: str
    chip: str
    costs: Costs
    jax_version: str
    op_ms: Mapping[str, float] = field(default_factory=dict)
    """Modelled time by operation: kernels by name, the others by JAX's name of them or their opcode. Untrusted."""
    copy_bytes: Mapping[str, int] = field(default_factory=dict)
    """What XLA's own copies move, by cause."""
    outputs: tuple[Output, ...] | None = None
    """None where values were not executed."""
    no_values: str = ""
    """Why they were not."""
    findings: tuple[str, ...] = ()
    """Hazards and accesses out of bounds."""
    ended: str = ""
    """Why its process was ended before all was known; ``""`` where it was not."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One operation's time in ms, or one copy's bytes, before and after; 0 where there is none."""

    name: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class ValueChange:
    """How far the outputs of two sides are apart."""

    compared: bool
    reason: str = ""
    """Why they were not compared, or what is wrong."""
    identical: bool = False
    """Bit for bit."""
    apart_ulps: float = 0.0
    """Largest difference, in units in the last place of the output's largest element."""
    worse: bool = False
    """Another shape or dtype, a new finding, or further apart than rounding explains."""


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What changed of one target on one chip."""

    before: Side
    after: Side
    change: Change
    ops: tuple[Moved, ...]
    """Those whose time changed, by how much it did, largest first."""
    copies: tuple[Moved, ...]
    values: ValueChange

    @property
    def unsettled(self) -> bool:
        """Whether a process was ended before it was known that nothing got worse."""
        ended = bool(self.before.ended or self.after.ended)
        return not self.worse and (ended or self.change.kind is ChangeKind.UNSETTLED)

    @property
    def worse(self) -> bool:
        """Whether the upgrade is a regression of this target."""
        return self.change.kind in WORSE or self.values.worse
