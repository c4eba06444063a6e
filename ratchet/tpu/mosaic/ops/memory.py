"""Loads, stores and views of memrefs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mosaic.arrays import Index, add, bits, jax_dtype, known
from ratchet.tpu.mosaic.events import Did
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Buffer, DynamicSlice, Ref, Slice, Squeeze, Whole, bitcast, reshape
from ratchet.tpu.mosaic.ops.indexed import load_expanded, store_compressed
from ratchet.tpu.mosaic.rules import Unsupported, integer, rule

_NO_LAYOUT = ("nontemporal",)


def segments(op: Op) -> list[tuple[Value, ...]]:
    """The operands in the groups that ``operandSegmentSizes`` says."""
    sizes: Sequence[int] = op.attributes["operandSegmentSizes"]
    out, at = [], 0
    for size in sizes:
        out.append(op.operands[at : at + size])
        at += size
    return out


def _load(executor: Executor, op: Op, ref: Ref, starts: Sequence[Index], sizes: Sequence[int]) -> Any:
    executor.check_bounds(op, starts, sizes, ref.shape, "a load")
    value = ref.load(executor.memory, starts, sizes)
    executor.digest(op, value)
    if op in executor.readers:
        executor.log_access(Did.READ, op, ref.buffer, ref.box(starts, sizes))
    return value


def store(executor: Executor, op: Op, ref: Ref, starts: Sequence[Index], value: Any) -> None:
    """Write ``value`` at ``starts``, reporting a write outside the buffer or into an input."""
    executor.check_bounds(op, starts, value.shape, ref.shape, "a store")
    if ref.buffer.is_input:
        executor.report(Kind.INPUT_WRITTEN, op, True, f"a store into input {ref.buffer.name}")
    box = ref.box(starts, value.shape)
    executor.check_in_flight(op, ref.buffer, box, "a store into")
    executor.log_access(Did.WRITE, op, ref.buffer, box)
    ref.store(executor.memory, starts, value)


@rule("vector.load", attributes=_NO_LAYOUT, reads=True, checks=True)
@rule("tpu.vector_load", attributes=("operandSegmentSizes", "strides"), reads=True, checks=True)
def _vector_load(executor: Executor, op: Op) -> None:
    (base,), indices, mask = segments(op) if op.name == "tpu.vector_load" else (op.operands[:1], op.operands[1:], ())
    _no_strides(executor, op)
    ref, shape, starts = executor.ref(base), op.results[0].type.shape, [executor[index] for index in indices]
    if mask and executor.kernel.on_sparse_core:
        load_expanded(executor, op, ref, starts, executor[mask[0]])
        return
    sizes = (1,) * (len(ref.shape) - len(shape)) + shape
    value = _load(executor, op, ref, starts, sizes).reshape(shape)
    if mask:
        value = jnp.where(executor[mask[0]], value, jnp.zeros((), value.dtype))
    executor.result(op, value)


@rule("vector.store", attributes=_NO_LAYOUT, writes=lambda op: [op.operands[1]], checks=True)
@rule(
    "tpu.vector_store",
    attributes=("operandSegmentSizes", "strides", "add"),
    writes=lambda op: [op.operands[1]],
    checks=True,
)
def _vector_store(executor: Executor, op: Op) -> None:
    plain = op.operands[:1], op.operands[1:2], op.operands[2:], ()
    (source,), (base,), indices, mask = segments(op) if op.name == "tpu.vector_store" else plain
    _no_strides(executor, op)
    ref, value, starts = executor.ref(base), executor[source], [executor[index] for index in indices]
    if mask and executor.kernel.on_sparse_core:
        store_compressed(executor, op, ref, starts, jnp.asarray(value), executor[mask[0]])
        return
    sizes = (1,) * (len(ref.shape) - value.ndim) + tuple(value.shape)
    value = value.reshape(sizes)
    adds = bool(op.attributes.get("add", False))
    if mask or adds:
        old = ref.load(executor.memory, starts, sizes)
        value = old + value if adds else value
        value = jnp.where(executor[mask[0]].reshape(sizes), value, old) if mask else value
    store(executor, op, ref, starts, value)


def _no_strides(executor: Executor, op: Op) -> None:
    if any(s != 1 for s in op.attributes.get("strides", ())):
        raise Unsupported(f"{op.name} with strides")


@rule("tpu.strided_load", attributes=("strides",), reads=True, checks=True)
def _strided_load(executor: Executor, op: Op) -> None:
    ref, shape = executor.ref(op.operands[0]), op.results[0].type.shape
    starts = [executor[value] for value in op.operands[1:]]
    strides: Sequence[int] = op.attributes["strides"]
    spans = [(n - 1) * s + 1 for n, s in zip(shape, strides, strict=True)]
    value = _load(executor, op, ref, starts, spans)
    # With a stride of 0 the same element is loaded again and again.
    executor.result(op, jnp.broadcast_to(value[tuple(slice(None, None, s or None) for s in strides)], shape))


@rule("tpu.strided_store", attributes=("strides",), writes=lambda op: [op.operands[1]], checks=True)
def _strided_store(executor: Executor, op: Op) -> None:
    value, ref = executor[op.operands[0]], executor.ref(op.operands[1])
    starts = [executor[index] for index in op.operands[2:]]
    strides: Sequence[int] = op.attributes["strides"]
    spans = [(n - 1) * s + 1 for n, s in zip(value.shape, strides, strict=True)]
    old = ref.load(executor.memory, starts, spans)
    store(executor, op, ref, starts, old.at[tuple(slice(None, None, s) for s in strides)].set(value))


@rule("memref.load", attributes=_NO_LAYOUT, reads=True, checks=True)
def _scalar_load(executor: Executor, op: Op) -> None:
    ref = executor.ref(op.operands[0])
    starts = [executor[value] for value in op.operands[1:]]
    executor.result(op, _load(executor, op, ref, starts, (1,) * len(ref.shape)).reshape(()))


@rule("memref.store", attributes=_NO_LAYOUT, writes=lambda op: [op.operands[1]], checks=True)
def _scalar_store(executor: Executor, op: Op) -> None:
    value, ref = jnp.asarray(executor[op.operands[0]]), executor.ref(op.operands[1])
    starts = [executor[index] for index in op.operands[2:]]
    store(executor, op, ref, starts, value.reshape((1,) * len(ref.shape)))


@rule("memref.rank")
def _rank(executor: Executor, op: Op) -> None:
    executor.result(op, np.int32(len(op.operands[0].type.shape)))


@rule("memref.dim")
def _dim(executor: Executor, op: Op) -> None:
    dim, shape = executor[op.operands[1]], op.operands[0].type.shape
    if not known(dim) or shape[int(dim)] < 0:
        raise Unsupported("memref.dim of a dimension that is known only when the kernel runs")
    executor.result(op, np.int32(shape[int(dim)]))


@rule("memref.alloca", attributes=("operandSegmentSizes", "alignment"), checks=True)
def _alloca(executor: Executor, op: Op) -> None:
    if op.operands:
        raise Unsupported("memref.alloca of a dynamic size")
    executor.result(op, allocate(executor, op.results[0], "alloca"))


@rule("tpu.sem_alloc", checks=True)
def _sem_alloc(executor: Executor, op: Op) -> None:
    executor.result(op, allocate(executor, op.results[0], "semaphore"))


def allocate(executor: Executor, value: Value, name: str) -> Ref:
    """New memory of a memref's type: semaphores at zero, anything else never written."""
    type_ = value.type
    dtype = jax_dtype(type_.dtype)
    buffer = Buffer(name=name, shape=type_.shape, dtype=dtype, space=type_.space)
    executor.memory[buffer] = (
        jnp.zeros(type_.shape, dtype) if "semaphore" in type_.dtype else executor.poison(type_.shape, dtype)
    )
    executor.add_shadows(value, buffer)
    return Whole(buffer)


@rule("memref.copy", writes=lambda op: [op.operands[1]], reads=True, checks=True)
def _copy(executor: Executor, op: Op) -> None:
    source, target = (executor.ref(value) for value in op.operands)
    starts = (0,) * len(source.shape)
    store(executor, op, target, starts, _load(executor, op, source, starts, source.shape))


# --- whole vector registers -----------------------------------------------------------------------


def _check_register(executor: Executor, op: Op, ref: Ref, shape: Sequence[int]) -> None:
    """Refuse sublanes that are left out, and memory of whose layout it depends which elements they are."""
    whole = all(op.attributes["sublane_mask"]) and integer(op, "sublane_stride", 1) == 1
    rows_apart = not executor.kernel.on_sparse_core and (len(ref.shape) != 2 or ref.shape[-1] != shape[-1])
    if not whole or bits(ref.dtype) != 32 or len(shape) > len(ref.shape) or rows_apart:
        raise Unsupported(f"{op.name} of some sublanes, or of {ref.dtype}{tuple(ref.shape)}")


@rule("tpu.load", attributes=("sublane_mask", "sublane_stride"), reads=True, checks=True)
def _register_load(executor: Executor, op: Op) -> None:
    ref, shape = executor.ref(op.operands[0]), op.results[0].type.shape
    _check_register(executor, op, ref, shape)
    sizes = (1,) * (len(ref.shape) - len(shape)) + shape
    starts = [executor[index] for index in op.operands[1:]]
    executor.result(op, _load(executor, op, ref, starts, sizes).reshape(shape))


@rule("tpu.store", attributes=("operandSegmentSizes", "sublane_mask", "sublane_stride", "add"),
      writes=lambda op: [op.operands[1]], checks=True)  # fmt: skip
def _register_store(executor: Executor, op: Op) -> None:
    (source,), (base,), indices, mask = segments(op)
    ref, value, starts = executor.ref(base), jnp.asarray(executor[source]), [executor[index] for index in indices]
    _check_register(executor, op, ref, value.shape)
    if mask:
        raise Unsupported(f"{op.name} with a mask")
    value = value.reshape((1,) * (len(ref.shape) - value.ndim) + tuple(value.shape))
    if op.attributes.get("add", False):
        value = ref.load(executor.memory, starts, value.shape) + value
    store(executor, op, ref, starts, value)


@rule("tpu.shuffled_load", attributes=("sublane_mask", "sublane_offsets"), reads=True, checks=True)
def _shuffled_load(executor: Executor, op: Op) -> None:
    """Each sublane from a row of its own: so many behind the first."""
    ref, (row, *rest) = executor.ref(op.operands[0]), [executor[index] for index in op.operands[1:]]
    _check_register(executor, op, ref, op.results[0].type.shape)
    size = (1, op.results[0].type.shape[-1])
    rows = [_load(executor, op, ref, [add(row, offset), *rest], size) for offset in op.attributes["sublane_offsets"]]
    executor.result(op, jnp.concatenate(rows))


@rule("tpu.shuffled_store", attributes=("sublane_mask", "sublane_offsets"), writes=lambda op: [op.operands[1]],
      checks=True)  # fmt: skip
def _shuffled_store(executor: Executor, op: Op) -> None:
    value, ref = executor[op.operands[0]], executor.ref(op.operands[1])
    row, *rest = (executor[index] for index in op.operands[2:])
    _check_register(executor, op, ref, value.shape)
    offsets: Sequence[int] = op.attributes["sublane_offsets"]
    if len(set(offsets)) != len(offsets):
        raise Unsupported(f"{op.name} of several sublanes to one row")
    for number, offset in enumerate(offsets):
        store(executor, op, ref, [add(row, offset), *rest], value[number : number + 1])


# --- views ----------------------------------------------------------------------------------------


@rule("tpu.memref_slice", attributes=("operandSegmentSizes",), checks=True)
def _memref_slice(executor: Executor, op: Op) -> None:
    base, starts, dynamic = segments(op)
    shape = op.results[0].type.shape
    ref, at = executor.ref(base[0]), [executor[value] for value in starts]
    if not dynamic:
        executor.check_bounds(op, at, shape, ref.shape, "a slice")
        executor.result(op, Slice(ref, at, shape))
        return
    given = iter(dynamic)
    sizes = [executor[next(given)] if n < 0 else n for n in shape]
    # An empty slice may lie anywhere: kernels give a page that is not there a length of zero.
    outside, negative, empty = jnp.zeros((3,), bool)
    for start, size, dim in zip(at, sizes, ref.shape, strict=True):
        outside = outside | (start < 0) | (start + size > dim)
        negative, empty = negative | (size < 0), empty | (size == 0)
    bad = negative | (outside & ~empty)
    executor.report(Kind.SLICE_OUT_OF_BOUNDS, op, jnp.asarray(bad), f"a slice leaves a buffer of {ref.shape}")
    executor.result(op, DynamicSlice(ref, at, sizes))


@rule("tpu.memref_squeeze")
def _memref_squeeze(executor: Executor, op: Op) -> None:
    ref, shape = executor.ref(op.operands[0]), op.results[0].type.shape
    dims = op.operands[0].type.shape if isinstance(ref, DynamicSlice) else ref.shape
    kept: list[int] = []
    want = list(shape)
    # Greedy from the right, as Mosaic matches the dimensions that stay.
    for i in reversed(range(len(dims))):
        if want and dims[i] == want[-1]:
            kept.insert(0, i)
            want.pop()
        elif dims[i] != 1:
            raise Unsupported(f"tpu.memref_squeeze from {dims} to {shape}")
    if want:
        raise Unsupported(f"tpu.memref_squeeze from {dims} to {shape}")
    executor.result(op, ref.squeezed(kept) if isinstance(ref, DynamicSlice) else Squeeze(ref, kept))


@rule("tpu.memref_reshape")
def _memref_reshape(executor: Executor, op: Op) -> None:
    executor.result(op, reshape(executor.ref(op.operands[0]), op.results[0].type.shape))


@rule("tpu.memref_bitcast")
def _memref_bitcast(executor: Executor, op: Op) -> None:
    type_ = op.results[0].type
    executor.result(op, bitcast(executor.ref(op.operands[0]), type_.shape, np.dtype(jax_dtype(type_.dtype))))


@rule("tpu.reinterpret_cast", attributes=("operandSegmentSizes",))
def _reinterpret_cast(executor: Executor, op: Op) -> None:
    given, made = op.operands[0].type, op.results[0].type
    if len(op.operands) > 1 or (given.shape, given.dtype) != (made.shape, made.dtype):
        raise Unsupported(f"{op.name} from {given} to {made}")
    executor.result(op, executor.ref(op.operands[0]))


@rule("tpu.erase_memref_layout", "tpu.assume_layout", "memref.cast", "memref.memory_space_cast")
def _same_ref(executor: Executor, op: Op) -> None:
    executor.result(op, executor.ref(op.operands[0]))
