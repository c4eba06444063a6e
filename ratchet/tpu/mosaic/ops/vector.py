"""Operations on whole vectors: shapes, reductions, data movement and the matrix unit."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.arrays import bits, decode, is_float, jax_dtype, unsigned
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import Unsupported, computes, integer, rule

Array = Any


@computes("vector.broadcast")
def _broadcast(op: Op, x: Array) -> Array:
    return jnp.broadcast_to(x, op.results[0].type.shape)


@computes("vector.shape_cast", "tpu.reshape")
def _shape_cast(op: Op, x: Array) -> Array:
    return jnp.asarray(x).reshape(op.results[0].type.shape)


@computes("tpu.relayout", "tpu.mask_cast")
def _same(op: Op, x: Array) -> Array:
    del op
    return x


@computes("tpu.iota", attributes=("dimensions",))
def _iota(op: Op) -> Array:
    shape = op.results[0].type.shape
    out: Array = jnp.zeros(shape, jnp.int32)
    for dim in op.attributes["dimensions"]:
        out = out * shape[dim] + lax.broadcasted_iota(jnp.int32, shape, dim)
    return out.astype(jax_dtype(op.results[0].type.dtype))


_REDUCE: dict[str, tuple[Callable[..., Array], Callable[[Array, Array], Array]]] = {
    "add": (jnp.sum, jnp.add),
    "mul": (jnp.prod, jnp.multiply),
    "maximumf": (jnp.max, jnp.maximum),
    "minimumf": (jnp.min, jnp.minimum),
    "maxsi": (jnp.max, jnp.maximum),
    "minsi": (jnp.min, jnp.minimum),
    "and": (lax.reduce_and, jnp.bitwise_and),
    "or": (lax.reduce_or, jnp.bitwise_or),
    "xor": (lax.reduce_xor, jnp.bitwise_xor),
}


@computes("vector.multi_reduction", attributes=("kind", "reduction_dims"))
def _multi_reduction(op: Op, x: Array, start: Array) -> Array:
    kind = str(op.attributes["kind"]).removeprefix("#vector.kind<").removesuffix(">")
    if kind not in _REDUCE:
        raise Unsupported(f"reduction kind {kind} of {op.name}")
    reduce, combine = _REDUCE[kind]
    axes = tuple(op.attributes["reduction_dims"])
    if is_float(np.dtype(x.dtype)) and x.dtype != jnp.float32 and kind in ("add", "mul"):
        # The vector unit sums narrow floats in f32.
        return combine(start.astype(jnp.float32), reduce(x.astype(jnp.float32), axes)).astype(x.dtype)
    return combine(start, reduce(x, axes).astype(x.dtype))


@computes("tpu.reduce", attributes=("dimensions", "kind"))
def _reduce(op: Op, x: Array) -> Array:
    """As a reduction of MLIR's, which starts from nothing and keeps the dimensions."""
    kind, axes = str(op.attributes["kind"]), tuple(op.attributes["dimensions"])
    for name, reduce in (("sum", jnp.sum), ("max", jnp.max), ("min", jnp.min)):
        if (f"<{name}>" in kind or f"<{name}f>" in kind) and x.dtype == jnp.float32:
            return reduce(x, axes, keepdims=True)
    raise Unsupported(f"reduction kind {kind} of {op.name} on {x.dtype}")


@computes("tpu.all_reduce", attributes=("dim", "kind"))
def _all_reduce(op: Op, x: Array) -> Array:
    kind = str(op.attributes["kind"])
    if x.dtype == np.dtype(bool):
        return _reduced_mask(op, kind, jnp.asarray(x))
    for name, reduce in (("sum", jnp.sum), ("max", jnp.max), ("min", jnp.min)):
        if (f"<{name}>" in kind or f"<{name}f>" in kind) and x.dtype == jnp.float32:
            return jnp.broadcast_to(reduce(x, integer(op, "dim"), keepdims=True), x.shape)
    raise Unsupported(f"reduction kind {kind} of {op.name} on {x.dtype}")


def _reduced_mask(op: Op, kind: str, mask: Array) -> Array:
    """In every lane: how many are set, or which is the first; as many as there are lanes where none is."""
    dim, shape = integer(op, "dim"), op.results[0].type.shape
    if "<sum>" in kind:
        found = jnp.sum(mask, dim, dtype=jnp.int32, keepdims=True)
    elif "<find_first_set>" in kind:
        first = jnp.argmax(mask, dim, keepdims=True).astype(jnp.int32)
        found = jnp.where(jnp.any(mask, dim, keepdims=True), first, mask.shape[dim])
    else:
        raise Unsupported(f"reduction kind {kind} of {op.name} on a mask")
    return jnp.broadcast_to(found, shape)


@computes("tpu.reduce_index", attributes=("axis", "kind"))
def _reduce_index(op: Op, x: Array) -> Array:
    kind = str(op.attributes["kind"])
    for name, reduce in (("arg_max", jnp.argmax), ("arg_min", jnp.argmin)):
        if f"<{name}>" in kind:
            return reduce(x, integer(op, "axis")).astype(jax_dtype(op.results[0].type.dtype))
    raise Unsupported(f"reduction kind {kind} of {op.name}")


@computes("vector.bitcast", "tpu.bitcast_vreg")
def _bitcast(op: Op, x: Array) -> Array:
    """Along the last dimension, the lowest bits first; ``tpu.bitcast`` packs along the one before."""
    given, made = jnp.asarray(x), op.results[0].type
    dtype = jax_dtype(made.dtype)
    if bits(np.dtype(given.dtype)) < bits(dtype):
        given = given.reshape(*made.shape, bits(dtype) // bits(np.dtype(given.dtype)))
    return lax.bitcast_convert_type(given, dtype).reshape(made.shape)


@computes("tpu.transpose", "vector.transpose", attributes=("permutation",))
def _transpose(op: Op, x: Array) -> Array:
    return jnp.transpose(x, op.attributes["permutation"])


@computes("tpu.concatenate", attributes=("dimension",))
def _concatenate(op: Op, *parts: Array) -> Array:
    return jnp.concatenate(parts, integer(op, "dimension"))


@computes("tpu.repeat", attributes=("dimension", "times"))
def _repeat(op: Op, x: Array) -> Array:
    """Whole copies one after the other, not each element repeated."""
    return jnp.concatenate([x] * integer(op, "times"), integer(op, "dimension"))


@computes("vector.extract", attributes=("static_position",))
def _extract(op: Op, x: Array, *positions: Array) -> Array:
    if positions:
        raise Unsupported("vector.extract at a dynamic position")
    return x[tuple(op.attributes["static_position"])]


@computes("vector.insert", attributes=("static_position",))
def _insert(op: Op, value: Array, x: Array, *positions: Array) -> Array:
    if positions:
        raise Unsupported("vector.insert at a dynamic position")
    return jnp.asarray(x).at[tuple(op.attributes["static_position"])].set(value)


@computes("vector.from_elements")
def _from_elements(op: Op, *elements: Array) -> Array:
    return jnp.stack([jnp.asarray(element) for element in elements]).reshape(op.results[0].type.shape)


@computes("tpu.gather", attributes=("indices", "dimension"))
def _gather(op: Op, x: Array) -> Array:
    return jnp.take(x, np.array(op.attributes["indices"]), integer(op, "dimension"))


@computes("tpu.sublane_shuffle", attributes=("pattern",))
@computes("vector.shuffle", attributes=("mask",))
def _shuffle(op: Op, a: Array, b: Array) -> Array:
    """Of both, one after the other, those of the first dimension that are listed."""
    listed = np.array(op.attributes["pattern" if "pattern" in op.attributes else "mask"])
    if np.any(listed < 0):
        raise Unsupported(f"{op.name} with elements that may be anything")
    return jnp.concatenate([a, b])[listed]


@computes("vector.extract_strided_slice", attributes=("offsets", "sizes", "strides"))
def _extract_strided_slice(op: Op, x: Array) -> Array:
    cuts = zip(op.attributes["offsets"], op.attributes["sizes"], op.attributes["strides"], strict=True)
    return x[tuple(slice(start, start + count * stride, stride) for start, count, stride in cuts)]


@computes("vector.insert_strided_slice", attributes=("offsets", "strides"))
def _insert_strided_slice(op: Op, value: Array, target: Array) -> Array:
    if any(s != 1 for s in op.attributes["strides"]):
        raise Unsupported("vector.insert_strided_slice with strides")
    return lax.dynamic_update_slice(target, value, tuple(op.attributes["offsets"]))


@rule("tpu.dynamic_rotate", attributes=("dimension", "stride", "stride_dimension"), checks=True)
def _dynamic_rotate(executor: Executor, op: Op) -> None:
    x, amount = (executor[value] for value in op.operands)
    executor.report(Kind.FALSE_PROMISE, op, amount < 0, "a vector is rotated by a negative amount")
    dim = integer(op, "dimension")
    if op.attributes.get("stride") is None or op.attributes.get("stride_dimension") is None:
        executor.result(op, jnp.roll(x, amount, dim))
        return
    # Row r along the stride dimension is rotated by amount + r * stride.
    along = integer(op, "stride_dimension")
    rows = lax.broadcasted_iota(jnp.int32, x.shape, along)
    here = lax.broadcasted_iota(jnp.int32, x.shape, dim)
    source = jnp.mod(here - amount - rows * integer(op, "stride"), x.shape[dim])
    executor.result(op, jnp.take_along_axis(x, source, dim))


@rule("tpu.dynamic_gather", attributes=("dimensions",))
def _dynamic_gather(executor: Executor, op: Op) -> None:
    x, index = (executor[value] for value in op.operands)
    dims = tuple(op.attributes["dimensions"])
    if len(dims) != 1:
        raise Unsupported(f"tpu.dynamic_gather over dimensions {dims}")
    inside = (index >= 0) & (index < x.shape[dims[0]])
    taken = jnp.take_along_axis(x, jnp.clip(index, 0, x.shape[dims[0]] - 1), dims[0])
    dtype = np.dtype(x.dtype)
    executor.result(op, jnp.where(inside, taken, decode(executor.poison(taken.shape, dtype), dtype)))


@computes("tpu.create_mask")
def _create_mask(op: Op, *bounds: Array) -> Array:
    shape = op.results[0].type.shape
    mask = jnp.ones(shape, bool)
    for dim, (low, high) in enumerate(zip(bounds[: len(shape)], bounds[len(shape) :], strict=True)):
        at = lax.broadcasted_iota(jnp.int32, shape, dim)
        mask &= (at >= low) & (at < high)
    return mask


@computes("vector.constant_mask", attributes=("mask_dim_sizes",))
@computes("vector.create_mask")
def _first_elements(op: Op, *counts: Array) -> Array:
    """So many first ones of each dimension."""
    shape = op.results[0].type.shape
    mask = jnp.ones(shape, bool)
    for dim, count in enumerate(counts or op.attributes["mask_dim_sizes"]):
        mask &= lax.broadcasted_iota(jnp.int32, shape, dim) < count
    return mask


@computes("tpu.create_subelement_mask", attributes=("from", "to"))
def _create_subelement_mask(op: Op) -> Array:
    """Of parts of sublanes from one number on, up to another; all but those where the second is smaller."""
    shape, low, high = op.results[0].type.shape, integer(op, "from"), integer(op, "to")
    packed = shape[2] if len(shape) > 2 else 1
    part = lax.broadcasted_iota(jnp.int32, shape, 0) * packed
    if packed > 1:
        part += lax.broadcasted_iota(jnp.int32, shape, 2)
    inside = (part >= min(low, high)) & (part < max(low, high))
    return inside if low <= high else ~inside


# --- several vectors of a narrow type in one of words ---------------------------------------------


@computes("tpu.pack_elementwise", attributes=("target_type",))
def _pack_elementwise(op: Op, *given: Array) -> Array:
    """The first vector in the lowest bits. Integers lose their upper bits, floats are rounded to the nearest even."""
    packed, word = jax_dtype(op.attributes["target_type"]), jax_dtype(op.results[0].type.dtype)
    vectors = [jnp.asarray(vector) for vector in given]
    if is_float(packed) != is_float(np.dtype(vectors[0].dtype)) or (is_float(packed) and bits(packed) < 8):
        raise Unsupported(f"tpu.pack_elementwise of {vectors[0].dtype} to {packed}")
    parts = [
        lax.bitcast_convert_type(vector.astype(packed), unsigned(packed)).astype(unsigned(word)) << n * bits(packed)
        for n, vector in enumerate(vectors)
    ]
    return lax.bitcast_convert_type(functools.reduce(jnp.bitwise_or, parts), word)


@computes("tpu.unpack_elementwise", attributes=("source_type", "index"))
def _unpack_elementwise(op: Op, given: Array) -> Array:
    """The vector that was packed as number ``index``; integers keep their sign."""
    packed, target = jax_dtype(op.attributes["source_type"]), jax_dtype(op.results[0].type.dtype)
    words = jnp.asarray(given)
    if is_float(packed) != is_float(target) or is_float(np.dtype(words.dtype)):
        raise Unsupported(f"tpu.unpack_elementwise of {packed} in {words.dtype} to {target}")
    low = integer(op, "index") * bits(packed)
    own = (lax.bitcast_convert_type(words, unsigned(np.dtype(words.dtype))) >> low).astype(unsigned(packed))
    return lax.bitcast_convert_type(own, packed).astype(target)


# --- the matrix unit ----------------------------------------------------------------------------

_PRECISIONS = {
    "": 1,
    "#tpu.contract_precision<bf16>": 1,
    "#tpu.contract_precision<bf16x3>": 3,
    "#tpu.contract_precision<fp32>": 6,
}
"""Passes of the matrix unit over float32 operands, by a product's precision."""
_DIMENSIONS = re.compile(r"\[([0-9, ]*)\]")
_EXACT_INT_TERMS = 1 << 10
"""int8 products are below 2**14, so the sum of 2**10 of them is exact in f32."""


@rule(
    "tpu.matmul",
    attributes=("dimension_numbers", "transpose_lhs", "transpose_rhs", "precision", "transpose_lhs_hint"),
)
def _matmul(executor: Executor, op: Op) -> None:
    """``acc + lhs @ rhs``: exact products of the operands as they are stored, accumulated in f32 (or int32).

    What the module writes is kept: bf16, int8 and fp8 operands are multiplied exactly. For f32 operands without
    ``precision = fp32`` the matrix unit makes one pass over operands rounded to bf16 (``Options.f32_matmul_passes``).
    With ``bf16x3`` (JAX's ``Precision.HIGH``) it makes three passes: each operand is a rounded part and a rest, and the
    product of the two rests is left out.
    """
    lhs, rhs, acc = (executor[value] for value in op.operands)
    if op.attributes.get("transpose_lhs") or op.attributes.get("transpose_rhs"):
        raise Unsupported("tpu.matmul with a transpose attribute")
    precision = str(op.attributes.get("precision", ""))
    if precision not in _PRECISIONS:
        raise Unsupported(f"tpu.matmul with precision {precision}")
    text = op.attributes.get("dimension_numbers")
    if text is None:
        groups: list[tuple[int, ...]] = [(1,), (0,), (0,), (1,), (0, 0, 1, 1), (), ()]
    else:
        groups = [tuple(int(d) for d in group.split(",") if d.strip()) for group in _DIMENSIONS.findall(str(text))]
        if len(groups) != 7:
            raise Unsupported(f"tpu.matmul with dimension numbers {text}")
    contract, free, order, batch = (groups[0], groups[1]), (groups[2], groups[3]), groups[4], (groups[5], groups[6])
    out = product(executor, lhs, rhs, (contract, batch), _PRECISIONS[precision])
    # lax puts batch, then lhs, then rhs dimensions; the module says which operand's dimension comes where.
    natural = [(0, d) for d in batch[0]] + [(0, d) for d in free[0]] + [(1, d) for d in free[1]]
    wanted = list(zip(order[::2], order[1::2], strict=True))
    if wanted != natural:
        out = jnp.transpose(out, [natural.index(pair) for pair in wanted])
    dtype = jax_dtype(op.results[0].type.dtype)
    zero = op.operands[2].owner
    value = zero.attributes.get("value") if zero is not None and zero.name == "arith.constant" else None
    if not (isinstance(value, np.ndarray) and not np.any(value)):
        out = out + acc.astype(out.dtype)
    executor.result(op, out.astype(dtype))


def product(executor: Executor, lhs: Array, rhs: Array, dims: Any, passes: int) -> Array:
    """The product of two arrays over ``dims``, as ``lax.dot_general`` has them, as the matrix unit computes it."""
    if not is_float(np.dtype(lhs.dtype)):
        return _integer_product(lhs, rhs, dims)
    if passes == 3 and executor.options.f32_matmul_passes == "mxu":
        (high, low), (other_high, other_low) = _halves(lhs), _halves(rhs)
        across = product(executor, high, other_low, dims, 1) + product(executor, low, other_high, dims, 1)
        return product(executor, high, other_high, dims, 1) + across
    if passes == 1 and executor.options.f32_matmul_passes == "mxu":
        lhs, rhs = (lax.reduce_precision(x, 8, 7) if x.dtype == jnp.float32 else x for x in (lhs, rhs))
        in_bfloat16 = all(x.dtype in (jnp.float32, jnp.bfloat16) for x in (lhs, rhs))
    else:
        in_bfloat16 = lhs.dtype == rhs.dtype == jnp.bfloat16
    dtype = jnp.bfloat16 if in_bfloat16 and multiplies_bfloat16() else jnp.float32
    # In f32 the products of narrow floats are exact, and so they are in XLA's bf16 products of such a processor.
    return lax.dot_general(
        lhs.astype(dtype), rhs.astype(dtype), dims, precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )  # fmt: skip


def _halves(x: Array) -> tuple[Array, Array]:
    """A float32 array rounded to bfloat16, and what was rounded off; a narrower one is the first alone."""
    high = lax.reduce_precision(x, 8, 7) if x.dtype == jnp.float32 else x
    return high, x - high


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether XLA's products of bfloat16, added in float32, are faster on this processor than those of float32.

    AMD's with AVX-512 for bfloat16 are, and any that has matrices of bfloat16. Intel's with AVX-512 alone take longer,
    and others convert both operands in every product.
    """
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return has_fast_bfloat16(words)


def has_fast_bfloat16(words: Set[str]) -> bool:
    """As ``multiplies_bfloat16``, of the processor that /proc/cpuinfo describes with these words."""
    return "amx_bf16" in words or {"avx512_bf16", "AuthenticAMD"} <= words


def _integer_product(lhs: Array, rhs: Array, dims: Any) -> Array:
    """Exact int32 sums, in pieces that f32 holds exactly: XLA's integer products on the CPU are far slower."""
    if lhs.dtype not in (jnp.int8, jnp.int4) or rhs.dtype not in (jnp.int8, jnp.int4):
        return lax.dot_general(lhs, rhs, dims, preferred_element_type=jnp.int32)
    ((at_l,), (at_r,)), _ = dims
    total: Array = None
    for low in range(0, lhs.shape[at_l], _EXACT_INT_TERMS):
        high = min(low + _EXACT_INT_TERMS, lhs.shape[at_l])
        a = lax.slice_in_dim(lhs, low, high, axis=at_l).astype(jnp.float32)
        b = lax.slice_in_dim(rhs, low, high, axis=at_r).astype(jnp.float32)
        part = lax.dot_general(a, b, dims, preferred_element_type=jnp.float32).astype(jnp.int32)
        total = part if total is None else total + part
    return total
