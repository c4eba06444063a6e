"""DMAs and semaphores, on one device and between devices.

A DMA copies when it is started and its semaphore counts bytes; a wait takes its bytes off the count. With
``Options.on_wait`` the data arrive only when nothing on the semaphore is outstanding any more, and until then the
destination reads as memory never written: an output that differs then uses data before the wait for them.

Several devices meet at every remote operation, by collectives of the CPU devices that execute them. What a device sends
to another is delivered at the sender's place in the program, or with ``on_wait`` at the receiver's wait; a conditional
that holds a remote operation is executed under a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mosaic.arrays import Array, Index, add, decode, encode, known, position
from ratchet.tpu.mosaic.events import Did
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.in_flight import NOWHERE
from ratchet.tpu.mosaic.memory import (
    Buffer,
    DynamicSlice,
    Ref,
    Whole,
    dynamic_copy,
    dynamic_parts,
    put_where,
    sizes_differ,
)
from ratchet.tpu.mosaic.ops.memory import segments
from ratchet.tpu.mosaic.rules import Unsupported, rule
from ratchet.tpu.mosaic.state import BARRIER


def _add(executor: Executor, semaphore: Ref, amount: Any) -> Array:
    """Change a semaphore; its count before."""
    before = semaphore.load_all(executor.memory)
    semaphore.store_all(executor.memory, before + jnp.asarray(amount, jnp.int32))
    return before.reshape(())


def _start_writes(op: Op) -> list[Value]:
    _, source_semaphore, target, target_semaphore, *_ = segments(op)
    return [*source_semaphore, *target, *target_semaphore]


@rule(
    "tpu.enqueue_dma",
    attributes=("operandSegmentSizes", "priority", "strict_ordering"),
    writes=_start_writes,
    reads=True,
    checks=True,
)
def _enqueue_dma(executor: Executor, op: Op) -> None:
    (source,), source_semaphore, (target,), target_semaphore, device, core, *rest = segments(op)
    src, dst = executor.ref(source), executor.ref(target)
    _one_core(executor, op, core, rest)
    executor.count(op)
    executor.log_copy(op, src, dst)
    arrived = executor.ref(target_semaphore[0])
    inside: Array | None = None
    if isinstance(src, DynamicSlice) or isinstance(dst, DynamicSlice):
        src, dst, inside, data = _of_dynamic_size(executor, op, src, dst)
    elif src.shape != dst.shape or src.dtype != dst.dtype:
        raise Unsupported(f"a DMA from {src.dtype}{src.shape} to {dst.dtype}{dst.shape}")
    else:
        data = src.load_all(executor.memory)
        executor.digest(op, data)
    if dst.buffer.is_input:
        executor.report(Kind.INPUT_WRITTEN, op, True, f"a DMA into {dst.buffer.name}")
    _check_device(executor, op, device)
    if not device or executor.device is None:
        _follow(executor, op, src, dst, arrived)
        _deliver(executor, _whole(dst), arrived, data, inside)
        _add(executor, arrived, dst.bytes)
        return
    # The sender waits for its own copy to have left, the receiver for its arrival.
    active = jnp.asarray(True if executor.active is None else executor.active)
    if source_semaphore:
        left = executor.ref(source_semaphore[0])
        number, box = _identity(executor, left), src.whole_box()
        executor.start_copy(number, executor.end(src.buffer, box), NOWHERE)
        executor.log_access(Did.COPY_READ, op, src.buffer, box, semaphore=number, amount=dst.bytes)
        _log_signal(executor, op, number, dst.bytes)
        _add(executor, left, jnp.where(active, dst.bytes, 0))
    executor.log(
        Did.SEND, op, semaphore=_identity(executor, arrived), amount=dst.bytes, device=executor[device[0]],
        buffer=executor.number(dst.buffer), box=dst.whole_box(),
    )  # fmt: skip
    _send(executor, device[0], dst, arrived, data, inside)


def _of_dynamic_size(executor: Executor, op: Op, src: Ref, dst: Ref) -> tuple[DynamicSlice, DynamicSlice, Array, Array]:
    """The ends of a DMA of a size that is known only now, and what it changes of the target's base, and to what."""
    if src.dtype != dst.dtype:
        raise Unsupported(f"a DMA of dynamic size from {src.dtype} to {dst.dtype}")
    source, target = dynamic_parts(src), dynamic_parts(dst)
    executor.report(
        Kind.SLICE_OUT_OF_BOUNDS, op, sizes_differ(source, target), "a DMA between slices of different sizes"
    )
    inside, data = dynamic_copy(executor.memory, source, target)
    executor.digest(op, jnp.where(inside, data, jnp.zeros((), data.dtype)))
    return source, target, inside, data


def _whole(ref: Ref) -> Ref:
    """What data of a copy into ``ref`` have the shape of: of a slice of dynamic size, what it is a slice of."""
    return ref.base if isinstance(ref, DynamicSlice) else ref


def _deliver(executor: Executor, dst: Ref, semaphore: Ref, data: Array, where: Array | None = None) -> None:
    """``data`` reach all of ``dst``, or what ``where`` says; with ``on_wait`` when ``semaphore`` is waited for."""
    if dst.buffer in executor.arriving:
        number = jnp.broadcast_to(_identity(executor, semaphore), dst.shape)
        for shadow, value in zip(executor.arriving[dst.buffer], (data, number), strict=True):
            memory = {dst.buffer: executor.memory[shadow]}
            put_where(memory, dst.with_dtype(shadow.dtype), where, value)
            executor.memory[shadow] = memory[dst.buffer]
        data = decode(executor.poison(dst.shape, dst.dtype), dst.dtype)
    put_where(executor.memory, dst, where, data)


def _follow(executor: Executor, op: Op, src: Ref, dst: Ref, semaphore: Ref) -> None:
    """With ``on_wait``, a copy is in flight until ``semaphore`` is waited for, and may not write into others."""
    number, source, target = _identity(executor, semaphore), src.whole_box(), dst.whole_box()
    executor.check_in_flight(op, dst.buffer, target, "a DMA into")
    executor.start_copy(number, executor.end(src.buffer, source), executor.end(dst.buffer, target))
    executor.log_access(Did.COPY_READ, op, src.buffer, source, semaphore=number, amount=dst.bytes)
    executor.log_access(Did.COPY_WRITE, op, dst.buffer, target, semaphore=number, amount=dst.bytes)
    _log_signal(executor, op, number, dst.bytes)
    _stamp(executor, dst)


def _log_signal(executor: Executor, op: Op, semaphore: Any, amount: Any) -> None:
    device = 0 if executor.device is None else executor.device
    executor.log(Did.SIGNAL, op, semaphore=semaphore, amount=amount, device=device)


def _stamp(executor: Executor, ref: Ref) -> None:
    """With ``windows_ahead``, note that all of ``ref`` is written in this step."""
    if ref.buffer in executor.stamps:
        if isinstance(ref, DynamicSlice):
            ref = ref.base
        times = executor.stamps[ref.buffer]
        memory, now = {ref.buffer: executor.memory[times]}, jnp.broadcast_to(executor.steps_before, ref.shape)
        ref.with_dtype(times.dtype).store_all(memory, now.astype(times.dtype))
        executor.memory[times] = memory[ref.buffer]


def _identity(executor: Executor, semaphore: Ref) -> Index:
    """A number for one semaphore: its position in its buffer, and which buffer, plus one."""
    buffer = semaphore.buffer
    first = executor.semaphore_base(buffer) + 1
    if not semaphore.is_slice:
        positions = jnp.arange(math.prod(buffer.shape), dtype=jnp.int32).reshape(buffer.shape)
        return semaphore.load_all({buffer: positions}).reshape(()) + first
    starts, _ = semaphore.whole_box()
    return add(position(starts, buffer.shape), first)


def _everywhere(executor: Executor, value: Any) -> Array:
    """An int32 scalar as each device has it."""
    return lax.all_gather(jnp.asarray(value, jnp.int32), executor.axes)


def _of_everyone(executor: Executor, ref: Ref) -> Ref:
    """A reference with the indices of all devices in place of each."""
    return ref.map_indices(lambda i: _everywhere(executor, i))


def _of_sender(everyone: Ref, sender: Array) -> Ref:
    """That reference with the indices that one device has in it."""
    return everyone.map_indices(lambda i: i[sender])  # type: ignore[index]


def _targets(executor: Executor, device: Value) -> Array:
    """The device that each one sends to; -1 from where the branch is not taken."""
    active = jnp.asarray(True if executor.active is None else executor.active)
    return _everywhere(executor, jnp.where(active, jnp.asarray(executor[device], jnp.int32), -1))


def _send(executor: Executor, device: Value, dst: Ref, arrived: Ref, data: Array, inside: Array | None = None) -> None:
    """Deliver ``data`` and its bytes to the same references on another device, as every sender's indices say.

    ``inside``: which of ``data`` a copy of dynamic size has; None for all.
    """
    targets, sizes = _targets(executor, device), None if known(dst.bytes) else _everywhere(executor, dst.bytes)
    destinations, semaphores = _of_everyone(executor, _whole(dst)), _of_everyone(executor, arrived)
    payload = lax.all_gather(encode(data), executor.axes)
    parts = None if inside is None else lax.all_gather(inside, executor.axes)

    def deliver(sender: Array) -> None:
        target, semaphore = _of_sender(destinations, sender), _of_sender(semaphores, sender)
        where = None if parts is None else parts[sender]
        _deliver(executor, target, semaphore, decode(payload[sender], target.dtype), where)
        _add(executor, semaphore, target.bytes if sizes is None else sizes[sender])

    buffers = dst.buffer, *executor.arriving.get(dst.buffer, ()), arrived.buffer
    _from_each(executor, targets == executor.device, list(dict.fromkeys(buffers)), deliver)


def _from_each(executor: Executor, sends: Array, buffers: list[Buffer], deliver: Callable[[Array], None]) -> None:
    """``deliver`` what each of the devices sends that do, which writes into ``buffers``; mostly it is one."""

    def one(state: Any) -> Any:
        left, arrays = state
        sender = jnp.argmax(left)
        _, arrays = executor.within(buffers, arrays, lambda: deliver(sender))
        return left.at[sender].set(False), arrays

    _, arrays = lax.while_loop(lambda state: jnp.any(state[0]), one, (sends, executor.contents(buffers)))
    executor.memory.update(zip(buffers, arrays, strict=True))


def awaited(executor: Executor, op: Op) -> tuple[Ref, Any]:
    """The semaphore that an operation waits for, and how much it takes off it."""
    if op.name == "tpu.sem_wait":
        return executor.ref(op.operands[0]), executor[op.operands[1]]
    if op.name == "tpu.wait_dma2":
        (semaphore,), _, (end,), *_ = segments(op)
    else:
        semaphore, end = _waited(op)
    return executor.ref(semaphore), executor.ref(end).bytes


@rule("tpu.wait_dma2", attributes=("operandSegmentSizes", "strict_ordering"), checks=True,
      writes=lambda op: [op.operands[0]])  # fmt: skip
def _wait_dma2(executor: Executor, op: Op) -> None:
    _wait(executor, op)


def _waited(op: Op) -> tuple[Value, Value]:
    """The semaphore, and the end of the copy that it counts the bytes of."""
    (source,), source_semaphore, (target,), target_semaphore, *_ = segments(op)
    end, semaphore = (target, target_semaphore) if op.attributes["wait_target"] else (source, source_semaphore)
    if not semaphore:
        raise Unsupported("a wait for a copy to have left that has no semaphore for it")
    return semaphore[0], end


@rule(
    "tpu.wait_dma",
    attributes=("operandSegmentSizes", "priority", "strict_ordering", "wait_target"),
    writes=lambda op: [_waited(op)[0]],
    checks=True,
)
def _wait_dma(executor: Executor, op: Op) -> None:
    """Of module versions from 15 on: it names all that the copy's start does."""
    *_, core, subcore = segments(op)
    _one_core(executor, op, core, [subcore])
    _wait(executor, op)


def _wait(executor: Executor, op: Op) -> None:
    semaphore, amount = awaited(executor, op)
    executor.log(Did.WAIT, op, semaphore=_identity(executor, semaphore), amount=amount)
    before = _add(executor, semaphore, -amount if known(amount) else -jnp.asarray(amount, jnp.int32))
    executor.report(Kind.WAIT_WITHOUT_START, op, before < amount, "a wait for more than was started or signalled")
    executor.report(Kind.NEGATIVE_AMOUNT, op, amount < 0, "a wait for less than nothing")
    if executor.options.on_wait:
        done = before <= amount
        number = _identity(executor, semaphore)
        for buffer, (data, owner) in executor.arriving.items():
            if buffer not in executor.memory:
                continue  # allocated in a scope that has ended
            mine = (executor.memory[owner] == number) & done
            executor.memory[buffer] = jnp.where(mine, executor.memory[data], executor.memory[buffer])
            executor.memory[owner] = jnp.where(mine, 0, executor.memory[owner])
        executor.land_copies(number, done)


@rule("tpu.sem_signal", attributes=("operandSegmentSizes",), writes=lambda op: [op.operands[0]], checks=True)
def _sem_signal(executor: Executor, op: Op) -> None:
    (semaphore,), (amount,), device, core, *rest = segments(op)
    _one_core(executor, op, core, rest)
    ref, value = executor.ref(semaphore), executor[amount]
    executor.report(Kind.NEGATIVE_AMOUNT, op, value < 0, "a signal of less than nothing")
    _check_device(executor, op, device)
    if not device or executor.device is None:
        _log_signal(executor, op, _identity(executor, ref), value)
        _add(executor, ref, value)
        return
    executor.log(Did.SIGNAL, op, semaphore=_identity(executor, ref), amount=value, device=executor[device[0]])
    targets, values, everyone = _targets(executor, device[0]), _everywhere(executor, value), _of_everyone(executor, ref)

    def signal(sender: Array) -> None:
        _add(executor, _of_sender(everyone, sender), values[sender])

    _from_each(executor, targets == executor.device, [ref.buffer], signal)


@rule("tpu.sem_wait", attributes=("operandSegmentSizes",), writes=lambda op: [op.operands[0]], checks=True)
def _sem_wait(executor: Executor, op: Op) -> None:
    _wait(executor, op)


@rule("tpu.sem_barrier")
def _sem_barrier(executor: Executor, op: Op) -> None:
    executor.result(op, Whole(BARRIER))


@rule("tpu.device_id")
def _device_id(executor: Executor, op: Op) -> None:
    executor.result(op, np.int32(0) if executor.device is None else executor.device)


@rule("tpu.core_id", "tpu.subcore_id")
def _core_id(executor: Executor, op: Op) -> None:
    """One core executes everything; parallel steps are independent of which core runs them."""
    executor.result(op, np.int32(0))


@rule("tpu.enqueue_indirect_dma", attributes=("add",), writes=lambda op: [op.operands[1], op.operands[3]], reads=True,
      checks=True)  # fmt: skip
@rule("tpu.wait_indirect_dma", writes=lambda op: [op.operands[0]], checks=True)
@rule("tpu.fetch_and_add_sync", writes=lambda op: [op.operands[0]], checks=True)
@rule("tpu.barrier", checks=True)
def _on_several_cores(executor: Executor, op: Op) -> None:
    """What is executed where a kernel has its cores: ``cores.core``."""
    raise Unsupported(f"{op.name} on one core")


def _check_device(executor: Executor, op: Op, device: Sequence[Value]) -> None:
    """Report a device that is not there."""
    if device:
        number = executor[device[0]]
        outside = (number < 0) | (number >= executor.devices)
        executor.report(Kind.SLICE_OUT_OF_BOUNDS, op, outside, f"device numbers are 0 to {executor.devices - 1}")


def _one_core(executor: Executor, op: Op, core: Sequence[Value], rest: Sequence[Sequence[Value]]) -> None:
    """Refuse to signal another core of the same chip, which is not modelled."""
    ids = [executor[value] for group in (core, *rest) for value in group]
    if any(not (isinstance(i, np.generic) and int(i) == 0) for i in ids):
        raise Unsupported(f"{op.name} to another core")
