"""The judge's seal: one digest over every file that a verdict follows from, and over no other.

**Sealed** are ``prepare.py``, the folders ``exam/``, ``process/``, ``tpu/`` and ``values/`` of the package with the
constants beside their modules, and what decides which packages run: ``requirements.lock``, what installs it, the code
that is installed (``installed.py``), whoever put it there, and the interpreter with its standard library. Where this
process runs sources that it read as it started, a file that differs from them counts twice: no seal is then that of a
whole tree. The rest of the package imports these folders and is imported by none of them: it asks for verdicts, keeps
and shows them, and cannot change one. A row carries the seal, and rows of different seals are not compared: a changed
judge starts a new series.

**Protected** are all files that an experiment runs through, the sealed ones among them: ``loop/`` decides what is kept,
``view/`` says so. They must equal HEAD while an experiment runs, and no kernel file may be one of them. A committed
change of theirs starts no series: scores stay comparable, and git shows who changed which rule of keeping when.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path

from ratchet.process.boot import home, installed, sources
from ratchet.process.boot.children import packages
from ratchet.process.boot.home import PACKAGE_ROOT
from ratchet.process.root import Root

PACKAGE = "ratchet"
SUFFIXES = (".py", ".json")
ROOMS = ("exam", "process", "tpu", "values")
"""The package's folders that a verdict follows from."""
SEALED_FILES = ("prepare.py", "requirements.lock", "environment.sh", "ratchet.sh")
PROTECTED_FILES = (*SEALED_FILES, "pyproject.toml")


RECENT_S = 2.0
"""Seconds for which what was seen is taken for what is there."""
_SEEN: dict[Path, tuple[float, str]] = {}
"""By root when it was looked at last, and its seal."""


def recent_seal(root: Path) -> str:
    """As ``seal``, or what it said a moment ago: an experiment asks three times before it is judged, and once after."""
    when, seen = _SEEN.get(root, (-math.inf, ""))
    return seen if time.monotonic() - when < RECENT_S else seal(root)


def seal(root: Path) -> str:
    """SHA-256 over paths and contents of the sealed files, first 16 hex digits. Line ends do not count."""
    when, seen = time.monotonic(), _seal(root)
    _SEEN[root] = when, seen
    return seen


def _seal(root: Path) -> str:
    whole = hashlib.sha256()
    running = sources.loaded(root).files if root == PACKAGE_ROOT else {}
    for path in sealed_paths(root):
        content = _where(root, path).read(path)
        for one in dict.fromkeys((content, running.get(path, content))):
            same = one.replace(b"\r\n", b"\n")
            whole.update(f"{path}\0{hashlib.sha256(same).hexdigest()}\n".encode())
    for folder in dict.fromkeys(map(os.path.realpath, packages())):
        whole.update(f"{installed.digest(Path(folder))}\n".encode())
    whole.update(f"{installed.interpreter()}\n".encode())
    return whole.hexdigest()[:16]


def sealed_paths(root: Path) -> tuple[str, ...]:
    """The files that a verdict follows from, relative to the repository root, sorted."""
    inside = (path for room in ROOMS for path in _below(root, root / PACKAGE / room))
    return tuple(sorted({*inside, *_present(root, SEALED_FILES)}))


def protected_paths(root: Path) -> tuple[str, ...]:
    """The files that must equal HEAD while an experiment runs, relative to the repository root, sorted."""
    return tuple(sorted({*_below(root, root / PACKAGE), *_present(root, PROTECTED_FILES)}))


def _below(root: Path, folder: Path) -> list[str]:
    """The package's files in a folder and those below it."""
    return [name for name in Root(root).files(folder, without="__pycache__") if name.endswith(SUFFIXES)]


def _present(root: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if _where(root, name).is_file(name)]


def _where(root: Path, path: str) -> Root:
    """The folder of a file of the judge's: that of the package in a clone, one of its own in a wheel."""
    return Root(home.FILES if root == home.PACKAGE_ROOT and path in PROTECTED_FILES else root)
