"""Processes that wait for the next verdict: who may use one, what it gives, and when it goes."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ratchet.process.boot import home
from ratchet.process.sandbox import standby, warm
from ratchet.process.sandbox.child import OPEN, Child, Limits
from ratchet.process.sandbox.warm import JUDGE, Warm
from tests.imports import HERE
from tests.workspaces import Workspace

MODULE = "tests.process.sandbox.quick"
LIMITS = Limits(seconds=60, memory_bytes=4 << 30)
SEAL = "0123456789abcdef"
SHARED = "what both are made of"


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """Where processes wait in a test; it is this test's own, and none stays behind. A socket's path is a short one."""
    place = Path(tempfile.mkdtemp())
    monkeypatch.setattr(standby, "private_folder", lambda: place)
    monkeypatch.setenv(standby.MINUTES, "1")
    yield place / "standby"
    for path in (place / "standby").glob("*.sock"):
        if (left := standby._connected(path)) is not None:
            left.send(standby.LEAVE)
    shutil.rmtree(place, ignore_errors=True)  # a socket goes with the one that listened, perhaps just now


def stayed(seal=SEAL, kind="judge"):
    """A process that waits, and where."""
    path = standby.place(kind, SHARED, seal)
    path.unlink(missing_ok=True)
    one = Warm([])
    one.stay(path)
    until(path.exists)
    one.cancel()
    one.close()
    return one._process, path


def until(holds):
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_process_that_stays_serves_the_next_owners_and_several_at_a_time(tmp_path):
    process, _ = stayed()
    owners = [Warm([], waiting=standby.waiting("judge", SHARED)) for _ in range(2)]
    for number, owner in enumerate(owners):
        assert owner.seal == SEAL
        with Child(MODULE, directory=tmp_path / str(number), walls=OPEN, warm=owner) as child:
            ending = child.ask(Path("variables "), LIMITS)
            assert ending.how == "answered", ending.tail
            assert parent(child._process.pid) == process.pid
        assert owner.alive
        owner.cancel()
        owner.close()
    assert process.poll() is None


def test_its_children_have_the_variables_that_they_are_given_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "of the first owner")
    stayed()
    said = []
    for name, of in (("fork", Warm([], waiting=standby.waiting("judge", SHARED))), ("new", None)):
        with Child(MODULE, directory=tmp_path / name, environment={"ONLY": "here"}, walls=OPEN, warm=of) as child:
            said.append(child.ask(Path("variables "), LIMITS).answer.replace(str(tmp_path / name), "FOLDER"))
    assert said[0] == said[1]
    assert "ONLY" in said[0]
    assert "SECRET" not in said[0]


def test_it_outlives_an_owner_that_is_killed(folder):
    path = standby.place("judge", SHARED, SEAL)
    script = f"""
import os, signal, time
from pathlib import Path
from ratchet.process.sandbox.warm import Warm
one = Warm([])
one.stay(Path({str(path)!r}))
while not os.path.exists({str(path)!r}):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=HERE, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert standby.waiting("judge", SHARED) is not None


def test_a_child_lives_where_the_one_that_waited_has_ended(tmp_path):
    """Also where it ended with something unread, which who asks next hears as an error."""
    process, _ = stayed()
    for name in ("idle", "asked"):
        owner = Warm([], waiting=standby.waiting("judge", SHARED))
        assert owner.alive
        if name == "asked":
            process.send_signal(signal.SIGSTOP)
            owner.stay(tmp_path / "elsewhere")
            owner._control.send(b"{}")
        process.kill()
        process.wait()
        assert not owner.alive
        with Child(MODULE, directory=tmp_path / name, walls=OPEN, warm=owner) as child:
            assert child.ask(Path("variables "), LIMITS).how == "answered"
        owner.close()
        assert not owner.alive
        process, _ = stayed()


def test_an_owner_that_asks_and_goes_is_no_harm_to_the_others(tmp_path):
    process, _ = stayed()
    hasty, other = (Warm([], waiting=standby.waiting("judge", SHARED)) for _ in range(2))
    process.send_signal(signal.SIGSTOP)
    child = Child(MODULE, directory=tmp_path / "hasty", walls=OPEN, warm=hasty)
    for descriptor in (child._process._said, child._control.detach()):
        os.close(descriptor)
    hasty.close()
    process.send_signal(signal.SIGCONT)
    with Child(MODULE, directory=tmp_path / "other", walls=OPEN, warm=other) as child:
        assert child.ask(Path("variables "), LIMITS).how == "answered"
    other.close()
    assert process.poll() is None


def test_it_goes_when_nobody_asks(monkeypatch):
    monkeypatch.setenv(standby.MINUTES, "0.01")
    process, path = stayed()
    assert process.wait(timeout=30) == 0
    assert not path.exists()


def test_it_takes_no_new_work_after_its_life(monkeypatch, folder):
    monkeypatch.setattr(standby, "LIFE_SECONDS", 0.0)
    path = standby.place("judge", SHARED, SEAL)
    door = standby.Door(path, 60.0)
    assert door.seconds_left(None) == 0
    door.close()
    assert not path.exists()


def test_one_made_under_another_seal_goes(monkeypatch):
    monkeypatch.setattr(warm, "_shared", lambda: SHARED)
    process, path = stayed()
    monkeypatch.setitem(warm._BEGUN, JUDGE, Warm([], waiting=standby.waiting("judge", SHARED)))
    assert warm.begun(JUDGE, "f" * 16) is None
    assert process.wait(timeout=30) == 0
    assert not path.exists()


def test_one_of_this_seal_is_used_once_for_each_verdict(monkeypatch):
    monkeypatch.setattr(warm, "_shared", lambda: SHARED)
    process, _ = stayed()
    own = Warm([], waiting=standby.waiting("judge", SHARED))
    monkeypatch.setitem(warm._BEGUN, JUDGE, own)
    assert warm.begun(JUDGE, SEAL) is own
    assert warm.begun(JUDGE, SEAL) is None
    own.close()
    assert process.poll() is None


def test_a_confined_process_is_not_heard():
    """As those that run an author's code are; their system calls are fewer besides."""
    _, path = stayed()
    script = f"""
import ctypes, socket
{{}}
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect({str(path)!r})
print(one.recv(5))
"""
    confine = "assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"  # PR_SET_NO_NEW_PRIVS
    said = [
        subprocess.run([sys.executable, "-c", script.format(first)], capture_output=True, timeout=30, check=True).stdout
        for first in ("", confine)
    ]
    assert said == [b"b'ready'\n", b"b''\n"]


def test_a_confined_process_lets_none_wait(tmp_path):
    script = """
import ctypes
from ratchet.process.sandbox import standby
assert standby.place("judge", "", "seal")
assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
assert standby.place("judge", "", "seal") is None
assert standby.waiting("judge", "") is None
"""
    subprocess.run([sys.executable, "-c", script], cwd=HERE, check=True, timeout=60)


def test_limits_of_the_process_tell_places_apart():
    before = standby.place("judge", SHARED, SEAL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert standby.place("judge", SHARED, SEAL) != before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert standby.place("judge", SHARED, SEAL) == before
    assert standby.place("judge", "another judge", SEAL) != before
    assert standby.place("author", SHARED, SEAL) != before


@pytest.mark.parametrize("minutes", ["0", "-1", "soon"])
def test_none_stays_where_that_is_not_wanted(monkeypatch, minutes):
    monkeypatch.setenv(standby.MINUTES, minutes)
    assert standby.place("judge", SHARED, SEAL) is None
    assert standby.waiting("judge", SHARED) is None


def test_a_few_of_a_kind_wait_and_the_first_go():
    first, path = stayed("1" * 16)
    stayed("2" * 16, kind="author")
    later = [stayed(str(number) * 16)[0] for number in range(3, 3 + standby.KEPT)]
    assert first.wait(timeout=30) == 0
    assert not path.exists()
    assert all(one.poll() is None for one in later)


def test_nobody_takes_the_place_of_one_that_waits_and_a_file_nobody_listens_at_is_no_obstacle():
    process, path = stayed()
    with pytest.raises(FileExistsError):
        standby.Door(path, 60.0)
    process.kill()
    process.wait()
    assert path.exists()
    assert standby.waiting("judge", SHARED) is None
    door = standby.Door(path, 60.0)
    os.unlink(path)
    path.write_text("another's")
    door.close()
    assert path.exists()


def test_the_next_run_of_the_command_forks_its_children_of_the_same_processes(tmp_path, folder):
    """As the command is called, in the folder of this user: the same two wait after the second run."""
    place = home.private_folder()
    if place is None:
        pytest.skip("this user has no private folder")
    before = set((place / "standby").glob("*.sock"))
    workspace = Workspace.new(tmp_path / "clone")
    inodes = []
    for words in (["baseline"], ["again", "--dry-run"]):
        ended = workspace.ratchet(*words, RATCHET_STANDBY_MINUTES="0.5")
        assert "RESULT: score=" in ended.stdout, ended.stderr
        inodes.append({path.name: path.stat().st_ino for path in set((place / "standby").glob("*.sock")) - before})
    assert inodes[0] == inodes[1]
    assert sorted(name.partition("-")[0] for name in inodes[0]) == ["author", "judge"]
