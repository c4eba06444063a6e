"""What the tests of whole verdicts share."""

import pytest

from ratchet.exam.candidate import tracer
from ratchet.exam.judge.workers import Workers
from tests.exam.judge.programs import examined


@pytest.fixture
def without_jail(monkeypatch):
    """Traces in this process what does no harm at import: a child's start is most of what a small verdict costs."""

    def step(wanted, _child, **_):
        artefact, problem = examined(wanted.source.decode(), wanted.name)
        return (artefact, problem if wanted.freeze else None), "traced without a jail"

    monkeypatch.setattr(tracer, "step", step)
    monkeypatch.setattr(Workers, "candidate", lambda self: None)
    monkeypatch.setattr(Workers, "prepare_next", lambda self: None)
