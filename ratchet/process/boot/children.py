"""How a child's Python starts: with the judge's modules from sources that were read once, and few variables.

It is the judge's own Python, or another one, which is asked where its packages are. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from ratchet.process import key
from ratchet.process.boot import bytecode, sources
from ratchet.process.boot.home import PACKAGE_ROOT
from ratchet.process.sandbox import landlock
from ratchet.values.status import Refusal, Status

LAUNCHER = "ratchet.process.sandbox.launcher"
"""Whose ``main`` a new Python runs."""

OBJECTS = 50_000
"""That a process makes before Python looks for garbage among them: most are modules, or programs that are traced, and
stay. By default it is 700."""

_OLDEST = (3, 11)
"""What runs the jail's own modules."""
_SECONDS = 60
_QUESTION = """
import json, sys
print(json.dumps({"version": sys.version_info[:2], "path": [p for p in sys.path if p], "prefix": sys.prefix,
                  "base": sys.base_prefix, "executable": sys.executable}))
"""

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
"""The packages and modules that another Python is given."""
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


def find_interpreter(python: str | Path) -> Interpreter:
    """The interpreter at a path or of a name on the PATH. Runs it, where it can write nothing and not read the key.

    Raises:
      Refusal: ``NOT_FOUND`` where it cannot be run, ``USAGE`` where it is older than Python 3.11.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    try:
        done = subprocess.run(
            [str(python), "-P", "-s", "-c", _QUESTION],
            capture_output=True,
            check=True,
            cwd="/",
            env=environment,
            timeout=_SECONDS,
            preexec_fn=partial(landlock.confine, (), _key_folder()),
        )
        answer = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        message = f"{python} is no Python {'.'.join(map(str, _OLDEST))} or newer: {''.join(said):.200}"
        raise Refusal(Status.USAGE, message) from None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refusal(Status.NOT_FOUND, f"{python} cannot be run as a Python: {error}") from None
    if tuple(answer["version"]) < _OLDEST:
        got, wanted = ".".join(map(str, answer["version"])), ".".join(map(str, _OLDEST))
        raise Refusal(Status.USAGE, f"{python} is Python {got}, wanted {wanted} or newer")
    real = os.path.realpath(answer["executable"])
    folders = (answer["prefix"], answer["base"], str(Path(real).parent.parent), *answer["path"])
    return Interpreter(
        executable=answer["executable"],
        path=tuple(answer["path"]),
        readable=tuple(dict.fromkeys((*folders, *map(os.path.realpath, folders)))),
    )


def _key_folder() -> Path | None:
    try:
        return key.path().parent
    except key.NoKey:
        return None


def command(control: int, interpreter: Interpreter | None = None, *, main: str = LAUNCHER) -> list[str]:
    """Starts a module's ``main``, which takes its orders from the descriptor ``control``. It inherits that of ``code``.

    ``interpreter``: another Python than this one.
    """
    arguments = [str(code(interpreter)), str(control), main]
    # Not -I, which would leave out PYTHONHASHSEED: every variable is the judge's.
    if interpreter:
        return [interpreter.executable, "-s", "-S", "-P", "-B", "-c", _FOREIGN_BOOT, *arguments]
    return [sys.executable, "-s", "-S", "-P", "-B", *bytecode.flags(), "-c", _BOOT, *arguments]


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
    return _sources() if interpreter else _compiled()


@cache
def _compiled() -> int:
    return _unchanging(marshal.dumps(sources.loaded(PACKAGE_ROOT).compiled()))


@cache
def _sources() -> int:
    """Those that another Python runs."""
    plain = sources.loaded(PACKAGE_ROOT).plain()
    chosen = {
        name: entry
        for name, entry in plain.items()
        if any(f"{name}.".startswith(f"{part}.") or part.startswith(f"{name}.") for part in FOREIGN)
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
