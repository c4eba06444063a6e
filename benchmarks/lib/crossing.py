"""Small kernels of one thing more than a grid each, for every JAX from 0.7.2 on. It imports JAX and NumPy alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Array = Any
X = ((64, 256), "float32")
SQUARE = ((256, 256), "bfloat16")
BLOCK = pl.BlockSpec((16, 256), lambda i: (i, 0))
ANY = pl.BlockSpec(memory_space=getattr(pl, "ANY", None))
OUT = jax.ShapeDtypeStruct(*X)


def _normal(draw: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.issubdtype(dtype, np.integer):
        return draw.integers(0, 4, shape).astype(dtype)
    return draw.normal(size=shape).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One kernel, a function of this module."""

    what: str
    """What it has, in words."""
    name: str
    inputs: Sequence[tuple[tuple[int, ...], str]] = (X,)
    reference: Callable[..., Array]
    atol: float = 1e-6
    draw: Callable[..., Array] = _normal


def _doubled(x: Any, o: Any) -> None:
    o[...] = 2 * x[...]


def grid(x: Array) -> Array:
    return pl.pallas_call(_doubled, out_shape=OUT, grid=4, in_specs=[BLOCK], out_specs=BLOCK)(x)


def copies(x: Array) -> Array:
    def kernel(x: Any, o: Any, scratch: Any, arrived: Any) -> None:
        copy = pltpu.make_async_copy(x, scratch, arrived)
        copy.start()
        copy.wait()
        o[...] = 2 * scratch[...]

    scratch = [pltpu.VMEM(*X), pltpu.SemaphoreType.DMA]
    return pl.pallas_call(kernel, out_shape=OUT, in_specs=[ANY], scratch_shapes=scratch)(x)


def tables(order: Array, x: Array) -> Array:
    def kernel(_: Any, x: Any, o: Any) -> None:
        _doubled(x, o)

    moved = pl.BlockSpec((16, 256), lambda i, order: (order[i], 0))
    kept = pl.BlockSpec((16, 256), lambda i, _: (i, 0))
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(4,), in_specs=[moved], out_specs=kept)
    return pl.pallas_call(kernel, out_shape=OUT, grid_spec=spec)(order, x)


def pipeline(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        pltpu.emit_pipeline(_doubled, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(x, o)

    return pl.pallas_call(kernel, out_shape=OUT, in_specs=[ANY], out_specs=ANY)(x)


def loop(turns: Array, x: Array) -> Array:
    def kernel(turns: Any, x: Any, o: Any) -> None:
        o[...] = jax.lax.fori_loop(0, turns[0], lambda _, total: total + x[...], jnp.zeros_like(x))

    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    whole = pl.BlockSpec(X[0], lambda: (0, 0))
    return pl.pallas_call(kernel, out_shape=OUT, in_specs=[smem, whole])(turns, x)


def _product(x: Array, y: Array, out: Any = jnp.float32, **how: Any) -> Array:
    def kernel(x: Any, y: Any, o: Any) -> None:
        o[...] = jnp.dot(x[...], y[...], preferred_element_type=o.dtype, **how)

    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), out))(x, y)


def product(x: Array, y: Array) -> Array:
    return _product(x, y)


def integers(x: Array, y: Array) -> Array:
    return _product(x, y, jnp.int32)


def three_passes(x: Array, y: Array) -> Array:
    return _product(x, y, precision="high")


def in_place(x: Array) -> Array:
    return pl.pallas_call(
        _doubled, out_shape=OUT, grid=4, in_specs=[BLOCK], out_specs=BLOCK, input_output_aliases={0: 0}
    )(x)


def buffers(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        deep = pl.BlockSpec((16, 256), lambda i: (i, 0), pipeline_mode=pl.Buffered(3))
        pltpu.emit_pipeline(_doubled, grid=(4,), in_specs=[deep], out_specs=[BLOCK])(x, o)

    return pl.pallas_call(kernel, out_shape=OUT, in_specs=[ANY], out_specs=ANY)(x)


def bounded(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        part = pl.BlockSpec((pl.BoundedSlice(16), 256), lambda i: (pl.ds(i * 16, 16), 0))
        pltpu.emit_pipeline(_doubled, grid=(4,), in_specs=[part], out_specs=[part])(x, o)

    return pl.pallas_call(kernel, out_shape=OUT, in_specs=[ANY], out_specs=ANY)(x)


def rolled(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        o[...] = pltpu.roll(x[...], 3, 1)

    return pl.pallas_call(kernel, out_shape=OUT)(x)


def scoped(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        def with_scratch(scratch: Any) -> None:
            scratch[...] = 2 * x[...]
            o[...] = scratch[...]

        pl.run_scoped(with_scratch, pltpu.VMEM(*X))

    return pl.pallas_call(kernel, out_shape=OUT)(x)


def parallel(x: Array) -> Array:
    how = pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=1 << 24)
    return pl.pallas_call(_doubled, out_shape=OUT, grid=4, in_specs=[BLOCK], out_specs=BLOCK, compiler_params=how)(x)


def _cast(x: Array, dtype: Any) -> Array:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...].astype(dtype).astype(jnp.float32)

    return pl.pallas_call(kernel, out_shape=OUT)(x)


def eight_bits(x: Array) -> Array:
    return _cast(x, jnp.float8_e4m3fn)


def four_bits(x: Array) -> Array:
    return pl.pallas_call(lambda x, o: o.__setitem__(..., x[...].astype(jnp.float32)), out_shape=OUT)(
        x.astype(jnp.int4)
    )


def mesh(x: Array) -> Array:
    def kernel(x: Any, o: Any) -> None:
        pltpu.emit_pipeline(_doubled, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(x, o)

    cores = pltpu.create_tensorcore_mesh("core", num_cores=1)
    return pl.kernel(kernel, out_type=OUT, mesh=cores)(x)


def around(x: Array) -> Array:
    return jax.nn.softmax(grid(x), axis=-1).sum(axis=0, keepdims=True) + jnp.zeros((8, 256))


def gradient(x: Array) -> Array:
    @jax.custom_vjp
    def squares(x: Array) -> Array:
        return grid(x)

    squares.defvjp(lambda x: (grid(x), x), lambda x, g: (grid(g),))
    return jax.grad(lambda x: squares(x).sum())(x)


def _softmax(x: Array) -> Array:
    e = np.exp(2 * x.astype(np.float64) - 2 * x.max(axis=-1, keepdims=True))
    return np.broadcast_to((e / e.sum(axis=-1, keepdims=True)).sum(axis=0, keepdims=True), (8, 256))


def _float(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *arrays: function(*(array.astype(np.float64) for array in arrays))


_twice = functools.partial(np.multiply, 2)
_matmul = _float(np.matmul)

FEATURES = (
    Feature(what="a grid of blocks", name="grid", reference=_twice),
    Feature(what="copies of its own", name="copies", reference=_twice),
    Feature(
        what="tables that are prefetched",
        name="tables",
        inputs=(((4,), "int32"), X),
        reference=lambda order, x: 2 * x.reshape(4, 16, 256)[order].reshape(64, 256),
    ),
    Feature(what="a pipeline inside", name="pipeline", reference=_twice),
    Feature(
        what="a loop of as many turns as an input says",
        name="loop",
        inputs=(((1,), "int32"), X),
        reference=lambda turns, x: turns[0] * x,
    ),
    Feature(what="a product of bfloat16", name="product", inputs=(SQUARE, SQUARE), reference=_matmul, atol=1e-3),
    Feature(
        what="a product of int8",
        name="integers",
        inputs=(((256, 256), "int8"),) * 2,
        reference=_matmul,
    ),
    Feature(
        what="a product in three passes",
        name="three_passes",
        inputs=(((256, 256), "float32"),) * 2,
        reference=_matmul,
        atol=1e-2,
    ),
    Feature(what="its result in place", name="in_place", reference=_twice),
    Feature(what="three buffers", name="buffers", reference=_twice),
    Feature(what="slices up to a bound", name="bounded", reference=_twice),
    Feature(what="a rotation", name="rolled", reference=functools.partial(np.roll, shift=3, axis=1)),
    Feature(what="a scope with scratch", name="scoped", reference=_twice),
    Feature(what="parallel steps, a limit of VMEM", name="parallel", reference=_twice),
    Feature(what="float8", name="eight_bits", reference=lambda x: x, atol=0.25),
    Feature(what="int4", name="four_bits", inputs=(((64, 256), "int8"),), reference=lambda x: x),
    Feature(what="a mesh of cores (`pl.kernel`)", name="mesh", reference=_twice),
    Feature(what="XLA's operations around it", name="around", reference=_softmax),
    Feature(what="a gradient of its own", name="gradient", reference=lambda x: np.full(x.shape, 2.0)),
)
