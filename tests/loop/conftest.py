from pathlib import Path

import pytest

from ratchet import key
from tests.loop.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage.new(tmp_path / "repository")


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of this test's own."""
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")


@pytest.fixture(autouse=True)
def _own_git_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own git settings must not decide a test."""
    settings = tmp_path / "gitconfig"
    settings.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_EDITOR", "true")
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_AUTHOR_{name}", raising=False)
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)
    monkeypatch.delenv("EMAIL", raising=False)
