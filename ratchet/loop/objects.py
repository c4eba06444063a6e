"""Files and commits as git stores them. Nothing here touches a branch, the user's index or a working file."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.loop.plumbing import Git

_HASH = re.compile("[0-9a-f]{40,64}")
"""A whole hash of git's: SHA-1 has 40 digits, SHA-256 64."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file as git stores it."""

    mode: str
    """``100644`` or ``100755``."""
    blob: str


class Objects:
    """The objects of a repository."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._entries: dict[tuple[str, str], Entry | None] = {}

    def entry(self, commit: str, path: str) -> Entry | None:
        """The file ``path`` in ``commit``, or None if there is no such file."""
        if not _HASH.fullmatch(commit):
            return self._listed(commit, path)
        if (commit, path) not in self._entries:  # what a hash names never changes
            self._entries[commit, path] = self._listed(commit, path)
        return self._entries[commit, path]

    def _listed(self, commit: str, path: str) -> Entry | None:
        if path.startswith(("/", "../")):  # outside of the repository, which git calls an error
            return None
        for record in self._git.output("ls-tree", "-z", "--full-tree", commit, "--", path).split(b"\0"):
            kind, _, name = record.partition(b"\t")
            if os.fsdecode(name) == path and kind.startswith(b"100"):
                mode, _, blob = kind.decode().split(" ")
                return Entry(mode=mode, blob=blob)
        return None

    def blob(self, blob: str) -> bytes:
        """The bytes of a blob."""
        return self._git.output("cat-file", "blob", blob)

    def size(self, blob: str) -> int:
        """How many bytes a blob has."""
        return int(self._git.line("cat-file", "-s", blob))

    def blobs(self, blobs: Sequence[str]) -> list[bytes]:
        """The bytes of each blob, by one command; all of them are here."""
        return contents(self._git, blobs)

    def name(self, data: bytes, path: str) -> str:
        """The hash that the blob of a file ``path`` has which holds ``data``; nothing is stored."""
        return self._git.line("hash-object", "--stdin", f"--path={path}", stdin=data)

    def store(self, data: bytes) -> str:
        """Stores ``data`` as it is and returns the blob's hash."""
        return self._git.line("hash-object", "-w", "--stdin", stdin=data)

    def commit(self, *, parent: str, files: Mapping[str, Entry], message: str, joins: str = "") -> str:
        """A commit on ``parent`` with ``files`` changed; no branch, index or working file is touched.

        ``joins`` is a second parent, nothing of whose tree is taken.
        """
        tree = self._tree(parent, files)
        text = message.encode("utf-8", "backslashreplace")  # git reads bytes that are not UTF-8 as Latin-1
        parents = [word for one in (parent, joins) if one for word in ("-p", one)]
        return self._git.line("commit-tree", tree, *parents, "-F", "-", stdin=text)

    def copy(self, commit: str, *, parent: str, files: Mapping[str, Entry]) -> str:
        """A commit on ``parent`` with ``files`` changed; message, author and dates are those of ``commit``."""
        head, _, message = self._git.output("cat-file", "commit", commit).partition(b"\n\n")
        kept = [line for line in head.split(b"\n") if line.startswith((b"author ", b"committer ", b"encoding "))]
        lines = [f"tree {self._tree(parent, files)}".encode(), f"parent {parent}".encode(), *kept, b"", message]
        return self._git.line("hash-object", "-t", "commit", "-w", "--stdin", stdin=b"\n".join(lines))

    def _tree(self, parent: str, files: Mapping[str, Entry]) -> str:
        with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
            index = Path(folder, "index")
            self._git.output("read-tree", parent, index=index)
            self._git.output("update-index", "-z", "--index-info", stdin=index_info(files), index=index)
            return self._git.line("write-tree", index=index)

    def unresolved(self, names: Iterable[str]) -> set[str]:
        """Those of ``names`` that are not hashes of objects that are here."""
        names = set(names)
        asked = [name for name in names if _HASH.fullmatch(name)]
        out = self._git.output("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in asked).encode())
        here = {name for name, answer in zip(asked, out.splitlines(), strict=True) if not answer.endswith(b" missing")}
        return names - here


def contents(git: Git, blobs: Sequence[str]) -> list[bytes]:
    """The bytes of each blob, by one command.

    Raises:
        Refusal: as ``Git.trouble``, where one is not there.
    """
    if not blobs:
        return []
    out = git.output("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs).encode())
    read, at = [], 0
    for _ in blobs:
        start = out.index(b"\n", at) + 1
        header = out[at:start].split()
        if header[1] == b"missing":
            raise git.trouble("cat-file", f"there is no object {header[0].decode()}")
        at = start + int(header[2]) + 1
        read.append(out[start : at - 1])
    return read


def index_info(files: Mapping[str, Entry]) -> bytes:
    """Standard input of ``git update-index -z --index-info``: ``files`` by path."""
    return b"".join(
        f"{entry.mode} {entry.blob}\t".encode() + os.fsencode(path) + b"\0" for path, entry in files.items()
    )
