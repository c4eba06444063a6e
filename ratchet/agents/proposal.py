"""A proposal: new bytes for the one kernel file, put there for one turn of the ratchet and taken back if it has none.

A turn that judged the file keeps or reverts it. One that was refused or interrupted leaves it as it was proposed, for a
person to try again; an agent's file goes back then, so that the next proposal begins from HEAD.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ratchet.loop.history import History
from ratchet.loop.objects import Entry
from ratchet.loop.subject import Subject
from ratchet.process import paths
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

MOST_BYTES = 1 << 20
"""Of a proposed kernel file or patch: those that people write are far smaller."""
MOST_MESSAGE = 4000
"""Characters of a message."""
_PATCH_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Target:
    """The kernel file that proposals are for."""

    root: Path
    kernel: str
    """Relative to ``root``."""

    @classmethod
    def of(cls, root: Path, kernel: Path) -> Target:
        """Raises:
        Refusal: as for an experiment on ``kernel``.
        """
        history = History(root)
        return cls(root=history.root, kernel=Subject.of(history, kernel).kernel)

    @property
    def path(self) -> Path:
        return self.root / self.kernel

    def head(self) -> bytes:
        """The kernel as HEAD has it.

        Raises:
            Refusal: NOT_FOUND where HEAD has none.
        """
        history = History(self.root)
        return history.objects.blob(self._entry(history).blob)

    def put(self, data: bytes) -> None:
        """Write a proposal into the kernel file.

        Raises:
            Refusal: USAGE where it is too large, DIRTY where the file holds something that HEAD does not have.
        """
        if len(data) > MOST_BYTES:
            raise Refusal(Status.USAGE, f"the proposal has {len(data)} bytes, wanted at most {MOST_BYTES}")
        history = History(self.root)
        head = self._entry(history)
        now = history.files.entry(self.kernel, head)
        if now is None or now.blob != head.blob:
            todo = f"try it as an experiment, or `git checkout HEAD -- {self.kernel}`"
            raise Refusal(Status.DIRTY, f"{self.kernel} was edited here and is not what HEAD has: {todo}")
        self._write(data)

    def take_back(self, data: bytes) -> None:
        """Give the file back what HEAD has, if it still holds the proposal ``data``, and it and HEAD can be read."""
        with contextlib.suppress(Refusal, OSError, ValueError):
            if paths.read(self.path, MOST_BYTES) == data != (head := self.head()):
                self._write(head)

    def patched(self, patch: str) -> bytes:
        """HEAD's kernel with a unified diff applied.

        Raises:
            Refusal: USAGE where it does not apply, or changes anything but the kernel file.
        """
        with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
            folder = Path(os.path.realpath(name))
            file = folder / self.kernel
            paths.make_folder(file.parent)
            paths.write(file, self.head())
            _apply(folder, patch)
            others = [one for one in Root(folder).entries() if one != self.kernel]
            if others or not paths.is_file(file):
                shown = ", ".join(others[:5]) or self.kernel
                what = f"the patch changes more than the text of {self.kernel}: {shown:.200}"
                raise Refusal(Status.USAGE, f"{what}; only the kernel file can be changed")
            return paths.read(file, MOST_BYTES)

    def _entry(self, history: History) -> Entry:
        entry = history.objects.entry(history.checks.head().commit, self.kernel)
        if entry is None:
            raise Refusal(Status.NOT_FOUND, f"HEAD has no {self.kernel}: commit it first")
        return entry

    def _write(self, data: bytes) -> None:
        Root(self.root).write(self.kernel, data, flush=False)


def message_of(text: str) -> str:
    """A commit message made of what an agent calls its experiment.

    Raises:
        Refusal: USAGE for an empty one, or what no argument of a process can hold.
    """
    text = text.strip()
    if not text or "\0" in text:
        raise Refusal(Status.USAGE, "the message is empty or holds a NUL: say what was changed and why it should help")
    return text[:MOST_MESSAGE].encode(errors="backslashreplace").decode()


def _apply(folder: Path, patch: str) -> None:
    """Apply a diff with or without ``a/`` and ``b/``, else with the lines of its hunks counted again: models miscount.

    Git refuses paths that lead out of the folder.

    Raises:
        Refusal: USAGE.
    """
    text = patch.encode(errors="replace")
    if len(text) > MOST_BYTES:
        raise Refusal(Status.USAGE, f"the patch has {len(text)} bytes, wanted at most {MOST_BYTES}")
    text = text if text.endswith(b"\n") else text + b"\n"
    around = {"PATH": os.environ.get("PATH", os.defpath), "GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"}
    said = ""
    for options in (("-p1",), ("-p1", "--recount"), ("-p0",), ("-p0", "--recount")):
        try:
            done = subprocess.run(
                ["git", "apply", *options, "--whitespace=nowarn", "-"],
                cwd=folder,
                env=around,
                input=text,
                capture_output=True,
                check=False,
                timeout=_PATCH_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Refusal(Status.USAGE, "the patch cannot be applied: git took too long for it") from None
        if not done.returncode:
            return
        said = said or done.stderr.decode(errors="replace").strip()
    raise Refusal(Status.USAGE, f"the patch does not apply to HEAD's kernel: {said:.300}")
