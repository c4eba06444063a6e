"""Where the compiled code of installed packages is kept: in the judge's private folder, never beside their sources.

A jailed child reads it and cannot write it, so a process of the judge's own fills it, once per environment. Each
environment has a folder; those that were not used for longest are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from ratchet.process.boot.home import least_used, private_folder

FILLED_BY = (
    "jax jax.export jax.extend jax.experimental.mesh_utils jax.experimental.pallas jax.experimental.pallas.tpu "
    "jax.experimental.topologies jax._src.pallas.mosaic.pallas_call_registration "
    "jax._src.pallas.triton.pallas_call_registration jaxlib.mlir.ir libtpu numpy google.protobuf.message"
).split()
"""What the children import of other people's packages."""

ENVIRONMENTS = 4
"""Environments whose compiled code stays, about 100 MiB each."""

FILL_SECONDS = 60
"""What is compiled by then is kept; the next start goes on."""

_FILL = """
import importlib, sys
sys.path += sys.argv[2:]
for name in sys.argv[1].split():
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)
import jax
jax.jit(lambda x: x + 1)(1.0)
"""


def flags() -> tuple[str, ...]:
    """Options for Python."""
    return tuple(part for folder in folders() for part in ("-X", f"pycache_prefix={folder}"))


def folders() -> tuple[str, ...]:
    """The folder, or nothing where there is no private one: then Python finds bytecode beside the sources."""
    private = private_folder()
    environment = hashlib.sha256(repr((sys.version, os.path.realpath(sys.prefix))).encode()).hexdigest()[:16]
    return (str(private / f"bytecode-{environment}"),) if private else ()


def _mark(packages: tuple[str, ...]) -> Path:
    """The file that says that it was done for these packages."""
    state = [(entry, os.stat(entry).st_mtime_ns) for entry in packages if os.path.isdir(entry)]
    key = hashlib.sha256(repr((sys.version, state)).encode()).hexdigest()[:16]
    return Path(folders()[0]) / f"filled-{key}"


@cache
def fill(packages: tuple[str, ...]) -> None:
    """Compile what children import, unless that was done for these packages. Failing costs time and nothing else."""
    private = private_folder()
    if private is None:
        return
    mark = _mark(packages)
    folder = mark.parent
    if mark.exists():
        with contextlib.suppress(OSError):
            os.utime(folder)  # used now
        return
    environment = {"PATH": os.environ.get("PATH", os.defpath), "JAX_PLATFORMS": "cpu", "HOME": str(private)}
    command = [sys.executable, "-s", "-S", "-P", *flags(), "-c", _FILL, " ".join(FILLED_BY), *packages]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True, timeout=FILL_SECONDS)
        mark.touch()
        os.utime(folder)
    import shutil  # this module is one of the first that are read

    with contextlib.suppress(OSError):
        for old in least_used("bytecode-*", private, ENVIRONMENTS):
            shutil.rmtree(old, ignore_errors=True)
