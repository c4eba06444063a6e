"""What the judge says of one kernel file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.values.program import Copy, Footprint
from ratchet.values.samples import Paired, Samples
from ratchet.values.status import Status
from ratchet.values.timeline import Timeline

SCHEMA_VERSION = 2
"""Version of the JSON document that ``--json`` prints (``ratchet/view/verdict.schema.json``)."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Where the measured latency of a modelled program is expected, 9 times in 10."""

    bound_by: str
    """``compute``, ``vector units``, ``dma latency`` or ``bandwidth``: errors differ by what bounds a program."""
    low_ms: float
    high_ms: float


@dataclass(frozen=True, kw_only=True)
class Score:
    """The numbers of a kernel that passed, or whose values were not checked because of them."""

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


MODELLED_STEPS = (
    "contract",
    "problem",
    "compile",
    "memory",
    "copies",
    "kernel",
    "correctness",
    "schedule",
    "control",
    "roofline",
    "audit",
)
"""The steps of every modelled verdict, in the order in which they count: ``prepare.py`` has them, and no others."""
MEASURED_STEPS = ("incumbent", "measure")
"""Those before the second ``roofline`` where a device is timed, too."""


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
    """``v5e-model`` and the like, a chip's name before it (modelled), or ``tpu``, ``gpu``, ``cpu`` (measured)."""
    chip: str
    compiler: str
    seal: str = field(compare=False)
    """Digest of the judge's files: which judge it was. It is not compared; its series is."""
    problem: str
    """Digest of the frozen problem."""
    series: str = ""
    """The seal that the series began with. A seal that is in no series is a series of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "series", self.series or self.seal)


PLATFORMS = {"tpu": "tpu", "gpu": "cuda", "cpu": "cpu"}
"""What each measuring evaluator's programs are exported for; the model's are a TPU's."""
MEASURED = tuple(PLATFORMS)
"""The evaluators that time a device."""
GPU_KERNELS = ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu", "mosaic_gpu_v2")
"""Custom calls that are Pallas kernels on a GPU."""


def is_tpu(evaluator: str) -> bool:
    """Whether what this evaluator judges is compiled for a TPU."""
    return PLATFORMS.get(evaluator, "tpu") == "tpu"


@dataclass(frozen=True, kw_only=True)
class Against:
    """The incumbent that a measured candidate is timed beside."""

    kernel: Path
    """Its file, as HEAD has it."""
    test: int
    """How many comparisons the ledger has seen, this one included: the error budget is shared by all of them."""


@dataclass(frozen=True, kw_only=True)
class ProblemCost:
    """One of several problems that a kernel is judged at, modelled."""

    name: str
    chip: str
    status: Status
    latency_ms: float | None = None
    util_pct: float | None = None
    before_ms: float | None = None
    """Latency of HEAD's file; None where the two were not compared."""
    allowed_share: float = 0.0
    """Share by which the latency may grow."""

    @property
    def ratio(self) -> float | None:
        """Latency over that of HEAD's file."""
        return self.latency_ms / self.before_ms if self.latency_ms and self.before_ms else None

    @property
    def slower(self) -> bool:
        """Whether it got slower by more than is allowed."""
        return self.ratio is not None and self.ratio > 1 + self.allowed_share


SCORED = (Status.PASS, Status.UNCHECKED)
"""A verdict with one of these has a score."""

Bar = Callable[["Score"], str]
"""Why a modelled score cannot be kept, in words; empty where it can."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """When a verdict was made that is remembered."""

    time: str
    """UTC, ``2026-01-31T12:00:00Z``."""
    experiment: str
    """The experiment's id; ``""`` where it was none, but a point of a sweep."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the judge says of one kernel file. It cannot carry a score unless it is a PASS, or UNCHECKED."""

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
    notes: tuple[str, ...] = ()
    """What a reader must know besides ``timeline.not_modelled``."""
    source_sha256: str
    seconds: float
    remembered: Earlier | None = None
    """Where the same program had this verdict before, under the same conditions; None where it was judged now."""
    problems: tuple[ProblemCost, ...] = ()
    """Of a kernel that is judged at several: each that was begun. The score has geometric means then."""

    def __post_init__(self) -> None:
        if (self.score is not None) != (self.status in SCORED):
            raise ValueError(f"a {self.status.name} verdict and score={self.score} do not go together")
