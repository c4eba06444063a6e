"""A process that runs a user's code: where it finds their modules, and how it answers.

The answer is a record written last, or why there is none. Older versions of JAX than the judge's run this file, too.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ratchet.tpu.exporting import in_one_line, status_of
from ratchet.values.status import Refusal, Status


class Loader(SourceFileLoader):
    """Compiles a file under its path in the source folder: that is what reports name."""

    def __init__(self, name: str, path: str, shown: str) -> None:
        super().__init__(name, path)
        self._shown = shown

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path).decode()  # of a text, Python believes no declared encoding
        return compile(text, self._shown, "exec", dont_inherit=True)


class SourceFinder:
    """Finds the modules below a folder before anybody else does; knows which were imported."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self._folder, self._files = folder, frozenset(files)
        self._tops = {path.partition("/")[0].removesuffix(".py") for path in files}

    @classmethod
    def unpacked(cls, archive: Path, folder: Path) -> SourceFinder:
        """Unpacks the archive of a source closure."""
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


@contextlib.contextmanager
def blame(status: Status, files: Container[str], doing: str) -> Iterator[None]:
    """Turn whatever the user's code raises, ``SystemExit`` included, into a refusal with file and line.

    ``files`` are the user's, by the names that tracebacks have.
    """
    try:
        yield
    except Refusal:
        raise
    except MemoryError as error:
        raise Refusal(Status.OUT_OF_MEMORY, f"{doing}: {str(error) or 'MemoryError'}") from None
    except BaseException as error:
        decided = status_of(error) if status is Status.LOWERING_FAILED else status
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
        where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
        raise Refusal(decided, f"{where}{doing}: {_said(error, files)}") from None


def _said(error: BaseException, files: Container[str]) -> str:
    """The error in one line; of a file of the user's that is not here, what to do."""
    if (
        isinstance(error, FileNotFoundError)
        and isinstance(files, SourceFinder)
        and (path := files.relative(error.filename))
    ):
        return f"there is no {path} here: name files that a module reads under `include` in [tool.ratchet]"
    return in_one_line(error)


def specs_of(avals: Iterable[Any]) -> list[dict[str, Any]]:
    """Shapes and dtypes as a record holds them."""
    return [{"shape": list(a.shape), "dtype": a.dtype.name} for a in avals]


def answer(request: Path, examine: Callable[[Mapping[str, Any], Path], dict[str, Any]]) -> str:
    """Answer one request, and return the name of the record: what ``examine`` found of it, or its refusal.

    ``request/request.json`` says what is asked, and ``memory_bytes``, which may be used from now on.
    """
    start = time.monotonic()
    asked = json.loads((request / "request.json").read_text())
    resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_bytes"], asked["memory_bytes"]))
    try:
        record = examine(asked, request)
    except Refusal as refusal:
        record = {"status": refusal.status.name, "message": refusal.message}
    record |= {"seconds": time.monotonic() - start}
    (request / "record.json.new").write_text(json.dumps(record))
    (request / "record.json.new").rename(request / "record.json")
    return "record.json"
