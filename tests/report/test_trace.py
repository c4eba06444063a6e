"""One grid step out of a trace."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ratchet.report.gather import grid_step
from ratchet.values import Span, SpanKind
from ratchet.view.xspace import write_xspace
from tests.view.timelines import timeline


def stepped(steps: int = 8) -> tuple[Span, ...]:
    spans = []
    for number in range(steps):
        start, end = 3000 * number, 3000 * (number + 1)
        attributes = {"step": number, "wait_cycles": 100}
        copied = {"bytes": 4096, "source": "hbm", "target": "vmem"}
        spans += [
            Span(lane="Steps", kind=SpanKind.STEP, name="k", start_cycles=start, end_cycles=end, attributes=attributes),
            Span(lane="MXU", kind=SpanKind.BUSY, start_cycles=start, end_cycles=end, attributes={"busy_share": 0.5}),
            Span(lane="DMA in", kind=SpanKind.COPY, start_cycles=start + 9, end_cycles=end + 9, attributes=copied),
            Span(lane="DMA in", kind=SpanKind.COPY, start_cycles=start + 8, end_cycles=end + 8, attributes=copied),
            Span(lane="DMA wait", kind=SpanKind.WAIT, start_cycles=start, end_cycles=start + 100,
                 attributes={"for": "a flag"}),
        ]  # fmt: skip
    return tuple(spans)


def test_it_is_the_step_in_the_middle_with_what_overlaps_it(tmp_path: Path) -> None:
    run = dataclasses.replace(timeline(), spans=stepped(), cycles=25000)
    step = grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t"))
    assert step is not None
    assert (step.number, step.of_steps, step.kernel) in ((3, 8, "k"), (4, 8, "k"))
    assert step.end_us - step.start_us == pytest.approx(2.0)
    lanes = [bar.lane for bar in step.bars]
    assert (lanes.count("DMA in"), lanes.count("DMA wait"), lanes.count("MXU")) == (4, 1, 1)
    assert next(bar.share for bar in step.bars if bar.lane == "MXU") == 0.5
    assert {bar.bytes for bar in step.bars if bar.lane == "DMA in"} == {4096}


def test_steps_that_are_summarised_are_counted(tmp_path: Path) -> None:
    first = stepped(2)
    rest = Span(
        lane="Steps", kind=SpanKind.STEPS, name="k", start_cycles=6000, end_cycles=24000,
        attributes={"first_step": 2, "last_step": 7, "steps": 6, "mean_cycles": 3000.0, "wait_cycles": 0},
    )  # fmt: skip
    run = dataclasses.replace(timeline(), spans=(*first, rest), cycles=25000)
    step = grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t"))
    assert step is not None
    assert (step.number, step.of_steps) == (1, 8)


@pytest.mark.parametrize("data", [b"", b"\x00\xff not a trace", b"\x0a\x03abc"])
def test_what_is_no_trace_has_no_step(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(data)
    assert grid_step(tmp_path / "a.xplane.pb") is None


def test_a_missing_trace_and_one_without_steps(tmp_path: Path) -> None:
    assert grid_step(tmp_path / "none" / "a.xplane.pb") is None
    run = dataclasses.replace(timeline(), spans=())
    assert grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t")) is None
