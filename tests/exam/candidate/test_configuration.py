"""What a repository's own table may name."""

import pytest

from ratchet.exam.candidate import configuration
from ratchet.values.status import Status
from tests.refusals import refused


@pytest.fixture
def including(tmp_path):
    """A repository whose table is given, and a secret beside it."""
    (tmp_path / "secret").write_text("the user's")
    root = tmp_path / "root"
    for name in ("src/pkg/a.json", "src/.git/config", ".git/config", ".GIT/config"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("in it")
    (root / "src" / "pkg" / "leak.json").symlink_to(tmp_path / "secret")
    (root / "src" / "out").symlink_to(tmp_path)

    def included(pattern):
        (root / "pyproject.toml").write_text(f"[tool.ratchet]\ninclude = [{pattern!r}]\n")
        return configuration.included(root / "src")

    return included


@pytest.mark.parametrize(
    "pattern",
    [
        *(".git/config", "src/.git/config", ".GIT/config", "../secret", "src/../../secret", "/etc/hostname"),
        *("src/pkg/leak.json", ".git/*", "src/**/.git/*"),
    ],
)
def test_what_is_no_file_of_the_repository_is_refused_by_name(including, pattern):
    with refused(Status.USAGE, "include: "):
        including(pattern)


@pytest.mark.parametrize("pattern", ["src/*/leak.json", "src/o*/secret", "**/config", "src/.g*/*"])
def test_what_is_no_file_of_the_repository_fits_no_pattern(including, pattern):
    assert including(pattern) == {}


@pytest.mark.parametrize("pattern", ["src/**/*", "src/*/*", "**/*.json", "src/pkg/a.json", "src/pkg/[a]*"])
def test_patterns_fit_regular_files_alone(including, pattern):
    assert including(pattern) == {"pkg/a.json": b"in it"}
