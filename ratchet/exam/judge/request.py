"""What a verdict is asked for: the value that goes from the loop to the judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.candidate import tracer
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.exam.problem.problem import lock_path
from ratchet.process.sandbox.child import Limits
from ratchet.tpu.chips import V5E, Chip
from ratchet.values import Against, Bar, Conditions


@dataclass(frozen=True, kw_only=True)
class Request:
    """One kernel file to judge, and how."""

    kernel: Path
    """The file whose bytes are judged; they do not change meanwhile."""
    root: Path
    """Top folder of the repository."""
    kernel_rel: str
    """What the file is called in the repository, relative to ``root``. Its problem lock is beside it."""
    conditions: Conditions
    """``conditions.evaluator`` says whether the latency is modelled, measured, or both."""
    chip: Chip = V5E
    """The chip that the latency is modelled for."""
    evidence: Path | None = None
    """Where the compiler's texts and all that was observed go; nowhere if None."""
    capture: Path | None = None
    """Measured: where an XProf trace goes."""
    against: Against | None = None
    """Measured: the incumbent to time the kernel beside."""
    bar: Bar | None = None
    """Modelled: what a score has to reach. The values of a kernel that does not are not waited for."""
    model_only: bool = False
    """Leave out the values. What is not refused is ``UNCHECKED`` then."""
    budget_s: float = BUDGET_SECONDS
    """Measured: how long to time beside the incumbent at most, in seconds."""
    project: tracer.ProjectKernel | None = None
    """A problem of a project, and its kernel: the file is then shown and not executed."""
    lock_file: Path | None = None
    """Where the problem's lock is, if not beside the kernel."""
    new_problem: bool = False
    """Freeze this file's problem even where it has one."""
    limits: Limits = tracer.LIMITS
    """What the kernel file may use while it is imported and traced."""
    remember: bool = False
    """Modelled: use the verdict that the same program had before, under the same conditions, and remember this one."""
    deep: bool = False
    """Execute in a third grid order as well, and keep every step of a window."""

    @property
    def lock(self) -> Path:
        """The kernel's problem lock."""
        return self.lock_file or lock_path(self.root / self.kernel_rel)
