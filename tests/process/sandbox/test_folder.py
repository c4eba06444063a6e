"""A folder that a child wrote to: what is taken out of it, how much it holds, and that it goes away."""

import fcntl
import os
import stat
import tempfile
from pathlib import Path

import pytest

from ratchet.process.sandbox import folder
from ratchet.process.sandbox.folder import Folder


@pytest.fixture
def opened(tmp_path):
    """A folder and its path."""
    below = tmp_path / "below"
    below.mkdir()
    made = Folder.at(below)
    yield made, below
    made.close()


def test_a_file_is_written_once_and_for_its_owner_alone(opened):
    made, path = opened
    made.write("new", b"data")
    assert (path / "new").read_bytes() == b"data"
    assert stat.S_IMODE((path / "new").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        made.write("new", b"other")
    (path / "link").symlink_to(path / "elsewhere")
    with pytest.raises(FileExistsError):
        made.write("link", b"other")
    assert not (path / "elsewhere").exists()
    made.unlink("link")
    made.unlink("new")
    made.unlink("none")
    assert list(path.iterdir()) == []


def test_a_file_is_read_up_to_its_limit(opened):
    made, path = opened
    (path / "file").write_bytes(b"12345")
    assert made.read("file", 5) == b"12345"
    with pytest.raises(ValueError, match="file is larger than 4 bytes"):
        made.read("file", 4)


def test_what_is_no_regular_file_is_not_read(opened, tmp_path):
    made, path = opened
    os.mkfifo(path / "pipe")
    (path / "inner").mkdir()
    with pytest.raises(ValueError, match="pipe is no regular file"):
        made.read("pipe", 100)
    with pytest.raises(IsADirectoryError):
        made.read("inner", 100)
    (tmp_path / "secret").write_text("the judge's")
    (path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "way").symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        made.read("link", 100)
    with pytest.raises(NotADirectoryError):
        Folder.at(tmp_path / "way")


@pytest.mark.parametrize("disk", ["same", "other"])
def test_regular_files_are_taken_and_nothing_else(tmp_path, disk, request):
    source = tmp_path / "source"
    target = tmp_path / "target" if disk == "same" else request.getfixturevalue("small_disk") / "target"
    for path in (source / "a" / "b", target / "a"):
        path.mkdir(parents=True)
    (source / "one").write_text("1")
    (source / "a" / "b" / "two").write_text("2")
    (target / "a" / "kept").write_text("3")
    (source / "a" / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    folder.take(source, target)
    files = {str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir()}
    assert files == {"one", "a/b/two", "a/kept"}
    assert ((target / "one").read_text(), (target / "a" / "b" / "two").read_text()) == ("1", "2")
    left = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_symlink() or not path.is_dir()}
    assert left == {"a/link", "folder", "pipe"}


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "file").write_text("1")
    (tmp_path / "target" / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.take(tmp_path / "source", tmp_path / "target")


def test_entries_and_bytes_on_disk_are_counted(opened):
    made, path = opened
    assert made.used(files=10) == (0, 0)
    (path / "inner").mkdir()
    (path / "inner" / "large").write_bytes(bytes(1 << 20))
    (path / "link").symlink_to("/")
    with (path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    count, size = made.used(files=4)
    assert count == 4
    assert 1 << 20 <= size < 2 << 20
    assert made.used(files=2)[0] == 3, "it ends beyond what may be there"


def test_as_deep_as_is_counted(opened):
    made, path = opened
    for number in range(60):
        path /= f"{number}"
        path.mkdir()
    assert made.used(files=1000)[0] == 51


def test_counting_leaves_no_descriptor_open(opened):
    made, path = opened
    (path / "a" / "b").mkdir(parents=True)
    before = os.listdir("/proc/self/fd")
    made.used(files=1)
    made.used(files=9)
    assert os.listdir("/proc/self/fd") == before


def test_a_folder_is_closed_once(opened):
    made, _ = opened
    made.close()
    made.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        made.read("x", 1)


def test_nothing_open_is_left_and_nothing_is_inherited(tmp_path):
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "file").write_text("1")
    (tmp_path / "target").mkdir()
    before = os.listdir("/proc/self/fd")
    folder.take(tmp_path / "source", tmp_path / "target")
    folder.remove(tmp_path / "source")
    assert os.listdir("/proc/self/fd") == before
    made = Folder.at(tmp_path)
    opened = [int(name) for name in os.listdir("/proc/self/fd") if leads(name) == str(tmp_path)]
    assert [os.get_inheritable(number) for number in opened] == [False]
    made.close()


def leads(name):
    """Where a descriptor leads; ``""`` for one that is closed by now."""
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def test_a_folder_goes_away_whatever_is_in_it(tmp_path):
    top = tmp_path / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "x" / "b").mkdir(parents=True)
    (top / "a" / "b" / "c" / "file").write_text("1")
    (top / "x" / "b" / "file").write_text("1")
    (top / "a" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    os.mkfifo(top / "a" / "pipe")
    for path in (top / "a" / "b", top / "a", top):
        path.chmod(0)
    assert folder.remove(top) is True
    assert not top.exists()
    assert (tmp_path / "kept" / "file").exists()
    assert folder.remove(top) is True, "it is gone"


def test_a_folder_that_only_its_owner_may_open_goes_away():
    """For a user to whom permissions apply: not in pytest's folder, which is for its user alone."""
    with tempfile.TemporaryDirectory() as home:
        user = 65534 if os.getuid() == 0 else os.getuid()
        os.chown(home, user, -1)
        child = os.fork()
        if not child:
            try:
                os.setuid(user)
                top = Path(home, "top")
                (top / "a" / "b" / "c").mkdir(parents=True)
                (top / "a" / "b" / "c" / "file").touch()
                for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top):
                    path.chmod(0)
                os._exit(0 if folder.remove(top) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_folder_deeper_than_a_path_can_say_goes_away(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert folder.remove(top) is True


def test_what_is_no_folder_stays(tmp_path):
    (tmp_path / "file").touch()
    assert folder.remove(tmp_path / "file") is False
    (tmp_path / "link").symlink_to(tmp_path)
    assert folder.remove(tmp_path / "link") is False
    assert (tmp_path / "file").exists()


def test_a_folder_whose_files_cannot_be_removed_stays(tmp_path, monkeypatch):
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "file").touch()

    def refused(*_, **__):
        raise PermissionError

    monkeypatch.setattr(os, "unlink", refused)
    assert folder.remove(tmp_path / "top") is False


def scratch(parent, name):
    made = parent / name
    (made / "0000-program").mkdir(parents=True)
    (made / "0000-program" / "text").write_text("a dump")
    (made / folder.LEASE).touch()
    return made


def test_what_a_killed_judge_left_is_removed_and_what_one_holds_stays(tmp_path):
    killed, alive, other = (scratch(tmp_path, name) for name in ("ratchet-a", "ratchet-b", "other"))
    new = tmp_path / "ratchet-c"  # its judge has only just begun
    new.mkdir()
    elsewhere = scratch(tmp_path / "elsewhere", "ratchet-d")
    (tmp_path / "ratchet-link").symlink_to(elsewhere)
    os.mkfifo(tmp_path / "ratchet-pipe")
    with (alive / folder.LEASE).open() as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        folder.sweep(tmp_path)
        assert not killed.exists()
        assert all(path.exists() for path in (alive, other, new, elsewhere))
    folder.sweep(tmp_path)
    assert not alive.exists()
