"""The frozen values on the arrows between the rooms. Imports nothing of ours but the foundation.

Units are in the field names. Bytes are bytes, not KiB; cycles are cycles of the TensorCore clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.costs import Blame
from ratchet.status import Status

SCHEMA_VERSION = 1
"""Version of the JSON document that ``--json`` prints (``ratchet/verdict.schema.json``)."""


# --- candidate room ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """Shape and dtype of one array, e.g. ``(16384, 128)`` and ``"bfloat16"``."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The chips that a program is sharded over, and how its inputs lie on them. Without axes: one chip."""

    axes: tuple[tuple[str, int], ...] = ()
    """Names and sizes, outermost first."""
    inputs: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Per input and dimension: the axes that the dimension is split over. What is missing at an end is whole."""

    @property
    def chips(self) -> int:
        return math.prod(size for _, size in self.axes)


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """All that leaves the candidate's process: bytes and a validated record. No Python of the candidate's."""

    kernel_name: str
    problem_description: str
    flops: int
    """The file's own ``compute_flops()``; only compared with the frozen problem."""
    tiling_meta: Mapping[str, object]
    """The author's claims, as plain JSON."""
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    mesh: Mesh = Mesh()
    """As ``get_tiling_meta()`` declares it; the frozen problem has to agree."""
    program: bytes
    """``jax.export`` artefact for one platform, source locations kept."""
    platform: str = "tpu"
    """``tpu``, ``cpu`` or ``cuda``."""
    reference_sha256: str
    """Digest of the file's reference, as a location-free exported program."""
    inputs_sha256: str
    """Digest of the file's input generator, likewise."""
    jail: str
    """``""`` if the file-system jail held, else what is missing, in words."""
    seconds: float


# --- judge room -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class VmemBuffer:
    """One line of the compiler's VMEM report."""

    name: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory of the compiled program, as the compiler says."""

    vmem_bytes: int
    """Largest scoped VMEM of any kernel: windows + scratch + spills."""
    vmem_limit_bytes: int
    vmem_buffers: tuple[VmemBuffer, ...]
    hbm_bytes: int
    hbm_limit_bytes: int
    spill_stores: int
    """Static count of vector spill stores in the kernels' bundles."""
    spill_loads: int


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One copy in the optimised HLO that moves bytes without computing."""

    instruction: str
    kind: str
    """``relayout``, ``prefetch`` or ``copy``."""
    injected: bool
    """True if the compiler put it there; False if the author's transpose, reshape or convert asked for it."""
    size_bytes: int
    """Padded bytes of the result, as laid out in HBM."""
    cause: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program and its dumps on disk."""

    chip: str
    compiler: str
    """E.g. ``libtpu 0.0.42.1 / jax 0.10.2``."""
    dump_dir: Path
    """Holds ``optimized.hlo``, ``lowered.hlo`` and ``schedule/`` with the compiler's text dumps."""
    footprint: Footprint
    copies: tuple[Copy, ...]
    kernels: tuple[str, ...]
    """Names of the live ``tpu_custom_call`` instructions."""
    chip_ids: tuple[int, ...] = (0,)
    """The device at each place of the mesh, in order."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How close the outputs are to the reference in higher precision."""

    checks: tuple[str, ...]
    """One line per check that was run, in order."""
    worst_error: float
    """Largest error over its allowance; 1.0 is the limit."""
    rms_error: float
    """Root mean square error relative to the reference's root mean square, plain random inputs."""
    floor_rms_error: float
    """The same for plain XLA in the problem's own dtypes."""
    module_version: int
    """Largest version of the program's ``stable_mosaic`` modules; 0 where it has none."""
    seconds: float
    """The price: loading, compiling and executing the program on the CPU, and comparing, all checks together."""


# --- schedule room ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Span:
    """Something that lasts, on a lane of the modelled timeline."""

    lane: str
    """``Steps``, ``XLA Ops``, ``DMA in``, ``DMA out``, ``DMA wait``, or a unit such as ``MXU``."""
    name: str
    start_cycles: int
    end_cycles: int
    attributes: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OpCost:
    """One HLO instruction of the entry computation."""

    name: str
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
    losses: tuple[str, ...]
    """What costs most, in words, largest first."""
    not_modelled: tuple[str, ...]
    """What is left out for this very program, in words."""
    chip_index: int = 0
    """Which chip of the slice this is, by the compiler's logical id."""
    ici_bytes: int = 0
    """Bytes that this chip sent to others, counted once however many links they crossed."""
    ici_wait_cycles: int = 0
    """Part of ``dma_wait_cycles``: waiting for what another chip sends, or for what is on its way to one."""
    launch_cycles: int = 0
    """Cycles at the beginning in which the chips of a slice meet and compare what each was asked to run."""
    chips: tuple[Timeline, ...] = ()
    """Every chip of the slice, in order; empty for a program on one chip."""
    links: tuple[LinkUse, ...] = ()
    blame: Blame | None = None
    """Where every cycle went, by source line, region and kind of grid step."""

    @property
    def latency_ms(self) -> float:
        return self.cycles / self.clock_hz * 1e3


# --- measure room -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What one fresh process timed. Times are those of single calls, in order, turn by turn."""

    candidate_ms: tuple[float, ...]
    incumbent_ms: tuple[float, ...] = ()
    """Of the calls beside them; empty where there is no incumbent."""
    candidate_device_ms: tuple[float, ...] = ()
    """Time on the device by its profile; empty where it gives none."""
    incumbent_device_ms: tuple[float, ...] = ()
    candidate_first: bool = True
    """Which of the two was compiled, warmed up and timed first: drawn by lot."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Timed launches of one program on one device, with the incumbent's program beside it if there is one."""

    evaluator: str
    device: str
    """What the device calls itself."""
    launches: tuple[Launch, ...]
    seconds: float

    @property
    def clock(self) -> str:
        """``device`` where every call has a time by the device's profile, else ``wall``."""
        return "device" if all(launch.candidate_device_ms for launch in self.launches) else "wall"

    @property
    def medians_ms(self) -> tuple[float, ...]:
        """Every launch's median."""
        device = self.clock == "device"
        return tuple(
            statistics.median(one.candidate_device_ms if device else one.candidate_ms) for one in self.launches
        )

    @property
    def latency_ms(self) -> float:
        """The median of the launches' medians."""
        return statistics.median(self.medians_ms)

    @property
    def calls(self) -> int:
        return sum(len(launch.candidate_ms) for launch in self.launches)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """What the launches that timed candidate and incumbent side by side say (``ratchet/measure/stats.py``)."""

    answer: str
    """``faster``, ``not faster`` or ``cannot tell``."""
    speedup: float
    """The incumbent's time over the candidate's: 1.03 is 3 % faster."""
    low: float
    """95 % interval of the speed-up, valid whenever one looks; 0 to infinity while there are too few launches."""
    high: float
    launches: int
    samples: int
    """Timed calls of each of the two programs, all launches together."""
    test: int
    """Comparisons that the ledger has seen, this one included."""
    level: float
    """The part of the ledger's error budget that this comparison may spend."""
    log_evidence: float
    """Natural logarithm of the evidence for "faster"; ``log(1 / level)`` is enough."""
    seconds: float
    """What the launches took."""
    more_launches: int | None = None
    """``cannot tell``: how many more would tell, if they are like these; None where these point nowhere."""
    more_seconds: float | None = None


# --- verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Band:
    """Where the measured latency of a modelled program is expected, 9 times in 10."""

    bound_by: str
    """``compute``, ``dma latency`` or ``bandwidth``: errors differ by what bounds a program."""
    low_ms: float
    high_ms: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """The numbers of a kernel that passed. Only a PASS verdict has one."""

    score: float
    """``util_pct * 100 / latency_ms``, as published."""
    latency_ms: float
    util_pct: float
    """Share of the roofline reached: the larger of compute and compulsory traffic over the latency."""
    tflops: float
    """Useful FLOPs per second, 1e12."""
    regime: str
    """``compute-bound`` or ``memory-bound``, by the problem's arithmetic intensity; ``ici-bound`` where the busiest
    link between chips needs more time than either."""
    bw_util_pct: float
    """Compulsory bytes over the latency, as a share of HBM bandwidth."""
    ici_util_pct: float = 0.0
    """Bytes that the program sent over its busiest link over the latency, as a share of that link's bandwidth."""
    wait_ms: float = 0.0
    """Part of the latency in which nothing is issued, because a DMA or another chip is waited for. Modelled only."""
    band: Band | None = None
    """How far the model may be off; beside a measured latency as well, where both are known."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a verdict, visible to the user."""

    name: str
    status: Status
    seconds: float
    summary: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of ``get_tiling_meta()`` beside what the compiler and the schedule say."""

    what: str
    claimed: str
    found: str
    agrees: bool


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What must be equal before two numbers may be compared."""

    evaluator: str
    """``v5e-model`` (modelled), or ``tpu``, ``gpu``, ``cpu`` (measured)."""
    chip: str
    compiler: str
    seal: str
    """Digest of the judge's files."""
    problem: str
    """Digest of the frozen problem."""


MEASURED = ("tpu", "gpu", "cpu")
"""The evaluators that time a device."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """The incumbent that a measured candidate is timed beside."""

    kernel: Path
    """Its file, as HEAD has it."""
    test: int
    """How many comparisons the ledger has seen, this one included: the error budget is shared by all of them."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the judge says of one kernel file. It cannot carry a score unless it is a PASS."""

    status: Status
    reason: str
    """One or two lines: what was got, what was wanted, what to do."""
    kernel: str
    """Path of the kernel file relative to the repository root."""
    kernel_name: str
    conditions: Conditions
    score: Score | None
    steps: tuple[Step, ...]
    footprint: Footprint | None = None
    copies: tuple[Copy, ...] = ()
    parity: Parity | None = None
    timeline: Timeline | None = None
    samples: Samples | None = None
    paired: Paired | None = None
    """Measured beside the incumbent: which of the two is faster."""
    claims: tuple[Claim, ...] = ()
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: audit findings and what the model leaves out."""
    source_sha256: str
    seconds: float

    def __post_init__(self) -> None:
        if (self.score is not None) != (self.status is Status.PASS):
            raise ValueError(f"a {self.status.name} verdict and score={self.score} do not go together")


# --- ledger -----------------------------------------------------------------------------------


class Decision:
    """Words of the ledger's ``decision`` column."""

    KEPT = "kept"
    REVERTED = "reverted"
    BASELINE = "baseline"
    """HEAD itself was judged: nothing to keep or revert."""
    JUDGED = "judged"
    """``prepare.py``: the working tree was judged and git left alone."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the ledger. All text, as it stands in the file; ``""`` where there is no number."""

    commit: str
    score: str
    status: str
    median_ms: str
    util_pct: str
    tflops: str
    regime: str
    bw_util_pct: str
    note: str
    id: str
    time: str
    kernel: str
    kernel_blob: str
    """Git's hash of the judged kernel file."""
    evaluator: str
    chip: str
    compiler: str
    seal: str
    problem: str
    parent: str
    decision: str
    reason: str
    vmem_bytes: str
    spills: str
    wait_ms: str
    """Modelled: waiting for DMAs and other chips, part of ``median_ms``."""
    band_low_ms: str
    """Modelled: the 90 % band of the latency."""
    band_high_ms: str
    modelled_ms: str
    """The modelled latency beside a measured one, where both are known."""
    speedup: str
    """Measured: the incumbent's time over this kernel's, from paired launches, with its interval."""
    speedup_low: str
    speedup_high: str
    launches: str
    """Measured: processes started for it, of either kernel."""
    samples: str
    """Measured: timed calls of this kernel in all of them."""
    seconds: str
    evidence: str
    """Digest of the evidence the judge wrote."""
    previous: str
    """SHA-256 of the row before, without its newline; of the header for the first."""
