"""Compiled programs of published cases on disk, with tapes of their modelled runs: compile once, refit often.

``.ratchet/fidelity/programs/<key>/`` holds the dumps of one program, keyed by the text of the lowered program, the
chip and the compiler. What a case's recipe led to is renewed when its builder or a version changes, a tape when the
machine does. A program on several chips has no tape, for its chips wait for each other: it is run whenever it is asked
for.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import cache
from benchmarks.lib.cache import ProgramCache, Recipe
from benchmarks.lib.published.cases import Case, builder_of
from benchmarks.lib.published.tape import Tape, record
from benchmarks.lib.published.timed import Timed
from ratchet.process.sandbox.child import PACKAGE_ROOT
from ratchet.tpu.chips import CHIPS, V5E, V5P, V6E, Chip
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.compiler.errors import classify
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.latency import model
from ratchet.values import Timeline
from ratchet.values.status import Refusal, Status

_FIT_ALONE = ("hbm.py", "band.py")
"""Files of the machine's rooms that no tape depends on: a replay runs the model of memory again."""

_RATES = ("clock_hz", "hbm_bytes_per_s", "peak_bf16_flops", "peak_int8_ops", "peak_int4_ops", "peak_fp8_flops")
"""What of a chip decides how long events take, and not which there are."""


@functools.cache
def _builder_version(module: str) -> str:
    files = (f"benchmarks/lib/published/{name}.py" for name in ("worker", module or "cases"))
    return cache.digest(*files) + compiler_version() + (cache.version_of("tokamax") if module == "tokamax" else "")


@functools.cache
def _machine_digest(chip: Chip) -> str:
    digest = hashlib.sha256(Path(__file__).with_name("tape.py").read_bytes())
    for room in ("dump", "machine", "account"):
        for path in sorted((PACKAGE_ROOT / "ratchet" / "tpu" / room).glob("*.py")):
            if path.name not in _FIT_ALONE:
                digest.update(path.read_bytes())
    digest.update((PACKAGE_ROOT / "ratchet" / "tpu" / "chips" / "units.py").read_bytes())
    digest.update(repr(replace(chip, **dict.fromkeys(_RATES, 0.0))).encode())
    return digest.hexdigest()[:12]


def published_programs(folder: Path = cache.ROOT / "fidelity") -> ProgramCache:
    """The cache of recipes of published cases."""

    def version(recipe: Recipe) -> str:
        return _builder_version(builder_of(recipe["kernel"])[0])

    return ProgramCache(folder, worker="benchmarks.lib.published.worker", version=version)


class Program:
    """What became of one case: a compiled program with its dumps, an error, or nothing that could be built."""

    def __init__(self, programs: Path, record: Mapping[str, Any]) -> None:
        self._programs = programs
        self._record = record
        self.not_built = str(record.get("not_built", ""))
        """Why there is no program, or ``""``."""
        self.error = str(record.get("error", ""))
        """What JAX or the compiler said, or ``""``."""

    @property
    def overflows(self) -> bool:
        """True if the compiler refused it because it needs more VMEM than it may have."""
        return bool(self.error) and classify(self.error).status is Status.VMEM_OVERFLOW

    @property
    def folder(self) -> Path:
        """Holds ``optimized.hlo.pb`` and ``schedule/``."""
        return self._programs / str(self._record["key"])

    @property
    def hlo(self) -> HloModule:
        """The optimised HLO."""
        return load_hlo(self.folder)

    @property
    def constants(self) -> bytes:
        """What the collectives of a program on several chips look up; ``b""`` for a program on one."""
        file = self.folder / "constants.bin"
        return file.read_bytes() if file.exists() else b""

    @property
    def steering(self) -> str:
        """Name of the file with the values that steer control flow, or ``""``."""
        return str(self._record.get("scalars", ""))

    @property
    def identity(self) -> str:
        """Differs between programs, and between values that steer one program."""
        return f"{self._record['key']}-{self.steering}"

    def scalar_inputs(self) -> dict[int | str, np.ndarray]:
        """The values that steer it (:class:`benchmarks.lib.published.kernels.Built`), named as the machine does."""
        if not self.steering:
            return {}
        with np.load(self.folder / self.steering) as stored:
            given = dict(stored)
        ops = self.hlo.ops
        arrays: dict[int | str, np.ndarray] = {}
        for name, values in given.items():
            _, kernels, number = name.rpartition(":")
            if not kernels:
                arrays[int(number)] = values
            for op in ops.values() if kernels else ():
                if op.is_kernel:
                    wanted = ops[op.operands[int(number)]].types[0].shape
                    arrays[f"{op.name}:{number}"] = values.reshape(wanted)
        return arrays


ELSEWHERE = {
    "v5e": replace(V5E, links=V5E.links and V6E.links and replace(V5E.links, hop_s=V6E.links.hop_s)),
    "v5p": replace(V5P, links=V6E.links),
    "v6e": replace(V6E, links=V5P.links),
}
"""Chips with links that were fitted on no row of theirs: v5p's and v6e's have each other's; v5e's the advertised
bandwidth, which its own is, and the hop of v6e."""


def timeline_of(case: Case, program: Program, chip: Chip) -> Timeline:
    """The run of a program on a chip or a slice of them, with the stored constants.

    Raises:
        Refusal: what the schedule machine refuses.
    """
    hlo = program.hlo
    return model(
        program.folder / "schedule",
        hlo=hlo,
        chip=chip,
        compiler=compiler_version(),
        scalar_inputs=[program.scalar_inputs()] * len(hlo.device_ids),
        constants=program.constants,
    )


def tape_of(case: Case, program: Program) -> Tape:
    """The tape of a case, from disk unless the machine has changed since.

    Raises:
        Refusal: what the schedule machine refuses.
    """
    chip = CHIPS[case.chip]
    steering = program.steering.rpartition("-")[2].removesuffix(".npz")
    file = program.folder / f"tape-{steering}-{_machine_digest(chip)}.npz"
    if file.exists():
        return Tape.load(file)
    _, tape = record(
        program.folder / "schedule",
        hlo=program.hlo,
        chip=chip,
        compiler=compiler_version(),
        scalar_inputs=program.scalar_inputs(),
    )
    for old in program.folder.glob(f"{file.name.rpartition('-')[0]}-*"):
        old.unlink()
    tape.save(file)
    return tape


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one case, as far as it went."""

    case: Case
    program: Program | None
    """None where it was never compiled here."""
    timed: Timed | None = None
    """With a tape, where it was timed and its run is modelled."""
    timeline: Timeline | None = None
    """Of a program on several chips, instead of a tape."""
    elsewhere: Timeline | None = None
    """The same with the links of ``ELSEWHERE``."""
    refusal: Refusal | None = None
    """Of the schedule machine."""


def outcomes(programs: ProgramCache, cases: Iterable[Case]) -> Iterator[Outcome]:
    """What became of published cases."""
    for case in cases:
        record = programs.find(case.recipe)
        program = None if record is None else Program(programs.programs, record)
        made = Outcome(case=case, program=program)
        if program and not program.not_built and not program.error and case.status == "ok" and case.measured_ms:
            try:
                if len(program.hlo.device_ids) > 1:
                    own = timeline_of(case, program, CHIPS[case.chip])
                    other = timeline_of(case, program, ELSEWHERE[case.chip]) if case.chip in ELSEWHERE else None
                    made = replace(made, timeline=own, elsewhere=other)
                else:
                    timed = Timed(case=case, tape=tape_of(case, program), identity=program.identity)
                    made = replace(made, timed=timed)
            except Refusal as refusal:
                made = replace(made, refusal=refusal)
        yield made
