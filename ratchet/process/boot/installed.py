"""What is installed beside the judge: a digest of all code in the environment's packages, another of the interpreter.

A package's RECORD names the SHA-256 of each of its files. The digest is of those lines, and of every file of code that
differs from its line or has none: what somebody edited or put there. The interpreter has no such list: its program, its
library and the code of the standard library count by their contents. Where any of it is does not count.

Files whose size, times and inode are those of an earlier look are not read again; the change time (ctime) is the
kernel's, and no program chooses it. Where all of them are as they were, so is the digest.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import operator
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from ratchet.process.boot import bytecode, children
from ratchet.process.boot.home import keep, least_used, private_folder

_RECORDS = "*.dist-info/RECORD"
_TOOL = "pip"
"""Some environments have it and some do not, and nothing imports it."""
_NOT_LIBRARY = ("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "ensurepip", "lib2to3")
"""Folders of the standard library that the judge imports nothing of; distributors ship them or do not."""
_BUILD = ("_sysconfigdata", "config-")
"""How and where Python was built and installed: another text in every place, and no verdict follows from it."""
_HEX = 2 * hashlib.sha256().digest_size
_REMEMBERED = 8
"""Files of what earlier looks saw that stay in the private folder."""


def prewarm() -> int:
    """Do what the first verdict of a new environment would wait for: compile its packages' code, and read it."""
    folders = children.packages()
    bytecode.fill(folders)
    for folder in folders:
        digest(Path(folder))
    return 0


def has(folders: Iterable[str], entries: Iterable[str]) -> bool:
    """Whether one of the folders of installed packages has one of the entries."""
    return any(os.path.exists(os.path.join(folder, entry)) for folder in folders for entry in entries)


def sources_of(package: str, folders: Iterable[str]) -> dict[str, bytes]:
    """The modules of an installed package, without those below: contents by path. None where it is not installed."""
    found = next((Path(one) for one in folders if Path(one, package).is_dir()), None)
    files = sorted((found / package).glob("*.py")) if found else []
    return {f"{package}/{file.name}": file.read_bytes() for file in files}


def digest(folder: Path) -> str:
    """SHA-256 over the code below a folder of installed packages; the same for the same wheels, wherever they are.

    That of an earlier look by the same rule, if it saw what is there now.
    """
    code = sorted(_code(str(folder)), key=operator.itemgetter(0))
    records = [(str(record), str(record), record.stat()) for record in sorted(folder.glob(_RECORDS))]
    rule = Path(__file__).read_bytes()
    state = hashlib.sha256(rule + repr([(name, *_seen(file)) for name, _, file in (*records, *code)]).encode())
    memory, key = _memory(folder, "seen"), state.hexdigest()
    if memory is not None:
        with contextlib.suppress(OSError, ValueError):
            before, _, found = memory.read_text().partition(" ")
            if before == key and len(found) == _HEX:
                with contextlib.suppress(OSError):
                    os.utime(memory.with_suffix(".json"))  # used now
                return found
    found = _read(folder, code)
    if memory is not None:
        keep(memory, f"{key} {found}".encode())
    return found


def _read(folder: Path, code: Iterable[Entry]) -> str:
    """The digest of a folder with these files of code, from what is in them."""
    recorded = _recorded(folder)
    whole = hashlib.sha256("".join(f"{path}\0{content}\n" for path, content in sorted(recorded.items())).encode())
    for path, content in sorted(_contents(folder, code).items()):
        if recorded.get(path) != content:
            whole.update(f"{path}\0{content}\n".encode())
    return whole.hexdigest()


def interpreter() -> str:
    """SHA-256 over the Python that runs this: its program, its shared library, the code of the standard library."""
    library = Path(sysconfig.get_path("stdlib")).resolve()
    files = [entry for entry in _code(str(library), _NOT_LIBRARY) if not entry[0].startswith(_BUILD)]
    programs = (("program", os.path.realpath(sys.executable)), *(("library", path) for path in _shared_library()))
    contents = _contents(library, [*files, *((name, path, os.stat(path)) for name, path in programs)])
    return hashlib.sha256("".join(f"{n}\0{content}\n" for n, content in sorted(contents.items())).encode()).hexdigest()


def _shared_library() -> list[str]:
    """The file of libpython that this process runs; none where it is part of the program."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libpython" in line}
        return sorted(path for path in paths if os.path.isfile(path))
    return []


def _recorded(folder: Path) -> dict[str, str]:
    """SHA-256 by path, of the files that packages say they have; what depends on the machine is left out."""
    files: dict[str, str] = {}
    for record in folder.glob(_RECORDS):
        if record.parent.name.startswith(f"{_TOOL}-"):
            continue
        with record.open(newline="", errors="surrogateescape") as lines:
            for path, content, *_ in csv.reader(lines):
                if content.startswith("sha256=") and not path.startswith((".", "/")) and ".dist-info/" not in path:
                    files[path] = content.removeprefix("sha256=")
    return files


Entry = tuple[str, str, os.stat_result]
"""A file of code: its name in a digest, its path, and what the system says of it."""


def _contents(folder: Path, files: Iterable[Entry]) -> dict[str, str]:
    """SHA-256 by name, as RECORD writes it; what was seen is remembered for ``folder``."""
    known = _known(folder)
    found: dict[str, list[object]] = {}
    for path, file_path, state in files:
        seen = _seen(state)
        before = known.get(path)
        if before is None or before[:-1] != seen:
            with contextlib.suppress(OSError), open(file_path, "rb") as file:
                raw = hashlib.file_digest(file, "sha256").digest()
                found[path] = [*seen, base64.urlsafe_b64encode(raw).decode().rstrip("=")]
        else:
            found[path] = before
    if found != known:
        _remember(folder, found)
    return {path: str(entry[-1]) for path, entry in found.items()}


def _code(folder: str, left_out: tuple[str, ...] = ()) -> list[Entry]:
    """Files of code below. Bytecode is never read from there. ``left_out`` are folders directly in it."""
    found: list[Entry] = []
    folders = [(folder, "")]
    while folders:
        path, prefix = folders.pop()
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir():
                    if name != "__pycache__" and (prefix or name not in (_TOOL, *left_out)):
                        folders.append((entry.path, f"{prefix}{name}/"))
                elif name.endswith((".py", ".so", ".pyc", ".pth")) or ".so." in name:
                    try:
                        found.append((prefix + name, entry.path, entry.stat()))
                    except OSError:  # gone, or a link to nothing
                        continue
    return found


def _seen(state: os.stat_result) -> list[int]:
    """What no file has that was written since."""
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def _memory(folder: Path, kind: str = "json") -> Path | None:
    private = private_folder()
    return private / f"installed-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.{kind}" if private else None


def _known(folder: Path) -> dict[str, list[object]]:
    """What an earlier look saw, by path."""
    memory = _memory(folder)
    if memory is not None:
        with contextlib.suppress(OSError, ValueError):
            known: dict[str, list[object]] = json.loads(memory.read_bytes())
            os.utime(memory)  # used now
            return known
    return {}


def _remember(folder: Path, found: dict[str, list[object]]) -> None:
    memory = _memory(folder)
    if memory is not None:
        keep(memory, json.dumps(found).encode())
        with contextlib.suppress(OSError):
            for old in least_used("installed-*.json", memory.parent, _REMEMBERED):
                old.unlink()
                old.with_suffix(".seen").unlink(missing_ok=True)
