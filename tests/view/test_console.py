"""How wide output may be, by what it goes to, and whether it has colours."""

import os
import pty
import sys
import termios

import pytest

from ratchet.view.console import coloured, terminal_width


@pytest.fixture
def streams(monkeypatch, tmp_path):
    """A terminal of 93 columns, a pipe and a file, each open for writing; no width is given."""
    monkeypatch.delenv("COLUMNS", raising=False)
    above, below = pty.openpty()
    termios.tcsetwinsize(below, (24, 93))
    reads, writes = os.pipe()
    with os.fdopen(below, "w") as terminal, os.fdopen(writes, "w") as pipe, (tmp_path / "log.txt").open("w") as file:
        yield {"terminal": terminal, "pipe": pipe, "file": file}
    os.close(above)
    os.close(reads)


@pytest.mark.parametrize(
    ("out", "beside", "width"),
    [
        ("terminal", "file", 93),
        ("pipe", "terminal", 93),
        ("file", "terminal", None),
        ("pipe", "file", None),
    ],
)
def test_a_pipe_fits_the_terminal_behind_it_and_a_file_is_not_cut(streams, monkeypatch, out, beside, width):
    monkeypatch.setattr(sys, "stdout", streams[out])
    monkeypatch.setattr(sys, "stderr", streams[beside])
    assert terminal_width() == width
    monkeypatch.setenv("COLUMNS", "71")
    assert terminal_width() == 71


@pytest.mark.parametrize("given", ["", "0", "wide", "-3"])
def test_a_width_that_is_none_is_not_one(streams, monkeypatch, given):
    monkeypatch.setenv("COLUMNS", given)
    monkeypatch.setattr(sys, "stdout", streams["file"])
    assert terminal_width() is None


def test_a_terminal_that_does_not_say_its_width_has_none(streams, monkeypatch):
    termios.tcsetwinsize(streams["terminal"], (0, 0))
    monkeypatch.setattr(sys, "stdout", streams["terminal"])
    assert terminal_width() is None


def test_colours_are_for_terminals_that_want_them(streams, monkeypatch):
    monkeypatch.setattr(sys, "stdout", streams["terminal"])
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not coloured()
