"""One row of the ledger, and the words of its ``decision`` column."""

from __future__ import annotations

from dataclasses import dataclass


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
