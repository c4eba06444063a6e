"""The user's own modules in a jail: files of a bundle, and nothing else under their names."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType


class Loader(SourceFileLoader):
    """Compiles a file under its path in the source folder: that is what reports name."""

    def __init__(self, name: str, path: str, shown: str) -> None:
        super().__init__(name, path)
        self._shown = shown

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self._shown, "exec", dont_inherit=True)


class Tree:
    """Finds the modules below a folder before anybody else does; knows which were imported."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self._folder, self._files = folder, frozenset(files)
        self._tops = {path.partition("/")[0].removesuffix(".py") for path in files}

    @classmethod
    def unpacked(cls, archive: Path, folder: Path) -> Tree:
        """Unpacks a bundle."""
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
            return cls(folder, packed.namelist())

    def install(self) -> None:
        """Become the first that is asked for a module."""
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._tops:
            return None
        stem = name.replace(".", "/")
        for path, package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            if path in self._files:
                where = str(self._folder / path)
                folders = [str(self._folder / stem)] if package else None
                loader = Loader(name, where, path)
                return spec_from_file_location(name, where, loader=loader, submodule_search_locations=folders)
        if any(path.startswith(f"{stem}/") for path in self._files):
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(self._folder / stem)]
            return spec
        message = f"{name} is not among the files that are imported by name: if it is one, name it under `include`"
        raise ModuleNotFoundError(message, name=name)

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def relative(self, file: object) -> str:
        """Where in the source folder a file would be; ``""`` for another."""
        inside = isinstance(file, str) and Path(file).is_relative_to(self._folder)
        return Path(str(file)).relative_to(self._folder).as_posix() if inside else ""

    def imported(self) -> list[str]:
        """Paths of the files that have been imported by now, sorted."""
        files = {module.__dict__.get("__file__") for module in [*sys.modules.values()] if type(module) is ModuleType}
        return sorted(path for path in self._files if str(self._folder / path) in files)
