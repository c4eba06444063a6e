"""The roofline of a problem on a chip, and the score. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from ratchet.exam.problem.floor import Floor, Peak, floor_of, link_seconds, useful_flops
from ratchet.exam.problem.problem import Problem
from ratchet.tpu.account.band import band
from ratchet.tpu.chips import Chip
from ratchet.values import Samples, Score, Timeline
from ratchet.values.status import Refusal, Status


def measured(
    problem: Problem, samples: Samples, peak: Peak, modelled: Score | None, *, counted: float = 0
) -> tuple[Score, str]:
    """A step of a verdict: the score of a measured latency, in words, with the model's band where there is one.

    ``counted``: FLOPs of the reference as written, 0 if not known.
    """
    useful, note = useful_flops(problem.flops, counted)
    floor = replace(floor_of(problem, peak, useful), chips=1)
    result = score(floor, samples.latency_ms, peak)
    summary = f"{result.util_pct:.2f} % of the roofline, {result.regime}; its floor is {floor.ms:.4g} ms"
    if modelled is not None and modelled.band is not None:
        result, low, high = replace(result, band=modelled.band), modelled.band.low_ms, modelled.band.high_ms
        if not low <= samples.latency_ms <= high:
            summary += f"; measured outside the model's band of {low:.4g} to {high:.4g} ms"
    return result, "; ".join(filter(None, (summary, note)))


def step(problem: Problem, timeline: Timeline, chip: Chip, *, counted: float = 0) -> tuple[Score, str]:
    """A step of a verdict: the score of a modelled latency, in words. ``counted``: as of ``measured``."""
    useful, note = useful_flops(problem.flops, counted)
    floor, ici = floor_of(problem, chip, useful), ici_ms(timeline, chip)
    if floor.chips > 1:
        floor = replace(floor, links_s=link_seconds(problem, chip.ici(floor.chips)))
    result = score(floor, timeline.latency_ms, chip, ici_ms=ici)
    wait_ms = timeline.dma_wait_cycles / timeline.clock_hz * 1e3
    result = replace(result, wait_ms=wait_ms, band=band(timeline))
    summary = f"{result.util_pct:.2f} % of the roofline, {result.regime}; its floor is {floor.ms:.4f} ms"
    on = f" on {floor.chips} chips, that of its busiest link {ici:.4f} ms" if floor.chips > 1 else ""
    return result, "; ".join(filter(None, (summary + on, note)))


def ici_ms(timeline: Timeline, chip: Chip) -> float:
    """The least time for what this program sent over its busiest link, in ms; 0 where nothing was sent."""
    busiest = max((link.bytes for link in timeline.links), default=0)
    return busiest / chip.ici(1).link_bytes_per_s * 1e3 if busiest else 0.0


def score(floor: Floor, latency_ms: float, peak: Peak, *, ici_ms: float = 0.0) -> Score:
    """Score of a latency: ``util_pct * 100 / latency_ms``, as published.

    ``util_pct`` is the share of the roofline reached: ``floor.ms / latency_ms`` in per cent. What a program sends
    between its chips (``ici_ms``) is its own doing and earns nothing beyond what the problem has to; it only tells the
    regime.

    Raises:
      Refusal: ``INVALID`` if the latency is below the roofline or no positive number.
    """
    if not (math.isfinite(latency_ms) and latency_ms > 0):
        raise Refusal(Status.INVALID, f"the latency is {latency_ms} ms; wanted a positive number")
    seconds = latency_ms / 1e3
    compute = floor.compute_s / floor.chips / seconds
    bandwidth = floor.bandwidth_s / floor.chips / seconds
    utilisation = max(compute, bandwidth, floor.links_s / seconds) * 100
    if utilisation > 100:
        raise Refusal(
            Status.INVALID,
            f"{latency_ms:.4g} ms is {utilisation:.1f} % of what {_many(peak, floor.chips)} can do; the floor of this "
            f"problem is {floor.ms:.4g} ms, so part of the work is missing",
        )
    return Score(
        score=utilisation * 100 / latency_ms,
        latency_ms=latency_ms,
        util_pct=utilisation,
        tflops=floor.flops / seconds / 1e12,
        regime=_regime(compute, bandwidth, ici_ms / latency_ms),
        bw_util_pct=bandwidth * 100,
        ici_util_pct=ici_ms / latency_ms * 100,
    )


def _regime(compute: float, bandwidth: float, ici: float) -> str:
    if ici > max(compute, bandwidth):
        return "ici-bound"
    return "compute-bound" if compute >= bandwidth else "memory-bound"


def _many(peak: Peak, chips: int) -> str:
    return f"{chips} {peak.name}" if chips > 1 else peak.name
