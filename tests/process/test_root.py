"""The one opener: what somebody planted below a root is neither followed nor waited for, by either way of opening."""

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from ratchet.process import root as roots
from ratchet.process.paths import matching, of
from ratchet.process.root import Root


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def way(request, monkeypatch):
    """A system with ``openat2``, and one without."""
    if request.param == "walk":
        monkeypatch.setattr(roots, "has_openat2", lambda: False)
        monkeypatch.setattr(roots, "openat2", None)
    elif not roots.has_openat2():
        pytest.skip("this system has no openat2")
    return request.param


@pytest.fixture
def home(tmp_path):
    """A folder of the user's beside the root, with a file."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "rc").write_text("mine")
    return tmp_path / "user"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "sub").mkdir(parents=True)
    return Root(tmp_path / "root")


def untouched(home):
    return sorted(os.listdir(home)) == ["rc"] and (home / "rc").read_text() == "mine"


def test_what_is_written_is_read_and_listed(root):
    root.make_folder("a/b")
    root.write("a/b/one", b"1")
    root.write(root.path / "a" / "two", b"2")
    root.create("three", b"3")
    assert root.read("a/b/one") == b"1"
    assert root.names("a") == ["b", "two"]
    assert list(root.files()) == ["a/b/one", "a/two", "three"]
    assert root.is_file("three")
    assert root.is_folder("a")
    assert not root.exists("four")
    assert root.unlink("three")
    assert not root.unlink("three")
    assert root.remove("a")
    assert root.names() == ["sub"]


LEADS_OUT = {
    "the file": lambda root, home: (root / "sub" / "x").symlink_to(home / "rc"),
    "a folder above": lambda root, home: ((root / "sub").rmdir(), (root / "sub").symlink_to(home)),
    "a link that stays inside": lambda root, home: (root / "sub" / "x").symlink_to(root / "other"),
    "nothing": lambda root, home: (root / "sub" / "x").symlink_to(home / "new"),
}


@pytest.mark.parametrize("planted", LEADS_OUT.values(), ids=LEADS_OUT)
def test_no_link_is_followed(root, home, planted):
    planted(root.path, home)
    (root.path / "other").write_text("other")
    name = "sub/rc" if (root.path / "sub").is_symlink() else "sub/x"
    with pytest.raises(OSError, match="symbolic link") as raised:
        root.read(name)
    assert raised.value.errno == errno.ELOOP
    assert not root.is_file(name)
    with pytest.raises(OSError, match="link"), root.changed(name):
        pass
    with pytest.raises(OSError, match="link"), root.locked(name):
        pass
    with pytest.raises(OSError, match=r"link|exists"):
        root.create(name, b"x")
    for change in (root.unlink, root.remove, root.sweep, root.make_folder, lambda one: root.write(one, b"x")):
        with contextlib.suppress(OSError):
            change(name)
    assert untouched(home)
    assert (root.path / "other").read_text() == "other"


@pytest.mark.parametrize("name", ["../user/rc", "sub/../../user/rc", "/etc/hostname", "sub/../sub"])
def test_no_name_leads_out(root, home, name):
    for access in (root.read, root.make_folder, lambda one: root.write(one, b"x"), lambda one: root.create(one, b"x")):
        with pytest.raises(OSError, match=r"leads out|outside") as raised:
            access(name)
        assert raised.value.errno == errno.EXDEV
    assert not root.exists(name)
    assert not root.unlink(name)
    root.remove(name)
    assert (root.path / "sub").is_dir()
    assert untouched(home)


def test_a_pipe_is_not_waited_for(root):
    os.mkfifo(root.path / "pipe")
    with pytest.raises(ValueError, match="no regular file"):
        root.read("pipe")
    with pytest.raises(ValueError, match="no regular file"), root.changed("pipe"):
        pass
    assert list(root.files()) == []


def test_a_hard_link_is_not_written_in_place(root, home):
    os.link(home / "rc", root.path / "x")
    with pytest.raises(ValueError, match="hard link"), root.changed("x", append=True):
        pass
    with pytest.raises(ValueError, match="hard link"), root.locked("x"):
        pass
    root.write("x", b"ours")
    assert untouched(home)
    assert root.read("x") == b"ours"


def test_a_large_file_is_refused(root):
    root.write("x", b"12345")
    with pytest.raises(ValueError, match="larger than 4"):
        root.read("x", 4)


def test_a_folder_goes_with_what_is_below_and_not_with_what_links_lead_to(root, home):
    root.make_folder("sub/deep/deeper")
    (root.path / "sub" / "deep" / "out").symlink_to(home)
    (root.path / "sub" / "rc").symlink_to(home / "rc")
    (root.path / "sub" / "deep").chmod(0)
    assert root.remove("sub")
    assert not root.exists("sub")
    assert untouched(home)


def test_mode_is_kept_and_half_of_nothing_stays(root, monkeypatch):
    root.write("x", b"old")
    (root.path / "x").chmod(0o750)
    root.write("x", b"new")
    assert (root.path / "x").stat().st_mode & 0o777 == 0o750
    monkeypatch.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        root.write("x", b"newer")
    assert root.read("x") == b"new"
    assert root.names() == ["sub", "x"]


def test_left_over_new_files_are_swept_and_nothing_else(root):
    ours, other = ".new-" + "0" * 16, ".new-other"
    for name in (ours, other):
        root.write(f"sub/{name}", b"")
    root.sweep("sub", older_s=60)
    assert root.exists(f"sub/{ours}")
    root.sweep("sub")
    assert root.names("sub") == [other]


def test_patterns(root, home):
    for name in ("p/a.json", "p/q/b.json", "p/c.txt", "p/.git/config", ".git/config", "d.json"):
        root.make_folder(Path(name).parent)
        root.write(name, b"")
    (root.path / "p" / "link.json").symlink_to(home / "rc")
    (root.path / "out").symlink_to(home)
    assert matching(root, "p/*.json") == ["p/a.json"]
    assert matching(root, "**/*.json") == ["d.json", "p/a.json", "p/q/b.json"]
    assert matching(root, "p/[bc].t?t") == ["p/c.txt"]
    assert matching(root, "d.json") == ["d.json"]
    for none in (".git/config", "p/.git/*", "out/*", "out/rc", "p/link.json"):
        assert matching(root, none) == []
    with pytest.raises(OSError, match="leads out"):
        matching(root, "../user/*")


def test_whether_a_lock_is_held_is_asked_without_making_it(root):
    assert not root.is_locked("lock")
    assert not root.exists("lock")
    with root.locked("lock"):
        assert root.is_locked("lock")
    assert not root.is_locked("lock")
    with root.open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not root.is_locked("lock"), "somebody else who asks"


def test_one_holds_a_lock(root):
    with root.locked("lock"), pytest.raises(BlockingIOError), root.locked("lock"):
        pass
    entered = threading.Event()
    with root.locked("lock"):
        waiting = threading.Thread(target=lambda: root.locked("lock", wait_s=5).__enter__() or entered.set())
        waiting.start()
        assert not entered.wait(0.2)
    assert entered.wait(5)
    waiting.join()


def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(root, home):
    """A race that an attacker wins as often as it can: never does a write leave the root."""
    done = threading.Event()

    def swap():
        while not done.is_set():
            os.rename(root.path / "sub", root.path / "kept")
            os.symlink(home, root.path / "sub")
            os.unlink(root.path / "sub")
            os.rename(root.path / "kept", root.path / "sub")

    attacker = threading.Thread(target=swap)
    attacker.start()
    for _ in range(300):
        for change in (
            lambda: root.write("sub/rc", b"x", flush=False),
            lambda: root.unlink("sub/rc"),
            lambda: root.remove("sub/rc"),
        ):
            with contextlib.suppress(OSError):
                change()
    done.set()
    attacker.join()
    assert untouched(home)


def test_the_root_of_a_path_is_the_outermost_repository(tmp_path, home):
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "sub").symlink_to(home)
    (home / ".git").mkdir()
    found, name = of(tmp_path / "repository" / "sub" / "rc")
    assert (found.path, name) == (tmp_path / "repository", "sub/rc")
    with pytest.raises(OSError, match="symbolic link"):
        found.read(name)
    found, name = of(tmp_path / "other.py")
    assert (found.path, name) == (tmp_path, "other.py")
