"""Compiled programs of published cases on disk: compile once, model and refit as often as one likes.

``.ratchet/fidelity/programs/<key>/`` holds the dumps of one program, keyed by the text of the lowered program, the
chip and the compiler; ``index.json`` says which program a case's recipe led to, so that a second run need not even
lower it. The index is renewed when a builder or a version changes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.published.builders import builder_of
from benchmarks.published.cases import Case
from ratchet.child import PACKAGE_ROOT, Child, Limits
from ratchet.chips import CHIPS
from ratchet.compiler.compile import classify, compiler_version
from ratchet.dump.files import dump_flags, load_hlo
from ratchet.dump.hlo import HloModule
from ratchet.values.status import Status

STORE = PACKAGE_ROOT / ".ratchet" / "fidelity"
WORKER = "benchmarks.published.worker"
DUMP_FOLDER = "RATCHET_DUMP_FOLDER"
COMPILER = "RATCHET_COMPILER"
LIMITS = Limits(seconds=600, memory_bytes=14 << 30)


def recipe_key(case: Case) -> str:
    """Equal for cases that lead to the same program with the same builders and versions."""
    text = json.dumps([case.recipe, fingerprint(case)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _fingerprint(module: str) -> str:
    digest = hashlib.sha256(compiler_version().encode())
    try:
        digest.update(importlib.metadata.version("tokamax").encode())
    except importlib.metadata.PackageNotFoundError:
        digest.update(b"no tokamax")
    for name in ("worker", module) if module else ("worker", "builders"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()


def fingerprint(case: Case) -> str:
    """Digest of the case's builder and of the versions that decide what it makes."""
    return _fingerprint(builder_of(case.kernel))


class Store:
    """The compiled programs of one clone."""

    def __init__(self, folder: Path = STORE) -> None:
        self.folder = folder
        self._index_file = folder / "index.json"
        self._index: dict[str, dict[str, Any]] = (
            json.loads(self._index_file.read_text()) if self._index_file.exists() else {}
        )

    def find(self, case: Case) -> Program | None:
        """The compiled program of a case, or None if it is not here yet."""
        record = self._index.get(recipe_key(case))
        if record is None or ("key" in record and not (self.folder / "programs" / record["key"]).is_dir()):
            return None
        return Program(self.folder, record)

    def compile(self, cases: Iterable[Case], say: Callable[[str], None]) -> None:
        """Compiles what is not here yet, in one child process per chip that is restarted if it dies."""
        missing: dict[str, list[Case]] = {}
        for case in cases:
            if self.find(case) is None:
                missing.setdefault(case.chip, []).append(case)
        for chip, group in missing.items():
            if chip not in CHIPS:
                for case in group:
                    self._note(case, {"not_built": f"chip {chip!r} is not known; known: {', '.join(CHIPS)}"})
                continue
            self._compile(chip, group, say)

    def _compile(self, chip: str, cases: list[Case], say: Callable[[str], None]) -> None:
        with tempfile.TemporaryDirectory() as name:
            child: Child | None = None
            for number, case in enumerate(cases, 1):
                if self.find(case) is not None:
                    continue  # the same recipe came twice
                work = Path(name) / str(number)
                if child is None or not child.alive:
                    child = _start(Path(name) / f"child{number}", chip)
                work.mkdir()
                programs = self.folder / "programs"
                (work / "request.json").write_text(json.dumps({"recipe": case.recipe, "programs": str(programs)}))
                ending = child.ask(work, LIMITS)
                if ending.how == "answered":
                    record = json.loads((work / "answer.json").read_text())
                else:
                    record = {"error": f"the compiler child ended: {ending.how}; {ending.tail[-300:]}"}
                say(f"{number}/{len(cases)} {chip} {case.label[:90]}: {ending.seconds:.1f} s")
                self._note(case, record)
            if child is not None:
                child.close()

    def _note(self, case: Case, record: Mapping[str, Any]) -> None:
        self._index[recipe_key(case)] = dict(record)
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self._index_file.with_suffix(".new")
        beside.write_text(json.dumps(self._index))
        beside.replace(self._index_file)


class Program:
    """What became of one case: a compiled program with its dumps, an error, or nothing that could be built."""

    def __init__(self, store: Path, record: Mapping[str, Any]) -> None:
        self._store = store
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
        return self._store / "programs" / str(self._record["key"])

    @property
    def hlo(self) -> HloModule:
        """The optimised HLO."""
        return load_hlo(self.folder)

    @property
    def identity(self) -> str:
        """Differs between programs, and between values that steer one program."""
        return f"{self._record['key']}-{self._record.get('scalars', '')}"

    def scalars(self) -> dict[str, np.ndarray]:
        """Values that steer control flow, see :class:`benchmarks.published.build.Built`."""
        if not self._record.get("scalars"):
            return {}
        with np.load(self.folder / self._record["scalars"]) as stored:
            return dict(stored)


def _start(folder: Path, chip: str) -> Child:
    dumps = folder / "dumps"
    dumps.mkdir(parents=True)
    return Child(
        WORKER,
        directory=folder,
        environment={
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": CHIPS[chip].accelerator_type,
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # two processes collide on libtpu's lock file without it
            "LIBTPU_INIT_ARGS": " ".join(dump_flags(dumps)),
            DUMP_FOLDER: str(dumps),
            COMPILER: compiler_version(),
        },
    )
