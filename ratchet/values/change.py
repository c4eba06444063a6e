"""What a target costs before and after something changed: its source, or JAX and its compiler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ratchet.values.status import Status


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one version of a target costs on one chip, modelled."""

    status: Status
    """``PASS`` where everything is known; else what was refused, and only what is known is there. ``UNSETTLED`` where
    a process was killed or ran out of time or memory."""
    reason: str = ""
    compiler: str = ""
    latency_ms: float | None = None
    vmem_bytes: int = 0
    """Of the kernel that needs most."""
    vmem_limit_bytes: int = 0
    spills: int = 0
    """Stores and loads of vector registers, as instructions."""
    copies: int = 0
    """Those that the compiler inserted, prefetches left out."""
    copy_bytes: int = 0


class ChangeKind(Enum):
    """What became of a target."""

    SLOWER = "slower"
    BROKEN = "broken"
    """It compiled and could be modelled before."""
    UNSETTLED = "not settled"
    """A process was killed or ran out of time or memory, or the judge cannot model one side: it may be any other."""
    FASTER = "faster"
    FIXED = "fixed"
    NEW = "new"
    SAME = "same"
    """Its latency is within the allowed share."""
    UNKNOWN = "unknown"
    """It cannot be compiled or modelled, before as after."""


JUDGES_LIMITS = (Status.CANNOT_VERIFY, Status.NOT_MODELLED, Status.SCHEDULE_UNKNOWN)
"""What is refused for what the judge cannot execute or model, whatever the program is worth."""
KERNELS = (
    Status.IMPORT_FAILED,
    Status.CONTRACT,
    Status.LOWERING_FAILED,
    Status.UNALIGNED_BLOCK,
    Status.UNSUPPORTED_PRIMITIVE,
    Status.HOST_CALLBACK,
)
"""What JAX or Pallas says of a kernel's source, before any compiler sees it."""
WORSE = (ChangeKind.SLOWER, ChangeKind.BROKEN)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One target on one chip, before and after."""

    target: str
    chip: str
    before: Costs | None
    """None where there was no such target."""
    after: Costs
    allowed_share: float
    """Share by which the latency may grow."""
    other_compilers: bool = False
    """Whether two compilers are compared: what the judge cannot model of one alone is then its own limit."""

    @property
    def kind(self) -> ChangeKind:
        sides = [one.status for one in (self.before, self.after) if one is not None]
        if Status.UNSETTLED in sides or (self.other_compilers and sum(one in JUDGES_LIMITS for one in sides) == 1):
            return ChangeKind.UNSETTLED
        now = self.after.status is Status.PASS
        if self.before is None:
            return ChangeKind.NEW if now else ChangeKind.BROKEN
        if self.before.status is not Status.PASS:
            return ChangeKind.FIXED if now else ChangeKind.UNKNOWN
        if not now:
            return ChangeKind.BROKEN
        old, new = self.before.latency_ms, self.after.latency_ms
        if old is None or new is None:
            return ChangeKind.UNKNOWN
        if new > old * (1 + self.allowed_share):
            return ChangeKind.SLOWER
        return ChangeKind.FASTER if new * (1 + self.allowed_share) < old else ChangeKind.SAME


def outcome(kinds: Iterable[ChangeKind]) -> Status:
    """Of all changes together: a regression first, then what is not settled."""
    found = set(kinds)
    if found.intersection(WORSE):
        return Status.REGRESSED
    return Status.UNSETTLED if ChangeKind.UNSETTLED in found else Status.PASS


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
    limit: bool = False
    """The judge can execute one of the two alone."""


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
        return not self.worse and (ended or self.change.kind is ChangeKind.UNSETTLED or self.values.limit)

    @property
    def worse(self) -> bool:
        """Whether the upgrade is a regression of this target."""
        return self.change.kind in WORSE or self.values.worse

    @property
    def whose(self) -> str:
        """Whose the difference is: ``kernel``, ``judge``, ``jax`` for other values, ``compiler``; ``""`` for none."""
        sides = (self.before.costs.status, self.after.costs.status)
        if set(sides) & set(KERNELS):
            return "kernel"
        if self.values.worse and self.change.kind not in WORSE:
            return "jax"
        if self.change.kind in WORSE or (self.ops and self.change.kind is not ChangeKind.UNSETTLED):
            return "compiler"
        return "judge" if self.values.limit or set(sides) & {Status.UNSETTLED, *JUDGES_LIMITS} else ""
