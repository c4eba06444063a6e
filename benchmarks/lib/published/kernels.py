"""Kernels with published timings that are written here from what their sources say of them, and how a case is built."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.lib.published.cases import Array, Case, builder_of
from ratchet.tpu.compiler.inside import mesh_of

_DTYPES = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "s8": "int8", "i8": "int8", "int8": "int8",
           "s32": "int32", "i32": "int32", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}  # fmt: skip


class NotBuilt(Exception):
    """Nobody here wrote the kernel that a row names, or its settings say what the builder does not know."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A program ready to be lowered."""

    function: Callable[..., Any]
    avals: tuple[jax.ShapeDtypeStruct, ...]
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Values that steer control flow: by number of the entry parameter (``"2"``), or of the kernel's operand
    (``"kernel:0"``), counted as the compiled custom call has them."""
    chips: int = 1
    """With more, ``avals`` say how they are spread over them."""


def build(case: Case) -> Built:
    """Builds the program of a case.

    Raises:
        NotBuilt: no builder is known for the kernel or its settings, or an optional dependency is missing.
    """
    module, name = builder_of(case.kernel)
    if not module:
        raise NotBuilt(f"no builder for {case.kernel!r}")
    try:
        return getattr(importlib.import_module(f"benchmarks.lib.published.{module}"), name)(case)
    except ImportError as error:
        raise NotBuilt(f"{error}; install the extra `peers`") from error


def avals_of(case: Case, count: int | None = None) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and dtypes as JAX has them. Raises NotBuilt for unknown dtypes, and other than ``count`` operands."""
    if count is not None and len(case.arrays) != count:
        raise NotBuilt(f"{case.kernel!r} of other than {count} operands")
    return tuple(map(_aval, case.arrays))


def _aval(array: Array) -> jax.ShapeDtypeStruct:
    if array.dtype not in _DTYPES:
        raise NotBuilt(f"dtype {array.dtype!r} is not known here; known: {', '.join(_DTYPES)}")
    return jax.ShapeDtypeStruct(array.shape, jnp.dtype(_DTYPES[array.dtype]))


def sizes_of(case: Case, *names: str) -> tuple[int, ...]:
    """Settings that are numbers. Raises NotBuilt where one is missing."""
    missing = [name for name in names if name not in case.config]
    if missing:
        raise NotBuilt(f"{case.kernel!r} without {', '.join(missing)}; has {dict(case.config)}")
    return tuple(int(case.config[name]) for name in names)


# --- streaming ---


def doubled(x: jax.Array, *, block: tuple[int, int]) -> jax.Array:
    """``2 * x`` over a grid of blocks: nothing but streaming through VMEM."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    return pl.pallas_call(
        body,
        grid=tuple(pl.cdiv(size, part) for size, part in zip(x.shape, block, strict=True)),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)


def stream(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    return Built(function=functools.partial(doubled, block=sizes_of(case, "bm", "bn")), avals=avals_of(case))


# --- tiled matmuls ---


def tiled_matmul(x: jax.Array, y: jax.Array, *, blocks: tuple[int, int, int], parallel: bool) -> jax.Array:
    """Grid (i, j, k), accumulation in an f32 scratch, result in the operands' dtype."""
    (m, k), (_, n), (bm, bk, bn) = x.shape, y.shape, blocks

    def body(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        step = pl.program_id(2)

        @pl.when(step == 0)
        def _() -> None:
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

        @pl.when(step == pl.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = acc_ref[...].astype(o_ref.dtype)

    semantics: Any = ("parallel", "parallel", "arbitrary") if parallel else None
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics) if semantics else None,
        **_tiles(bm, bk, bn),
    )(x, y)


def output_matmul(x: jax.Array, y: jax.Array, *, blocks: tuple[int, int, int]) -> jax.Array:
    """Grid (i, j, k), accumulation in the f32 output block; the cast is outside of the kernel."""
    (m, k), (_, n), (bm, bk, bn) = x.shape, y.shape, blocks

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    out = pl.pallas_call(
        body,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        **_tiles(bm, bk, bn),
    )(x, y)
    return out.astype(x.dtype)


def _tiles(bm: int, bk: int, bn: int) -> dict[str, Any]:
    left = pl.BlockSpec((bm, bk), lambda i, j, k: (i, k))
    right = pl.BlockSpec((bk, bn), lambda i, j, k: (k, j))
    return {"in_specs": [left, right], "out_specs": pl.BlockSpec((bm, bn), lambda i, j, k: (i, j))}


def matmul(case: Case) -> Built:
    """The matmul that a row names. Raises NotBuilt."""
    blocks = sizes_of(case, "bm", "bk", "bn")
    if "pallas_forge" in case.kernel:
        function = functools.partial(output_matmul, blocks=blocks)
    else:
        function = functools.partial(tiled_matmul, blocks=blocks, parallel="dimension_semantics" in case.kernel)
    return Built(function=function, avals=avals_of(case, 2))


# --- a matmul over a 2x2 slice: three ways to sum its float32 partial products, rounded to the operands' dtype ---


def _partial(a: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.dot(a, w, preferred_element_type=jnp.float32)


def psum(a: jax.Array, w: jax.Array) -> jax.Array:
    """One product of all columns, summed over ``y``; both chips have the whole sum."""
    return lax.psum(_partial(a, w), "y").astype(a.dtype)


def psum_scatter(a: jax.Array, w: jax.Array) -> jax.Array:
    """One product of all columns; each chip gets the sum of its half."""
    return lax.psum_scatter(_partial(a, w), "y", scatter_dimension=1, tiled=True).astype(a.dtype)


def ring(a: jax.Array, w: jax.Array) -> jax.Array:
    """The neighbour's half of the columns is multiplied first, and travels while the own half is."""
    me, half = lax.axis_index("y"), w.shape[1] // 2

    def columns(chip: Any) -> jax.Array:
        return lax.dynamic_slice_in_dim(w, chip * half, half, axis=1)

    arrived = lax.ppermute(_partial(a, columns(1 - me)), "y", [(0, 1), (1, 0)])
    return (arrived + _partial(a, columns(me))).astype(a.dtype)


def around(case: Case) -> Built:
    """As many ring permutations behind each other as ``repeats`` says: one of them was timed. Raises NotBuilt."""
    count, repeats = sizes_of(case, "devices", "repeats")
    (each,) = avals_of(case, 1)
    mesh, spec = mesh_of(case.chip, (("x", count),)), PartitionSpec("x")
    following = [(number, (number + 1) % count) for number in range(count)]

    def program(part: jax.Array) -> jax.Array:
        for _ in range(repeats):
            part = lax.optimization_barrier(lax.ppermute(part, "x", following))
        return part

    spread = jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    shape = (count * each.shape[0], *each.shape[1:])
    whole = jax.ShapeDtypeStruct(shape, each.dtype, sharding=NamedSharding(mesh, spec))
    return Built(function=spread, avals=(whole,), chips=count)


def gathered(case: Case) -> Built:
    """An all-gather in groups of as many devices as ``group`` says. Raises NotBuilt."""
    count, group = sizes_of(case, "devices", "group")
    (each,) = avals_of(case, 1)
    mesh, spec = mesh_of(case.chip, (("x", count // group), ("y", group))), PartitionSpec(("x", "y"))
    spread = jax.shard_map(
        lambda part: lax.all_gather(part, "y", tiled=True), mesh=mesh, in_specs=spec, out_specs=PartitionSpec("x"),
        check_vma=False,
    )  # fmt: skip
    shape = (count * each.shape[0], *each.shape[1:])
    whole = jax.ShapeDtypeStruct(shape, each.dtype, sharding=NamedSharding(mesh, spec))
    return Built(function=spread, avals=(whole,), chips=count)


_BY_WORD = (("ppermute", ring), ("psum_scatter", psum_scatter), ("psum", psum))
"""The first word that is in the name of an implementation decides."""


def sharded(case: Case) -> Built:
    """The program that a row names. Raises NotBuilt."""
    function = next((function for word, function in _BY_WORD if word in case.kernel), None)
    if function is None:
        raise NotBuilt(f"{case.kernel!r} names none of {', '.join(word for word, _ in _BY_WORD)}")
    mesh, specs = mesh_of(case.chip, (("x", 2), ("y", 2))), (PartitionSpec("x", "y"), PartitionSpec("y"))
    output = PartitionSpec("x") if function is psum else PartitionSpec("x", "y")
    placed = [
        jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=NamedSharding(mesh, spec))
        for one, spec in zip(avals_of(case, 2), specs, strict=True)
    ]
    spread = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=output, check_vma=False)
    return Built(function=spread, avals=tuple(placed), chips=mesh.size)


# --- running sums that begin anew with each segment: bound by the vector units, with spills ---

LANES = 128
LEVELS = 7
"""Doublings that cover the lanes of a row."""


def _along_rows(sums: jax.Array, ids: jax.Array, shifts: Any) -> jax.Array:
    """Doubling along the lanes. A shift of the sums is a product with a 0/1 matrix, one of the ids a rotation."""
    for level in range(LEVELS):
        moved = jnp.dot(sums, shifts[level], preferred_element_type=jnp.float32).astype(sums.dtype)
        sums += jnp.where(pltpu.roll(ids, 1 << level, axis=1) == ids, moved, 0)
    return sums


def _behind(first: jax.Array, values: jax.Array) -> jax.Array:
    """``first``, then ``values`` without as many of their last."""
    return jnp.concatenate([first, values[: -first.shape[0]]], axis=0)


def _over_rows(sums: jax.Array, ids: jax.Array) -> jax.Array:
    """Doubling over the rows' last sums, ``[rows]``."""
    step = 1
    while step < sums.shape[0]:
        moved = _behind(jnp.zeros((step,), sums.dtype), sums)
        sums += jnp.where(_behind(jnp.zeros((step,), ids.dtype), ids) == ids, moved, 0)
        step *= 2
    return sums


def _segments(x_ref: Any, id_ref: Any, shift_ref: Any, o_ref: Any, sum_ref: Any, last_ref: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        sum_ref[...] = jnp.zeros_like(sum_ref)
        last_ref[...] = jnp.full_like(last_ref, jnp.iinfo(jnp.int32).min)

    x, ids = x_ref[...], id_ref[...]
    own = _along_rows(x, ids, shift_ref)
    before = jnp.concatenate([sum_ref[...], own[:-1, -1]], axis=0)
    entering = jnp.concatenate([last_ref[...], ids[:-1, -1]], axis=0)
    carried = _over_rows(before, entering)
    entering = lax.broadcast_in_dim(entering, ids.shape, (0,))
    carried = lax.broadcast_in_dim(carried.astype(jnp.float32), ids.shape, (0,))
    result = own + jnp.where(entering == ids, carried, jnp.float32(0.0)).astype(own.dtype)
    o_ref[...] = result
    sum_ref[...] = result[-1:, -1]
    last_ref[...] = ids[-1:, -1]


def segmented_cumsum(x: jax.Array, ids: jax.Array, *, block: int) -> jax.Array:
    """Running sums of ``x`` [n] over equal neighbours of ``ids`` [n], int32; ``block`` values a grid step."""
    rows = x.shape[0] // LANES
    lane = jnp.arange(LANES, dtype=jnp.int32)
    shifts = jnp.stack([(lane[:, None] + (1 << k) == lane[None, :]).astype(x.dtype) for k in range(LEVELS)])
    spec = pl.BlockSpec((block // LANES, LANES), lambda i: (i, 0))
    return pl.pallas_call(
        _segments,
        grid=(x.shape[0] // block,),
        in_specs=[spec, spec, pl.BlockSpec(shifts.shape, lambda i: (0, 0, 0))],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((1,), x.dtype), pltpu.VMEM((1,), ids.dtype)],
        out_shape=jax.ShapeDtypeStruct((rows, LANES), x.dtype),
    )(x.reshape(rows, LANES), ids.reshape(rows, LANES), shifts).ravel()


def segments(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    (block,), x = sizes_of(case, "bm"), avals_of(case)[0]
    function = functools.partial(segmented_cumsum, block=block)
    return Built(function=function, avals=(x, jax.ShapeDtypeStruct(x.shape, jnp.int32)))


# --- flash attention of a published series, on one head and not causal: block sizes and scratch as its rows say ---


def flash(q: jax.Array, k: jax.Array, v: jax.Array, *, bq: int, bkv: int, flat: bool) -> jax.Array:
    """Online softmax over key blocks; row statistics in (bq, 1) or, ``flat``, in (bq,) scratch."""
    length, width = q.shape
    scale = width**-0.5
    row = (bq,) if flat else (bq, 1)

    def body(*refs: Any) -> None:
        q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref = refs
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _() -> None:
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        s = scale * jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        old = m_ref[...]
        top = jnp.maximum(old, jnp.max(s, axis=1, keepdims=not flat))
        column = top[:, None] if flat else top
        p = jnp.exp(s - column)
        rescale = jnp.exp(old - top)
        l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=not flat)
        m_ref[...] = top
        acc_ref[...] = (rescale[:, None] if flat else rescale) * acc_ref[...] + jnp.dot(
            p.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32
        )

        @pl.when(step == pl.num_programs(1) - 1)
        def _() -> None:
            total = l_ref[...][:, None] if flat else l_ref[...]
            o_ref[...] = (acc_ref[...] / total).astype(o_ref.dtype)

    queries = pl.BlockSpec((bq, width), lambda i, j: (i, 0))
    keys = pl.BlockSpec((bkv, width), lambda i, j: (j, 0))
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(length, bq), pl.cdiv(length, bkv)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in (row, row, (bq, width))],
    )(q, k, v)


def attention(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    words = " ".join(key for key, value in case.config.items() if not value)
    bq, bkv = sizes_of(case, "BQ", "BKV")
    operand, flat = avals_of(case)[0], "1D m,l" in words or "compact" in words
    return Built(function=functools.partial(flash, bq=bq, bkv=bkv, flat=flat), avals=(operand,) * 3)
