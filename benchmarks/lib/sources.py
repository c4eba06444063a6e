"""Kernel files of this repository as text. Imports no JAX."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ratchet.process.sandbox.child import PACKAGE_ROOT

ROOT = PACKAGE_ROOT


def edited(source: str, **constants: object) -> str:
    """A kernel file with other constants; each has to be at the beginning of exactly one line."""
    for name, value in constants.items():
        source, count = re.subn(rf"(?m)^{name} = .*", f"{name} = {value}", source)
        if count != 1:
            raise ValueError(f"{count} lines set {name}; wanted one")
    return source


def names_of(source: str, name: str = "kernel.py") -> dict[str, Any]:
    """What a Python file of ours defines, executed as a module ``kernel``; ``name`` is the file's, for tracebacks."""
    names: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(source, name, "exec"), names)
    return names


def replaced(source: str, edits: Iterable[tuple[str, str]]) -> str:
    """A text with each old part replaced by its new one. Raises ValueError for one that is not there exactly once."""
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} is there {source.count(old)} times, wanted once")
        source = source.replace(old, new)
    return source
