"""Attacks by real processes, behind all walls and behind each that is left where others are missing."""

import contextlib
import functools
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.exam.candidate import tracer
from ratchet.process import key
from ratchet.process.sandbox import landlock
from ratchet.process.sandbox.child import JAILED, PACKAGE_ROOT, Child, Walls
from tests.process.sandbox.children import HOSTILE, LIMITS, answer, asked
from tests.walls import missing, needs

WITH_PROCESSES = replace(JAILED, processes=True)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Children of which all that is asked is refused, one for each set of walls."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def child(names: tuple[str, ...]) -> Child:
            directory = tmp_path_factory.mktemp("refused") / "child"
            return stack.enter_context(Child(HOSTILE, directory=directory, walls=replace(JAILED, names=names)))

        yield child


@pytest.fixture
def start(tmp_path):
    """Starts children that attack, and ends them."""
    started = []

    def child(walls: Walls = JAILED) -> Child:
        started.append(Child(HOSTILE, directory=tmp_path / f"child{len(started)}", walls=walls))
        return started[-1]

    yield child
    for one in started:
        one.close()


def read(note: Path) -> str:
    return note.read_text() if note.exists() else ""


def wait_until_it_is_written_again(note: Path) -> None:
    """As long as the test may take."""
    before = read(note)
    while read(note) in ("", before):
        time.sleep(0.01)


def stands_still(note: Path) -> bool:
    before = read(note)
    time.sleep(0.3)
    return before == read(note)


DENIED = "PermissionError"


@needs("seccomp")
@pytest.mark.parametrize("attack", ["survive", "become", "listen", "mount", "trace"])
@pytest.mark.parametrize("names", [JAILED.names, ("seccomp",)], ids=["all walls", "seccomp alone"])
def test_system_calls_that_are_refused(refused, tmp_path, attack, names):
    argument = os.getppid() if attack == "trace" else tmp_path
    assert answer(refused(names), attack, argument).startswith(DENIED)


@needs("seccomp")
@pytest.mark.parametrize("names", [JAILED.names, ("seccomp",)], ids=["all walls", "seccomp alone"])
def test_nobody_else_gets_a_signal(refused, names):
    child = refused(names)
    assert answer(child, "kill", os.getpid()).startswith((DENIED, "ProcessLookupError"))
    assert answer(child, "kill", 1).startswith((DENIED, "ProcessLookupError"))


@needs("landlock")
@pytest.mark.parametrize("names", [JAILED.names, ("landlock",)], ids=["all walls", "landlock alone"])
def test_the_key_is_out_of_reach(refused, names):
    """Where it is for this user, not where a test puts one."""
    assert key.load().secret
    assert answer(refused(names), "read", key.path()).startswith(DENIED)


@needs("landlock")
@pytest.mark.parametrize("names", [JAILED.names, ("landlock",)], ids=["all walls", "landlock alone"])
def test_files_outside_are_out_of_reach_on_every_thread(start, tmp_path, names):
    """In a child that was not asked to fork before: a library ends its threads for that."""
    secret = tmp_path / "secret"
    secret.write_text("the judge's")
    child = start(replace(JAILED, names=names))
    assert answer(child, "read", secret).startswith(DENIED)
    assert answer(child, "write", secret).startswith(DENIED)
    threads, _, got = answer(child, "read_on_every_thread", secret).partition(" ")
    assert int(threads) >= 1 or os.cpu_count() == 1, "there is a thread of a library's"
    assert got == "['PermissionError']"
    assert secret.read_text() == "the judge's"


@needs("landlock")
@pytest.mark.parametrize("what", ["environ", "cmdline", "maps", "mem", "status", "stat", "task", "fd", "cwd", "root"])
@pytest.mark.parametrize("names", [JAILED.names, ("landlock",)], ids=["all walls", "landlock alone"])
def test_nothing_is_read_of_another_process(refused, names, what):
    """The judge, by its number unless the child has it for one of its own; in namespaces that of whoever made them."""
    child, attack = refused(names), {"task": "names", "fd": "names", "cwd": "leads", "root": "leads"}.get(what, "read")
    public = ("cmdline", "status", "stat", "task", "fd") if "namespaces" in names else ()  # the launcher
    listed = answer(child, "processes")
    own = listed.split() if "namespaces" in names else ()  # where a test's number is as low: in a namespace itself
    judges = [process for process in (os.getpid(), os.getppid()) if str(process) not in own]
    for process in (*judges, *(() if what in public else (1,))):
        said = answer(child, attack, f"/proc/{process}/{what}")
        assert said.startswith((DENIED, "FileNotFoundError")), said
    assert listed.startswith("1 2" if "namespaces" in names else DENIED)
    assert not answer(child, "own").startswith((DENIED, "FileNotFoundError"))


@needs("landlock")
@pytest.mark.parametrize("attack", ["fifo", "link"])
def test_only_regular_files_and_folders_are_made(refused, attack):
    child = refused(JAILED.names)
    assert answer(child, attack, child.directory / "it").startswith(DENIED)


@needs("namespaces")
def test_a_namespace_has_no_network_and_no_other_process(start):
    server = socket.create_server(("127.0.0.1", 0))
    child = start(replace(WITH_PROCESSES, names=("namespaces",)))
    assert answer(child, "connect", server.getsockname()[1]).startswith("OSError: Network is unreachable")
    assert answer(child, "processes") == "1 2"
    server.close()


@pytest.mark.parametrize(
    "names",
    [pytest.param(("namespaces", "landlock", "seccomp"), marks=needs("namespaces")), ("landlock", "seccomp"), ()],
    ids=["all walls", "no namespaces", "no wall"],
)
def test_what_may_start_processes_leaves_none(start, names):
    """The seccomp filter refuses ``setsid``; without it the survivor has a session of its own, and dies too."""
    child = start(Walls(names=tuple(name for name in names if name != "seccomp"), processes=True))
    note = child.directory / "alive"
    assert answer(child, "survive", note) == "forked"
    wait_until_it_is_written_again(note)  # the attack works while the child lives
    child.end()
    assert stands_still(note)


def test_what_survives_a_crash_is_ended_too(start):
    child = start(Walls(names=(), processes=True))
    note = child.directory / "alive"
    assert answer(child, "survive", note) == "forked"
    ending = asked(child, "no-such-attack")
    assert ending.how == "died"
    assert stands_still(note)


@needs("namespaces")
def test_a_folder_in_memory_is_full_where_its_limit_says(start):
    child = start(tracer.WALLS)
    assert answer(child, "litter", child.directory) == "OSError: No space left on device"
    child = start(tracer.WALLS)
    assert answer(child, "fill", child.directory / "large") == "OSError: No space left on device"
    assert list(child.directory.iterdir()) == [], "nothing of it is on the disk"


@pytest.mark.parametrize(
    ("attack", "name", "limits"),
    [("litter", "", {"folder_files": 500}), ("fill", "large", {"folder_bytes": 64 << 20})],
    ids=["files", "bytes"],
)
def test_a_folder_on_disk_is_watched(start, attack, name, limits):
    child = start(replace(JAILED, names=(), **limits))
    ending = asked(child, attack, child.directory / name)
    assert ending.how == "disk"


def test_a_child_that_takes_more_memory_than_it_may_is_ended(start):
    child = start(JAILED)
    ending = asked(child, "eat", "x", replace(LIMITS, memory_bytes=512 << 20))
    assert (ending.how, ending.answer) == ("memory", "")
    assert not child.alive


def test_a_child_that_does_not_answer_in_time_is_ended(start):
    child = start(JAILED)
    assert answer(child, "processes"), "it is up before the clock runs"
    ending = asked(child, "sleep", "x", replace(LIMITS, seconds=0.5))
    assert (ending.how, ending.answer) == ("timeout", "")
    assert ending.seconds >= 0.5
    assert not child.alive


@pytest.mark.parametrize("wall", JAILED.names)
def test_a_wall_that_is_not_there_is_reported(start, wall):
    child = start(replace(JAILED, names=tuple(name for name in JAILED.names if name != wall)))
    assert wall in child.missing
    assert wall in tracer.lost(child.missing)


NO_USER_NAMESPACES = """
echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c '
import sys
from pathlib import Path
from ratchet.process.sandbox.child import Child
with Child("tests.process.sandbox.hostile", directory=Path(sys.argv[1])) as child:
    print(*child.missing)
' "$1"
"""


@needs("namespaces")
def test_a_system_without_user_namespaces_still_judges(tmp_path):
    """In a namespace whose owner allows no more of them."""
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_USER_NAMESPACES, sys.executable]
    done = subprocess.run(
        [*command, str(tmp_path / "child")], cwd=PACKAGE_ROOT, check=False, capture_output=True, text=True
    )
    if "max_user_namespaces" in done.stderr or done.returncode == 127:
        pytest.skip("the number of user namespaces cannot be limited here")
    assert done.stdout.split() == [name for name in JAILED.names if name == "namespaces" or name in missing()], (
        done.stderr
    )


def test_no_wall_missing_says_nothing():
    assert tracer.lost(()) == ""


def test_a_kernel_without_landlock_has_version_0(monkeypatch):
    def refused(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "syscall", refused)
    assert landlock.version() == 0
    assert landlock.restrict(readable=[], writable=[]) is False
