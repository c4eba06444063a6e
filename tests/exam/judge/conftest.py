"""What the tests of whole verdicts share."""

import contextlib

import pytest

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import freezing
from ratchet.exam.judge.workers import Workers
from tests.exam.judge.programs import examined


@pytest.fixture
def without_jail(monkeypatch):
    """Traces in this process what does no harm at import: a child's start is most of what a small verdict costs."""

    def step(tracing, **_):
        return examined(tracing.request.source.decode(), tracing.request.name)[0], "traced without a jail"

    def definition(wanted, _child):
        return {"": wanted.source}

    def frozen(artefact, defined, _child):
        return examined(defined[""].decode(), "kernel.py")[1]

    def author(self):
        return contextlib.nullcontext(self)

    monkeypatch.setattr(tracer, "step", step)
    monkeypatch.setattr(tracer, "definition", definition)
    monkeypatch.setattr(freezing, "frozen", frozen)
    monkeypatch.setattr(Workers, "candidate", lambda self: None)
    monkeypatch.setattr(Workers, "author", author)
    monkeypatch.setattr(Workers, "freezer", lambda self: None)
    monkeypatch.setattr(Workers, "prepare_next", lambda self: None)
