"""What one execution of a program gave."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ratchet.tpu.mosaic.findings import Finding
from ratchet.values.control import ControlFlow


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Values, findings and digests of one execution."""

    outputs: tuple[np.ndarray, ...]
    findings: tuple[Finding, ...]
    seconds: float
    control: ControlFlow = field(default_factory=ControlFlow)
    """How often the kernels executed what steers; of several devices, the most that one did."""
    replicas: tuple[tuple[np.ndarray, ...], ...] = ()
    """The outputs as other devices hold them, where the program says that they are the same and they are not."""
    witness: tuple[np.ndarray, ...] = ()
    """For each kernel of a variant with ``witness``, the digests of what it read."""
