"""DMAs and semaphores, on one device and between devices.

A DMA copies when it is started and its semaphore counts bytes; a wait takes its bytes off the count. With
``Options.late_dma`` the data arrive only when nothing on the semaphore is outstanding any more, and until then the
destination reads as memory never written: an output that differs then uses data before the wait for them.

Several devices run in lockstep under one named axis. What a device sends to another is delivered at the sender's
place in the program, or with ``late_dma`` at the receiver's wait; a conditional that holds a remote operation is
executed under a mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.mosaic import dynamic
from ratchet.mosaic.dtypes import bits
from ratchet.mosaic.dynamic import DynamicSlice
from ratchet.mosaic.findings import Kind
from ratchet.mosaic.machine import BARRIER, DEVICES, Machine
from ratchet.mosaic.memory import Array, Memory, Ref, Whole, decode, encode, is_recast, put_where
from ratchet.mosaic.module import Op, Value
from ratchet.mosaic.ops_memory import segments
from ratchet.mosaic.rules import refuse, rule


def _amount(ref: Ref) -> int:
    """Bytes a transfer of ``ref`` adds to its semaphore."""
    return math.prod(ref.shape) * bits(ref.dtype) // 8


def _add(machine: Machine, semaphore: Ref, amount: Any) -> Array:
    """Change a semaphore; its count before."""
    before = semaphore.load_all(machine.memory)
    semaphore.store_all(machine.memory, before + jnp.asarray(amount, jnp.int32))
    return before.reshape(())


def _optional(machine: Machine, values: Sequence[Value]) -> Any:
    return machine[values[0]] if values else None


def _start_writes(op: Op) -> list[Value]:
    _, source_semaphore, target, target_semaphore, *_ = segments(op)
    return [*source_semaphore, *target, *target_semaphore]


@rule(
    "tpu.enqueue_dma",
    attributes=("operandSegmentSizes", "priority", "strict_ordering"),
    writes=_start_writes,
    checks=True,
)
def _enqueue_dma(machine: Machine, op: Op) -> None:
    (source,), source_semaphore, (target,), target_semaphore, device, core, *rest = segments(op)
    src, dst = machine.ref(source), machine.ref(target)
    _one_core(machine, op, core, rest)
    if isinstance(src, DynamicSlice) or isinstance(dst, DynamicSlice):
        _enqueue_dynamic(machine, op, src, dst, machine.ref(target_semaphore[0]), remote=bool(device))
        return
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise refuse(f"a DMA from {src.dtype}{src.shape} to {dst.dtype}{dst.shape}", machine.kernel, op)
    data = src.load_all(machine.memory)
    machine.witness(op, data)
    if dst.buffer.is_input:
        machine.report(Kind.INPUT_WRITTEN, op, True, f"a DMA into {dst.buffer.name}")
    arrived = machine.ref(target_semaphore[0])
    if not device or machine.device is None:
        machine.check_unread(op, dst, (0,) * len(dst.shape), dst.shape)
        _mark_read(machine, src, arrived)
        _deliver(machine, dst, arrived, data)
        _add(machine, arrived, _amount(dst))
        return
    # The sender waits for its own copy to have left, the receiver for its arrival.
    active = jnp.asarray(True if machine.active is None else machine.active)
    if source_semaphore:
        left = machine.ref(source_semaphore[0])
        _mark_read(machine, src, left)
        _add(machine, left, jnp.where(active, _amount(dst), 0))
    _send(machine, device[0], active, [dst, arrived], data)


def _enqueue_dynamic(machine: Machine, op: Op, src: Ref, dst: Ref, semaphore: Ref, *, remote: bool) -> None:
    """A local DMA of a size that is known only now."""
    if remote or src.dtype != dst.dtype:
        raise refuse(f"a DMA of dynamic size from {src.dtype} to {dst.dtype}, remote: {remote}", machine.kernel, op)
    source, target = dynamic.parts(src), dynamic.parts(dst)
    machine.report(
        Kind.SLICE_OUT_OF_BOUNDS, op, dynamic.differ(source, target), "a DMA between slices of different sizes"
    )
    if dst.buffer.is_input:
        machine.report(Kind.INPUT_WRITTEN, op, True, f"a DMA into {dst.buffer.name}")
    inside, data = dynamic.found(machine.memory, source, target)
    machine.witness(op, jnp.where(inside, data, jnp.zeros((), data.dtype)))
    _deliver(machine, target.base, semaphore, data, inside)
    _add(machine, semaphore, dynamic.amount(target))


def _deliver(machine: Machine, dst: Ref, semaphore: Ref, data: Array, where: Array | None = None) -> None:
    """``data`` reach all of ``dst``, or what ``where`` says; with ``late_dma`` when ``semaphore`` is waited for."""
    if machine.options.late_dma and machine.is_late(dst.buffer):
        number = jnp.broadcast_to(_identity(machine, semaphore), dst.shape)
        for shadow, value in zip(machine.late[dst.buffer], (data, number), strict=True):
            memory = {dst.buffer: machine.memory[shadow]}
            _put(memory, dst.with_dtype(shadow.dtype), value, where)
            machine.memory[shadow] = memory[dst.buffer]
        data = decode(machine.poison(dst.shape, dst.dtype), dst.dtype)
    _put(machine.memory, dst, data, where)


def _mark_read(machine: Machine, src: Ref, semaphore: Ref) -> None:
    """With ``late_dma``, ``src`` may be read until ``semaphore`` is waited for."""
    shadow = machine.read.get(src.buffer)
    if shadow is None or is_recast(src):
        return
    memory, ref = {src.buffer: machine.memory[shadow]}, src.with_dtype(shadow.dtype)
    bit = _bit(_identity(machine, semaphore))
    ref.store_all(memory, ref.load_all(memory) | (bit if machine.active is None else jnp.where(machine.active, bit, 0)))
    machine.memory[shadow] = memory[src.buffer]


def _bit(number: Array) -> Array:
    """A semaphore's bit among those that a source waits for; with more than 31 semaphores some share one."""
    return lax.shift_left(jnp.int32(1), lax.rem(jnp.asarray(number, jnp.int32), jnp.int32(31)))


def _put(memory: Memory, ref: Ref, value: Array, where: Array | None) -> None:
    if where is None:
        ref.store_all(memory, value)
    else:
        put_where(memory, ref, where, value)


def _identity(machine: Machine, semaphore: Ref) -> Array:
    """A number for one semaphore: its position in its buffer, and which buffer, plus one."""
    buffer = semaphore.buffer
    positions = jnp.arange(math.prod(buffer.shape), dtype=jnp.int32).reshape(buffer.shape)
    at = semaphore.load_all({buffer: positions}).reshape(())
    return at + machine.semaphore_base(buffer) + 1


def _send(machine: Machine, device: Value, active: Array, refs: Sequence[Ref], data: Array | None) -> None:
    """Deliver ``data`` and its bytes to the same references on another device, as every sender's indices say."""
    target = jnp.where(active, jnp.asarray(machine[device], jnp.int32), -1)
    targets = lax.all_gather(target, DEVICES)
    everyone = [ref.map_indices(lambda i: lax.all_gather(jnp.asarray(i, jnp.int32), DEVICES)) for ref in refs]
    payload = lax.all_gather(encode(data), DEVICES) if data is not None else None
    for sender in range(machine.devices):
        hit = targets[sender] == machine.device
        theirs = [ref.map_indices(lambda i, s=sender: i[s]) for ref in everyone]  # type: ignore[misc]
        if data is not None:
            dst = theirs[0]
            _deliver(machine, dst, theirs[1], decode(payload[sender], dst.dtype), hit)  # type: ignore[index]
            _add(machine, theirs[1], jnp.where(hit, _amount(dst), 0))


@rule("tpu.wait_dma2", attributes=("operandSegmentSizes", "strict_ordering"), checks=True,
      writes=lambda op: [op.operands[0]])  # fmt: skip
def _wait_dma(machine: Machine, op: Op) -> None:
    (semaphore,), _, (target,), *_ = segments(op)
    ref = machine.ref(target)
    amount = dynamic.amount(ref) if isinstance(ref, DynamicSlice) else _amount(ref)
    _wait(machine, op, machine.ref(semaphore), amount)


def _wait(machine: Machine, op: Op, semaphore: Ref, amount: Any) -> None:
    before = _add(machine, semaphore, -jnp.asarray(amount, jnp.int32))
    machine.report(Kind.WAIT_WITHOUT_START, op, before < amount, "a wait for more than was started or signalled")
    if machine.options.late_dma:
        done = before <= amount
        number = _identity(machine, semaphore)
        for buffer, (arriving, owner) in machine.late.items():
            if buffer not in machine.memory:
                continue  # allocated in a scope that has ended
            mine = (machine.memory[owner] == number) & done
            machine.memory[buffer] = jnp.where(mine, machine.memory[arriving], machine.memory[buffer])
            machine.memory[owner] = jnp.where(mine, 0, machine.memory[owner])
        over = jnp.where(done, _bit(number), 0)
        for shadow in machine.read.values():
            if shadow in machine.memory:
                machine.memory[shadow] = machine.memory[shadow] & ~over


@rule("tpu.sem_signal", attributes=("operandSegmentSizes",), writes=lambda op: [op.operands[0]], checks=True)
def _sem_signal(machine: Machine, op: Op) -> None:
    (semaphore,), (amount,), device, core, *rest = segments(op)
    _one_core(machine, op, core, rest)
    ref, value = machine.ref(semaphore), jnp.asarray(machine[amount], jnp.int32)
    if not device or machine.device is None:
        _add(machine, ref, value)
        return
    active = jnp.asarray(True if machine.active is None else machine.active)
    target = jnp.where(active, jnp.asarray(machine[device[0]], jnp.int32), -1)
    everyone = ref.map_indices(lambda i: lax.all_gather(jnp.asarray(i, jnp.int32), DEVICES))
    targets, values = lax.all_gather(target, DEVICES), lax.all_gather(value, DEVICES)
    for sender in range(machine.devices):
        theirs = everyone.map_indices(lambda i, s=sender: i[s])  # type: ignore[misc]
        _add(machine, theirs, jnp.where(targets[sender] == machine.device, values[sender], 0))


@rule("tpu.sem_wait", attributes=("operandSegmentSizes",), writes=lambda op: [op.operands[0]], checks=True)
def _sem_wait(machine: Machine, op: Op) -> None:
    _wait(machine, op, machine.ref(op.operands[0]), jnp.asarray(machine[op.operands[1]], jnp.int32))


@rule("tpu.sem_barrier")
def _sem_barrier(machine: Machine, op: Op) -> None:
    machine.result(op, Whole(BARRIER))


@rule("tpu.device_id")
def _device_id(machine: Machine, op: Op) -> None:
    machine.result(op, np.int32(0) if machine.device is None else machine.device)


@rule("tpu.core_id", "tpu.subcore_id")
def _core_id(machine: Machine, op: Op) -> None:
    """One core executes everything; parallel steps are independent of which core runs them."""
    machine.result(op, np.int32(0))


def _one_core(machine: Machine, op: Op, core: Sequence[Value], rest: Sequence[Sequence[Value]]) -> None:
    """Refuse to talk to another core of the same chip, which is not modelled."""
    ids = [machine[value] for group in (core, *rest) for value in group]
    if any(not (isinstance(i, np.generic) and int(i) == 0) for i in ids):
        raise refuse(f"{op.name} to another core", machine.kernel, op)
