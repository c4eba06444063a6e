"""Why a compiled program takes as long as it does: what ``ratchet explain`` says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ratchet.values.artefact import ArraySpec, Mesh
from ratchet.values.place import SourceLine
from ratchet.values.program import Copy, Footprint, Saving, Vmem
from ratchet.values.status import Status
from ratchet.values.timeline import Timeline
from ratchet.values.verdict import Band


class Limit(Enum):
    """What an operation's time goes to, above all else."""

    MATRIX = "matrix units"
    VECTOR = "vector units"
    """ALUs, cross-lane and transcendental units, result queues, and loads and stores of vector registers."""
    SCALAR = "scalar unit"
    HBM = "HBM"
    """HBM is busy for more than half of the time, and nothing else for longer."""
    LATENCY = "copy latency"
    """Waiting for copies while HBM is idle for most of the time: few or small ones, each of which takes its latency."""
    DEPENDENCIES = "dependencies"
    """Empty bundles: results are not there yet."""
    COPIES = "copies by XLA"
    """Moving bytes without computing: transposes, relayouts and copies around the operations."""
    LINKS = "links"
    """Sending, and waiting for the other chips: XLA's collectives, and kernels that send."""
    LAUNCH = "launch"
    """The program around all operations, and what the runtime adds to it."""


class OpKind(Enum):
    """What an operation of the program is."""

    KERNEL = "kernel"
    """A Pallas kernel."""
    XLA = "xla"
    """What XLA compiled: a fusion, a product, a reduction."""
    COPY = "copy"
    """An operation that moves bytes and computes nothing."""
    COLLECTIVE = "collective"
    """What XLA sends between chips."""
    LAUNCH = "launch"


@dataclass(frozen=True, kw_only=True)
class OpShare:
    """One operation of the compiled program and what its time goes to."""

    name: str
    """Of the HLO instruction, with the author's name of a kernel in it. Untrusted."""
    opcode: str
    kind: OpKind
    origin: str
    """JAX's name of the operation, in its scopes; ``""`` where there is none. Untrusted."""
    source: SourceLine | None
    executions: int
    cycles: int
    """All executions together."""
    limit: Limit
    busy: Mapping[str, float]
    """Share of its cycles for which each unit is needed, by name as in :class:`ratchet.values.blame.LineCost`; ``HBM``
    of a kernel; ``stalls`` for empty bundles and ``waits`` for waiting."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a program costs on one chip and why: modelled latency by operation, VMEM, copies.

    ``status`` is ``PASS`` where everything is known. ``VMEM_OVERFLOW`` or ``SMEM_OVERFLOW``: it does not
    compile, and ``vmem`` or ``smem`` says why. Anything else is what the schedule machine refused to model: ``reason``
    names it, and there is no ``timeline``.
    """

    title: str
    chip: str
    compiler: str
    status: Status
    reason: str
    """Empty with ``PASS``."""
    ended: bool = False
    """Whether the reason is that a process was killed or ran out of time or memory."""
    timeline: Timeline | None = None
    band: Band | None = None
    """Where the measured latency is expected, 9 times in 10."""
    mesh: Mesh = Mesh()  # noqa: RUF009 - a frozen value
    """Of a program on a slice: its axes, and how each of ``inputs`` lies on them."""
    inputs: tuple[ArraySpec, ...] = ()
    """As the program takes them, whole; of a program on a slice."""
    parts: tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]] = ((), ())
    """What each chip of a slice holds of the inputs and of the outputs, dtypes as XLA has them."""
    ops: tuple[OpShare, ...] = ()
    """Costliest first; their cycles sum to those of ``timeline``."""
    limits: Mapping[Limit, int] | None = None
    """Cycles of the whole run by what limits them, largest first."""
    edge_cycles: int = 0
    """Part of the kernels' cycles: their first and last grid steps, with filling and draining the pipeline."""
    footprint: Footprint | None = None
    copies: tuple[Copy, ...] = ()
    vmem: tuple[Vmem, ...] = ()
    """Of every operation that has a report, kernels first."""
    smem: tuple[Vmem, ...] = ()
    """SMEM of kernels that have any of their own, by what they need."""
    kept_bytes: int = 0
    """VMEM in which XLA keeps whole arrays between operations."""
    savings: tuple[Saving, ...] = ()
    """What would free VMEM of the first of ``vmem``, largest first."""
    knobs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Integer constants of the target's own file by value: those that may decide a side of that length. Untrusted."""

    @property
    def fullest(self) -> Vmem | None:
        """VMEM of the kernel that needs the largest share of what it may use; None without a kernel."""
        kernels = [vmem for vmem in self.vmem if vmem.is_kernel]
        return max(kernels, key=lambda vmem: vmem.used_bytes / max(1, vmem.limit_bytes), default=None)

    @property
    def launch_share(self) -> float:
        """Share of the run that is the launch: code around all operations. 0 without a timeline."""
        if self.timeline is None:
            return 0.0
        spent = sum(op.cycles for op in self.ops if op.kind is OpKind.LAUNCH)
        return spent / max(1, self.timeline.cycles)
