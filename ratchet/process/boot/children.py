"""How a child's Python starts: with the judge's modules from sources that were read once, and few variables.

It is the judge's own Python, or another one that it becomes (``sandbox/interpreter.py``). Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ratchet.process.boot import bytecode, sources
from ratchet.process.boot.home import PACKAGE_ROOT
from ratchet.values.status import Refusal, Status

LAUNCHER = "ratchet.process.sandbox.launcher"
"""Whose ``main`` a new Python runs."""
_INSIDE = "ratchet.process.sandbox.inside"

OBJECTS = 50_000
"""That a process makes before Python looks for garbage among them: most are modules, or programs that are traced, and
stay. By default it is 700."""

_NO_CHANGE = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_READ = """
import importlib, marshal, os, sys
code, control = map(int, sys.argv[1:3])
compiled = marshal.loads(os.pread(code, os.fstat(code).st_size, 0))
os.close(code)
"""
_COMPILE = """
for name, (package, origin, source) in compiled.items():
    compiled[name] = package, origin, marshal.dumps(compile(source, origin, "exec", dont_inherit=True))
"""
_SERVE = """
for name in ("ratchet.process.boot.home", "ratchet.process.boot.sources"):
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = compiled[name][1]
    exec(marshal.loads(compiled[name][2]), module.__dict__)
module.Server(compiled).install()
importlib.import_module(sys.argv[3]).main(control)
"""
_BOOT = _READ + _SERVE
"""What Python is started with: no file of the tree is read again."""
_FOREIGN_BOOT = _READ + _COMPILE + _SERVE
"""The same for another Python, which is given sources."""
FOREIGN = (
    "ratchet.exam.candidate", "ratchet.process", "ratchet.tpu.chips", "ratchet.tpu.exporting",
    "ratchet.values",
)  # fmt: skip
"""The packages and modules that a Python of the user's is given."""
_PORTABLE = 2
"""A version of marshal's format that every Python reads."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python with packages of its own."""

    executable: str
    path: tuple[str, ...]
    """Its ``sys.path``, the folder of the caller left out."""
    readable: tuple[str, ...]
    """Folders that it needs besides: where it is installed."""
    programs: tuple[str, ...]
    """All that is executed to run it."""
    modules: tuple[str, ...] = FOREIGN
    """The packages and modules of the judge's that it is given."""
    asks: str = ""
    """Runs this text alone, with what its site has: no module of the judge's."""


def outside(python: str, root: Path) -> str:
    """The path of an interpreter that a repository's own table names, relative to ``root``. Nothing is run.

    Raises:
      Refusal: ``USAGE`` where it is inside the repository, or where anybody can put a program; ``NOT_FOUND``.
    """
    found = os.path.abspath(os.path.join(root, python)) if "/" in python else shutil.which(python)
    if found is None or not os.path.exists(found):
        raise Refusal(Status.NOT_FOUND, f"there is no {python}: name an interpreter that is installed")
    places = {found, os.path.realpath(found), os.path.join(os.path.realpath(os.path.dirname(found)), "")}
    top = os.path.realpath(root)
    todo = "whoever writes there would run as you; make its environment outside, or give it with --python"
    if inside := [
        one for one in sorted(places) if os.path.join(one, "").startswith((os.path.join(top, ""), f"{root}/"))
    ]:
        raise Refusal(Status.USAGE, f"python is {inside[0]}, inside the repository, wanted one outside: {todo}")
    for one in places:
        for folder in Path(one).parents:
            mode = os.stat(folder).st_mode
            if mode & stat.S_IWOTH and (folder == Path(one).parent or not mode & stat.S_ISVTX):
                raise Refusal(Status.USAGE, f"python is {found}, in a folder that everybody can write: {todo}")
    return found


def command(control: int, *, main: str = LAUNCHER) -> list[str]:
    """Starts a module's ``main``, which takes its orders from the descriptor ``control``. Inherits that of ``code``."""
    # Not -I, which would leave out PYTHONHASHSEED: every variable is the judge's.
    flags = ("-s", "-S", "-P", "-B", *bytecode.flags())
    return [sys.executable, *flags, "-c", _BOOT, str(code()), str(control), main]


def becomes(interpreter: Interpreter, module: str) -> list[str]:
    """What another Python is started with, to run a module behind walls. It inherits the descriptor of ``code``."""
    if interpreter.asks:
        return [interpreter.executable, "-s", "-P", "-B", "-c", interpreter.asks]
    arguments = [str(code(interpreter)), "-1", _INSIDE, json.dumps(interpreter.path), module]
    return [interpreter.executable, "-s", "-S", "-P", "-B", "-c", _FOREIGN_BOOT, *arguments]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The few variables a child gets: nothing of the caller's but where programs are, and the language."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",  # as in ``start.py``
        **extra,
    }


def code(interpreter: Interpreter | None = None) -> int:
    """A descriptor of the judge's modules, which nobody can change: compiled, or as sources for another Python."""
    return _sources(interpreter.modules) if interpreter else _compiled()


@cache
def _compiled() -> int:
    return _unchanging(marshal.dumps(sources.loaded(PACKAGE_ROOT).compiled()))


@cache
def _sources(modules: tuple[str, ...]) -> int:
    """Those that another Python runs."""
    plain = sources.loaded(PACKAGE_ROOT).plain()
    chosen = {
        name: entry
        for name, entry in plain.items()
        if any(f"{name}.".startswith(f"{part}.") or part.startswith(f"{name}.") for part in modules)
    }
    return _unchanging(marshal.dumps(chosen, _PORTABLE))


def _unchanging(data: bytes) -> int:
    """A descriptor of ``data`` in memory."""
    descriptor = os.memfd_create("ratchet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _NO_CHANGE)
    return descriptor


def packages() -> tuple[str, ...]:
    """The folders of installed packages: this Python's own, and no other entry of its path."""
    own = sysconfig.get_paths()
    listed = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return tuple(dict.fromkeys(map(os.path.realpath, [own["purelib"], own["platlib"], *listed])))
