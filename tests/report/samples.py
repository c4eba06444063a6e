"""Ledgers made by hand: rows as texts, and what a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from ratchet.exam.problem import problem as problems
from ratchet.report.story import Evidence, GridStep, Instance, Material, StepBar
from ratchet.values import Decision, Row, Vmem, VmemAllocation
from ratchet.values.program import VmemUse
from ratchet.values.row import Origin
from ratchet.values.status import Status
from tests.imports import HERE
from tests.view.timelines import occupancy, timeline

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "{{ 7*7 }}{% raw %} &amp; \"quotes' `ticks` \\u003c",
    "\x1b[31mred\x1b[0m \u202eright to left\u202c \x00 end",
    "https://example.invalid/pixel.png <!-- <script> ]]>",
    "W" * 300,
)
"""Texts that a page must show as they are, and no more."""
FROZEN = problems.read(HERE / "kernel.py.lock.json")
SOURCE = "import jax\n\n\ndef kernel(q_ref, o_ref):\n    o_ref[...] = q_ref[...]\n"


def row(number: int = 1, latency_ms: float | None = 1.0, **changes: str) -> Row:
    """A row of a modelled kernel; a failure where there is no latency."""
    passed = latency_ms is not None
    known: dict[str, str] = {field.name: "" for field in fields(Row)} | {
        "id": f"20260101-{number:06d}-abcd", "time": "2026-01-01T00:00:00Z", "kernel": "kernel.py",
        "kernel_blob": f"{number:040x}", "commit": f"{number:040x}", "note": f"experiment: idea {number}",
        "evaluator": "v5e-model", "chip": "v5e", "compiler": "libtpu 1", "seal": "5ea1", "problem": "9b0b",
        "status": Status.PASS.name if passed else Status.WRONG_VALUES.name, "reason": "as it is",
        "decision": Decision.KEPT if passed else Decision.REVERTED,
    }  # fmt: skip
    if latency_ms is not None:
        known |= {
            "median_ms": repr(latency_ms), "score": repr(1e4 / latency_ms), "util_pct": repr(50 / latency_ms),
            "tflops": repr(98.5 / latency_ms), "bw_util_pct": repr(5 / latency_ms), "regime": "compute-bound",
            "band_low_ms": repr(latency_ms / 1.02), "band_high_ms": repr(latency_ms * 1.02), "wait_ms": "0.01",
            "vmem_bytes": "1048576", "spills": "12",
        }  # fmt: skip
    return Row(**(known | changes))


def baseline(number: int = 1, latency_ms: float = 2.0, **changes: str) -> Row:
    return row(number, latency_ms, **{"decision": Decision.BASELINE, "note": "baseline", **changes})


def reverted(number: int, latency_ms: float, **changes: str) -> Row:
    return row(number, latency_ms, **{"decision": Decision.REVERTED, "status": Status.NOT_BETTER.name, **changes})


def measured(number: int, latency_ms: float, speedup: str = "", **changes: str) -> Row:
    timed = {"evaluator": "cpu", "chip": "cpu", "samples": "120", "launches": "4", "speedup": speedup,
             "modelled_ms": repr(latency_ms * 0.9)}  # fmt: skip
    return row(number, latency_ms, **{**timed, **changes})


def many(count: int) -> list[Row]:
    """A history that gets better by and by, with failures and reverts."""
    rows, latency = [baseline(1, 4.0)], 4.0
    for number in range(2, count + 1):
        if number % 7 == 0:
            rows.append(row(number, None))
        elif number % 3 == 0:
            latency *= 0.985
            rows.append(row(number, latency))
        else:
            rows.append(reverted(number, latency * 1.03))
    return rows


def material(rows: Sequence[Row], **changes: Any) -> Material:
    known: dict[str, Any] = {
        "repository": "workspace",
        "kernel": "kernel.py",
        "rows": tuple(rows),
        "head": "a" * 40,
        "head_blob": rows[-1].kernel_blob if rows else "",
        "sources": {one.kernel_blob: f"{SOURCE}# {place}\n" for place, one in enumerate(rows)},
        "problem": replace(FROZEN, kernel_name="copy", description="a copy"),
        "origins": {Origin.HERE: len(rows)},
        "made": "2026-01-01 00:00:00",
    }
    return Material(**(known | changes))


def evidence(name: str = "kernel.py") -> Evidence:
    """Of a modelled run with every kind of loss, one buffer of each kind and a step with copies and waits."""
    window = VmemAllocation(
        use=VmemUse.INPUT, number=0, dtype="bf16", shape=(256, 128), whole=(4096, 128), levels=2, size_bytes=131072
    )
    spills = VmemAllocation(use=VmemUse.SPILLS, size_bytes=4096)
    kernel = Vmem(
        op=name, is_kernel=True, allocations=(window, spills), used_bytes=135168, limit_bytes=16 << 20,
        chip_bytes=128 << 20,
    )  # fmt: skip
    bars = (
        StepBar(lane="MXU", start_us=1.0, end_us=5.0, share=0.8),
        StepBar(lane="stalls", start_us=1.0, end_us=5.0, share=0.1),
        StepBar(lane="DMA in", start_us=0.5, end_us=2.0, bytes=131072),
        StepBar(lane="DMA wait", start_us=1.0, end_us=1.5, detail=name),
    )
    return Evidence(
        id="20260101-000001-abcd",
        timeline=replace(timeline(), occupancy=(occupancy(name),)),
        vmem=(kernel,),
        step=GridStep(number=3, of_steps=8, start_us=1.0, end_us=5.0, bars=bars),
        instances=(Instance(name="random", status="PASS", worst=0.25),),
    )
