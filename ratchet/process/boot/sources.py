"""The judge's own source files: read once, compiled, and served as its modules, so that what runs is what was hashed.

No other file can be a module of ``ratchet``: no extension module, no bytecode beside a source, nothing that a path
entry holds. Compiled code is kept in the judge's private folder. This module and ``home.py`` are the first that run in
every process of the judge's. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from ratchet.process.boot.home import FILES, PACKAGE_ROOT, keep, least_used, private_folder

PACKAGE = "ratchet"
JUDGE = "prepare"
"""The one module of the judge's that is not in the package: ``prepare.py``."""

Compiled = dict[str, tuple[bool, str, bytes]]
"""By module: whether it is a package, its file, its marshalled code."""

_KEPT = 4
"""Files of compiled code that stay in the private folder."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All source files of the judge's, as they were at one time."""

    root: Path
    files: Mapping[str, bytes]
    """Contents by path, relative to ``root``."""

    @property
    def digest(self) -> str:
        """Of the files, and of where they are."""
        return hashlib.sha256(f"{self._of_files} {self.root}".encode()).hexdigest()

    @cached_property
    def _of_files(self) -> str:
        """Of the files alone: clones have the same."""
        whole = hashlib.sha256(importlib.util.MAGIC_NUMBER)
        for path, content in sorted(self.files.items()):
            whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return whole.hexdigest()[:32]

    def compiled(self) -> Compiled:
        """The code of every module, out of the private folder where it is there, be it that of another clone."""
        folder = private_folder()
        if folder is None:
            return self._made({})
        own = folder / f"code-{self._of_files}-{self.digest[:16]}"
        if known := _known(own):
            return known
        others = filter(None, map(_known, folder.glob(f"code-{self._of_files}-*")))
        made = self._made(next(others, {}))
        keep(own, marshal.dumps(made))
        with contextlib.suppress(OSError):
            for old in least_used("code-*", folder, _KEPT):
                old.unlink()
        return made

    def _made(self, elsewhere: Compiled) -> Compiled:
        """The code of every module, of that of the same files elsewhere, if there is any."""
        made: Compiled = {}
        for path, content in self.files.items():
            name, file = _module(path), str(self.root / path)
            if name in elsewhere:
                code = _at(marshal.loads(elsewhere[name][2]), file)
            else:
                code = compile(content, file, "exec", dont_inherit=True)
            made[name] = path.endswith("__init__.py"), file, marshal.dumps(code)
        return made

    def plain(self) -> dict[str, tuple[bool, str, bytes]]:
        """As ``compiled``, with sources instead of code: for a Python of another version."""
        return {
            _module(path): (path.endswith("__init__.py"), str(self.root / path), content)
            for path, content in self.files.items()
        }


def read(root: Path) -> Sources:
    """The judge's sources below ``root``, links left out."""
    paths = [path for path in (root / PACKAGE).rglob("*.py") if "__pycache__" not in path.parts]
    judge = (FILES if root == PACKAGE_ROOT else root) / f"{JUDGE}.py"
    files = {path.relative_to(root).as_posix(): path for path in paths} | {judge.name: judge}
    return Sources(
        root=root,
        files={name: path.read_bytes() for name, path in files.items() if path.is_file() and not path.is_symlink()},
    )


@cache
def loaded(root: Path) -> Sources:
    """The sources that this process runs, or, where it imported them in the ordinary way, has first looked at."""
    return read(root)


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _known(path: Path) -> Compiled | None:
    """What a file of compiled code holds; None where it is not there, or damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        return marshal.loads(path.read_bytes())  # type: ignore[no-any-return]
    return None


def _at(code: CodeType, file: str) -> CodeType:
    """The same code, of a file elsewhere."""
    inner = tuple(_at(one, file) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


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


def are_served() -> bool:
    """Whether this process has its modules from a server: ``start.py`` started it, not a user's program."""
    return any(isinstance(finder, Server) for finder in sys.meta_path)
