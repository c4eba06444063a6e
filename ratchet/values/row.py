"""One row of the ledger: the words of its ``decision`` column, who made it, and how far its two latencies are apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Decision:
    """Words of the ledger's ``decision`` column."""

    KEPT = "kept"
    REVERTED = "reverted"
    BASELINE = "baseline"
    """HEAD itself was judged: nothing to keep or revert."""
    JUDGED = "judged"
    """``prepare.py``: the working tree was judged and git left alone."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the ledger. All text, as in the file; ``""`` where there is no number."""

    commit: str
    score: str
    status: str
    median_ms: str
    util_pct: str
    tflops: str
    regime: str
    bw_util_pct: str
    note: str
    id: str
    time: str
    kernel: str
    kernel_blob: str
    """Git's hash of the judged kernel file."""
    evaluator: str
    chip: str
    compiler: str
    seal: str
    problem: str
    parent: str
    decision: str
    reason: str
    vmem_bytes: str
    spills: str
    wait_ms: str
    """Modelled: waiting for DMAs and other chips, part of ``median_ms``."""
    band_low_ms: str
    """Modelled: the 90 % band of the latency."""
    band_high_ms: str
    modelled_ms: str
    """The modelled latency beside a measured one, where both are known."""
    speedup: str
    """Measured: the incumbent's time over this kernel's, from paired launches, with its interval."""
    speedup_low: str
    speedup_high: str
    launches: str
    """Measured: processes started for it, of either kernel."""
    samples: str
    """Measured: timed calls of this kernel in all of them."""
    seconds: str
    evidence: str
    """Digest of the evidence the judge wrote."""
    previous: str
    """SHA-256 of the row before, without its newline; of the header for the first."""

    @property
    def in_place(self) -> bool:
        """Whether its kernel is HEAD's from then on: it was kept, or HEAD itself was judged."""
        return self.decision in (Decision.KEPT, Decision.BASELINE)


class Origin(StrEnum):
    """What the MAC of one row says."""

    HERE = "here"
    """Made with this machine's key."""
    ELSEWHERE = "elsewhere"
    """Its MAC names another key, which only its owner can check."""
    UNSIGNED = "unsigned"
    """It has no MAC: older than these, or written where there was no key, or by hand."""
    FORGED = "forged"
    """Its MAC names this machine's key, which did not make it for this row."""


@dataclass(frozen=True, kw_only=True)
class Origins:
    """The origins of all rows of a ledger."""

    no_key: str
    """Why this machine has no key; ``""`` where it has one."""
    by_id: dict[str, Origin]
    """In the order of the rows; empty where there is no key."""

    def ids(self, origin: Origin) -> tuple[str, ...]:
        """The rows of one origin."""
        return tuple(name for name, one in self.by_id.items() if one is origin)

    @property
    def later_strangers(self) -> tuple[str, ...]:
        """Rows not from this machine's key that follow one that is: pulled from elsewhere, or forged."""
        names = list(self.by_id)
        first = next((place for place, name in enumerate(names) if self.by_id[name] is Origin.HERE), len(names))
        return tuple(name for name in names[first:] if self.by_id[name] is not Origin.HERE)


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """A row of the ledger that has both latencies."""

    id: str
    chip: str
    measured_ms: float
    modelled_ms: float
    outside_band: bool
    """Whether the measured latency is outside the model's 90 % band."""

    @property
    def ratio(self) -> float:
        """Measured over modelled."""
        return self.measured_ms / self.modelled_ms
