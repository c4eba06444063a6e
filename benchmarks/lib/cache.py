"""What became of recipes for programs, on disk: a second run compiles only what has changed.

A recipe is plain JSON. A worker module, in a child that holds the TPU compiler, makes a record of it: figures, an
``error`` in words, or the ``key`` of a compiled program that it put under ``programs/<key>``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ratchet.process.sandbox.child import OPEN, PACKAGE_ROOT, Child, Limits, serve
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler import environment
from ratchet.tpu.dump.image import OFFSETS_PASS

ROOT = PACKAGE_ROOT / ".ratchet"
LIMITS = Limits(seconds=3600, memory_bytes=14 << 30)
"""The compiler takes a quarter of an hour for some programs of tpu7x: most of it in one search of its bundle packer."""
Recipe = dict[str, Any]
Record = dict[str, Any]


def digest(*patterns: str) -> str:
    """Of the sources that ``patterns`` match: what decides a record beside its recipe."""
    whole = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(PACKAGE_ROOT.glob(pattern)):
            whole.update(path.read_bytes())
    return whole.hexdigest()


def version_of(package: str) -> str:
    """Of an installed package, or ``""``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


class ProgramCache:
    """The records of one kind of recipes.

    Args:
        folder: where they are kept.
        worker: module of the child that makes a record; see :func:`serve_records`.
        version: what decides a recipe's record beside the recipe: digests of sources, versions.
    """

    def __init__(self, folder: Path, *, worker: str, version: Callable[[Recipe], str]) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self._worker = worker
        self._version = version
        self._failed: dict[Path, Record] = {}

    def find(self, recipe: Recipe) -> Record | None:
        """The record of a recipe, or None if there was never an answer."""
        file = self._file(recipe)
        if not file.exists():
            return self._failed.get(file)
        record: Record = json.loads(file.read_text())["record"]
        return None if "key" in record and not (self.programs / record["key"]).is_dir() else record

    def made(self, recipes: Sequence[Recipe], say: Callable[[str], None] = lambda _line: None) -> list[Record]:
        """The record of each recipe, made where there is none; an ``error`` where that did not end."""
        self.fill(recipes, say)
        return [self.find(recipe) or {"error": "did not end"} for recipe in recipes]

    def put(self, recipe: Recipe, record: Record) -> None:
        """Keep the record of a recipe."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._file(recipe)
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps({"recipe": recipe, "record": record}, indent=1) + "\n")
        beside.replace(file)

    def fill(self, recipes: Iterable[Recipe], say: Callable[[str], None]) -> None:
        """Makes what is not here, in one child process per chip that is restarted if it dies.

        A child that died, was too slow or too large is an ``error`` for this run and tried again in the next.
        """
        missing: dict[str, list[Recipe]] = {}
        for recipe in recipes:
            if self.find(recipe) is None:
                missing.setdefault(recipe.get("chip", V5E.name), []).append(recipe)
        for chip, group in missing.items():
            if chip in CHIPS:
                self._fill(chip, group, say)
            else:
                known = f"chip {chip!r} is not known; known: {', '.join(CHIPS)}"
                self._failed |= {self._file(recipe): {"not_built": known} for recipe in group}

    def _fill(self, chip: str, recipes: list[Recipe], say: Callable[[str], None]) -> None:
        child: Child | None = None
        with tempfile.TemporaryDirectory() as name:
            for number, recipe in enumerate(recipes, 1):
                if self.find(recipe) is not None:
                    continue  # the same one came twice
                if child is None or not child.alive:
                    folder, passes = Path(name) / f"child{number}", (OFFSETS_PASS,)
                    child = environment.start(self._worker, folder, CHIPS[chip], extra_passes=passes, walls=OPEN)
                work = Path(name) / str(number)
                work.mkdir()
                (work / "request.json").write_text(json.dumps({"recipe": recipe, "programs": str(self.programs)}))
                ending = child.ask(work, LIMITS)
                if ending.how == "answered":
                    self.put(recipe, json.loads((work / "answer.json").read_text()))
                else:
                    ended = f"the compiler child ended: {ending.how}; {ending.tail[-300:]}"
                    self._failed[self._file(recipe)] = {"error": ended}
                named = " ".join(str(recipe[key]) for key in ("impl", "kernel", "arrays", "config") if key in recipe)
                say(f"{number}/{len(recipes)} {chip} {named:.90}: {ending.how} in {ending.seconds:.1f} s")
            if child is not None:
                child.close()

    def _file(self, recipe: Recipe) -> Path:
        key = json.dumps([recipe, self._version(recipe)], sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def serve_records(make: Callable[[Recipe, Path, Path], Record]) -> None:
    """A worker's main: answers each request with a record, as :class:`ProgramCache` reads it.

    ``make`` is given the recipe, the folder of the request and that of compiled programs. What it raises becomes an
    ``error``: JAX, a peer and the compiler fail in many ways.
    """

    def handle(request: Path) -> str:
        asked = json.loads((request / "request.json").read_text())
        try:
            record = make(asked["recipe"], request, Path(asked["programs"]))
        except Exception as error:
            if "lockfile" in str(error):  # another process holds the compiler: the next run tries again
                raise
            record = {"error": f"{type(error).__name__}: {error}"[:4000]}
        (request / "answer.json").write_text(json.dumps(record))
        return "answer.json"

    serve(handle)
