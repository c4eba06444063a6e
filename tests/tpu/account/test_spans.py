"""Spans: in order, inside the run, and nothing dropped silently, however transfers overlap."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.account import spans as module
from ratchet.tpu.account.spans import make_spans
from ratchet.tpu.machine.dma import Ends
from ratchet.tpu.machine.record import OpRun
from ratchet.values import Span
from tests.tpu.machine.golden_dumps import COMPILERS, model, modelled, unpack

CYCLES = 10_000
SPACES = ("hbm", "vmem", "smem")


def record(transfers: list[tuple[Any, ...]], waits: list[tuple[Any, ...]], runs: list[OpRun], keep: int) -> Any:
    ends = []
    for items in (transfers, waits, runs):
        kept = Ends(keep)
        for item in items:
            kept.add(item)
        ends.append(kept)
    return SimpleNamespace(
        cycles=CYCLES,
        memory=SimpleNamespace(transfers=ends[0], waits=ends[1], remote_waits=Ends(0)),
        opcodes={},
        unit_of_op={},
        units={},
        steps=SimpleNamespace(kernels={}, op_runs=ends[2]),
        addresses=SimpleNamespace(flag_name=str),
        messages=(),
    )


times = st.lists(st.integers(0, CYCLES), max_size=40).map(sorted)
lengths = st.integers(0, 3 * CYCLES)


@given(times, times, times, st.data(), st.integers(1, 6))
def test_no_span_ends_before_it_begins_and_none_is_lost(
    issued: list[int], waited: list[int], run: list[int], data: st.DataObject, keep: int
) -> None:
    space = st.sampled_from(SPACES)
    transfers = [(t, t, t + data.draw(lengths), 32, data.draw(space), data.draw(space)) for t in issued]
    waits = [(t, min(CYCLES, t + data.draw(lengths)), 1) for t in waited]
    runs = [OpRun("op", max(0, t - data.draw(lengths)), t) for t in run]
    module_kept = module.KEPT_TRANSFERS, module.KEPT_OPS
    module.KEPT_TRANSFERS = module.KEPT_OPS = max(1, keep // 2)
    try:
        spans = make_spans(record(transfers, waits, runs, keep), {}, detail=False, mxu_per_core=4)
    finally:
        module.KEPT_TRANSFERS, module.KEPT_OPS = module_kept
    counted = Counter[str]()
    for span in spans:
        assert 0 <= span.start_cycles <= span.end_cycles <= CYCLES
        counted[span.lane.partition(" ")[2] and span.lane] += int(span.attributes.get("count", 1))
    copies = sum(n for lane, n in counted.items() if lane in ("DMA in", "DMA out", "DMA local"))
    assert (copies, counted["DMA wait"], counted["XLA Ops"]) == (len(transfers), len(waits), len(runs))


def lanes(spans: tuple[Span, ...]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.lane, []).append(span)
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_step_has_its_units(compiler: str) -> None:
    timeline = modelled(compiler, "flash")
    found = lanes(timeline.spans)
    assert len(found["Steps"]) == 34
    assert len(found["MXU"]) == 20  # the steps that compute
    assert {"DMA in", "DMA out", "DMA wait", "XLA Ops", "VALU", "XLU", "EUP", "VSTORE", "stalls"} <= set(found)
    busy = sum(s.attributes["busy_share"] * (s.end_cycles - s.start_cycles) for s in found["MXU"])
    assert busy == pytest.approx(timeline.mxu_busy_cycles, rel=1e-3)


def test_a_window_of_steps_is_kept_and_the_rest_summarised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_STEPS", 3)
    monkeypatch.setattr(module, "DETAIL_STEPS", 5)
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    for detail, single in ((False, 9), (True, 15)):
        timeline = model(folder, detail=detail)
        found = lanes(timeline.spans)
        kept = [span for span in found["Steps"] if "steps" not in span.attributes]
        rest = [span for span in found["Steps"] if "steps" in span.attributes]
        assert len(kept) == single
        assert sum(int(span.attributes["steps"]) for span in rest) == 34 - single
        assert sum(span.end_cycles - span.start_cycles for span in found["Steps"]) == pytest.approx(
            found["Steps"][-1].end_cycles - found["Steps"][0].start_cycles
        )
        busy = sum(s.attributes["busy_share"] * (s.end_cycles - s.start_cycles) for s in found["MXU"])
        assert busy == pytest.approx(timeline.mxu_busy_cycles, rel=0.01)
