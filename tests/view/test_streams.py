"""Streams that cannot be written: nothing raises, and what was wrong is known afterwards."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.view.streams import Lasting
from tests.imports import HERE

PROGRAM = """
import sys
from ratchet.view.streams import lasting
with lasting() as output:
    for _ in range(3):
        print("\u00b7" * 5000)
        print("said", file=sys.stderr)
    output.flush()
    code = 7 if output.error is None else 8 if isinstance(output.error, BrokenPipeError) else 9
sys.exit(code)
"""


def run(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program under the redirections of ``shell``; the last line of its own output is the program's exit code."""
    return subprocess.run(
        ["bash", "-c", f'"$0" -P -c "$1" {shell}', sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE), **environment},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("", 7),
        ("> /dev/full", 9),
        ("2> /dev/full", 7),
        ("> /dev/full 2> /dev/full", 9),
        (">&-", 7),
        ("2>&-", 7),
        ("<&- >&- 2>&-", 7),
        ("| true; exit ${PIPESTATUS[0]}", 8),
    ],
)
def test_a_program_ends_as_it_meant_to(shell: str, code: int, unbuffered: str) -> None:
    done = run(shell, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == code, done.stderr
    assert done.stderr in ("", "said\n" * 3), "and nothing else, from the interpreter's end either"
    assert "said" not in done.stdout, "a closed standard error does not lead to the output"


def test_an_encoding_that_lacks_a_character() -> None:
    done = run("", PYTHONIOENCODING="ascii")
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("\\xb7\\xb7")


def test_only_a_reader_who_went_away_is_no_error(tmp_path: Path) -> None:
    def tried(path: str | int) -> Lasting:
        stream = Lasting(os.fdopen(path, "w") if isinstance(path, int) else open(path, "w"))  # noqa: SIM115
        stream.write("text")
        stream.flush()
        return stream

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        tried("/dev/full").check()
    reader, writer = os.pipe()
    os.close(reader)
    pipe = tried(writer)
    assert isinstance(pipe.error, BrokenPipeError)
    pipe.check()
    tried(str(tmp_path / "file")).check()
    assert (tmp_path / "file").read_text() == "text"
