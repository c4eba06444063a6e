"""Spaces whose latencies are known, and searches of them without a judge."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from ratchet.search.propose import STRATEGIES, Known, propose
from ratchet.search.space import Axis, Observation, Space
from ratchet.values import Literal, Point
from ratchet.values.status import Status

_OPTUNA = pytest.mark.skipif(find_spec("optuna") is None, reason="without the extra `search`")
HOWS = [pytest.param(how, marks=_OPTUNA) if how == "tpe" else how for how in STRATEGIES]
"""Every strategy."""
CLEVER = [how for how in HOWS if how != "grid"]
"""Those that do not try every point in turn."""
SIZES = (64, 128, 256, 512, 1024)
Landscape = Callable[[Point], Observation]


def space(*axes: tuple[str, tuple[Literal, ...]]) -> Space:
    return Space(axes=tuple(Axis.of(*axis) for axis in axes), constants={})


def timed(point: Point, latency_ms: float, vmem_bytes: int = 1) -> Observation:
    return Observation(point=point, status=Status.UNCHECKED, latency_ms=latency_ms, vmem_bytes=vmem_bytes)


def overflow(point: Point) -> Observation:
    return Observation(point=point, status=Status.VMEM_OVERFLOW, latency_ms=None)


def searched(
    how: str,
    of: Space,
    start: Point,
    landscape: Landscape,
    budget: int,
    *,
    batch: int = 4,
    done: tuple[Observation, ...] = (),
) -> tuple[Observation, ...]:
    """Every point that a search tries, in order."""
    observations = done
    while len(observations) < budget:
        points = propose(
            how, Known(space=of, start=start, observations=observations), min(batch, budget - len(observations))
        )
        if not points:
            break
        observations += tuple(map(landscape, points))
    return observations
