"""Kernel files of this repository as text. Imports no JAX."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


def named(source: str, arguments: Sequence[str]) -> str:
    """A kernel file in which these arguments of the call on its line ``BLOCKS = …`` are constants, in capitals."""
    (line,) = re.findall(r"(?m)^BLOCKS = .*", source) or [""]
    new, constants = line, []
    for argument in arguments:
        new, count = re.subn(rf"\b{argument}=(\w+)", rf"{argument}={argument.upper()}", new)
        if count != 1:
            raise ValueError(f"{count} arguments {argument} in {line!r}; wanted one")
        constants += re.findall(rf"\b{argument}=(\w+)", line)
    lines = [f"{argument.upper()} = {value}\n" for argument, value in zip(arguments, constants, strict=True)]
    return source.replace(line, "".join(lines) + new) if lines else source


def names_of(source: str, name: str = "kernel.py") -> dict[str, Any]:
    """What a Python file of ours defines, executed as a module ``kernel``; ``name`` is the file's, for tracebacks."""
    names: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(source, name, "exec"), names)
    return names
