"""When a modelled version of a kernel file counts as the same as another: one rule for sweeps and for edits. Pure."""

from __future__ import annotations

import hashlib
import json

from ratchet.loop.compare import compare, of_score
from ratchet.values import Score, Verdict

SAME_PROGRAM = "the same program as the file as it is"


def program_of(verdict: Verdict) -> str:
    """A digest of what a run does and needs, whatever its author's lines are called; ``""`` without one."""
    run, needs = verdict.timeline, verdict.footprint
    if run is None or needs is None:
        return ""
    does = [run.cycles, run.executed_bundles, run.empty_bundles, run.dma_wait_cycles, run.mxu_busy_cycles]
    moves = [run.hbm_read_bytes, run.hbm_write_bytes, run.grid_steps, run.ici_bytes]
    takes = [needs.vmem_bytes, needs.hbm_bytes, needs.spill_stores, needs.spill_loads]
    text = json.dumps([does, moves, takes, sorted(run.slot_issues.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def why_same(one: Score, program: str, base: Score, base_program: str) -> str:
    """Why a version counts as the same as the file as it is; ``""`` where it does not. Programs by ``program_of``."""
    if program and program == base_program:
        return SAME_PROGRAM
    if one.latency_ms == base.latency_ms:
        return "the same latency to the last digit"
    return compare(of_score(one), of_score(base)).kind
