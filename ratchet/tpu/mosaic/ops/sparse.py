"""Vector operations of a SparseCore. Semantics: the tpu dialect's documentation and ``jax.experimental.pallas.tpu_sc``.

There a mask on a load or a store means that lanes which take part have consecutive elements, and others have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.arrays import Array, bits, is_float, jax_dtype, unsigned
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.ops.indexed import gather, load_expanded, scatter, store_compressed, undefined
from ratchet.tpu.mosaic.ops.memory import segments
from ratchet.tpu.mosaic.rules import Unsupported, computes, integer, rule

_NOT_DOCUMENTED = "what a TPU computes of NaN here is not documented"


# --- order and counts -----------------------------------------------------------------------------


def _ordered(keys: Array) -> Array:
    """uint32 that are ordered as keys are: integers as unsigned ones, floats as numbers, zeros being equal."""
    if not is_float(np.dtype(keys.dtype)):
        return lax.bitcast_convert_type(keys, unsigned(np.dtype(keys.dtype))).astype(jnp.uint32)
    word = lax.bitcast_convert_type(jnp.where(keys == 0, 0.0, keys).astype(jnp.float32), jnp.uint32)
    return jnp.where(word >> 31 == 1, ~word, word | np.uint32(1 << 31))


@rule("tpu.sort", attributes=("descending",), checks=True)
def _sort(executor: Executor, op: Op) -> None:
    """Stable along the last dimension; what the mask leaves out comes last, in the order that it has."""
    keys, values, *masks = (jnp.asarray(executor[value]) for value in op.operands)
    mask = masks[0] if masks else jnp.ones(keys.shape, bool)
    executor.report(Kind.UNDEFINED_VECTOR, op, _any_nan(keys, mask), _NOT_DOCUMENTED)
    ordered = _ordered(keys)
    if op.attributes.get("descending"):
        ordered = ~ordered
    place = jnp.lexsort((jnp.where(mask, ordered, 0), ~mask))
    sorted_ = (jnp.take_along_axis(one, place, -1) for one in (mask, keys, values))
    executor.values.update(zip(op.results, sorted_, strict=True))


def _any_nan(x: Array, where: Array) -> Array:
    return jnp.any(jnp.isnan(x) & where) if is_float(np.dtype(x.dtype)) else jnp.zeros((), bool)


_SCANS: dict[str, Callable[..., Array]] = {"sum": lax.cumsum, "max": lax.cummax, "min": lax.cummin}


@rule("tpu.scan", attributes=("kind", "dimension"), checks=True)
def _scan(executor: Executor, op: Op) -> None:
    """Of the elements that take part. A maximum or minimum passes on what is before the first of them."""
    x, *masks = (jnp.asarray(executor[value]) for value in op.operands)
    if x.dtype == np.dtype(bool) and not masks:
        x = x.astype(jax_dtype(op.results[0].type.dtype))
    text = str(op.attributes["kind"]).removeprefix("#tpu.reduction_kind<").removesuffix(">")
    kind, out = text[:3], op.results[0].type
    axis = integer(op, "dimension", x.ndim - 1)
    if kind not in _SCANS or text[3:] not in ("", "f", "ui", "si") or jax_dtype(out.dtype) != x.dtype:
        raise Unsupported(f"{op.name} of kind {text} from {x.dtype} to {out.dtype}")
    if (text[3:] == "f") != is_float(np.dtype(x.dtype)) and text[3:]:
        raise Unsupported(f"{op.name} of kind {text} of {x.dtype}")
    mask = masks[0] if masks else jnp.ones(x.shape, bool)
    begun = lax.cummax(mask.astype(jnp.int32), axis) > 0
    if kind == "sum":
        result = lax.cumsum(jnp.where(mask, x, jnp.zeros((), x.dtype)), axis)
        executor.result(op, jnp.where(begun, result, undefined(executor, x)))
        return
    executor.report(Kind.UNDEFINED_VECTOR, op, _any_nan(x, mask), _NOT_DOCUMENTED)
    is_signed = text[3:] == "si" or is_float(np.dtype(x.dtype))
    as_read = x if is_signed else lax.bitcast_convert_type(x, unsigned(np.dtype(x.dtype)))
    neutral = jnp.asarray(_least(np.dtype(as_read.dtype), kind == "min"), as_read.dtype)
    result = _SCANS[kind](jnp.where(mask, as_read, neutral), axis)
    executor.result(op, jnp.where(begun, lax.bitcast_convert_type(result, x.dtype), x))


def _least(dtype: np.dtype, greatest: bool) -> Any:
    if is_float(dtype):
        return np.inf if greatest else -np.inf
    info = jnp.iinfo(dtype)
    return info.max if greatest else info.min


@rule("tpu.scan_count")
def _scan_count(executor: Executor, op: Op) -> None:
    """How many equal elements there are up to each of those that take part, and which is the last of them."""
    mask, x = (jnp.asarray(executor[value]) for value in op.operands)
    same = (x[..., :, None] == x[..., None, :]) & mask[..., :, None] & mask[..., None, :]
    lanes = jnp.arange(x.shape[-1])
    before = same & (lanes[:, None] >= lanes)
    counts = jnp.where(mask, jnp.sum(before, -1, dtype=jnp.int32), 1)
    last = mask & ~jnp.any(same & (lanes[:, None] < lanes), -1)
    executor.values.update(zip(op.results, (last, counts), strict=True))


@rule("tpu.broadcast_in_sublanes", attributes=("lane",))
def _broadcast_in_sublanes(executor: Executor, op: Op) -> None:
    """In each sublane, what is in a lane of its own: the first one's is ``lane``."""
    x, shape = jnp.asarray(executor[op.operands[0]]), op.results[0].type.shape
    if bits(np.dtype(x.dtype)) != 32 or x.shape != shape or x.ndim != 2:
        raise Unsupported(f"{op.name} of {x.dtype}{tuple(x.shape)} to {tuple(shape)}")
    lane = integer(op, "lane") + np.arange(shape[0])
    inside = jnp.asarray((lane >= 0) & (lane < shape[1]))[:, None]
    taken = x[np.arange(shape[0]), np.clip(lane, 0, shape[1] - 1)]
    executor.result(op, jnp.where(inside, taken[:, None], undefined(executor, x)))


# --- indexed memory -------------------------------------------------------------------------------


@rule("tpu.vector_load_idx", attributes=("operandSegmentSizes",), reads=True, checks=True)
def _vector_load_idx(executor: Executor, op: Op) -> None:
    (base,), indices, masks = segments(op)
    places = [jnp.asarray(executor[index]) for index in indices]
    mask = executor[masks[0]] if masks else jnp.ones(places[0].shape, bool)
    executor.result(op, gather(executor, op, executor.ref(base), places, mask))


@rule("tpu.vector_store_idx", attributes=("operandSegmentSizes", "add"), writes=lambda op: [op.operands[1]],
      checks=True)  # fmt: skip
def _vector_store_idx(executor: Executor, op: Op) -> None:
    (source,), (base,), indices, masks = segments(op)
    value, places = jnp.asarray(executor[source]), [jnp.asarray(executor[index]) for index in indices]
    mask = executor[masks[0]] if masks else jnp.ones(value.shape, bool)
    adds = bool(op.attributes.get("add", False))
    scatter(executor, op, executor.ref(base), places, value, mask, adds=adds)


@rule("tpu.vector_expand_load", "tpu.expand_load_vreg", attributes=("operandSegmentSizes", "expand_dim"), reads=True,
      checks=True)  # fmt: skip
def _expand_load(executor: Executor, op: Op) -> None:
    base, *indices, mask = op.operands
    starts = [executor[i] for i in indices]
    load_expanded(executor, op, executor.ref(base), starts, executor[mask], integer(op, "expand_dim", -1))


@rule("tpu.vector_compress_store", "tpu.compress_store_vreg", attributes=("operandSegmentSizes", "compress_dim", "add"),
      writes=lambda op: [op.operands[1]], checks=True)  # fmt: skip
def _compress_store(executor: Executor, op: Op) -> None:
    value, base, *indices, mask = op.operands
    starts, along = [executor[i] for i in indices], integer(op, "compress_dim", -1)
    store_compressed(
        executor, op, executor.ref(base), starts, jnp.asarray(executor[value]), executor[mask], along=along
    )


# --- several vectors of a narrow type in one ------------------------------------------------------


def _form(op: Op) -> str:
    return str(op.attributes["pack_format"]).removeprefix("#tpu.pack_format<").removesuffix(">")


def _check_pack(op: Op, wide: np.dtype, narrow: np.dtype, count: int) -> None:
    """Of one lane in each, as a SparseCore has them: a vector of two dimensions is packed along sublanes."""
    if is_float(wide) != is_float(narrow) or bits(wide) != count * bits(narrow) or (is_float(narrow) and count != 2):
        raise Unsupported(f"{op.name} between {count} vectors of {wide} and {narrow}")


@computes("tpu.pack_subelements", attributes=("positions", "pack_format", "unsigned_integers"))
def _pack_subelements(op: Op, *given: Array) -> Array:
    """``interleaved``: the first elements of all, then the second ones; ``compressed``: one after the other."""
    vectors, out = [jnp.asarray(vector) for vector in given], op.results[0].type
    narrow = jax_dtype(out.dtype)
    if vectors[0].ndim != 1:
        raise Unsupported(f"{op.name} of vectors of {vectors[0].ndim} dimensions")
    if tuple(op.attributes["positions"]) != tuple(range(len(vectors))):
        raise Unsupported(f"{op.name} at positions {op.attributes['positions']}")
    _check_pack(op, np.dtype(vectors[0].dtype), narrow, len(vectors))
    parts = jnp.stack([vector.astype(narrow) for vector in vectors], -1 if _form(op) == "interleaved" else 0)
    return parts.reshape(out.shape)


@computes("tpu.unpack_subelements", attributes=("index", "pack_format", "integer_extended", "unsigned_integers"))
def _unpack_subelements(op: Op, given: Array) -> Array:
    """The vector that was packed as number ``index``; integers keep their sign."""
    x, out = jnp.asarray(given), op.results[0].type
    wide, count = jax_dtype(out.dtype), x.size // int(np.prod(out.shape))
    _check_pack(op, wide, np.dtype(x.dtype), count)
    if len(out.shape) != 1:
        raise Unsupported(f"{op.name} to a vector of {len(out.shape)} dimensions")
    if op.attributes.get("integer_extended") is False and not is_float(wide):
        raise Unsupported(f"{op.name} of integers that are not extended")
    parts = x.reshape(-1, count).T if _form(op) == "interleaved" else x.reshape(count, -1)
    own = parts[integer(op, "index")]
    if op.attributes.get("unsigned_integers"):
        own = lax.bitcast_convert_type(own, unsigned(np.dtype(own.dtype)))
    return own.astype(wide).reshape(out.shape)
