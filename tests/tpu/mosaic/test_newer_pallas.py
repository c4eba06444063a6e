"""What Pallas has since JAX 0.10: executed as it is meant, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.values.status import Status
from tests.imports import OLDER_JAX
from tests.refusals import refused
from tests.tpu.mosaic.kernels import ANY, OUT, kernel_call, loaded, rows

if OLDER_JAX:
    pytest.skip("names that JAX 0.10 has not", allow_module_level=True)

DRAWN = np.random.default_rng(0)
X = DRAWN.normal(size=(64, 128)).astype(np.float32)
A, B = DRAWN.integers(-(2**31), 2**31 - 1, (2, 64, 128)).astype(np.int32)
UA, UB = A.view(np.uint32), B.view(np.uint32)
SIX = DRAWN.integers(0, 64, (64, 128)).astype(np.int8)
INTEGERS, UNSIGNED, BYTES = (jax.ShapeDtypeStruct(OUT.shape, dtype) for dtype in (jnp.int32, jnp.uint32, jnp.int8))
MESH = getattr(pltpu, "TensorCoreMesh", None) and pltpu.TensorCoreMesh(axis_name="core", num_cores=1)


def each(function: Callable[..., Any], shape: Any = OUT) -> Callable[..., Any]:
    """A kernel that makes its output of its whole inputs."""

    def kernel(*refs: Any) -> None:
        *inputs, output = refs
        output[...] = function(*(ref[...] for ref in inputs))

    return kernel_call(kernel, shape)


def doubled(x: Any, o: Any) -> None:
    o[...] = x[...] * 2


def six_bits(x: Any) -> Any:
    return pltpu.unpack_fp6(*pltpu.pack_fp6(x)).astype(jnp.int8)


def over_a_mesh(x: Any) -> Any:
    def kernel(x: Any, o: Any) -> None:
        pltpu.emit_pipeline(doubled, grid=(4,), in_specs=[rows(16)], out_specs=[rows(16)])(x, o)

    return pl.kernel(kernel, out_type=OUT, mesh=MESH)(x)


def prefetched(x: Any) -> Any:
    """A pipeline whose first block is brought in by a kernel of its own."""
    ahead = pl.BlockSpec((16, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(2, prefetched_count=1))
    pipeline, prefetch = pltpu.emit_pipeline_with_async_prefetch(
        doubled, grid=(4,), in_specs=[ahead], out_specs=[rows(16)], mesh=MESH
    )
    given, made = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def kernel(given: Any, made: Any, buffers: Any) -> None:
        pipeline(given, made, allocations=buffers)

    pl.kernel(kernel, out_type=(), mesh=MESH)(given, made, prefetch(given))
    return made[...]


def of_matrix_unit(x: Any) -> Any:
    pltpu.matmul_push_rhs(x, 0, 0)
    pltpu.matmul_lhs_fifo(x, 0, load_staged_rhs=0)
    return pltpu.matmul_pop_fifo((128, 128), jnp.float32, 0)


def asks_where(x: Any, o: Any) -> None:
    o[...] = jnp.where(pltpu.has_memory_space(x, pltpu.VMEM), jnp.ones(OUT.shape), 2.0)


def promises(x: Any, o: Any) -> None:
    o[...] = pltpu.annotate(x, no_store=True)[...]


@pytest.mark.parametrize(
    ("call", "inputs", "wanted", "off"),
    [
        (each(lambda x: lax.reduce_precision(x, 8, 7)), [X], X.astype(jnp.bfloat16).astype(np.float32), 0),
        (each(jax.nn.sigmoid), [X], 1 / (1 + np.exp(-X.astype(np.float64))), 1e-6),
        (each(lambda x: jnp.log2(jnp.abs(x))), [X], np.log2(np.abs(X.astype(np.float64))), 1e-5),
        (each(lambda x: pltpu.reciprocal(jnp.abs(x) + 1)), [X], 1 / (np.abs(X.astype(np.float64)) + 1), 1e-6),
        (each(lax.mulhi, INTEGERS), [A, B], A.astype(np.int64) * B >> 32, 0),
        (each(lax.mulhi, UNSIGNED), [UA, UB], UA.astype(np.uint64) * UB >> np.uint64(32), 0),
        (
            each(lambda x: lax.top_k(x, 4, is_stable=False)[0], jax.ShapeDtypeStruct((64, 4), jnp.float32)), [X],
            -np.sort(-X, axis=1)[:, :4], 0,
        ),
        (
            each(lambda x: jnp.dot(x, x.T, precision="high"), jax.ShapeDtypeStruct((64, 64), jnp.float32)), [X],
            X.astype(np.float64) @ X.T, 1e-3,
        ),
        (each(six_bits, BYTES), [SIX], SIX, 0),
        (over_a_mesh, [X], 2 * X, 0),
    ],
    ids=[
        "reduce_precision", "logistic", "log2", "reciprocal", "mulhi", "mulhi-unsigned", "top_k", "three-passes", "fp6",
        "kernel-over-a-mesh",
    ],
)  # fmt: skip
def test_it_is_executed(call: Any, inputs: list[np.ndarray], wanted: np.ndarray, off: float) -> None:
    result = loaded(call, *inputs).check(inputs)
    assert not result.findings
    np.testing.assert_allclose(result.outputs[0].astype(np.float64), wanted.astype(np.float64), rtol=0, atol=off)


@pytest.mark.parametrize(
    ("call", "inputs", "why"),
    [
        (prefetched, [X], "a semaphore that is there before the kernel"),
        (
            each(of_matrix_unit, jax.ShapeDtypeStruct((128, 128), jnp.float32)), [np.ones((128, 128), jnp.bfloat16)],
            "how many results the queue of the matrix unit holds",
        ),
        (kernel_call(asks_where, in_specs=[ANY]), [X], "decided by the compiler alone"),
        (kernel_call(promises), [X], "what it promises the compiler"),
        (
            each(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"),
                 jax.ShapeDtypeStruct((1, 8, 6, 126), jnp.float32)),
            [np.ones((1, 8, 8, 128), np.float32), np.ones((8, 8, 3, 3), np.float32)], "no libtpu compiles it yet",
        ),
    ],
    ids=["prefetched-by-another-kernel", "matrix-unit", "memory-space", "annotate", "conv"],
)  # fmt: skip
def test_it_is_refused_by_name(call: Any, inputs: list[np.ndarray], why: str) -> None:
    with refused(Status.CANNOT_VERIFY, why):
        loaded(call, *inputs)
