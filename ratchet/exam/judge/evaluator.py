"""The one interface of the two ways to know a kernel's latency: ``Modelled`` and ``Measured``."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ratchet.exam.problem.floor import Peak
from ratchet.exam.problem.problem import Problem
from ratchet.values import Artefact, Parity, Score

Built_contra = TypeVar("Built_contra", contravariant=True)
"""What is run: a compiled ``Program`` for the model, the ``Artefact`` itself for a device."""
Latency = TypeVar("Latency")
"""What came of it: a ``Timeline``, or a ``Timing``."""


class Evaluator(Protocol[Built_contra, Latency]):
    """A way to know what a kernel computes and how long it takes. Its methods are steps of a verdict.

    Evidence goes to the folder that it was made with. A step returns its value and a summary, and raises a
    ``Refusal`` where the kernel fails it.
    """

    @property
    def platform(self) -> str:
        """What a kernel is exported for: ``tpu``, ``cuda`` or ``cpu``."""

    @property
    def timed(self) -> str:
        """What times a kernel, to follow "correct and timed" in a verdict's reason."""

    @property
    def peak(self) -> Peak:
        """What bounds a latency from below: the floor of the roofline follows from it."""

    def values(self, problem: Problem, artefact: Artefact) -> tuple[Parity, str]:
        """Compare what the kernel computes with the references."""

    def latency(self, problem: Problem, built: Built_contra) -> tuple[Latency, str]:
        """How long it takes."""

    def score(self, problem: Problem, latency: Latency) -> tuple[Score, str]:
        """What that is worth."""

    def close(self) -> None:
        """Give back processes and devices."""
