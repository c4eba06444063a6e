"""What a child is like behind its walls, by what Linux says of it, and how it ends."""

import fcntl
import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.process.boot import children
from ratchet.process.boot.children import Interpreter, environment, packages
from ratchet.process.sandbox import landlock, launcher
from ratchet.process.sandbox.child import JAILED, OPEN, Child, resident_bytes
from ratchet.process.sandbox.folder import Folder
from ratchet.process.sandbox.warm import Kind, Warm
from tests.process.sandbox.children import QUICK, answer, asked, until
from tests.walls import needs


@pytest.fixture(scope="module")
def warm():
    """A process that has imported NumPy, whose libraries start threads."""
    one = Warm(Kind(name="test", modules=("ratchet.exam.judge.schedule_worker",)))
    yield one
    one.close()


@pytest.fixture(params=["a new process", "a fork"])
def start(tmp_path, request):
    """Starts children, each way that there is, and ends them."""
    started = []
    of = request.getfixturevalue("warm") if request.param == "a fork" else None

    def child(walls=JAILED, **options):
        folder = tmp_path / f"child{len(started)}"
        started.append(Child(QUICK, directory=folder, walls=walls, warm=of, **options))
        return started[-1]

    yield child
    for one in started:
        one.close()


def fields(text, *names):
    """Of ``/proc/self/status``, whose lines have become spaces."""
    words = text.split()
    return [words[words.index(f"{name}:") + 1] for name in names]


@needs("namespaces", "landlock", "seccomp")
def test_a_child_behind_all_walls(start):
    child = start(replace(JAILED, in_memory=True, folder_bytes=64 << 20, folder_files=1000))
    assert child.missing == ()
    status = answer(child, "read", "/proc/self/status")
    rights = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Threads")
    assert fields(status, *rights) == ["0" * 16] * 5 + ["1", "2", "1"]
    limits = answer(child, "read", "/proc/self/limits").split("Max ")
    assert [" ".join(line.split()[-3:-1]) for line in limits if line.startswith(("core", "file size"))] == [
        f"{1 << 30} {1 << 30}", "0 0",
    ]  # fmt: skip
    assert [line.split()[1:3] for line in limits if line.startswith("processes")] == [["4096", "4096"]]
    mounts = answer(child, "read", "/proc/self/mounts")
    flags = "rw,nosuid,nodev,noexec,relatime"
    assert f"proc /proc proc {flags} 0 0" in mounts
    assert f"tmpfs {child.directory} tmpfs {flags},size=65536k,nr_inodes=1000,mode=700" in mounts
    assert "shared:" not in answer(child, "read", "/proc/self/mountinfo")
    own = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
    theirs = answer(child, "spaces").split()
    same = {one.partition(":")[0] for one in own if one in theirs}
    assert same <= {"time", "time_for_children"}
    assert len(theirs) == len(own)
    for name, number in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
        assert answer(child, "read", f"/proc/self/{name}").split() == [str(number), str(number), "1"]
    assert answer(child, "read", "/proc/self/setgroups") == "deny "


def test_a_wall_that_the_system_offers_is_there(start):
    """Else every test that needs it is left out."""
    offered = {
        "namespaces": not subprocess.run(
            ["unshare", "--user", "--pid", "--fork", "--mount-proc", "--net", "--map-root-user", "true"],
            check=False, capture_output=True,
        ).returncode,
        "landlock": landlock.version() > 0,
        "seccomp": "errno" in actions() and os.uname().machine == "x86_64",
    }  # fmt: skip
    assert {wall for wall, there in offered.items() if there} & set(start().missing) == set()


def actions():
    """What seccomp can do on this system."""
    known = Path("/proc/sys/kernel/seccomp/actions_avail")
    return known.read_text().split() if known.exists() else []


def test_the_walls_are_reported_to_all_who_wait_for_them(start, monkeypatch):
    """There is one report: who waits for another is held up by a minute."""
    taken, take = [], socket.recv_fds

    def slowly(*asked):
        taken.append(asked)
        time.sleep(0.2)
        return take(*asked)

    monkeypatch.setattr(socket, "recv_fds", slowly)
    child, folders = start(), []
    threads = [threading.Thread(target=lambda: folders.append(child.folder)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert len(folders) == 4
    assert len(set(map(id, folders))) == 1


def test_a_child_without_walls_has_its_limits_left(start):
    child = start(OPEN)
    assert child.missing == ("namespaces", "landlock", "seccomp")
    limits = answer(child, "read", "/proc/self/limits")
    assert f"Max file size {1 << 30}" not in " ".join(limits.split())
    assert "Max core file size 0 0 bytes" in " ".join(limits.split())
    assert fields(answer(child, "read", "/proc/self/status"), "NoNewPrivs", "Seccomp") == [
        "1", fields(" ".join(Path("/proc/self/status").read_text().split()), "Seccomp")[0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("code-0", 0, ""),
        ("code-3", 3, ""),
        ("text-a reason", 1, ""),
        ("nothing-", 0, ""),
        ("raise", 1, "ValueError: what nobody catches"),
        (f"signal-{signal.SIGTERM.value}", -signal.SIGTERM, ""),
        (f"signal-{signal.SIGABRT.value}", -signal.SIGABRT, ""),
        (f"signal-{signal.SIGKILL.value}", -signal.SIGKILL, ""),
    ],
)
def test_how_a_child_ends_is_how_its_module_ended(start, how, code, said):
    child = start(OPEN)
    ending = asked(child, "leave", how)
    assert (ending.how, ending.answer, ending.returncode) == ("died", "", code)
    assert said in ending.tail
    assert not child.alive


def test_a_child_whose_module_is_not_there_says_so(tmp_path):
    with Child("tests.process.sandbox.none", directory=tmp_path / "child") as child:
        ending = asked(child, "processes")
    assert (ending.how, ending.returncode) == ("died", 1)
    assert "No module named tests.process.sandbox.none" in ending.tail


@needs("landlock")
def test_a_child_whose_jail_cannot_be_built_says_so(start, tmp_path):
    child = start()
    child.end()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        Child(QUICK, directory=tmp_path / "file")


def test_an_answer_is_one_line_and_what_is_printed_is_only_kept(start):
    child = start(OPEN)
    ending = asked(child, "say", 3000)
    assert (ending.how, ending.answer) == ("answered", "a" * 3000)
    assert ending.tail == "p" * 3000 + "end\n"
    ending = asked(child, "say", 3990)
    assert ending.answer == "a" * 3990
    assert ending.tail == "ppend\n" + "p" * 3990 + "end\n"
    assert answer(child, "read", "/proc/self/uid_map").endswith(" "), "a line break is a space"


def test_a_child_prints_no_more_than_it_may(start):
    child = start(OPEN)
    os.truncate(child.directory.with_name(f"{child.directory.name}.output.txt"), (64 << 20) + 1)
    ending = asked(child, "processes")
    assert (ending.how, ending.answer) == ("disk", "")
    child = start(OPEN)
    os.truncate(child.directory.with_name(f"{child.directory.name}.output.txt"), 64 << 20)
    assert asked(child, "processes").how == "answered"


@pytest.mark.parametrize(
    ("used", "how"),
    [((100_000, 16 << 30), "answered"), ((100_001, 0), "disk"), ((0, (16 << 30) + 1), "disk")],
)
def test_a_folder_holds_no_more_than_it_may(start, monkeypatch, used, how):
    child = start(OPEN)
    monkeypatch.setattr(Folder, "used", lambda self, *, files: used if files == 100_000 else None)
    assert asked(child, "processes").how == how


def test_a_child_knows_what_the_judge_says_and_nothing_of_the_callers(start, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    child = start(OPEN, environment={"JAX_PLATFORMS": "", "MORE": "1"})
    known = dict(one.split("=", 1) for one in answer(child, "variables").split(" ") if "=" in one)
    assert {name: known.get(name) for name in ("HOME", "TMPDIR")} == dict.fromkeys(
        ("HOME", "TMPDIR"), str(child.directory)
    )
    assert set(known) <= {
        "HOME", "TMPDIR", "PATH", "LANG", "LC_CTYPE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "JAX_PLATFORMS",
        "OPENBLAS_NUM_THREADS", "MORE",
    }  # fmt: skip
    assert (known["LANG"], known["JAX_PLATFORMS"], known["MORE"]) == ("C.UTF-8", "", "1")
    assert environment({})["JAX_PLATFORMS"] == "cpu"
    assert environment({})["OPENBLAS_NUM_THREADS"] == "1"  # more spin for a tenth of a second


def test_requests_have_folders_of_their_own(start):
    child = start(OPEN)
    assert [child.request().name for _ in range(2)] == ["request-0001", "request-0002"]
    assert (child.directory / "request-0002").is_dir()
    child.folder.write("note", b"seen")
    assert answer(child, "read", child.directory / "note") == "seen"


@pytest.mark.parametrize("under_way", [False, True], ids=["idle", "under way"])
def test_a_child_may_be_cancelled_from_elsewhere(start, under_way):
    """It ends, and is not taken for one that can be asked."""
    child = start(OPEN)
    assert answer(child, "processes")
    assert child.alive
    canceller = threading.Timer(0.1 if under_way else 0.0, child.cancel)
    canceller.start()
    if not under_way:
        canceller.join()
        assert not child.alive
    ending = asked(child, "sleep")
    canceller.join()
    assert (ending.how, ending.answer) == ("cancelled", "")
    assert not child.alive


def test_memory_is_that_of_the_whole_group():
    """Of a group in which there is one more process."""
    first = os.fork()
    if not first:
        os.setpgid(0, 0)
        held = bytearray(64 << 20)
        held[::4096] = b"x" * len(held[::4096])
        if os.fork():
            time.sleep(600)
        held[::4096] = b"y" * len(held[::4096])
        time.sleep(600)
        os._exit(0)
    try:
        until(lambda: resident_bytes(first) >= 128 << 20)
        assert 128 << 20 <= resident_bytes(first) < 8 << 30
    finally:
        os.killpg(first, signal.SIGKILL)
        os.waitpid(first, 0)
    assert resident_bytes(2**22 + 1) == 0


@pytest.mark.parametrize("walls", [OPEN, JAILED], ids=["no wall", "all walls"])
def test_a_child_holds_nothing_but_its_streams(start, walls):
    """Standard input, what it prints twice, and its channel: nothing of the launcher's."""
    child = start(walls)
    output = str(child.directory.with_name(f"{child.directory.name}.output.txt"))
    assert answer(child, "descriptors").split() == ["pipe", output, output, "pipe"]


def test_a_child_ends_with_its_block_and_gives_everything_back(tmp_path, monkeypatch):
    """By letting go of it: the judge does not have to kill its process group."""
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("it did not end by itself"))
    before = os.listdir("/proc/self/fd")
    with Child(QUICK, directory=tmp_path / "child", walls=OPEN) as child:
        assert answer(child, "processes")
        outer = child._process.pid
    assert not child.alive
    assert os.listdir("/proc/self/fd") == before
    assert not Path(f"/proc/{outer}").exists()


def test_the_streams_are_the_modules_alone(start):
    """What waits for its end does not hold them open."""
    child = start(OPEN)
    assert answer(child, "processes")
    outer = child._process.pid
    for process in (outer, below(outer)):
        assert {"0", "1"}.isdisjoint(os.listdir(f"/proc/{process}/fd"))


def below(process):
    """The only child of a process."""
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize("walls", [OPEN, pytest.param(JAILED, marks=needs("namespaces"))], ids=["no wall", "all walls"])
@pytest.mark.parametrize("which", ["middle", "inner"])
def test_a_child_of_which_one_process_is_killed_ends_whole(start, walls, which):
    child = start(walls)
    assert answer(child, "processes")
    outer = child._process.pid
    middle = below(outer)
    inner = below(middle)
    os.kill(middle if which == "middle" else inner, signal.SIGKILL)
    until(lambda: not child.alive)
    ending = asked(child, "processes")
    assert (ending.how, ending.returncode) == ("died", -signal.SIGKILL)
    assert not any(Path(f"/proc/{process}").exists() for process in (outer, middle, inner))


def test_a_child_that_is_dead_before_its_walls_are_built_has_a_folder(start):
    child = start(OPEN)
    os.kill(child._process.pid, signal.SIGKILL)
    assert child.missing in ((), ("namespaces", "landlock", "seccomp"))
    child.folder.write("note", b"seen")
    assert (child.directory / "note").read_bytes() == b"seen"


def test_an_answer_that_is_too_long_is_none(start):
    ending = asked(start(OPEN), "say", 5000)
    assert (ending.how, ending.answer) == ("died", "")


def launched(wanted, prepare=lambda: None):
    """How the launcher ends when it is asked for this, and what it says: in a process of its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said, say = os.pipe()
    process = os.fork()
    if not process:
        sys.stderr = os.fdopen(say, "w")
        try:
            ours.close()
            prepare()
            launcher.main(theirs.fileno())
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(99)
    theirs.close()
    os.close(say)
    ours.send(json.dumps(wanted).encode())
    with os.fdopen(said) as file:
        text = file.read()
    ours.close()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text


WANTED = {
    "module": QUICK, "directory": "/no/such/folder", "walls": [], "processes": True, "folder_bytes": 0,
    "folder_files": 0, "readable": [], "packages": [],
}  # fmt: skip


def test_a_jail_that_cannot_be_built_runs_nothing_and_says_why():
    code, said = launched(WANTED)
    assert code == 70
    assert said.startswith("the jail cannot be built: FileNotFoundError: ")


def test_a_launcher_with_two_threads_builds_no_jail():
    def prepare():
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

    assert launched(WANTED, prepare) == (99, "2 threads, wanted one\n")


def test_the_modules_that_a_child_is_given_cannot_be_changed():
    descriptor = children.code()
    assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == 1 | 2 | 4 | 8, "seal, shrink, grow, write"
    assert not os.get_inheritable(descriptor)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    assert children.code() == descriptor
    modules = marshal.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    assert {"ratchet.process.boot.sources", "ratchet.process.sandbox.launcher", "ratchet.exam.problem.parity"} <= set(
        modules
    )


def test_another_python_is_given_sources_of_what_it_needs():
    other = children.code(Interpreter(executable="python", path=(), readable=(), programs=()))
    data = os.pread(other, os.fstat(other).st_size, 0)
    modules = marshal.loads(data)
    assert {
        "ratchet.process.sandbox.child",
        "ratchet.process.sandbox.launcher",
        "ratchet.exam.candidate.worker",
    } <= set(modules)
    assert "ratchet.exam.problem.parity" not in modules
    assert "def main(" in str(modules["ratchet.process.sandbox.launcher"][2])
    assert data[0] == ord("{"), "no format of marshal's that an older Python cannot read"


def test_packages_are_this_pythons_own(monkeypatch):
    before = packages()
    assert all(Path(one).is_absolute() and Path(one).is_dir() for one in before)
    assert len(set(before)) == len(before)
    monkeypatch.setattr(sys, "path", [*sys.path, "/some/site-packages", "/some/where"])
    assert packages() == (*before, "/some/site-packages")
