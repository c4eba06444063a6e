"""What a process needs around it to hold the TPU compiler: versions, environment, flags, and the child it runs in.

The only place that knows. The compiler takes its flags once, when it is opened, so one process compiles for one chip.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import replace
from pathlib import Path

from ratchet.process.boot.home import PROGRAM
from ratchet.process.sandbox import interpreter
from ratchet.process.sandbox.child import JAILED, Child, Walls
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import dump_flags
from ratchet.values.status import Refusal, Status

DUMP_FOLDER = "RATCHET_DUMP_FOLDER"
"""Environment variable of a compiler process: where the compiler writes its dumps."""
PROFILES = "RATCHET_PROFILES"
"""Environment variable of a compiler process: set where it takes the bundles of kernels from a profile."""
CHIP = "RATCHET_CHIP"
"""Environment variable of a compiler process: the name of the chip that it compiles for."""
COMPILER = "RATCHET_COMPILER"
"""Environment variable of a compiler process: :func:`compiler_version`."""


MODULES = (
    "ratchet.process", "ratchet.tpu.chips", "ratchet.tpu.compiler", "ratchet.tpu.dump", "ratchet.tpu.exporting",
    "ratchet.tpu.mlir", "ratchet.tpu.protos", "ratchet.values",
)  # fmt: skip
"""What of the judge's a compiler process of another environment is given."""


def compiler_version() -> str:
    """What compiles here, e.g. ``libtpu 0.0.42.1, jax 0.10.2``.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where libtpu is not installed.
    """
    try:
        return f"libtpu {importlib.metadata.version('libtpu')}, jax {importlib.metadata.version('jax')}"
    except importlib.metadata.PackageNotFoundError as error:
        raise Refusal(
            Status.UNSUPPORTED_PLATFORM,
            f"{error.name} is not installed: the TPU compiler has builds for x86-64 Linux only, this is "
            f"{platform.system()} {platform.machine()}. `{PROGRAM} log`, `show` and `verify` still work here.",
        ) from None


def environment(
    chip: Chip, dumps: Path | None, *, extra_passes: tuple[str, ...] = (), profiles: bool = False
) -> dict[str, str]:
    """Variables for a process that compiles for ``chip``; dumps of its programs land in ``dumps``, if there are any.

    ``extra_passes`` names passes to dump besides those that the schedule machine reads. One that ``profiles`` dumps
    nothing of those, and takes the bundles of kernels from a profile.
    """
    flags = dump_flags(dumps, extra_passes=extra_passes, profiles=profiles) if dumps else []
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": chip.accelerator_type,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        # Two processes collide on libtpu's lock file without it.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "LIBTPU_INIT_ARGS": " ".join(flags),
        DUMP_FOLDER: str(dumps or ""),
        PROFILES: "1" if profiles else "",
        CHIP: chip.name,
        COMPILER: compiler_version(),
    }


def enter(chip: Chip, dumps: Path, *, extra_passes: tuple[str, ...] = (), profiles: bool = False) -> None:
    """Make this process one that compiles for ``chip``: before it imports JAX, and once."""
    dumps.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment(chip, dumps, extra_passes=extra_passes, profiles=profiles))


def start(
    worker: str,
    workdir: Path,
    chip: Chip,
    *,
    extra_passes: tuple[str, ...] = (),
    profiles: bool = False,
    walls: Walls = JAILED,
    warm: Warm | None = None,
) -> Child:
    """Start module ``worker`` as a compiler process for one chip. It can answer several requests.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where libtpu is not installed.
    """
    variables = environment(chip, _dumps(workdir), extra_passes=extra_passes, profiles=profiles)
    return Child(worker, directory=workdir, environment=variables, walls=walls, warm=warm)


def start_under(folder: Path, worker: str, workdir: Path, chip: Chip, *, extra_passes: tuple[str, ...]) -> Child:
    """As :func:`start`, with the JAX and the libtpu of the environment in ``folder``.

    Raises:
      Refusal: as :func:`ratchet.process.sandbox.interpreter.find`.
    """
    variables = environment(chip, _dumps(workdir), extra_passes=extra_passes) | {COMPILER: _installed(folder)}
    other = replace(interpreter.find(folder / "bin" / "python"), modules=MODULES)
    return Child(worker, directory=workdir, environment=variables, interpreter=other)


def compiler_of(child: Child) -> str:
    """What a compiler process compiles with, as :func:`compiler_version` says it."""
    return child.variables[COMPILER]


def _installed(folder: Path) -> str:
    """What compiles in an environment of ``setup --jax``, as :func:`compiler_version` says it."""
    found = {name: next(folder.glob(f"lib/python*/site-packages/{name}-*.dist-info")) for name in ("libtpu", "jax")}
    return ", ".join(f"{name} {path.stem.partition('-')[2]}" for name, path in found.items())


def _dumps(workdir: Path) -> Path:
    dumps = workdir / "dumps"
    dumps.mkdir(parents=True, exist_ok=True)
    return dumps
