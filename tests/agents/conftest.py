"""A repository with a baseline, for every test of agents."""

from pathlib import Path

import pytest

from tests.loop.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage.new(tmp_path / "repository")
    stage.run("baseline")
    return stage
