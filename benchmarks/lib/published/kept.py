"""Compiled programs of published cases on disk: compile once, model and refit as often as one likes.

``.ratchet/fidelity/programs/<key>/`` holds the dumps of one program, keyed by the text of the lowered program, the
chip and the compiler. What a case's recipe led to is renewed when a builder or a version changes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import cache
from benchmarks.lib.cache import ProgramCache, Recipe
from benchmarks.lib.published.builders import builder_of
from benchmarks.lib.published.cases import Case
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.compiler.errors import classify
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.values.status import Status

_OF_TOKAMAX = ("attention", "grouped")
"""Builders that take their kernels from tokamax."""


@functools.cache
def _fingerprint(module: str) -> str:
    digest = hashlib.sha256(compiler_version().encode())
    if module in _OF_TOKAMAX:
        try:
            digest.update(importlib.metadata.version("tokamax").encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(b"no tokamax")
    for name in ("worker", module) if module else ("worker", "builders"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()


def published_programs(folder: Path = cache.ROOT / "fidelity") -> ProgramCache:
    """The cache of recipes of published cases."""

    def version(recipe: Recipe) -> str:
        return _fingerprint(builder_of(recipe["kernel"]))

    return ProgramCache(folder, worker="benchmarks.lib.published.worker", version=version)


def program_of(programs: ProgramCache, case: Case) -> Program | None:
    """What became of a case, or None if it was never compiled here."""
    record = programs.find(case.recipe)
    return None if record is None else Program(programs.programs, record)


class Program:
    """What became of one case: a compiled program with its dumps, an error, or nothing that could be built."""

    def __init__(self, programs: Path, record: Mapping[str, Any]) -> None:
        self._programs = programs
        self._record = record

    @property
    def not_built(self) -> str:
        """Why there is no program, or ``""``."""
        return str(self._record.get("not_built", ""))

    @property
    def error(self) -> str:
        """What JAX or the compiler said, or ``""``."""
        return str(self._record.get("error", ""))

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
    def identity(self) -> str:
        """Differs between programs, and between values that steer one program."""
        return f"{self._record['key']}-{self._record.get('scalars', '')}"

    def scalars(self) -> dict[str, np.ndarray]:
        """Values that steer control flow, see :class:`benchmarks.lib.published.build.Built`."""
        if not self._record.get("scalars"):
            return {}
        with np.load(self.folder / self._record["scalars"]) as stored:
            return dict(stored)
