"""One run of a user's command: what it may write, how long, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.agents import running
from ratchet.process.sandbox import landlock

CALL = """
import json, os, sys
from pathlib import Path
from ratchet.agents import running
running.PRINTED_BYTES = 1 << 20
running.FREE_BYTES = int(os.environ.get("FREE_BYTES", "0"))
done = running.run(
    sys.argv[2:], cwd=Path(), environment=os.environ, transcript=Path("said"), seconds=float(sys.argv[1]),
    writable=[Path("kernel.py").resolve(), Path("scratch").resolve()],
    hidden=Path("keys").resolve(),
)
print(done.limit or done.exit_code)
"""


def ran(folder: Path, seconds: float, *words: str, **environment: str) -> str:
    """The exit code of a command, or its limit, run by a process of its own: it ends every descendant of that."""
    here = Path(__file__).resolve().parents[2]
    (folder / "scratch").mkdir()
    (folder / "kernel.py").write_text("old\n")
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(seconds), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(here), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def commands() -> Iterator[bytes]:
    """The command lines of all processes."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield entry.read_bytes()


@pytest.mark.parametrize(("ends", "code"), [("exit 0", "0"), ("exit 7", "7"), ("kill -SEGV $$", "-11")])
def test_how_a_command_ended(tmp_path, ends, code):
    assert ran(tmp_path, 300, "sh", "-c", f"echo said; {ends}") == code
    assert (tmp_path / "said").read_text() == "said\n"


def test_what_prints_without_end_is_ended_and_its_transcript_cut(tmp_path):
    assert ran(tmp_path, 300, "sh", "-c", "while :; do head -c 100000 /dev/zero; done") == "it printed more than 1 MiB"
    assert (tmp_path / "said").stat().st_size == 1 << 20


def test_what_fills_the_disk_is_ended(tmp_path):
    """Every disk has less than an exabyte left."""
    assert "MiB of the disk" in ran(tmp_path, 300, "sleep", "9999", FREE_BYTES=str(1 << 60))


@pytest.mark.parametrize(("seconds", "foreground"), [(2, True), (300, False)])
def test_nothing_that_it_started_outlives_it(tmp_path, seconds, foreground):
    """Neither at the time limit nor where it ends by itself; a session of its own does not help."""
    mark = f"{os.getpid()}31337"
    script = f"setsid sh -c 'trap \"\" TERM; sleep {mark}' & {'sleep 9999' if foreground else 'true'}"
    assert ran(tmp_path, seconds, "sh", "-c", script) == ("None" if foreground else "0")
    assert [command for command in commands() if mark.encode() in command] == []


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_it_writes_the_kernel_and_its_scratch_folder_alone(tmp_path):
    script = (
        "echo new > kernel.py; echo x > scratch/note; mkdir scratch/more; ln -s / scratch/link; "
        "echo x > beside; mkdir folder; rm kernel.py; mv scratch/note here; chmod 600 said; "
        "cat /etc/hostname > /dev/null && echo reads"
    )
    assert ran(tmp_path, 300, "sh", "-c", script) == "0"
    assert (tmp_path / "kernel.py").read_text() == "new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel.py", "said", "scratch"]
    assert sorted(path.name for path in (tmp_path / "scratch").iterdir()) == ["link", "more", "note"]
    assert (tmp_path / "said").read_text().endswith("reads\n")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter knows the calls of x86-64")
def test_modes_and_times_of_the_users_files_stay(tmp_path):
    """Landlock does not know them: the calls say that they were made."""
    mine = tmp_path / "mine"
    mine.write_text("the user's")
    mine.chmod(0o640)
    os.utime(mine, (0, 0))
    before = mine.stat()
    tried = "chmod 777 mine && chown 1:1 mine && touch -d 2001-01-01 mine && cp -p mine scratch/copy && echo said so"
    assert ran(tmp_path, 300, "sh", "-c", tried) == "0"
    assert "said so" in (tmp_path / "said").read_text()
    after = mine.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns, after.st_ctime_ns) == (
        *(before.st_mode, before.st_uid, before.st_mtime_ns, before.st_ctime_ns),
    )
    assert (tmp_path / "scratch" / "copy").read_text() == "the user's"


@pytest.mark.parametrize("change", ["content", "mode", "new", "gone", "link", "folder"])
def test_every_change_below_a_folder_shows(tmp_path, change):
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "one").write_text("1")
    (top / "two").write_text("2")
    (top / "kernel.py").write_text("k")
    before = running.of_tree(top, "kernel.py")
    (top / "kernel.py").write_text("another")
    assert running.changed(before, running.of_tree(top, "kernel.py")) == []
    actions = {
        "content": lambda: (top / "sub" / "one").write_text("3"),
        "mode": lambda: (top / "two").chmod(0o755),
        "new": lambda: (top / "sub" / "new").write_text(""),
        "gone": (top / "two").unlink,
        "link": lambda: ((top / "two").unlink(), (top / "two").symlink_to("sub/one")),
        "folder": (top / "empty").mkdir,
    }
    actions[change]()
    names = {"content": "sub/one", "mode": "two", "new": "sub/new", "gone": "two", "link": "two", "folder": "empty"}
    changed = running.changed(before, running.of_tree(top, "kernel.py"))
    assert changed == [str(top / names[change])]


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    "read",
    [
        *(
            "cat keys/key",
            "cat scratch/../keys/key",
            "ln -s $PWD/keys scratch/way; cat scratch/way/key",
            "cat link/key",
        ),
        *("cat /proc/self/cwd/keys/key", "ln keys/key scratch/hard && cat scratch/hard", "cat keys/deep/other"),
    ],
)
def test_the_folder_of_the_key_cannot_be_read(tmp_path, read):
    (tmp_path / "keys" / "deep").mkdir(parents=True)
    (tmp_path / "keys" / "key").write_text("secret")
    (tmp_path / "keys" / "deep" / "other").write_text("secret")
    (tmp_path / "beside").write_text("can be read")
    (tmp_path / "link").symlink_to("keys")
    ran(tmp_path, 300, "sh", "-c", f"cat beside kernel.py; {read}; mv keys scratch/moved; cat scratch/moved/key")
    said = (tmp_path / "said").read_text()
    assert "can be read" in said
    assert "old" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "cut", ["truncate -s 0 /proc/self/fd/1", ": > /proc/self/fd/1", "(exec 1>/dev/null; : > said)"]
)
def test_what_it_said_cannot_be_taken_back(tmp_path, cut):
    """It has a pipe, and no descriptor of the file."""
    ran(tmp_path, 300, "sh", "-c", f"echo first; {cut}; echo second >&2")
    assert (tmp_path / "said").read_text().startswith("first\n")
    assert "second" in (tmp_path / "said").read_text()
