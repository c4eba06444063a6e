"""What the judge's model says of edits, and what that makes of them: advice, tried, failed, or not reached. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ratchet.advise.advice import Advice
from ratchet.loop.decide import speaks_of_the_kernel
from ratchet.loop.same import program_of, why_same
from ratchet.values import SCORED, Score, Verdict
from ratchet.values.status import Status

LIMITS = frozenset({Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.COMPILER_CRASHED, Status.COMPILE_TIMEOUT})
"""Of time and memory: they may be the machine's doing, and say nothing of values."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the judge says of one version of a kernel file."""

    status: Status
    """``UNCHECKED`` where it was modelled, ``PASS`` where its values were checked, too; else why it cannot be kept."""
    reason: str
    score: Score | None
    """Also of a version whose values are wrong; None where it has no modelled latency."""
    program: str = ""
    """Equal for versions that compile to one program, as far as its modelled run says; ``""`` without a run."""

    @classmethod
    def of(cls, verdict: Verdict) -> Prediction:
        return cls(status=verdict.status, reason=verdict.reason, score=verdict.score, program=program_of(verdict))

    def with_values(self, verdict: Verdict) -> Prediction:
        """The same once its values were checked; as it was where a limit or the machine kept that from an answer."""
        if verdict.status in LIMITS or not speaks_of_the_kernel(verdict.status):
            return self
        return replace(self, status=verdict.status, reason=verdict.reason)


class Fate(Enum):
    """What becomes of a modelled edit."""

    FASTER = "faster"
    SAME = "counts as the same"
    TWIN = "the same program as another edit"
    SLOWER = "slower"
    WRONG = "wrong"
    FAILED = "failed"


def fate(one: Prediction, base: Prediction) -> tuple[Fate, str]:
    """What becomes of a version beside the file as it is; the second is why it counts as the same, or what failed."""
    if one.score is None or base.score is None:
        return Fate.FAILED, one.reason
    if one.status not in SCORED:
        return Fate.WRONG, one.reason
    if why := why_same(one.score, one.program, base.score, base.program):
        return Fate.SAME, why
    return (Fate.FASTER if one.score.latency_ms < base.score.latency_ms else Fate.SLOWER), ""


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """An edit with what was modelled of it."""

    advice: Advice
    prediction: Prediction
    fate: Fate
    why: str = ""
    """Why it counts as the same, or what failed."""
    twin: Advice | None = None
    """The edit that gives the same program."""

    @property
    def latency_ms(self) -> float:
        """Of one that has a latency."""
        assert self.prediction.score is not None
        return self.prediction.score.latency_ms


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Every edit of a file, by what is known of it."""

    base: Prediction | None
    """Of the file as it is; None where it was not modelled yet, and then nothing else counts."""
    advice: tuple[Modelled, ...] = ()
    """What counts as faster, fastest first."""
    tried: tuple[Modelled, ...] = ()
    """What does not, or has wrong values, fastest first."""
    failed: tuple[Modelled, ...] = ()
    """What has no latency."""
    unreached: tuple[Advice, ...] = ()
    """What was not modelled yet, worth most first."""


def outlook(
    edits: Iterable[Advice],
    known: Mapping[str, Prediction],
    base: Prediction | None,
    key: Callable[[bytes], str],
) -> Outlook:
    """Sort edits by what is known of them.

    Args:
      edits: worth most first.
      known: of versions of the file, by ``key`` of their bytes.
      base: of the file as it is.
    """
    found = [(one, known.get(key(one.rewrite.after))) for one in edits]
    if base is None:
        return Outlook(base=None, unreached=tuple(one for one, _ in found))
    seen: dict[str, Advice] = {}
    modelled = []
    for advice, prediction in found:
        if prediction is None:
            continue
        what, why = fate(prediction, base)
        one = Modelled(advice=advice, prediction=prediction, fate=what, why=why)
        if what in (Fate.FASTER, Fate.SLOWER):  # of two that differ in a constant alone, one may be wrong
            first = seen.setdefault(prediction.program or key(advice.rewrite.after), advice)
            one = one if first is advice else replace(one, fate=Fate.TWIN, twin=first)
        modelled.append(one)
    timed = sorted((one for one in modelled if one.prediction.score), key=lambda one: one.latency_ms)
    return Outlook(
        base=base,
        advice=tuple(one for one in timed if one.fate is Fate.FASTER),
        tried=tuple(one for one in timed if one.fate is not Fate.FASTER),
        failed=tuple(one for one in modelled if one.prediction.score is None),
        unreached=tuple(one for one, prediction in found if prediction is None),
    )
