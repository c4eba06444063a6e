import shutil
from pathlib import Path

import pytest

from ratchet.process import key
from tests.loop.stage import Stage


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as ``Stage.new`` makes it, to be copied: that takes five commands of git."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "gitconfig").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(folder / "gitconfig"))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        return Stage.new(folder / "repository").root


@pytest.fixture
def stage(template: Path, tmp_path: Path) -> Stage:
    root = tmp_path / "repository"
    shutil.copytree(template, root, symlinks=True)
    return Stage(root=root)


@pytest.fixture(autouse=True)
def _without_flushing(without_flushing: None) -> None:
    """What is flushed is shown by ``test_flush.py`` and by the benchmark of faults."""


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
