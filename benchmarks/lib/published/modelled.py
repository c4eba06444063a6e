"""Compiled published cases -> tapes of their modelled runs, kept beside the compiled programs."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np

from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.kept import Program
from benchmarks.lib.published.tape import Tape, record
from ratchet.child import PACKAGE_ROOT
from ratchet.chips import CHIPS
from ratchet.compiler.environment import compiler_version

_FIT_ALONE = ("constants.py", "hbm.py", "band.py")
"""Files of those rooms that no tape depends on: a replay runs the model of memory again."""


@functools.cache
def _machine_digest() -> str:
    digest = hashlib.sha256(Path(__file__).with_name("tape.py").read_bytes())
    for room in ("dump", "machine", "account", "chips"):
        for path in sorted((PACKAGE_ROOT / "ratchet" / room).glob("*.py")):
            if path.name not in _FIT_ALONE:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def tape_of(case: Case, program: Program, *, fresh: bool = False) -> Tape:
    """The tape of a case, from disk unless the machine has changed since.

    Raises:
        Refusal: what the schedule machine refuses.
    """
    file = program.folder / f"tape-{program.identity.rpartition('-')[2].removesuffix('.npz')}-{_machine_digest()}.npz"
    if file.exists() and not fresh:
        return Tape.load(file)
    _, tape = record(
        program.folder / "schedule",
        hlo=program.hlo,
        chip=CHIPS[case.chip],
        compiler=compiler_version(),
        scalar_inputs=scalar_inputs(program),
    )
    for old in program.folder.glob(f"{file.name.rpartition('-')[0]}-*"):
        old.unlink()
    tape.save(file)
    return tape


def scalar_inputs(program: Program) -> dict[int | str, np.ndarray]:
    """The values that steer a program, under the names that the machine knows them by."""
    stored = program.scalars()
    if not stored:
        return {}
    ops = program.hlo.ops
    kernels = [op for op in ops.values() if op.is_kernel]
    arrays: dict[int | str, np.ndarray] = {}
    for name, values in stored.items():
        if name.isdigit():
            arrays[int(name)] = values
            continue
        number = int(name.partition(":")[2])
        for kernel in kernels:
            wanted = ops[kernel.operands[number]].types[0].shape
            arrays[f"{kernel.name}:{number}"] = values.reshape(wanted)
    return arrays
