"""The judge's child that freezes a problem from data, and ends. None of the author's Python is here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.exam.candidate.tracer import INPUTS, REFERENCE
from ratchet.exam.candidate.user_code import answer
from ratchet.exam.problem.freezing import frozen
from ratchet.exam.problem.problem import splits
from ratchet.process.sandbox.child import serve
from ratchet.values import Mesh
from ratchet.values.encoding import decode


def made(asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The record of a problem, of ``asked`` and the jaxprs in ``folder``; its programs are written beside them."""
    inputs, reference = ((folder / name).read_bytes() for name in (INPUTS, REFERENCE))
    record, programs = frozen(inputs, reference, decode(Mesh, asked["mesh"]), splits(asked["left"]))
    for name, program in programs.items():
        (folder / name).write_bytes(program)
    return record


def handle(request: Path) -> str:
    """Answer ``request/request.json``."""
    return answer(request, made)


if __name__ == "__main__":
    serve(handle)
