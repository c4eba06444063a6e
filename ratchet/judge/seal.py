"""The judge's seal: one digest over every file that a verdict depends on."""

from __future__ import annotations

import hashlib
from pathlib import Path

SEALED_FILES = ("prepare.py", "ratchet.sh", "environment.sh", "pyproject.toml", "requirements.lock")
SEALED_FOLDER = "ratchet"
SEALED_SUFFIXES = (".py", ".json")


def sealed_paths(root: Path) -> tuple[str, ...]:
    """The judge's files, relative to the repository root, sorted."""
    inside = (p for p in (root / SEALED_FOLDER).rglob("*") if p.suffix in SEALED_SUFFIXES and p.is_file())
    files = [p.relative_to(root).as_posix() for p in inside if "__pycache__" not in p.parts]
    return tuple(sorted([*files, *(name for name in SEALED_FILES if (root / name).is_file())]))


def seal(root: Path) -> str:
    """SHA-256 over paths and contents of the judge's files, first 16 hex digits."""
    whole = hashlib.sha256()
    for path in sealed_paths(root):
        content = (root / path).read_bytes().replace(b"\r\n", b"\n")
        whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]
