"""Which way a program went: how often each branch, loop and copy of its kernels was executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ControlFlow:
    """Executions per source place (``file:line`` as the compiled program has it), summed over all runs of a kernel."""

    branches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How often the body of a conditional was executed, and how often it was passed by or its other body executed."""
    loops: Mapping[str, int] = field(default_factory=dict)
    """Turns of a loop."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """DMAs started."""
