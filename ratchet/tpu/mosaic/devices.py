"""Executes a lowered program on the CPU devices of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mosaic.arrays import decode, encode, kept_as
from ratchet.tpu.mosaic.lowering import CONFIG_WIDTH
from ratchet.tpu.mosaic.program import Program
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status

COMPILER_OPTIONS: dict[str, bool | str] = {
    "xla_allow_excess_precision": False,
    "xla_backend_optimization_level": "1",
}
"""Without the first XLA keeps float32 between bfloat16 operations, and a kernel looks better than it is. With the
second it compiles faster what runs no slower."""

_DEVICES = threading.Lock()

Placed = tuple[jax.Array, ...]
"""The inputs of a program on all devices that it is sharded over, as memory keeps them."""


def compiled(program: Program, lowered: Any, *, results: slice = slice(None)) -> Callable[..., Any]:
    """What is lowered of a program, compiled; of its results only some. It takes :func:`arguments`.

    Narrow floats go in and out as memory keeps them. XLA drops conversions that follow each other; one alone copies all
    of an array, in every execution.
    """

    def call(*kept: Any) -> list[Any]:
        given = (decode(array, aval.dtype) for array, aval in zip(kept, lowered.in_avals, strict=True))
        return [encode(output) for output in lowered.call(*given)][results]

    pairs = zip(lowered.in_avals, _shardings(program), strict=True)
    avals = [jax.ShapeDtypeStruct(aval.shape, kept_as(aval.dtype), sharding=where) for aval, where in pairs]
    return jax.jit(call).lower(*avals).compile(COMPILER_OPTIONS)  # type: ignore[no-any-return]


def place(program: Program, inputs: Sequence[np.ndarray]) -> Placed:
    """Put inputs where a program is executed, once for several executions, also of its other translations.

    Raises:
        Refusal: ``USAGE`` if the inputs do not match, ``INFRASTRUCTURE`` if this process has too few devices.
    """
    arrays = [np.asarray(array) for array in inputs]
    got = tuple(ArraySpec(shape=a.shape, dtype=a.dtype.name) for a in arrays)
    if got != program.inputs:
        raise Refusal(
            Status.USAGE,
            f"inputs {', '.join(map(str, got))} where the program takes {', '.join(map(str, program.inputs))}",
        )
    *where, _ = _shardings(program)
    kept = [array.view(kept_as(array.dtype)) for array in arrays]
    return tuple(jax.device_put(*pair) for pair in zip(kept, where, strict=True))


def arguments(program: Program, inputs: Placed, config: Sequence[int] | np.ndarray = (0,) * CONFIG_WIDTH) -> list[Any]:
    """What an execution takes: inputs, and its configuration on all devices."""
    *_, everywhere = _shardings(program)
    return [*inputs, jax.device_put(np.array(config, np.int32), everywhere)]


def device_lock(program: Program) -> AbstractContextManager[Any]:
    """Around an execution. Each device has one thread: two executions on several might wait for each other there."""
    return _DEVICES if program.devices > 1 else contextlib.nullcontext()


def _shardings(program: Program) -> list[Any]:
    """Where each argument is, the configuration last; None for a program on one device."""
    wanted, exported = program.devices, program.exported
    if wanted == 1:
        return [None] * (len(program.inputs) + 1)
    devices = jax.devices("cpu")
    if len(devices) < wanted:
        raise Refusal(
            Status.INFRASTRUCTURE,
            f"the program is for {wanted} devices and this process has {len(devices)}: "
            f"set XLA_FLAGS=--xla_force_host_platform_device_count={wanted} before importing jax",
        )
    whole = [s.mesh for s in exported._in_named_shardings if s is not None] or None
    names, sizes = (whole[0].axis_names, whole[0].axis_sizes) if whole else (("devices",), (wanted,))
    mesh = jax.sharding.Mesh(np.array(devices[:wanted]).reshape(sizes), names)
    nowhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return [s or nowhere for s in (*exported.in_shardings_jax(mesh), None)]


def held(output: Any, spec: ArraySpec) -> list[np.ndarray]:
    """An output as its devices hold it: one array, and one more for every replica that differs from the first."""
    shards: dict[str, list[Any]] = {}
    for shard in output.addressable_shards:
        shards.setdefault(str(shard.index), []).append(shard)
    replicas: list[np.ndarray] = []
    for number in range(min(map(len, shards.values()))):
        whole = np.empty(output.shape, output.dtype)
        for copies in shards.values():
            whole[copies[number].index] = np.asarray(copies[number].data)
        if not replicas or whole.tobytes() != replicas[0].tobytes():
            replicas.append(whole.view(jnp.dtype(spec.dtype)))
    return replicas
