"""Hand-made timelines and verdicts for the tests of this folder."""

import dataclasses
import json
from typing import Any

import jsonschema

from ratchet.values import (
    SCORED,
    Claim,
    Conditions,
    Copy,
    Footprint,
    OpCost,
    Parity,
    Row,
    Score,
    Span,
    Step,
    Timeline,
    Verdict,
    VmemBuffer,
)
from ratchet.values.blame import Blame, LineCost
from ratchet.values.loss import (
    CrowdedUnit,
    FormBound,
    IdleSteps,
    LinkWaits,
    MatrixBound,
    NothingLeft,
    Outside,
    Spills,
    Stalls,
    UnitStall,
    WaitCause,
    Waits,
)
from ratchet.values.occupancy import DMA, NOTHING, TURN_END, Limit, Limited, Occupancy, Stretch, Turns
from ratchet.values.omission import LocalCopies
from ratchet.values.place import Code, Op, SourceLine, Window, Windows
from ratchet.values.status import Status
from ratchet.view.document import dumps
from ratchet.view.verdict_json import SCHEMA_PATH, verdict_document

VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
FLOPS = 600_000_000


RELAYOUT = Copy(
    instruction="copy.1",
    kind="relayout",
    injected=True,
    size_bytes=2_097_152,
    cause="the compiler's, at operand 1 of _k.1",
    has="f32[4096,8]{0,1}",
    wants="f32[4096,8]{1,0}",
    parameter=1,
)


def blame(cycles: int, file: str = "kernel.py") -> Blame:
    """One line, and every kind of loss."""
    line = SourceLine(file=file, line=3)
    at_best = {"cycles": cycles // 4, "ceiling_cycles": cycles - cycles // 4}
    return Blame(
        lines=(
            LineCost(
                place=line,
                cycles=cycles,
                issue_cycles={"MXU": cycles},
                stall_cycles={},
                wait_cycles=0,
                delay_cycles=0,
                issues={},
                empty_slots=0,
                spill_stores=0,
                spill_loads=0,
            ),
        ),
        regions=(),
        steps=(),
        losses=(
            Waits(
                **at_best,
                wait_cycles=cycles // 5,
                place=Windows(windows=(Window(kind="input", number=1),)),
                hbm_busy_share=0.35,
                cause=WaitCause.LATENCY,
                first_cycles=cycles // 10,
            ),
            Stalls(
                **at_best, stall_cycles=cycles // 8, units=(UnitStall(unit="XLU", cycles=cycles // 16, place=line),)
            ),
            Spills(
                **at_best,
                stores=12,
                loads=15,
                store_slot_share=0.5,
                store_slot_share_without=0.25,
                next_unit="MXU",
                next_unit_share=0.4,
            ),
            IdleSteps(**at_best, steps=3, of_steps=8, wait_share=0.75),
            CrowdedUnit(
                **at_best, unit="VALU", full_share=0.3, busy_share=0.6, place=Code.VECTOR, without_spills=False
            ),
            Outside(**at_best, place=Op(name=file, opcode="fusion", alike=1), executions=2, waiting=False),
            Outside(**at_best, place=Op(name="copy.1", opcode="copy"), executions=1, waiting=False, copy=RELAYOUT),
            LinkWaits(**at_best, wait_cycles=10, busiest_link_share=0.9, cause=WaitCause.BANDWIDTH),
            MatrixBound(cycles=0, ceiling_cycles=cycles // 3),
            FormBound(cycles=cycles // 4, ceiling_cycles=cycles - cycles // 4, unit="VALU"),
            NothingLeft(cycles=cycles // 50, ceiling_cycles=cycles - cycles // 50, unit="HBM", saturated=True),
        ),
    )


_FULL, _STORES, _NONE = (Limit(unit=unit, empty=False) for unit in ("MXU", "VSTORE", NOTHING))


def _stretch(begin: int, cycles: int, use: float, limit: Limit, *, turn_end: bool = False, line: int = 84) -> Stretch:
    busy = round(10 * cycles * use)
    return Stretch(
        begin=begin,
        end=begin + cycles,
        executions=10,
        bundles=10 * cycles,
        empty=cycles,
        wait_cycles=0,
        busy=busy,
        products=busy // 4,
        weights=cycles,
        issues={"MXU": busy // 4, "VSTORE": 10 * cycles},
        used={"MXU": busy, "VSTORE": 10 * cycles},
        waits={"XLU": cycles},
        limit=limit,
        turn_end=turn_end,
        lines=tuple(SourceLine(file="kernel.py", line=one) for one in (line, line + 2)),
    )


def occupancy(file: str = "kernel.py") -> Occupancy:
    """Full for 80 %, the store slot in 10 %, ends of turns for 4 %, DMAs for 6 %."""
    waits = Limit(unit=DMA, empty=False)
    waiting = dataclasses.replace(_stretch(960, 0, 0, waits), wait_cycles=600, lines=(Code.PIPELINE,))
    return Occupancy(
        kernel=file,
        unit="MXU",
        cycles=10_000,
        stretches=(
            _stretch(0, 40, 0, _NONE, turn_end=True),
            _stretch(40, 500, 1, _FULL),
            _stretch(540, 100, 0.44, _STORES, line=210),
            _stretch(640, 300, 1, _FULL),
            waiting,
        ),
        limits=(
            Limited(limit=_FULL, cycles=8000, busy=8000, place=SourceLine(file=file, line=84)),
            Limited(limit=_STORES, cycles=1000, busy=440, place=SourceLine(file=file, line=210)),
            Limited(
                limit=waits,
                cycles=600,
                busy=0,
                place=Windows(windows=(Window(kind="input", number=1),)),
            ),
            Limited(limit=Limit(unit=TURN_END, empty=False), cycles=400, busy=0, place=SourceLine(file=file, line=84)),
        ),
        turns=(
            Turns(place=SourceLine(file=file, line=97), begin=0, end=1000, turns=10, cycles=300),
            Turns(place=Code.PIPELINE, begin=0, end=1100, turns=2, cycles=100),
        ),
    )


def timeline(steps: int = 8, step_cycles: int = 1000) -> Timeline:
    """A fusion, then a kernel whose DMAs overlap each other and the steps before them."""
    fusion = 2000
    spans = [
        Span(lane="XLA Modules", name="modelled run", start_cycles=0, end_cycles=fusion + steps * step_cycles + 500),
        Span(lane="XLA Ops", name="fusion.1", start_cycles=0, end_cycles=fusion),
    ]
    for step in range(steps):
        start = fusion + step * step_cycles
        end = start + step_cycles
        spans += [
            Span(lane="Steps", name=f"step {step}", start_cycles=start, end_cycles=end, attributes={"step": step}),
            Span(lane="DMA in", name="k", start_cycles=start, end_cycles=start + 700, attributes={"bytes": 65536}),
            Span(lane="DMA in", name="v", start_cycles=start + 10, end_cycles=end, attributes={"bytes": 65536}),
            Span(lane="DMA wait", name="wait for k", start_cycles=start + 500, end_cycles=start + 700),
            Span(lane="MXU", name="busy", start_cycles=start + 700, end_cycles=end, attributes={"busy_pct": 61.5}),
            Span(lane="spills", name="spills", start_cycles=start + 700, end_cycles=start + 710),
        ]
    last = fusion + steps * step_cycles
    spans += [
        Span(lane="DMA out", name="o", start_cycles=last, end_cycles=last + 500),
        Span(lane="XLA Ops", name="flash.2", start_cycles=fusion, end_cycles=last + 500),
    ]
    cycles = last + 500
    return Timeline(
        chip="v5e",
        compiler="libtpu 0.0.42.1 / jax 0.10.2",
        clock_hz=1.5e9,
        cycles=cycles,
        executed_bundles=cycles - 200 * steps,
        empty_bundles=100,
        dma_wait_cycles=200 * steps,
        slot_issues={"MXU": 300 * steps},
        slot_capacity={"MXU": 2},
        mxu_busy_cycles=300 * steps,
        hbm_read_bytes=131072 * steps,
        hbm_write_bytes=4096,
        grid_steps=steps,
        ops=(
            OpCost(name="fusion.1", opcode="fusion", executions=1, cycles=fusion),
            OpCost(name="flash.2", opcode="custom-call", executions=1, cycles=cycles - fusion),
        ),
        spans=tuple(spans),
        not_modelled=(LocalCopies(bytes=512),),
        blame=blame(cycles),
    )


def verdict(status: Status = Status.PASS, **changes: object) -> Verdict:
    """A complete verdict; a PASS one unless stated otherwise."""
    passed = status in SCORED
    values: dict[str, object] = {
        "status": status,
        "reason": status.meaning,
        "kernel": "kernel.py",
        "kernel_name": "causal_flash",
        "conditions": Conditions(
            evaluator="v5e-model",
            chip="v5e",
            compiler="libtpu 0.0.42.1 / jax 0.10.2",
            seal="5ea1" * 16,
            problem="90b1" * 16,
        ),
        "score": Score(
            score=1234.5, latency_ms=2.5, util_pct=30.25, tflops=59.5, regime="compute-bound", bw_util_pct=0.82
        )
        if passed
        else None,
        "steps": (
            Step(name="contract", status=Status.PASS, seconds=3.2, summary="seven symbols"),
            Step(name="compile", status=status, seconds=1.25, summary="1 kernel"),
        ),
        "footprint": Footprint(
            vmem_bytes=9 << 20,
            vmem_limit_bytes=16 << 20,
            vmem_buffers=(VmemBuffer(name="window of k", size_bytes=1 << 20),),
            hbm_bytes=16 << 20,
            hbm_limit_bytes=16_911_433_728,
            spill_stores=12,
            spill_loads=15,
        ),
        "copies": (
            Copy(
                instruction="copy.1",
                kind="relayout",
                injected=True,
                size_bytes=4 << 20,
                cause="q arrives row-major, the kernel wants it transposed",
            ),
        ),
        "parity": Parity(
            checks=("plain random inputs", "large values", "another key"),
            worst_error=0.41,
            rms_error=2.1e-3,
            floor_rms_error=2.0e-3,
            module_version=9,
            seconds=2.5,
        ),
        "timeline": timeline() if passed else None,
        "claims": (
            Claim(what="VMEM", claimed="4.0 MiB", found="9.0 MiB", agrees=False),
            Claim(what="grid", claimed="(128, 64)", found="(128, 64)", agrees=True),
        ),
        "notes": ("this host has no Landlock: the jail is weaker",),
        "source_sha256": "ab" * 32,
        "seconds": 9.5,
    }
    return Verdict(**(values | changes))  # type: ignore[arg-type]


def row(**values: str) -> Row:
    """A ledger row, empty except for the given columns."""
    return Row(**({field.name: "" for field in dataclasses.fields(Row)} | values))


def document_of(judged: Verdict | None, **turn: Any) -> dict[str, Any]:
    """The document of a turn, of a kept kernel unless stated otherwise: as it is read, and as the schema allows."""
    turn = {"outcome": Status.PASS, "decision": "kept", "reason": "better", **turn}
    document = json.loads(dumps(verdict_document(judged, **turn)))
    VALIDATOR.validate(document)
    return document
