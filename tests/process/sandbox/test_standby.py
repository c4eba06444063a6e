"""Processes that wait for the next verdict: who may use one, what it gives, and when it goes."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ratchet.process.boot import home, sources
from ratchet.process.sandbox import standby, warm
from ratchet.process.sandbox.child import OPEN, Child
from ratchet.process.sandbox.warm import Kind, Warm
from tests.imports import HERE
from tests.process.sandbox.children import QUICK, answer, parent, until
from tests.workspaces import Workspace

SEAL = "0123456789abcdef"
SHARED = "what both are made of"
KIND = Kind(name="judge")
CONFINE = "import ctypes; assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"  # PR_SET_NO_NEW_PRIVS


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """Where processes wait in a test; it is this test's own, and none stays behind. A socket's path is a short one."""
    place = Path(tempfile.mkdtemp())
    monkeypatch.setattr(standby, "private_folder", lambda: place)
    monkeypatch.setattr(sources, "are_served", lambda: True)
    monkeypatch.setenv(standby.MINUTES, "1")
    yield place / "standby"
    for path in (place / "standby").glob("*.sock"):
        if (left := standby.connected(path)) is not None:
            left.send(standby.LEAVE)
    shutil.rmtree(place, ignore_errors=True)  # a socket goes with the one that listened, perhaps just now


def stayed(seal=SEAL, kind="judge"):
    """A process that waits, and where."""
    path = standby.socket_path(kind, SHARED, seal)
    path.unlink(missing_ok=True)
    one = Warm(KIND)
    one.stay(path)
    until(path.exists)
    one.cancel()
    one.close()
    return one._process, path


def owner(path):
    return Warm(KIND, waiting=standby.connected(path))


def test_a_process_that_stays_serves_the_next_owners_and_several_at_a_time(tmp_path, monkeypatch):
    """Its children have the variables that they are given, and no others."""
    monkeypatch.setenv("SECRET", "of the first owner")
    process, path = stayed()
    said = []
    for number, one in enumerate([owner(path), owner(path), None]):
        own = tmp_path / str(number)
        with Child(QUICK, directory=own, environment={"ONLY": "here"}, walls=OPEN, warm=one) as child:
            said.append(answer(child, "variables").replace(str(own), "FOLDER"))
            assert (parent(child._process.pid) == process.pid) == (one is not None)
        if one is not None:
            assert one.alive
            one.cancel()
            one.close()
    assert process.poll() is None
    assert len(set(said)) == 1, "of a new process, too"
    assert "ONLY" in said[0]
    assert "SECRET" not in said[0]


def test_the_next_that_asks_for_a_process_gets_the_one_that_waits(monkeypatch):
    monkeypatch.setattr(warm, "_shared", lambda kind: SHARED)
    process, _ = stayed()
    waited = warm.process(KIND, SEAL)
    assert waited._process is None
    waited.close()
    for seal in ("", "f" * 16):
        new = warm.process(KIND, seal)
        assert new._process is not None
        new.cancel()
        new.close()
    assert process.poll() is None


def test_those_that_wait_are_found_by_kinds_where_they_have_one_seal(monkeypatch):
    monkeypatch.setattr(warm, "_shared", lambda kind: SHARED)
    author = Kind(name="author")
    assert warm.waiting([KIND, author]) == ("", [])
    stayed()
    stayed("f" * 16, "author")
    assert warm.waiting([KIND, author]) == ("", [])
    stayed(SEAL, "author")
    seal, found = warm.waiting([KIND, author])
    assert seal == SEAL
    assert all(one.alive and one._process is None for one in found)
    for one in found:
        one.close()


def test_it_outlives_an_owner_that_is_killed(folder):
    path = standby.socket_path("judge", SHARED, SEAL)
    script = f"""
import os, signal, time
from pathlib import Path
from ratchet.process.sandbox.warm import Kind, Warm
one = Warm(Kind(name="judge"))
one.stay(Path({str(path)!r}))
while not os.path.exists({str(path)!r}):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=HERE, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert standby.connected(path) is not None


def test_a_child_lives_where_the_one_that_waited_has_ended(tmp_path):
    """Also where it ended with something unread, which who asks next hears as an error."""
    for name in ("idle", "asked"):
        process, path = stayed()
        one = owner(path)
        assert one.alive
        if name == "asked":
            process.send_signal(signal.SIGSTOP)
            one._control.send(b"{}")
        process.kill()
        process.wait()
        assert not one.alive
        with Child(QUICK, directory=tmp_path / name, walls=OPEN, warm=one) as child:
            assert answer(child, "variables")
        one.close()
        assert not one.alive


def test_an_owner_that_asks_and_goes_is_no_harm_to_the_others(tmp_path):
    process, path = stayed()
    hasty, other = owner(path), owner(path)
    process.send_signal(signal.SIGSTOP)
    child = Child(QUICK, directory=tmp_path / "hasty", walls=OPEN, warm=hasty)
    for descriptor in (child._process._said, child._control.detach()):
        os.close(descriptor)
    hasty.close()
    process.send_signal(signal.SIGCONT)
    with Child(QUICK, directory=tmp_path / "other", walls=OPEN, warm=other) as child:
        assert answer(child, "variables")
    other.close()
    assert process.poll() is None


def test_it_goes_when_nobody_asks_and_takes_no_new_work_after_its_life(monkeypatch):
    monkeypatch.setenv(standby.MINUTES, "0.01")
    process, path = stayed()
    assert process.wait(timeout=30) == 0
    assert not path.exists()
    monkeypatch.setattr(standby, "LIFE_SECONDS", 0.0)
    listener = standby.Listener(path, 60.0)
    assert listener.seconds_left(None) == 0
    listener.close()
    assert not path.exists()


def test_a_confined_process_is_not_heard_and_lets_none_wait():
    """As those that run an author's code are; their system calls are fewer besides."""
    _, path = stayed()
    script = f"""
import socket
from ratchet.process.boot import sources
from ratchet.process.sandbox import standby
sources.are_served = lambda: True
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect({str(path)!r})
print(one.recv(5), standby.socket_path("judge", "", "seal") is not None)
"""
    commands = [[sys.executable, "-c", f"{first}\n{script}"] for first in ("", CONFINE)]
    said = [subprocess.run(one, cwd=HERE, capture_output=True, timeout=60, check=True).stdout for one in commands]
    assert said == [b"b'ready' True\n", b"b'' False\n"]


def test_circumstances_seal_and_what_is_shared_tell_places_apart():
    before = standby.socket_path("judge", SHARED, SEAL)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        limited = standby.socket_path("judge", SHARED, SEAL)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert standby.socket_path("judge", SHARED, SEAL) == before
    others = [("judge", "another judge", SEAL), ("author", SHARED, SEAL), ("judge", SHARED, "f" * 16)]
    assert len({before, limited, *(standby.socket_path(*other) for other in others)}) == 5


@pytest.mark.parametrize("minutes", ["0", "-1", "soon", None])
def test_none_stays_where_that_is_not_wanted_or_the_judge_is_a_library(monkeypatch, minutes):
    if minutes is None:
        monkeypatch.setattr(sources, "are_served", lambda: False)
    else:
        monkeypatch.setenv(standby.MINUTES, minutes)
    assert standby.socket_path("judge", SHARED, SEAL) is None


def test_a_few_of_a_kind_wait_and_the_first_go():
    first, path = stayed("1" * 16)
    stayed("2" * 16, kind="author")
    later = [stayed(str(number) * 16)[0] for number in range(3, 3 + standby.MOST)]
    assert first.wait(timeout=30) == 0
    assert not path.exists()
    assert all(one.poll() is None for one in later)


def test_nobody_takes_the_place_of_one_that_waits_and_a_file_nobody_listens_at_is_no_obstacle():
    process, path = stayed()
    with pytest.raises(FileExistsError):
        standby.Listener(path, 60.0)
    process.kill()
    process.wait()
    assert path.exists()
    assert standby.connected(path) is None
    listener = standby.Listener(path, 60.0)
    os.unlink(path)
    path.write_text("another's")
    listener.close()
    assert path.exists()


def test_the_next_run_of_the_command_forks_its_children_of_the_same_processes(tmp_path, monkeypatch):
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
