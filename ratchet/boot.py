"""How a child's Python starts: with the judge's modules from sources that were read once, and few variables."""

from __future__ import annotations

import fcntl
import marshal
import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ratchet import bytecode, sources

PACKAGE_ROOT = Path(__file__).resolve().parent.parent

_NO_CHANGE = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_BOOT = """
import marshal, os, sys
code, control = map(int, sys.argv[1:3])
compiled = marshal.loads(os.pread(code, os.fstat(code).st_size, 0))
os.close(code)
served = {"__name__": "ratchet.served"}
exec(marshal.loads(compiled["ratchet.served"][2]), served)
served["Server"](compiled).install()
from ratchet.jail.launcher import main
main(control)
"""
"""What Python is started with: no file of the tree is read again."""


def command(control: int) -> list[str]:
    """Starts the launcher, which takes its orders from the descriptor ``control``. ``code`` is inherited, too."""
    # Not -I, which would leave out PYTHONHASHSEED: every variable is the judge's.
    return [sys.executable, "-s", "-S", "-P", "-B", *bytecode.flags(), "-c", _BOOT, str(code()), str(control)]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The few variables a child gets: nothing of the caller's but where programs are, and the language."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        **extra,
    }


@cache
def code() -> int:
    """A descriptor of the judge's compiled modules, which nobody can change."""
    data = marshal.dumps(sources.loaded(PACKAGE_ROOT).compiled())
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
