"""Where pages and charts are written: a name of the user's, below a repository that others write in."""

import subprocess

import pytest

from ratchet.commands.report import write
from ratchet.values.status import Refusal, Status


@pytest.fixture
def root(tmp_path):
    tree = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree


def test_nothing_is_written_through_a_link_of_the_repository(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "planted").symlink_to(outside)
    for name in ("planted/page.html", "planted/deeper/page.html"):
        with pytest.raises(Refusal):
            write(root / name, b"page", say=print)
    assert not list(outside.iterdir())


def test_a_repository_may_be_reached_through_a_link(root, tmp_path):
    (tmp_path / "work").symlink_to(root)
    said = []
    write(tmp_path / "work" / "page.html", b"page", say=said.append)
    assert (root / "page.html").read_bytes() == b"page"
    assert [line.split()[0] for line in said] == ["wrote"]


def test_a_folder_outside_of_the_repository_may_be_a_link(root, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "www").symlink_to(tmp_path / "pages")
    write(tmp_path / "www" / "page.html", b"page", say=print)
    assert (tmp_path / "pages" / "page.html").read_bytes() == b"page"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("none/page.html", "there is no folder"),
        ("folder", "is a folder"),
        ("file/page.html", "there is no folder"),
        ("/proc/page.html", "cannot be written"),
        ("/dev/null/page.html", "there is no folder"),
    ],
)
def test_where_no_file_can_be_is_said(root, name, what):
    (root / "folder").mkdir()
    (root / "file").touch()
    with pytest.raises(Refusal, match=what) as refused:
        write(root / name, b"page", say=print)
    assert refused.value.status is Status.USAGE
