"""Other clones: fetching one of their lines, with its rows, into refs that are taken away again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.loop.plumbing import Git, first_line
from ratchet.loop.refs import EXPERIMENTS, MACS, ROWS, TIPS
from ratchet.process import paths
from ratchet.values.status import Refusal, Status

FETCHED = "refs/ratchet/fetched/"
"""Where a line of another clone is while it is read: its ``head`` and copies of its refs, below."""
_OURS = "refs/ratchet/"
_SERVES = ("--upload-pack", "git-upload-pack")
"""What the other side starts, whatever the configuration names for a remote."""
_LINE_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A line of another clone, fetched."""

    branch: str
    """Full name, e.g. ``refs/heads/main``."""
    is_head: bool
    """Whether it is what HEAD of that clone is on."""
    commit: str


class Remotes:
    """What is asked of other clones. User text reaches git behind ``--``."""

    def __init__(self, git: Git) -> None:
        self._git = git

    @contextlib.contextmanager
    def fetched(self, source: str, branch: str = "") -> Iterator[Fetched]:
        """The line ``branch`` (default: what its HEAD is on) of ``source``, in refs below ``FETCHED`` for the block.

        ``source`` is a remote's name, a URL, or the folder of a clone.

        Raises:
            Refusal: NOT_FOUND where it cannot be reached, or has no such branch; LEDGER_BROKEN where a ref of its
                names no line of a ledger, or no commit.
        """
        place = self._place(source)
        on = self._on(source, place)
        name = f"refs/heads/{branch}" if branch else on
        self.clear()
        kept = (EXPERIMENTS, ROWS, MACS, TIPS)
        copies = [f"+{prefix}*:{FETCHED}{prefix.removeprefix(_OURS)}*" for prefix in kept]
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=")
        try:
            if branch and self._git.run("check-ref-format", name)[0]:
                raise Refusal(Status.NOT_FOUND, f"{source} has no branch {branch!r:.80}: no branch is called so")
            code, _, error = self._git.run("fetch", *quiet, *_SERVES, "--", place, f"+{name}:{FETCHED}head", *copies)
            if code and "find remote ref" in error:
                raise Refusal(Status.NOT_FOUND, f"{source} has no branch {name.removeprefix('refs/heads/')!r:.80}")
            if code:
                raise _unreachable(source, error)
            self._check(source)
            commit = self._git.line("rev-parse", f"{FETCHED}head^{{commit}}")
            yield Fetched(branch=name, is_head=name == on, commit=commit)
        finally:
            self.clear()

    def _check(self, source: str) -> None:
        """What was fetched is read as a whole: lines of a ledger, of a size that lines have."""
        out = self._git.output("for-each-ref", "--format=%(objecttype) %(objectsize) %(refname)", FETCHED)
        for line in os.fsdecode(out).splitlines():
            kind, size, name = line.split(" ", 2)
            called = name.removeprefix(FETCHED)
            is_commit = called == "head" or called.startswith(EXPERIMENTS.removeprefix(_OURS))
            if kind != ("commit" if is_commit else "blob") or (not is_commit and int(size) > _LINE_BYTES):
                what = f"ref {called!r:.100} names a {kind} of {size} bytes"
                wanted = "a commit" if is_commit else f"a line of at most {_LINE_BYTES} bytes"
                raise Refusal(Status.LEDGER_BROKEN, f"{source!r:.200} cannot be merged: its {what}, wanted {wanted}")

    def _place(self, source: str) -> str:
        """A folder's name as seen from the caller's, unless a remote is called so."""
        names = os.fsdecode(self._git.output("remote")).splitlines()
        here = bool(source) and source not in names and paths.is_folder(Path(source).resolve())
        return os.path.realpath(source) if here else source

    def _on(self, source: str, place: str) -> str:
        code, out, error = self._git.run("ls-remote", "--symref", *_SERVES, "--", place, "HEAD")
        if code:
            raise _unreachable(source, error)
        first = os.fsdecode(out).partition("\n")[0]
        return first.removeprefix("ref: ").partition("\t")[0] if first.startswith("ref: ") else "refs/heads/HEAD"

    def clear(self) -> None:
        """Take the fetched refs away, those of a run that was killed too."""
        names = self._git.output("for-each-ref", "--format=delete %(refname)", FETCHED)
        if names:
            self._git.output("update-ref", "--stdin", stdin=names)

    def common(self, one: str, other: str) -> str | None:
        """The commit at which two lines parted; None where they share none."""
        code, out, _ = self._git.run("merge-base", one, other)
        return None if code else out.decode().split()[0]

    def changed(self, one: str, other: str) -> tuple[str, ...]:
        """The paths in which two commits differ, sorted."""
        out = self._git.output("diff-tree", "-r", "-z", "--name-only", "--no-renames", one, other)
        return tuple(os.fsdecode(path) for path in out.split(b"\0") if path)


def _unreachable(source: str, error: str) -> Refusal:
    why = first_line(error).removeprefix("fatal: ")
    what = "wanted a remote's name, a URL, or the folder of another clone"
    return Refusal(Status.NOT_FOUND, f"{source!r:.200} cannot be reached ({why}): {what}")
