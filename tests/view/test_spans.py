"""What spans are called in a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.values import Span, SpanKind
from ratchet.view.xcosts import label
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

Attributes = dict[str, int | float | str]


@pytest.mark.parametrize(
    ("kind", "lane", "name", "attributes", "said"),
    [
        (SpanKind.NAMED, "XLA Ops", "fusion.1\n", {}, "fusion.1"),
        (SpanKind.RUN, "XLA Modules", "", {}, "modelled run"),
        (SpanKind.STEP, "Steps", "k\x1b[2J", {"step": 3}, "step 3 of k"),
        (SpanKind.STEPS, "Steps", "k", {"first_step": 3, "last_step": 9, "steps": 7}, "steps 3–9 of k (summarised)"),
        (SpanKind.BUSY, "MXU", "", {"busy_share": 0.914}, "91% busy"),
        (SpanKind.BUSY, "stalls", "", {"busy_share": 0.25, "steps": 4}, "(summarised) 25% empty bundles"),
        (SpanKind.BUSY, "EUP", "copy.1", {"busy_share": 0.5}, "copy.1: 50% busy"),
        (SpanKind.COPY, "DMA in", "", {"bytes": 64, "source": "hbm", "target": "vmem"}, "hbm→vmem 64 B"),
        (SpanKind.WAIT, "DMA wait", "", {"for": "flag 3"}, "wait 20 cycles"),
        (SpanKind.MESSAGE, "ICI out", "", {"bytes": 64, "to_chip": 2}, "64 B to chip 2"),
        (SpanKind.MESSAGE, "ICI in", "", {"bytes": 0, "from_chip": 2}, "signal from chip 2"),
        (SpanKind.SUMMARY, "DMA wait", "", {"count": 12}, "12 more (summarised)"),
    ],
)
def test_label(kind: SpanKind, lane: str, name: str, attributes: Attributes, said: str) -> None:
    span = Span(lane=lane, kind=kind, name=name, start_cycles=10, end_cycles=30, attributes=attributes)
    assert label(span) == said


def test_every_span_of_a_run_has_a_label(tmp_path: Path) -> None:
    timeline = model(unpack(COMPILERS[0], "flash", tmp_path))
    labels = [label(span) for span in timeline.spans]
    assert all(labels)
    assert sum(said.startswith("step ") for said in labels) == 34
