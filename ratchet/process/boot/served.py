"""The judge's modules out of compiled sources: what runs is what was hashed.

No other file can be a module of ``ratchet``: no extension module, no bytecode beside a source, nothing that a path
entry holds. Imports nothing of ours: it is the first that runs in every process of the judge's.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

Compiled = dict[str, tuple[bool, str, bytes]]
"""By module: whether it is a package, its file, its marshalled code."""


class Server:
    """Finds and loads the judge's modules, and refuses every other of their names."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._tops = {name.partition(".")[0] for name in compiled}

    def install(self) -> None:
        """Become the first that is asked for a module."""
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._tops:
            return None
        if name not in self._compiled:
            raise ModuleNotFoundError(f"{name} is no module of the judge's sources", name=name)
        package, origin, _ = self._compiled[name]
        spec = ModuleSpec(name, self, origin=origin, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        return marshal.loads(self._compiled[name][2])  # type: ignore[no-any-return]
