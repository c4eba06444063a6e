"""What the values child can be asked for: a value for each kind of request.

``correctness.py`` says in which order, ``values_worker.py`` which function answers each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Operands of kernels that a program computes beside them."""

    program: Path
    operands: Mapping[str, tuple[int, ...]]
    """Their numbers by the site of their call."""


@dataclass(frozen=True, kw_only=True)
class MakeReference:
    """Compute what the outputs of one instance are compared with, unless it is cached."""

    kind: str
    whole: bool
    """Of all rows, where some are enough."""


@dataclass(frozen=True, kw_only=True)
class CheckProblem:
    """Say whether an answer that computes nothing would pass the problem."""


@dataclass(frozen=True, kw_only=True)
class CompareProblem:
    """Say whether a problem that another JAX exported is this one, by what both compute."""

    lock: Path
    """The other one's lock file."""


@dataclass(frozen=True, kw_only=True)
class CountFlops:
    """Count the FLOPs of the reference as written: ``flops``."""


@dataclass(frozen=True, kw_only=True)
class CheckProgram:
    """Execute the candidate's program on one instance, and compare its outputs."""

    program: Path
    kind: str
    whole: bool = False
    order: int = 0
    """Of the steps of parallel grid dimensions, where it is not that of the check."""
    then: tuple[str, ...] = ()
    """The kinds that are asked for next: the program may be executed on them meanwhile."""


@dataclass(frozen=True, kw_only=True)
class CheckOutputs:
    """Compare outputs on one instance that a device computed, one file of bytes each in ``folder``."""

    kind: str
    folder: Path
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class WriteInputs:
    """Write the arrays of one instance to the new ``folder``, one file of bytes each."""

    kind: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class WriteOperands:
    """Write what a program computes of operands from public inputs, per mesh index, to ``path``.

    The answer says whether the random instance, with its secret floats, gives the ``same``.
    """

    computed: Computed
    path: Path


@dataclass(frozen=True, kw_only=True)
class WriteDraws:
    """Write what steers, and what a program computes of operands, of inputs with these keys to ``path``."""

    keys: tuple[str, ...]
    """In hexadecimal digits."""
    computed: Computed | None
    path: Path


ValuesRequest = (
    MakeReference
    | CheckProblem
    | CompareProblem
    | CountFlops
    | CheckProgram
    | CheckOutputs
    | WriteInputs
    | WriteOperands
    | WriteDraws
)


@dataclass(frozen=True, kw_only=True)
class RequestFile:
    """What the values child reads: a request, and what it is about."""

    lock: Path
    """The problem's lock file."""
    secret: str
    """Of the clone, in hexadecimal digits."""
    cache: Path
    """Where references are kept."""
    request: ValuesRequest
