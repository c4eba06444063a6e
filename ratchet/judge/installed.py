"""What is installed beside the judge: one digest of all code in the environment's packages.

A package's RECORD names the SHA-256 of each of its files. The digest is of those lines, and of every file of code that
differs from its line or has none: what somebody edited or put there. Files whose size, times and inode are those of an
earlier look are not read again; the change time (ctime) is the kernel's, and no program chooses it.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ratchet.private import private_folder

_TOOL = "pip"
"""Some environments have it and some do not, and nothing imports it."""


def digest(folder: Path) -> str:
    """SHA-256 over the code below a folder of installed packages; the same for the same wheels, wherever they are."""
    recorded = _recorded(folder)
    whole = hashlib.sha256("".join(f"{path}\0{content}\n" for path, content in sorted(recorded.items())).encode())
    for path, content in sorted(_contents(folder).items()):
        if recorded.get(path) != content:
            whole.update(f"{path}\0{content}\n".encode())
    return whole.hexdigest()


def _recorded(folder: Path) -> dict[str, str]:
    """SHA-256 by path, of the files that packages say they have; what depends on the machine is left out."""
    files: dict[str, str] = {}
    for record in folder.glob("*.dist-info/RECORD"):
        if record.parent.name.startswith(f"{_TOOL}-"):
            continue
        with record.open(newline="", errors="surrogateescape") as lines:
            for path, content, *_ in csv.reader(lines):
                if content.startswith("sha256=") and not path.startswith((".", "/")) and ".dist-info/" not in path:
                    files[path] = content.removeprefix("sha256=")
    return files


def _contents(folder: Path) -> dict[str, str]:
    """SHA-256 by path, as RECORD writes it, of all files of code."""
    known = _known(folder)
    found: dict[str, list[object]] = {}
    for path, state in _code(str(folder), ""):
        seen = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        before = known.get(path)
        if before is None or before[:-1] != seen:
            with contextlib.suppress(OSError), open(folder / path, "rb") as file:
                raw = hashlib.file_digest(file, "sha256").digest()
                found[path] = [*seen, base64.urlsafe_b64encode(raw).decode().rstrip("=")]
        else:
            found[path] = before
    if found != known:
        _remember(folder, found)
    return {path: str(entry[-1]) for path, entry in found.items()}


def _code(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Files of code below, with what the system says of them. Bytecode is never read from there."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__" and not (not prefix and entry.name == _TOOL):
                    yield from _code(entry.path, f"{prefix}{entry.name}/")
            elif entry.name.endswith((".py", ".so", ".pyc", ".pth")) or ".so." in entry.name:
                with contextlib.suppress(OSError):
                    yield prefix + entry.name, entry.stat()


def _memory(folder: Path) -> Path | None:
    private = private_folder()
    return private / f"installed-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.json" if private else None


def _known(folder: Path) -> dict[str, list[object]]:
    """What an earlier look saw, by path."""
    memory = _memory(folder)
    if memory is not None:
        with contextlib.suppress(OSError, ValueError):
            known: dict[str, list[object]] = json.loads(memory.read_bytes())
            return known
    return {}


def _remember(folder: Path, found: dict[str, list[object]]) -> None:
    memory = _memory(folder)
    if memory is not None:
        beside = memory.with_name(f"new-{os.getpid()}")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(found))
            beside.replace(memory)
