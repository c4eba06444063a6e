from pathlib import Path

import pytest

from ratchet.search import candidates
from ratchet.wiring import RepositoryJudge
from tests.loop.conftest import _own_git_settings, _own_key, _without_flushing  # noqa: F401  # the same surroundings
from tests.loop.stage import Stage
from tests.search import fakes


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A repository whose kernel was never judged, and a judge without children."""
    monkeypatch.setattr(candidates, "Workers", lambda *_arguments, **_options: fakes.Children())
    monkeypatch.setattr(RepositoryJudge, "conditions", fakes.FixedJudge.conditions)
    monkeypatch.setattr(RepositoryJudge, "seal", fakes.FixedJudge.seal)
    return fakes.stage(tmp_path / "repository")
