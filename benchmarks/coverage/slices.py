"""Kernels that run on several chips: of JAX's guide to them, of its tests, and its all-gather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from benchmarks.coverage.calls import Call, enter, normal
from benchmarks.coverage.captured import of_cells, of_test

CHIPS = 8
GUIDE = "docs/pallas/tpu/distributed.ipynb"
TESTS = "tests/pallas/tpu_pallas_distributed_test.py"


def _scattered(x: Any) -> Any:
    """The sum over chips, of which each has columns: each gets rows of it."""
    return x.reshape(x.shape[0], CHIPS, -1).sum(1)


def _all_reduce(sources: Any) -> Call:
    def reference(x: Any) -> Any:
        return np.tile(x.reshape(len(x), CHIPS, -1).sum(1), CHIPS)

    call = of_cells(sources, 3, reference=reference, tolerance=1e-6)
    return replace(call, function=lambda x: call.function(x)[0])  # the second is what it calls scratch


enter(
    GUIDE,
    {
        "jax-source/guide, right permute": partial(
            of_cells, place=1, reference=lambda x: np.roll(x, x.shape[1] // CHIPS, axis=1), tolerance=0.0
        ),
        "jax-source/guide, all-gather": partial(
            of_cells, place=2, reference=lambda x: np.tile(x.reshape(CHIPS, 8, 128), (CHIPS, 1, 1)), tolerance=0.0
        ),
        "jax-source/guide, all-reduce": _all_reduce,
        "jax-source/guide, reduce-scatter": partial(of_cells, place=4, reference=_scattered, tolerance=1e-6),
        "jax-source/guide, reduce-scatter with a pipeline": partial(
            of_cells, place=6, instead={"outer_block_size": (256, 256)}, reference=_scattered, tolerance=1e-6
        ),
    },
)


def _right(x: Any) -> Any:
    return np.roll(x, 8, axis=0)


def _left(x: Any) -> Any:
    return np.roll(x, -8, axis=0)


def _test(module: Any, name: str, reference: Callable[..., Any]) -> Call:
    return of_test(module.PallasCallRemoteDMATest, name, reference=reference, tolerance=0.0)


enter(
    TESTS,
    {
        f"jax-source/test, {name}": partial(_test, name=f"test_{method}", reference=reference)
        for name, method, reference in (
            ("to the left", "pallas_call_axis_index_left", _left),
            ("to the right", "pallas_call_axis_index_right", _right),
            ("to the left on a plane", "pallas_call_axis_index_2d_mesh_left", _left),
            ("to the right on a plane", "pallas_call_axis_index_2d_mesh_right", _right),
            ("one axis named", "device_id_dict_implicit_axis", _right),
            ("barrier", "barrier_semaphore", _right),
            ("barrier without axes", "barrier_semaphore_no_axis_name", lambda x: np.tile(x, (1, 1))),
            ("a semaphore as an output", "no_barrier_semaphore", lambda x: x + 1),
        )
    },
)


def _all_gather(module: Any, *, mesh: dict[str, int], axis: str = "x", space: Any = pl.ANY) -> Call:
    def kernel(x: Any) -> Any:
        return module.all_gather(x, mesh=jax.sharding.get_abstract_mesh(), axis_name=axis, memory_space=space)

    x = normal("x", 32 * mesh[axis], 256, dtype=jnp.float32)
    return Call(function=kernel, arrays=(x,), mesh=mesh, specs=(P(axis),), reference=lambda x: x, tolerance=0.0)


LINE, PLANE = {"x": CHIPS}, {"x": 2, "y": CHIPS // 2}
enter(
    "jax/experimental/pallas/ops/tpu/all_gather.py",
    {
        "jax/all-gather": partial(_all_gather, mesh=LINE),
        "jax/all-gather, in VMEM": partial(_all_gather, mesh=LINE, space=pltpu.VMEM),
        "jax/all-gather, four chips": partial(_all_gather, mesh={"x": 4}),
        "jax/all-gather, of pairs of a plane": partial(_all_gather, mesh=PLANE),
        "jax/all-gather, of rows of a plane": partial(_all_gather, mesh=PLANE, axis="y"),
    },
)
