"""What paired launches say: faster, not faster, or cannot tell. Pure; ``docs/statistics.md`` has the mathematics.

A launch is a fresh process that times candidate and incumbent round by round. Its difference is one number: the log of
the incumbent's time over the candidate's, each the mean of its fastest tenth of calls, so +0.01 is 1 % faster. Two
equal programs whose places are drawn by lot in every launch have differences that are symmetric about zero, whatever
the noise looks like, and a bet on their signs is a fair game: the wealth that a candidate wins in it ever reaches
1/level with a probability of at most ``level``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ratchet.values import Paired

BUDGET = 0.05
"""At most this is the probability that a ledger, however long, ever keeps a kernel that is not faster."""

SCALES = (16.0, 64.0, 256.0, 1024.0, 4096.0)
"""Bets per unit of log speed-up, an equal share of the wealth on each: good for spreads from 0.1 % to 10 %."""

STAKE = 0.9
"""At most this share of the wealth is put on one launch, so that one that went wrong by chance loses no game."""

INTERVAL_LEVEL = 0.05
"""One minus the confidence of the interval that is shown, which holds at any time, for one comparison."""

WORTH = 0.005
"""Log speed-ups below this are not worth more launches: an interval that ends below it means "not faster"."""

FASTEST = 0.1
"""The share of a launch's calls that counts (``python -m benchmarks.decisions`` prints what other choices give)."""

FASTER, NOT_FASTER, CANNOT_TELL = "faster", "not faster", "cannot tell"


def level(test: int) -> float:
    """The part of ``BUDGET`` that the comparison number ``test`` (1, 2, …) of a ledger may spend: they sum to it."""
    if test < 1:
        raise ValueError(f"comparisons are counted from 1, got {test}")
    return BUDGET / (test * (test + 1))


def difference(candidate: Sequence[float], incumbent: Sequence[float]) -> float:
    """A launch's log speed-up. Both in the same unit, from the same rounds."""
    if not candidate or len(candidate) != len(incumbent):
        raise ValueError(f"{len(candidate)} times against {len(incumbent)}: wanted as many, and at least one")
    return math.log(fastest(incumbent) / fastest(candidate))


def fastest(times: Sequence[float]) -> float:
    """The mean of the fastest tenth, at least three: what other work on the machine does to a call only adds time."""
    count = min(len(times), max(3, round(len(times) * FASTEST)))
    return statistics.fmean(sorted(times)[:count])


def log_wealth(differences: Sequence[float], than: float = 0.0) -> float:
    """Natural logarithm of what betting on "above ``than``" has made of 1."""
    logs = [sum(_log_gain(scale * (d - than)) for d in differences) for scale in SCALES]
    most = max(logs)
    return most + math.log(sum(math.exp(one - most) for one in logs) / len(logs))


def _log_gain(x: float) -> float:
    return math.log1p(STAKE * math.tanh(x))


def bound(differences: Sequence[float], level: float) -> float:
    """A lower bound of the log speed-up that is wrong, at any time, with a probability of at most ``level``."""
    wanted = math.log(1 / level)
    if len(differences) * math.log1p(STAKE) <= wanted:
        return -math.inf
    low, high = min(differences) - 1.0, max(differences)
    while log_wealth(differences, low) < wanted:
        low -= 2 * (high - low)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if log_wealth(differences, middle) >= wanted else (low, middle)
    return low


def interval(differences: Sequence[float], level: float = INTERVAL_LEVEL) -> tuple[float, float]:
    """Two-sided: holds the log speed-up at every time at once with a probability of at least ``1 - level``."""
    return bound(differences, level / 2), -bound([-d for d in differences], level / 2)


def centre(differences: Sequence[float]) -> float:
    """The estimate of the log speed-up: the median of all averages of two launches (Hodges and Lehmann)."""
    pairs = [(a + b) / 2 for i, a in enumerate(differences) for b in differences[i:]]
    return statistics.median(pairs)


def answer(differences: Sequence[float], level: float) -> str:
    """``faster``, ``not faster`` or ``cannot tell`` after these launches."""
    if not differences:
        return CANNOT_TELL
    if log_wealth(differences) >= math.log(1 / level):
        return FASTER
    slower = [WORTH - d for d in differences]
    if log_wealth(slower) >= math.log(1 / INTERVAL_LEVEL):
        return NOT_FASTER
    return CANNOT_TELL


def launches_to_tell(differences: Sequence[float], level: float) -> int | None:
    """How many launches more would decide, if they are like these; None where these point nowhere."""
    if len(differences) < 2:
        return None
    needs = []
    for sign, than, wanted in ((1, 0.0, level), (-1, -WORTH, INTERVAL_LEVEL)):
        turned = [sign * d - than for d in differences]
        gain = max(statistics.fmean(_log_gain(scale * d) for d in turned) for scale in SCALES)
        if gain > 0:
            needs.append((math.log(1 / wanted) + math.log(len(SCALES))) / gain)
    return max(1, math.ceil(min(needs)) - len(differences)) if needs else None


def conclude(differences: Sequence[float], *, test: int, samples: int, seconds: float) -> Paired:
    """What the launches of one comparison say, as the verdict carries it.

    Args:
      differences: One log speed-up per launch.
      test: How many comparisons the ledger has seen, this one included.
      samples: Timed calls of each program.
      seconds: What the launches took, from which follows how long a decision would take.
    """
    if not differences:
        raise ValueError("no launch: wanted at least one")
    allowed = level(test)
    said = answer(differences, allowed)
    low, high = interval(differences)
    more = launches_to_tell(differences, allowed) if said == CANNOT_TELL else None
    return Paired(
        answer=said,
        speedup=math.exp(centre(differences)),
        low=math.exp(low) if math.isfinite(low) else 0.0,
        high=math.exp(high) if math.isfinite(high) else math.inf,
        launches=len(differences),
        samples=samples,
        test=test,
        level=allowed,
        log_evidence=log_wealth(differences),
        seconds=seconds,
        more_launches=more,
        more_seconds=None if more is None else more * seconds / len(differences),
    )
