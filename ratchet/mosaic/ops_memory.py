"""Loads, stores and views of memrefs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ratchet.mosaic.dtypes import jax_dtype
from ratchet.mosaic.dynamic import DynamicSlice
from ratchet.mosaic.findings import Kind
from ratchet.mosaic.machine import Machine
from ratchet.mosaic.memory import Buffer, Index, Ref, Slice, Squeeze, Whole, bitcast, reshape
from ratchet.mosaic.module import Op, Value
from ratchet.mosaic.rules import refuse, rule

_NO_LAYOUT = ("nontemporal", "alignment", "in_bounds")


def segments(op: Op) -> list[tuple[Value, ...]]:
    """The operands in the groups that ``operandSegmentSizes`` says."""
    sizes: Sequence[int] = op.attributes["operandSegmentSizes"]
    out, at = [], 0
    for size in sizes:
        out.append(op.operands[at : at + size])
        at += size
    return out


def _load(machine: Machine, op: Op, ref: Ref, starts: Sequence[Index], sizes: Sequence[int]) -> Any:
    machine.check_bounds(op, starts, sizes, ref.shape, "a load")
    value = ref.load(machine.memory, starts, sizes)
    machine.witness(op, value)
    return value


def store(machine: Machine, op: Op, ref: Ref, starts: Sequence[Index], value: Any) -> None:
    """Write ``value`` at ``starts``, reporting a write outside the buffer or into an input."""
    machine.check_bounds(op, starts, value.shape, ref.shape, "a store")
    if ref.buffer.is_input:
        machine.report(Kind.INPUT_WRITTEN, op, True, f"a store into input {ref.buffer.name}")
    machine.check_unread(op, ref, starts, value.shape)
    ref.store(machine.memory, starts, value)


@rule("vector.load", attributes=_NO_LAYOUT, checks=True)
def _vector_load(machine: Machine, op: Op) -> None:
    starts = [machine[value] for value in op.operands[1:]]
    _masked_load(machine, op, op.operands[0], starts, ())


@rule("tpu.vector_load", attributes=("operandSegmentSizes", "strides"), checks=True)
def _tpu_vector_load(machine: Machine, op: Op) -> None:
    base, indices, mask = segments(op)
    if any(s != 1 for s in op.attributes["strides"]):
        raise refuse(f"{op.name} with strides", machine.kernel, op)
    _masked_load(machine, op, base[0], [machine[value] for value in indices], mask)


def _masked_load(machine: Machine, op: Op, base: Value, starts: list[Index], mask: Sequence[Value]) -> None:
    ref, shape = machine.ref(base), op.results[0].type.shape
    sizes = (1,) * (len(ref.shape) - len(shape)) + shape
    value = _load(machine, op, ref, starts, sizes).reshape(shape)
    if mask:
        value = jnp.where(machine[mask[0]], value, jnp.zeros((), value.dtype))
    machine.result(op, value)


@rule(
    "tpu.vector_store",
    attributes=("operandSegmentSizes", "strides", "add"),
    writes=lambda op: [op.operands[1]],
    checks=True,
)
def _vector_store(machine: Machine, op: Op) -> None:
    (source,), (base,), indices, mask = segments(op)
    if any(s != 1 for s in op.attributes["strides"]):
        raise refuse(f"{op.name} with strides", machine.kernel, op)
    _masked_store(machine, op, base, indices, source, mask=mask, add=bool(op.attributes.get("add", False)))


@rule("vector.store", attributes=_NO_LAYOUT, writes=lambda op: [op.operands[1]], checks=True)
def _plain_vector_store(machine: Machine, op: Op) -> None:
    source, base, *indices = op.operands
    _masked_store(machine, op, base, indices, source, mask=(), add=False)


def _masked_store(
    machine: Machine, op: Op, base: Value, indices: Sequence[Value], source: Value, *, mask: Sequence[Value], add: bool
) -> None:
    ref, value = machine.ref(base), machine[source]
    starts = [machine[index] for index in indices]
    sizes = (1,) * (len(ref.shape) - value.ndim) + tuple(value.shape)
    value = value.reshape(sizes)
    if mask or add:
        old = ref.load(machine.memory, starts, sizes)
        value = old + value if add else value
        value = jnp.where(machine[mask[0]].reshape(sizes), value, old) if mask else value
    store(machine, op, ref, starts, value)


@rule("tpu.strided_load", attributes=("strides",), checks=True)
def _strided_load(machine: Machine, op: Op) -> None:
    ref, shape = machine.ref(op.operands[0]), op.results[0].type.shape
    starts = [machine[value] for value in op.operands[1:]]
    strides: Sequence[int] = op.attributes["strides"]
    spans = [(n - 1) * s + 1 for n, s in zip(shape, strides, strict=True)]
    value = _load(machine, op, ref, starts, spans)
    machine.result(op, value[tuple(slice(None, None, s) for s in strides)])


@rule("tpu.strided_store", attributes=("strides",), writes=lambda op: [op.operands[1]], checks=True)
def _strided_store(machine: Machine, op: Op) -> None:
    value, ref = machine[op.operands[0]], machine.ref(op.operands[1])
    starts = [machine[index] for index in op.operands[2:]]
    strides: Sequence[int] = op.attributes["strides"]
    spans = [(n - 1) * s + 1 for n, s in zip(value.shape, strides, strict=True)]
    old = ref.load(machine.memory, starts, spans)
    store(machine, op, ref, starts, old.at[tuple(slice(None, None, s) for s in strides)].set(value))


@rule("memref.load", attributes=_NO_LAYOUT, checks=True)
def _scalar_load(machine: Machine, op: Op) -> None:
    ref = machine.ref(op.operands[0])
    starts = [machine[value] for value in op.operands[1:]]
    machine.result(op, _load(machine, op, ref, starts, (1,) * len(ref.shape)).reshape(()))


@rule("memref.store", attributes=_NO_LAYOUT, writes=lambda op: [op.operands[1]], checks=True)
def _scalar_store(machine: Machine, op: Op) -> None:
    value, ref = jnp.asarray(machine[op.operands[0]]), machine.ref(op.operands[1])
    starts = [machine[index] for index in op.operands[2:]]
    store(machine, op, ref, starts, value.reshape((1,) * len(ref.shape)))


@rule("memref.alloca", attributes=("operandSegmentSizes", "alignment"))
def _alloca(machine: Machine, op: Op) -> None:
    if op.operands:
        raise refuse("memref.alloca of a dynamic size", machine.kernel, op)
    machine.result(op, allocate(machine, op.results[0], "alloca"))


@rule("tpu.sem_alloc")
def _sem_alloc(machine: Machine, op: Op) -> None:
    machine.result(op, allocate(machine, op.results[0], "semaphore"))


def allocate(machine: Machine, value: Value, name: str) -> Ref:
    """New memory of a memref's type: semaphores at zero, anything else never written."""
    type_ = value.type
    dtype = jax_dtype(type_.dtype)
    buffer = Buffer(name=name, shape=type_.shape, dtype=dtype, space=type_.space)
    machine.memory[buffer] = (
        jnp.zeros(type_.shape, dtype) if "semaphore" in type_.dtype else machine.poison(type_.shape, dtype)
    )
    machine.add_shadows(value, buffer)
    return Whole(buffer)


# --- views ----------------------------------------------------------------------------------------


@rule("tpu.memref_slice", attributes=("operandSegmentSizes",), checks=True)
def _memref_slice(machine: Machine, op: Op) -> None:
    base, starts, dynamic = segments(op)
    shape = op.results[0].type.shape
    ref, at = machine.ref(base[0]), [machine[value] for value in starts]
    if not dynamic:
        machine.check_bounds(op, at, shape, ref.shape, "a slice")
        machine.result(op, Slice(ref, at, shape))
        return
    given = iter(dynamic)
    sizes = [machine[next(given)] if n < 0 else n for n in shape]
    # An empty slice may lie anywhere: kernels give a page that is not there a length of zero.
    outside, negative, empty = jnp.zeros((3,), bool)
    for start, size, dim in zip(at, sizes, ref.shape, strict=True):
        outside = outside | (start < 0) | (start + size > dim)
        negative, empty = negative | (size < 0), empty | (size == 0)
    bad = negative | (outside & ~empty)
    machine.report(Kind.SLICE_OUT_OF_BOUNDS, op, jnp.asarray(bad), f"a slice leaves a buffer of {ref.shape}")
    machine.result(op, DynamicSlice(ref, at, sizes))


@rule("tpu.memref_squeeze")
def _memref_squeeze(machine: Machine, op: Op) -> None:
    ref, shape = machine.ref(op.operands[0]), op.results[0].type.shape
    dims = op.operands[0].type.shape if isinstance(ref, DynamicSlice) else ref.shape
    kept: list[int] = []
    want = list(shape)
    # Greedy from the right, as Mosaic matches the dimensions that stay.
    for i in reversed(range(len(dims))):
        if want and dims[i] == want[-1]:
            kept.insert(0, i)
            want.pop()
        elif dims[i] != 1:
            raise refuse(f"tpu.memref_squeeze from {dims} to {shape}", machine.kernel, op)
    if want:
        raise refuse(f"tpu.memref_squeeze from {dims} to {shape}", machine.kernel, op)
    machine.result(op, ref.squeezed(kept) if isinstance(ref, DynamicSlice) else Squeeze(ref, kept))


@rule("tpu.memref_reshape")
def _memref_reshape(machine: Machine, op: Op) -> None:
    machine.result(op, reshape(machine.ref(op.operands[0]), op.results[0].type.shape))


@rule("tpu.memref_bitcast")
def _memref_bitcast(machine: Machine, op: Op) -> None:
    type_ = op.results[0].type
    machine.result(op, bitcast(machine.ref(op.operands[0]), type_.shape, np.dtype(jax_dtype(type_.dtype))))


@rule("tpu.erase_memref_layout", "tpu.assume_layout")
def _same_ref(machine: Machine, op: Op) -> None:
    machine.result(op, machine.ref(op.operands[0]))
