"""What the two processes of `ratchet upgrade-check` say to each other, and what changed between two sides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np

from ratchet.exam.candidate.target import Case, Target
from ratchet.values import ArraySpec
from ratchet.values.change import Change, Moved, Output, Side, Upgrade, ValueChange

REQUEST, FAILED = "request.json", "failed.json"
ROUNDING_ULPS = 16.0
"""Outputs of two versions may be so far apart, in units in the last place of the output's largest element: another
order of the same sums explains that, and little else."""
NOTICED_SHARE = 0.001
"""Of the run's time: changes of an operation below it are left out."""


def side_name(number: int) -> str:
    """The file in which a side says what is known of the target of that number."""
    return f"side-{number}.json"


def request_of(target: Target, case: Case, text: str) -> dict[str, Any]:
    """One case of a target; ``text`` is the target as the user wrote it."""
    title = f"{target} [{case.name}]" if case.name else str(target)
    return {"text": text, "title": title, "chip": case.chip, "case": asdict(case)}


def case_of(request: Mapping[str, Any]) -> Case:
    """The case of a request."""
    inputs = tuple(ArraySpec(shape=tuple(one["shape"]), dtype=one["dtype"]) for one in request["case"]["inputs"])
    return Case(**{**request["case"], "inputs": inputs})


def upgraded(before: Side, after: Side, *, allowed_share: float) -> Upgrade:
    """What changed of one target on one chip; ``allowed_share``: by how much its latency may grow."""
    change = Change(
        target=before.target,
        chip=before.chip,
        before=before.costs,
        after=after.costs,
        allowed_share=allowed_share,
        other_compilers=True,
    )
    least = NOTICED_SHARE * (before.costs.latency_ms or after.costs.latency_ms or 0.0)
    modelled = before.op_ms and after.op_ms
    return Upgrade(
        before=before,
        after=after,
        change=change,
        ops=_moved(before.op_ms, after.op_ms, least) if modelled else (),
        copies=_moved(before.copy_bytes, after.copy_bytes, 0.0),
        values=_values(before, after),
    )


def _moved(before: Mapping[str, float], after: Mapping[str, float], least: float) -> tuple[Moved, ...]:
    both = [
        Moved(name=name, before=before.get(name, 0), after=after.get(name, 0))
        for name in dict.fromkeys((*before, *after))
    ]
    changed = [one for one in both if abs(one.after - one.before) > least]
    return tuple(sorted(changed, key=lambda one: -abs(one.after - one.before)))


def _values(before: Side, after: Side) -> ValueChange:
    new = [finding for finding in after.findings if finding not in before.findings]
    if new:
        return ValueChange(compared=False, reason=f"new finding: {new[0]}", worse=True)
    if before.outputs is None or after.outputs is None:
        one_alone = (before.outputs is None) != (after.outputs is None)
        return ValueChange(compared=False, reason=after.no_values or before.no_values, limit=one_alone)
    kinds = [[(one.shape, one.dtype) for one in side] for side in (before.outputs, after.outputs)]
    if kinds[0] != kinds[1]:
        return ValueChange(compared=True, reason=f"outputs were {kinds[0]}, and are {kinds[1]}", worse=True)
    if before.outputs == after.outputs:
        return ValueChange(compared=True, identical=True)
    apart = max(_apart(one, other) for one, other in zip(before.outputs, after.outputs, strict=True))
    return ValueChange(compared=True, apart_ulps=apart, worse=not apart <= ROUNDING_ULPS)


def _apart(one: Output, other: Output) -> float:
    """Largest difference of two outputs, in units in the last place of the larger one's largest element."""
    values = [np.frombuffer(side.data, np.dtype(side.dtype)).astype(np.float64) for side in (one, other)]
    if not all(np.array_equal(np.isfinite(side), np.isfinite(values[0])) for side in values):
        return float("inf")
    finite = [side[np.isfinite(side)] for side in values]
    if not finite[0].size:
        return 0.0
    largest = max(float(np.abs(side).max()) for side in finite)
    difference = float(np.abs(finite[0] - finite[1]).max())
    return difference / (largest * _epsilon(one.dtype)) if difference else 0.0


def _epsilon(name: str) -> float:
    """The distance from 1 to the next number; integers and truth values have to be equal."""
    dtype = np.dtype(name)
    return float(ml_dtypes.finfo(dtype).eps) if dtype.kind in "fV" or "float" in name else 1e-30
