"""Timings of a program on a device, in milliseconds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What one fresh process timed. Times are those of single calls, in order, round by round."""

    candidate_ms: tuple[float, ...]
    incumbent_ms: tuple[float, ...] = ()
    """Of the calls beside them; empty where there is no incumbent."""
    candidate_device_ms: tuple[float, ...] = ()
    """Time on the device by its profile; empty where it gives none."""
    incumbent_device_ms: tuple[float, ...] = ()
    candidate_first: bool = True
    """Which of the two was compiled, warmed up and timed first: drawn by lot."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Timed launches of one program on one device, with the incumbent's program beside it if there is one."""

    evaluator: str
    device: str
    """What the device calls itself."""
    launches: tuple[Launch, ...]
    seconds: float

    @property
    def clock(self) -> str:
        """``device`` where every call has a time by the device's profile, else ``wall``."""
        return "device" if all(launch.candidate_device_ms for launch in self.launches) else "wall"

    @property
    def medians_ms(self) -> tuple[float, ...]:
        """Every launch's median."""
        device = self.clock == "device"
        return tuple(
            statistics.median(one.candidate_device_ms if device else one.candidate_ms) for one in self.launches
        )

    @property
    def latency_ms(self) -> float:
        """The median of the launches' medians."""
        return statistics.median(self.medians_ms)

    @property
    def calls(self) -> int:
        return sum(len(launch.candidate_ms) for launch in self.launches)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """What the launches that timed candidate and incumbent side by side say (``ratchet/exam/measure/stats.py``)."""

    answer: str
    """``faster``, ``not faster`` or ``cannot tell``."""
    speedup: float
    """The incumbent's time over the candidate's: 1.03 is 3 % faster."""
    low: float
    """95 % interval of the speed-up, valid whenever one looks; 0 to infinity while there are too few launches."""
    high: float
    launches: int
    samples: int
    """Timed calls of each of the two programs, all launches together."""
    test: int
    """Comparisons that the ledger has seen, this one included."""
    level: float
    """The part of the ledger's error budget that this comparison may spend."""
    log_evidence: float
    """Natural logarithm of the evidence for "faster"; ``log(1 / level)`` is enough."""
    seconds: float
    """What the launches took."""
    more_launches: int | None = None
    """``cannot tell``: how many more would decide it, if they are like these; None where these point nowhere."""
    more_seconds: float | None = None
