"""Figures of recipes on disk, under ``.ratchet/attention``: a second run compiles only what has changed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.attention.worker_names import COMPILER, DUMP_FOLDER, WORKER
from ratchet.child import PACKAGE_ROOT, Child, Limits
from ratchet.chips import V5E
from ratchet.compiler.compile import compiler_version
from ratchet.dump.files import dump_flags

STORE = PACKAGE_ROOT / ".ratchet" / "attention"
LIMITS = Limits(seconds=600, memory_bytes=14 << 30)
OURS = ("pallas_flash/operator.py", "pallas_flash/config.py", "pallas_flash/tables.py", "pallas_flash/kernels/*.py")
"""What decides a program whose blocks are given."""
Recipe = dict[str, Any]


def _digest(*patterns: str) -> str:
    whole = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(PACKAGE_ROOT.glob(pattern)):
            whole.update(path.read_bytes())
    return whole.hexdigest()


class Store:
    """What is known of recipes."""

    def __init__(self, folder: Path = STORE) -> None:
        self.folder = folder
        try:
            tokamax = importlib.metadata.version("tokamax")
        except importlib.metadata.PackageNotFoundError:
            tokamax = ""
        # The machine's constants decide, too, but not a benchmark's own wiring.
        common = (
            _digest("ratchet/dump/*.py", "ratchet/machine/*.py", "ratchet/account/*.py", "ratchet/chips/*.*")
            + compiler_version()
        )
        self._versions = {
            "ours": common + _digest(*OURS),
            "kernel.py": common + _digest("kernel.py"),
            "tokamax": common + tokamax,
        }
        self._common = common

    def _file(self, recipe: Recipe) -> Path:
        version = self._versions.get(recipe["impl"], self._common)
        key = hashlib.sha256(json.dumps([recipe, version], sort_keys=True).encode()).hexdigest()[:24]
        return self.folder / f"{key}.json"

    def find(self, recipe: Recipe) -> dict[str, Any] | None:
        """Its figures, an ``error`` in words, or None if there was never an answer."""
        file = self._file(recipe)
        return json.loads(file.read_text())["figures"] if file.exists() else None

    def fill(self, recipes: Iterable[Recipe], say: Callable[[str], None]) -> None:
        """Compiles and models what is not here, one after another in a child process that is restarted if it dies."""
        missing = [recipe for recipe in recipes if self.find(recipe) is None]
        if not missing:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as name:
            child: Child | None = None
            for number, recipe in enumerate(missing, 1):
                if self.find(recipe) is not None:
                    continue  # the same one came twice
                if child is None or not child.alive:
                    child = _start(Path(name) / f"child{number}")
                work = Path(name) / str(number)
                work.mkdir()
                (work / "request.json").write_text(json.dumps(recipe))
                ending = child.ask(work, LIMITS)
                if ending.how == "answered":
                    figures = json.loads((work / "answer.json").read_text())
                    self._file(recipe).write_text(json.dumps({"recipe": recipe, "figures": figures}, indent=1) + "\n")
                    told = f"{figures['ms']:.4f} ms" if "ms" in figures else str(figures)[:100]
                else:  # by a crash, its time or its memory: told, and tried again next time
                    told = f"{ending.how}; {ending.tail[-100:]}"
                say(f"{number}/{len(missing)} {recipe['impl']} {recipe['config']}: {told} ({ending.seconds:.0f} s)")
            if child is not None:
                child.close()


def _start(folder: Path) -> Child:
    dumps = folder / "dumps"
    dumps.mkdir(parents=True)
    return Child(
        WORKER,
        directory=folder,
        environment={
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": V5E.accelerator_type,
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # two processes collide on libtpu's lock file without it
            "LIBTPU_INIT_ARGS": " ".join(dump_flags(dumps)),
            DUMP_FOLDER: str(dumps),
            COMPILER: compiler_version(),
        },
    )
