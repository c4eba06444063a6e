"""Executes a kernel's operations while JAX traces: it walks them once, and leaves a JAX program behind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mosaic.arrays import Array, Index, jax_dtype, known
from ratchet.tpu.mosaic.copies import COPIED, COPIES
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.in_flight import IN_FLIGHT
from ratchet.tpu.mosaic.memory import Buffer, Ref
from ratchet.tpu.mosaic.recorder import Recorder
from ratchet.tpu.mosaic.report import COUNTS, DIGESTS, FLAGS
from ratchet.tpu.mosaic.rerolled import Loop, loops_of
from ratchet.tpu.mosaic.rules import (
    DMA_OPS,
    DRAWS,
    MATRIX_UNIT,
    RULES,
    TERMINATORS,
    WAYS_OUT,
    Rule,
    Unsupported,
    integer,
    is_remote,
    promise,
    root_of,
)
from ratchet.tpu.mosaic.state import BARRIER, DRAWN
from ratchet.tpu.mosaic.units import Unit, units_of

_CONTROL = ("scf.if", "scf.for", "scf.while")


@dataclass(kw_only=True)
class Executor(Recorder):
    """State of one kernel while it is translated."""

    values: dict[Value, Any] = field(default_factory=dict)
    """What each SSA value is: a JAX array, a numpy scalar (constant) or a ``Ref``."""
    bounds: tuple[Index, ...] = ()
    """Grid bounds, for ``tpu.iteration_bound``."""
    backwards: Array | None = None
    """Whether parallel loops run from their end."""
    _bound: set[Op] = field(default_factory=set)
    """Constants that have a value in each iteration of the loop that is being executed."""

    def __post_init__(self) -> None:
        """Matrix units begin empty, and so they do each grid step: no step carries what another left in them."""
        self.memory.update(pair for unit in self.units.values() for pair in unit.empty())

    # --- values ---

    def __getitem__(self, value: Value) -> Any:
        return self.values[value]

    def ref(self, value: Value) -> Ref:
        ref = self.values[value]
        assert isinstance(ref, Ref), ref
        return ref

    def result(self, op: Op, value: Any) -> None:
        """Bind the single result of an operation, checking that shape and dtype are the declared ones."""
        (out,) = op.results
        if not isinstance(value, Ref):
            want = (out.type.shape, jax_dtype(out.type.dtype))
            got = (tuple(np.shape(value)), value.dtype)
            if got != want:
                raise self.kernel.refusal(f"{op.name}: result {got} where the module says {want}", op)
        self.values[out] = value

    # --- execution ---

    def run_block(self, block: Block, arguments: Sequence[Any] = ()) -> list[Any]:
        """Execute a block; what its terminator passes on. Memory allocated in it is given back at its end."""
        self.values.update(zip(block.arguments, arguments, strict=True))
        digests = self.options.digests  # each operation of an unrolled loop has its own
        loops = loops_of(block) if self.options.fast and not digests else {}
        at = 0
        while at < len(block.operations):
            op = block.operations[at]
            if op.name in TERMINATORS:
                self.give_back(block)
                return [self.values[value] for value in op.operands]
            if at in loops:
                self._run_loop(loops[at])
                at += loops[at].length
            else:
                self.execute(op)
                at += 1
        return []

    def execute(self, op: Op) -> None:
        if op in self._bound:
            return
        rule = RULES.get(op.name)
        if rule is None:
            raise self.kernel.refusal(f"operation {op.name}", op, WAYS_OUT.get(op.name, ""))
        unknown = set(op.attributes) - rule.attributes
        if unknown:
            raise self.kernel.refusal(f"attribute {sorted(unknown)} of operation {op.name}", op)
        if promised := promise(op):
            raise self.kernel.refusal(f"{op.name} with the unchecked promise {promised}", op)
        try:
            if self.active is None or self.has_remote(op):
                rule.run(self, op)
            else:
                self._run_masked(rule, op)
        except Unsupported as error:
            raise self.kernel.refusal(str(error), op) from None

    def _run_loop(self, loop: Loop) -> None:
        """Execute an unrolled loop as a loop."""
        first, memory = loop.iterations[0], self.memory
        buffers = list(dict.fromkeys(buffer for op in first for buffer in self.written(op)))
        for value in (value for values in loop.given for value in values):
            if value not in self.values and value.owner is not None:
                self.execute(value.owner)  # a constant
        given = [self._stacked(values) for values in loop.given]
        before = {values[0]: self.values[values[0]] for values in loop.given}

        def iteration(arrays: list[Array], mine: tuple[Array, list[Array]]) -> tuple[list[Array], list[Array]]:
            number, scalars = mine

            def body() -> list[Array]:
                self.values.update(zip(before, scalars, strict=True))
                for op in first:
                    self.execute(op)
                return [self._array(values[0]) for values in loop.left]

            self.loops.append((loop.others, number))
            self._bound |= loop.constants
            try:
                left, arrays = self.within(buffers, arrays, body)
            finally:
                self._bound -= loop.constants
                self.loops.pop()
            return arrays, left

        numbers = jnp.arange(len(loop.iterations), dtype=jnp.int32)
        arrays, left = lax.scan(iteration, self.contents(buffers), (numbers, given))
        memory.update(zip(buffers, arrays, strict=True))
        self.values.update(before)
        for values, of in zip(loop.left, left, strict=True):
            self.values.update((value, of[number]) for number, value in enumerate(values))
        for op in loop.again:
            self.execute(op)

    def _stacked(self, values: Sequence[Value]) -> Array:
        """As one array: a constant where all are."""
        if all(known(self.values[value]) for value in values):
            return np.stack([np.asarray(self.values[value], jax_dtype(value.type.dtype)) for value in values])
        return jnp.stack([self._array(value) for value in values])

    def _array(self, value: Value) -> Array:
        return jnp.asarray(self.values[value], jax_dtype(value.type.dtype))

    def give_back(self, block: Block) -> None:
        """The end of the scope of what was allocated in a block."""
        if block.operations[-1].name == "func.return":
            self.check_units()
        for op in block.operations:
            if op.name == "tpu.sem_alloc":
                self.check_at_rest(op.results[0])
            elif op.name == "memref.alloca":
                buffer = self.ref(op.results[0]).buffer
                whole = ((0,) * len(buffer.shape), buffer.shape)
                self.check_in_flight(op, buffer, whole, "the end of the scope of")

    @functools.cached_property
    def units(self) -> dict[int, Unit]:
        """The matrix units that explicit operations name."""
        return units_of(self.kernel)

    def check_units(self) -> None:
        """Report matrix units in which something is left now, when a step ends."""
        full = [self.memory[one] for unit in self.units.values() for one in unit.must_be_empty]
        if full:
            self.report(
                Kind.UNDEFINED_VECTOR, None, jnp.any(jnp.stack(full) != 0),
                "a matrix unit holds data when a step ends: a kernel may leave none, and none is followed",
            )  # fmt: skip

    def check_at_rest(self, semaphores: Value) -> None:
        """Report semaphores that are not at zero now, when they are given back."""
        left = self.memory[self.ref(semaphores).buffer]
        counting = (op for op in self.kernel.operations() if op.name in ("tpu.enqueue_dma", "tpu.sem_signal"))
        writes = ((op, value) for op in counting for value in RULES[op.name].writes(op))
        op = next((op for op, value in writes if root_of(value) is semaphores), semaphores.owner)
        self.report(
            Kind.DMA_NEVER_WAITED, op, jnp.any(left != 0),
            "a semaphore is not zero when the kernel ends; what is counted on it begins here",
        )  # fmt: skip

    def _run_masked(self, rule: Rule, op: Op) -> None:
        """Run an operation on every device, keeping what it wrote only where the branch is taken.

        Control flow is a branch of its own: nothing inside meets another device.
        """
        if op.name in _CONTROL:
            self._run_taken(rule, op)
            return
        before = dict(self.memory)
        rule.run(self, op)
        noted = LOG, LOGGED, IN_FLIGHT  # with the notes of before, and a note says itself where it is made
        for buffer, array in self.memory.items():
            if buffer in before and array is not before[buffer] and buffer not in noted:
                self.memory[buffer] = jnp.where(self.active, array, before[buffer])

    def _run_taken(self, rule: Rule, op: Op) -> None:
        """Run a conditional or a loop on the devices that take the branch, and on no other."""
        active = self.active

        def taken() -> list[Array]:
            self.active = None
            try:
                rule.run(self, op)
                return [self._array(value) for value in op.results]
            finally:
                self.active = active

        def skipped() -> list[Array]:
            return [jnp.zeros(value.type.shape, jax_dtype(value.type.dtype)) for value in op.results]

        self.choose(active, op, taken, skipped)

    def choose(
        self, condition: Array, op: Op, then: Callable[[], list[Array]], otherwise: Callable[[], list[Array]]
    ) -> None:
        """Bind the results of an operation by one of two bodies. Only what it may write is carried, never an input."""
        buffers = self.written(op)

        def branch(body: Callable[[], list[Array]]) -> Callable[[list[Array]], Any]:
            return lambda arrays: self.within(buffers, arrays, body)

        results, after = lax.cond(condition, branch(then), branch(otherwise), self.contents(buffers))
        self.values.update(zip(op.results, results, strict=True))
        self.memory.update(zip(buffers, after, strict=True))

    def has_remote(self, op: Op) -> bool:
        """Whether anything inside communicates with another device."""
        return self.device is not None and op in self._remote

    @functools.cached_property
    def _remote(self) -> frozenset[Op]:
        """Operations that communicate with another device, and those around them."""
        return frozenset(op for op in self.kernel.operations() if any(map(is_remote, op.walk())))

    def within(
        self, buffers: Sequence[Buffer], arrays: Sequence[Array], body: Callable[[], Any]
    ) -> tuple[Any, list[Array]]:
        """Run ``body`` with other contents in ``buffers``; its result and their contents afterwards."""
        outer = self.memory, self._pending, self._counted, self._copied, self.notes
        self.memory = {**self.memory, **dict(zip(buffers, arrays, strict=True))}
        self._pending, self._counted, self._copied, self.notes = [], [], [], []
        try:
            result = body()
            self.flush()
            return result, [self.memory[buffer] for buffer in buffers]
        finally:
            self.memory, self._pending, self._counted, self._copied, self.notes = outer

    def contents(self, buffers: Sequence[Buffer]) -> list[Array]:
        """What is in some buffers, before control flow in which they may change or be read."""
        self._write_notes()
        return [self.memory[buffer] for buffer in buffers]

    def written(self, *ops: Op) -> list[Buffer]:
        """The buffers from outside that operations, with their regions, may change, in a fixed order."""
        inside = [nested for op in ops for nested in op.walk()]
        inner = {value for nested in inside for value in nested.results}
        buffers: dict[Buffer, None] = {}
        for nested in inside:
            rule = RULES.get(nested.name)
            if rule is None:
                continue
            for value in rule.writes(nested):
                root = root_of(value)
                if root.owner is not None and root.owner.name == "tpu.sem_barrier":
                    buffers[BARRIER] = None
                elif root not in inner:
                    buffers[self.ref(root).buffer] = None
            buffers.update(dict.fromkeys(self._kept_by_core(nested)))
            if nested.name in DMA_OPS:
                buffers.update(dict.fromkeys(self.shadows))
            if rule.checks:
                buffers.update(dict.fromkeys((FLAGS, LOG, LOGGED) if LOG in self.memory else (FLAGS,)))
            logs = [COUNTS] if nested in self.counters else []
            logs += [COPIES, COPIED] if nested in self._starts and COPIES in self.memory else []
            buffers.update(dict.fromkeys(logs))
            if self.options.digests and nested in self.readers:
                buffers[DIGESTS] = None
        return list(buffers)

    def _kept_by_core(self, op: Op) -> Sequence[Buffer]:
        """What an operation may change of what the core itself keeps: bits that it draws, matrix units."""
        if op.name in DRAWS:
            return [DRAWN]
        if op.name not in MATRIX_UNIT:
            return []
        return [buffer for buffer, _ in self.units[integer(op, "mxu_index")].empty()]
