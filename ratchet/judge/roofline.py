"""The roofline of a problem on a chip, and the score. Pure."""

from __future__ import annotations

import math

from ratchet.candidate.problem import Problem
from ratchet.chips import Chip
from ratchet.status import Refusal, Status
from ratchet.values import Score, Timeline


def step(problem: Problem, timeline: Timeline, chip: Chip) -> tuple[Score, str]:
    """A step of a verdict: the score of a modelled latency, in words."""
    found = score(problem.flops, problem.compulsory_bytes, timeline.latency_ms, chip)
    floor = floor_ms(problem.flops, problem.compulsory_bytes, chip)
    return found, f"{found.util_pct:.2f} % of the roofline, {found.regime}; its floor is {floor:.4f} ms"


def floor_ms(flops: int, compulsory_bytes: int, chip: Chip) -> float:
    """The least time any program can take: useful FLOPs at peak or compulsory bytes at full bandwidth, in ms."""
    return max(flops / chip.peak_bf16_flops, compulsory_bytes / chip.hbm_bytes_per_s) * 1e3


def score(flops: int, compulsory_bytes: int, latency_ms: float, chip: Chip) -> Score:
    """Score of a latency: ``util_pct * 100 / latency_ms``, as published.

    ``util_pct`` is the share of the roofline reached: ``floor_ms / latency_ms`` in per cent.

    Raises:
      Refusal: ``INVALID`` if the latency is below the roofline or no positive number.
    """
    if not (math.isfinite(latency_ms) and latency_ms > 0):
        raise Refusal(Status.INVALID, f"the latency is {latency_ms} ms; wanted a positive number")
    seconds = latency_ms / 1e3
    compute = flops / chip.peak_bf16_flops / seconds
    bandwidth = compulsory_bytes / chip.hbm_bytes_per_s / seconds
    utilisation = max(compute, bandwidth) * 100
    if utilisation > 100:
        raise Refusal(
            Status.INVALID,
            f"{latency_ms:.4g} ms is {utilisation:.1f} % of what {chip.name} can do; the floor of this problem is "
            f"{floor_ms(flops, compulsory_bytes, chip):.4g} ms, so part of the work is missing",
        )
    return Score(
        score=utilisation * 100 / latency_ms,
        latency_ms=latency_ms,
        util_pct=utilisation,
        tflops=flops / seconds / 1e12,
        regime="compute-bound" if compute >= bandwidth else "memory-bound",
        bw_util_pct=bandwidth * 100,
    )
