"""The modelled run of a compiled program. Cycles are those of the TensorCore clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ratchet.values.blame import Blame
from ratchet.values.control import ControlFlow
from ratchet.values.occupancy import Occupancy
from ratchet.values.omission import Omission


class SpanKind(Enum):
    """What a span shows, with the attributes that say so."""

    NAMED = "named"
    """An HLO op."""
    RUN = "run"
    """The whole run."""
    STEP = "step"
    """A grid step of the kernel ``name``: ``step``, ``wait_cycles``."""
    STEPS = "steps"
    """Grid steps of the kernel ``name`` together: ``first_step``, ``last_step``, ``steps``, ``mean_cycles``,
    ``wait_cycles``."""
    BUSY = "busy"
    """A unit during an op or step: ``busy_share``; and ``steps`` where it is the mean of so many."""
    COPY = "copy"
    """A DMA: ``bytes``, ``source`` and ``target`` memory, ``service_start_cycles``."""
    WAIT = "wait"
    """A wait: ``for`` names the sync flag."""
    MESSAGE = "message"
    """What went over the links: ``bytes`` (0 for a signal), ``to_chip`` or ``from_chip``, ``path``, and when it was
    issued and arrived."""
    SUMMARY = "summary"
    """``count`` spans of this lane, not shown one by one; their ``bytes`` or ``cycles`` together, where known."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Something that lasts, on a lane of the modelled timeline."""

    lane: str
    """``Steps``, ``XLA Ops``, ``DMA in``, ``DMA out``, ``DMA wait``, or a unit such as ``MXU``."""
    kind: SpanKind = SpanKind.NAMED
    name: str = ""
    """Of the op or kernel; ``""`` where neither is one."""
    start_cycles: int
    end_cycles: int
    attributes: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OpCost:
    """One HLO instruction of the entry computation, or the code around all of them."""

    name: str
    """``""`` for the code around all instructions, the top level."""
    opcode: str
    executions: int
    cycles: int
    """All executions together."""


@dataclass(frozen=True, kw_only=True)
class LinkUse:
    """What went over one link between two chips, in one direction, during one run."""

    source_chip: int
    target_chip: int
    bytes: int
    messages: int
    """Copies and semaphore signals."""
    busy_cycles: int
    """Cycles in which the link carried bytes."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The modelled run of one compiled program on one chip.

    Of a program on a slice it is the run of the slowest chip, with all chips in ``chips`` and the links in ``links``.
    """

    chip: str
    compiler: str
    clock_hz: float
    cycles: int
    executed_bundles: int
    """Bundles issued, empty ones included; ``cycles - executed_bundles`` is time spent waiting."""
    empty_bundles: int
    """Executed bundles that hold no instruction: dependency latency."""
    dma_wait_cycles: int
    slot_issues: Mapping[str, int]
    """Executed instructions per issue slot: MXU XLU VALU VPOP EUP VLOAD VSTORE SALU, FILL and SPILL."""
    slot_capacity: Mapping[str, int]
    """Slots per bundle for each of them."""
    mxu_busy_cycles: int
    """Cycles in which the matrix units are occupied, averaged over the units."""
    hbm_read_bytes: int
    hbm_write_bytes: int
    grid_steps: int
    """Executions of the kernels' pipeline loop bodies."""
    ops: tuple[OpCost, ...]
    spans: tuple[Span, ...]
    not_modelled: tuple[Omission, ...]
    """What is left out or assumed for this very program."""
    blame: Blame
    """Where every cycle went, by source line, region and kind of grid step, and what costs most."""
    chip_index: int = 0
    """Which chip of the slice this is, by the compiler's logical id."""
    place: int = 0
    """Of this chip in the mesh, row-major."""
    ici_bytes: int = 0
    """Bytes that this chip sent to others, counted once however many links they crossed."""
    ici_wait_cycles: int = 0
    """Part of ``dma_wait_cycles``: waiting for what another chip sends, or for what is on its way to one."""
    ici_cycles: int = 0
    """In which anything was under way to or from this chip after the launch; less what was waited for then, it went on
    beside other work. 0 where not all messages are kept."""
    launch_cycles: int = 0
    """Cycles at the beginning in which chips of a slice wait for each other and compare what each was asked to run."""
    chips: tuple[Timeline, ...] = ()
    """Every chip of the slice, in order; empty for a program on one chip."""
    links: tuple[LinkUse, ...] = ()
    control: ControlFlow | None = None
    """Which way the kernels went; None where branches on computed values were taken one way."""
    occupancy: tuple[Occupancy, ...] = ()
    """Of each kernel that is executed, which units are in use along its program."""

    @property
    def latency_ms(self) -> float:
        return self.cycles / self.clock_hz * 1e3
