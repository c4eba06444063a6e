"""What a process that holds the TPU compiler does with it: the chip's devices, the optimised HLO, the dumps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler.environment import DUMP_FOLDER
from ratchet.tpu.dump.files import OPTIMIZED

_DEVICES: dict[str, Sequence[Any]] = {}


def devices_of(chip: str, count: int = 1) -> Sequence[Any]:
    """The first ``count`` devices of the slice that has so many, by number. Opens the TPU compiler on first use."""
    topology = CHIPS[chip].slice_of(count).topology
    if topology not in _DEVICES:
        _DEVICES[topology] = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    return _DEVICES[topology][:count]


def mesh_of(chip: str, axes: Sequence[tuple[str, int]] = ()) -> Mesh:
    """The devices of the chip's slice, in the order of ``jax.make_mesh``; without axes one device."""
    names, sizes = [name for name, _ in axes] or ["chip"], [size for _, size in axes] or [1]
    devices = devices_of(chip, int(np.prod(sizes)))
    arranged = mesh_utils.create_device_mesh(sizes, devices) if len(devices) > 1 else np.array(devices).reshape(sizes)
    return Mesh(arranged, names)


def lower(function: Callable[..., Any], avals: Sequence[Any], chip: str) -> Any:
    """``jax.jit(function)`` lowered for one device of ``chip``; ``avals`` have ``shape`` and ``dtype``."""
    mesh = mesh_of(chip)
    whole = NamedSharding(mesh, PartitionSpec())
    placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole) for a in avals]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # some kernels ask which chip they are lowered for
        return jax.jit(function).lower(*placed)


def optimised(compiled: Any) -> Any:
    """The HLO module that the compiler made of a program."""
    return compiled.runtime_executable().hlo_modules()[0]


def keep(compiled: Any, folder: Path) -> None:
    """Write what the schedule machine reads of the latest compile to ``folder``: the HLO and ``schedule/``."""
    (folder / OPTIMIZED).write_bytes(optimised(compiled).as_serialized_hlo_module_proto())
    move_dumps(folder / "schedule")


def clear_dumps() -> None:
    """Remove what earlier compiles left, before the next: one folder holds the dumps of one program."""
    for old in Path(os.environ[DUMP_FOLDER]).glob("*"):
        old.unlink()


def move_dumps(schedule: Path) -> None:
    """Move the dumps of the latest compile to ``schedule``."""
    schedule.mkdir(parents=True, exist_ok=True)
    for dump in Path(os.environ[DUMP_FOLDER]).iterdir():
        shutil.move(dump, schedule / dump.name)
