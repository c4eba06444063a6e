"""How close a kernel's outputs are to the reference."""

from __future__ import annotations

from dataclasses import dataclass


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
