"""A verdict is the same without any of the tricks that make it quick."""

import re
from dataclasses import fields, replace

from prepare import judge
from ratchet.exam.judge.workers import Workers
from ratchet.process import fast
from ratchet.tpu.chips import V5E
from tests.exam.judge.programs import freeze, request_of
from tests.kernels import LAYERNORM


def test_plain_and_fast_are_equal(tmp_path, monkeypatch, workers):
    assert not any(getattr(fast.PLAIN, field.name) for field in fields(fast.Fast))
    freeze(tmp_path, LAYERNORM)
    request = request_of(tmp_path, LAYERNORM)
    quick = judge(request, workers=workers)
    monkeypatch.setattr(fast, "ON", fast.PLAIN)
    with Workers(V5E, compiles=False) as own:
        assert own._warm is own._authors is None
        plain = judge(request, workers=own)
    assert without_seconds(plain) == without_seconds(quick)
    assert plain.score is not None


def without_seconds(verdict):
    """A verdict without what a clock said; by the time the compiler names its files, too."""
    parity = replace(
        verdict.parity, seconds=0.0, checks=[check.partition(" in ")[0] for check in verdict.parity.checks]
    )
    names = [(step.name, step.status, step.name == "correctness" or step.summary) for step in verdict.steps]
    timeline = replace(verdict.timeline, spans=re.sub(r"\b\d{19}-", "", str(verdict.timeline.spans)))
    return replace(verdict, seconds=0.0, steps=names, parity=parity, timeline=timeline)
