"""Compiled published cases -> tapes of their modelled runs, kept beside the compiled programs.

A program on several chips has no tape, for its chips wait for each other: it is run whenever it is asked for.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.kept import Program
from benchmarks.lib.published.recorder import record
from benchmarks.lib.published.tape import Tape
from ratchet.process.sandbox.child import PACKAGE_ROOT
from ratchet.tpu.chips import CHIPS, Chip
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.latency import model
from ratchet.values import Timeline

_FIT_ALONE = ("hbm.py", "band.py")
"""Files of those rooms that no tape depends on: a replay runs the model of memory again."""

_RATES = ("clock_hz", "hbm_bytes_per_s", "peak_bf16_flops", "peak_int8_ops", "peak_int4_ops", "peak_fp8_flops")
"""What of a chip decides how long events take, and not which there are."""


@functools.cache
def _machine_digest(chip: Chip) -> str:
    digest = hashlib.sha256(Path(__file__).with_name("recorder.py").read_bytes())
    for room in ("dump", "machine", "account"):
        for path in sorted((PACKAGE_ROOT / "ratchet" / "tpu" / room).glob("*.py")):
            if path.name not in _FIT_ALONE:
                digest.update(path.read_bytes())
    digest.update((PACKAGE_ROOT / "ratchet" / "tpu" / "chips" / "units.py").read_bytes())
    digest.update(repr(replace(chip, **dict.fromkeys(_RATES, 0.0))).encode())
    return digest.hexdigest()[:12]


def timeline_of(case: Case, program: Program) -> Timeline:
    """The run of a program, on one chip or several, with the stored constants.

    Raises:
        Refusal: what the schedule machine refuses.
    """
    hlo = program.hlo
    return model(
        program.folder / "schedule",
        hlo=hlo,
        chip=CHIPS[case.chip],
        compiler=compiler_version(),
        scalar_inputs=[scalar_inputs(program)] * len(hlo.device_ids),
        constants=program.constants,
    )


def tape_of(case: Case, program: Program, *, fresh: bool = False) -> Tape:
    """The tape of a case, from disk unless the machine has changed since.

    Raises:
        Refusal: what the schedule machine refuses.
    """
    chip = CHIPS[case.chip]
    steering = program.identity.rpartition("-")[2].removesuffix(".npz")
    file = program.folder / f"tape-{steering}-{_machine_digest(chip)}.npz"
    if file.exists() and not fresh:
        return Tape.load(file)
    _, tape = record(
        program.folder / "schedule",
        hlo=program.hlo,
        chip=chip,
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
