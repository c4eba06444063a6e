"""Whether two modelled latencies of one kernel differ by more than the model can err. Pure.

The model has no noise, but an error. Where the bands of two latencies do not overlap, they differ. Where they do, the
kind of the difference decides. Most of the model's error is common to two versions of a kernel; what differs is how
the two parts of a latency are wrong: issued cycles, which are the compiler's own static schedule, and waiting for
DMAs, which is modelled from fitted constants. So a change counts

- from ``TRADE_APART`` on, if it *trades* one for the other;
- from ``WAITING_APART`` on, if it changes waiting more than issued cycles and trades nothing;
- however small it is, if it changes issued cycles above all and trades nothing: there the schedule decides.

Pairs of published sweeps timed on a device are ranked right nine times in ten from these distances on, and little
better than by a coin below. Of the third kind hardly any are as near as that, so no timing supports it:
``python -m benchmarks.calibrate`` prints all figures.

None of these pairs is of what was hardly timed at all, SparseCores and messages of a tpu7x, whose bands are ``BROAD``:
there less than ``BROAD_APART`` is no difference, about as much as the model errs on what was timed of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.values import Row, Score

TRADED = 0.1
"""From this share of what is won being lost on the other side, a change is a trade (see ``benchmarks.calibrate``)."""

TRADE_APART = 0.02
"""From this relative difference on a trade counts too. In a kernel bound by bandwidth every saved cycle is waited."""

WAITING_APART = 0.01
"""From this relative difference on a change of waiting alone counts."""


BROAD, BROAD_APART = 0.25, 0.12
"""A band that reaches so far above the latency; and from which relative difference on two such latencies differ:
``python -m benchmarks.sparse`` has the errors."""


@dataclass(frozen=True, kw_only=True)
class ModelledLatency:
    """One modelled latency, in ms."""

    latency: float
    wait: float
    low: float
    high: float

    @property
    def issued(self) -> float:
        return self.latency - self.wait

    @property
    def is_broad(self) -> bool:
        return self.high > (1 + BROAD) * self.latency


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Whether two modelled latencies count as the same, and why."""

    same: bool
    reason: str
    kind: str = ""
    """Of what counts as the same: what it is, and from which difference on that would count."""


def of_score(score: Score) -> ModelledLatency:
    """A score without a band counts as exact."""
    band = score.band
    return ModelledLatency(
        latency=score.latency_ms,
        wait=score.wait_ms,
        low=band.low_ms if band else score.latency_ms,
        high=band.high_ms if band else score.latency_ms,
    )


def of_row(row: Row) -> ModelledLatency:
    """Raises ValueError where the row has no latency."""
    latency = float(row.median_ms)
    return ModelledLatency(
        latency=latency,
        wait=float(row.wait_ms or 0),
        low=float(row.band_low_ms or latency),
        high=float(row.band_high_ms or latency),
    )


def trade(one: ModelledLatency, other: ModelledLatency) -> float:
    """What is lost on one side, issuing or waiting, as a share of what is won on the other: 0 to 1."""
    issued, wait = one.issued - other.issued, one.wait - other.wait
    if issued * wait >= 0:
        return 0.0
    return min(abs(issued), abs(wait)) / max(abs(issued), abs(wait))


def compare(one: ModelledLatency, other: ModelledLatency) -> Comparison:
    """Whether two different latencies of one kernel, modelled under equal conditions, count as the same."""
    if one.high < other.low or other.high < one.low:
        return Comparison(same=False, reason="their bands do not overlap")
    traded = trade(one, other) >= TRADED
    apart = max(one.latency, other.latency) / min(one.latency, other.latency) - 1
    issued, wait = one.issued - other.issued, one.wait - other.wait
    if one.is_broad or other.is_broad:
        kind = f"a difference under {BROAD_APART:.0%} of what was hardly timed"
        reason = f"a band reaches over {BROAD:.0%} above, and it is {'' if apart < BROAD_APART else 'not '}{kind}"
        return Comparison(same=apart < BROAD_APART, kind=kind if apart < BROAD_APART else "", reason=reason)
    if not traded and (abs(wait) <= abs(issued) or apart >= WAITING_APART):
        return Comparison(same=False, reason="nothing is traded for it, which the model ranks reliably")
    if traded and apart >= TRADE_APART:
        return Comparison(same=False, reason="issued cycles are traded for waiting, but they are far enough apart")
    kind = f"a trade under {TRADE_APART:.0%}" if traded else f"a change of waiting under {WAITING_APART:.0%}"
    return Comparison(
        same=True,
        kind=kind,
        reason=f"their bands overlap, and {issued:+.4f} ms of issued cycles against {wait:+.4f} ms of waiting is "
        f"{kind}, which the model does not rank reliably",
    )
