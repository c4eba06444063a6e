"""Chips that fall behind: at a wait, each goes on if what it waits for is there, and the others come after it.

Chips are executed in step, so what one sends at some place is there when the others reach it. Where a chip sends only
after its own wait, as along a chain, the others reach that wait too early. Here everything from a wait to the end of
its block is a round of its own: the chips that have what they wait for execute it under a mask, and what they send lets
others go on in the next round. If nobody can, the rest goes on, and the wait is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mosaic.arrays import Array, jax_dtype
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.ops.dma import awaited
from ratchet.tpu.mosaic.report import OTHERWISE, THEN
from ratchet.tpu.mosaic.rules import TERMINATORS, WAITS

_PASSED_THROUGH = ("tpu.region", "tpu.trace")

Guards = tuple[tuple[Value, bool], ...]
"""Conditions under which something happens, and which way each has to be."""


@dataclass(frozen=True, kw_only=True)
class _Step:
    """An operation, or what is done around the operations of a conditional."""

    op: Op
    guards: Guards
    run: Callable[[Executor], None] | None = None
    """None for the operation itself."""


def _waits(op: Op) -> bool:
    return any(one.name in WAITS for one in op.walk())


def _steps(block: Block, guards: Guards) -> Iterator[_Step]:
    """The operations of a block, with those of conditionals that wait in their place."""
    for op in block.operations:
        if op.name in TERMINATORS:
            yield _Step(op=op, guards=guards, run=lambda executor: executor.give_back(block))
        elif op.name == "scf.if" and _waits(op):
            for which, holds in ((THEN, True), (OTHERWISE, False)):
                inside = (*guards, (op.operands[0], holds))
                yield _Step(op=op, guards=inside, run=_counting(op, which))
                yield from _steps(op.regions[which], inside)
            yield _Step(op=op, guards=(), run=_merging(op))
        elif op.name in _PASSED_THROUGH and _waits(op):
            yield from _steps(op.regions[0], guards)
            yield _Step(op=op, guards=(), run=_binding(op))
        else:
            yield _Step(op=op, guards=guards)


def _counting(op: Op, which: int) -> Callable[[Executor], None]:
    return lambda executor: executor.count(op, which)


def _left(block: Block) -> tuple[Value, ...]:
    """What a block passes on."""
    return block.operations[-1].operands if block.operations else ()


def _binding(op: Op) -> Callable[[Executor], None]:
    def bind(executor: Executor) -> None:
        executor.values.update(
            (to, executor[value]) for to, value in zip(op.results, _left(op.regions[0]), strict=True)
        )

    return bind


def _merging(op: Op) -> Callable[[Executor], None]:
    def merge(executor: Executor) -> None:
        condition = executor[op.operands[0]]
        sides = [_left(op.regions[which]) for which in (THEN, OTHERWISE)] if op.results else []
        for result, *values in zip(op.results, *sides, strict=True):
            if isinstance(condition, np.generic):
                executor.values[result] = executor[values[not condition]]
            else:
                executor.values[result] = jnp.where(condition, *(executor[value] for value in values))

    return merge


class Apart(Executor):
    """An executor whose chips fall behind where they wait for each other."""

    def run_block(self, block: Block, arguments: Sequence[Any] = ()) -> list[Any]:
        if self.device is None or not any(map(_waits, block.operations)):
            return super().run_block(block, arguments)
        self.values.update(zip(block.arguments, arguments, strict=True))
        return self._from(list(_steps(block, ())), 0, _left(block))

    def _from(self, steps: Sequence[_Step], at: int, wanted: Sequence[Value], *, ready: bool = False) -> list[Any]:
        """The steps from ``at`` on, of which the first is not waited for again if it is ``ready``."""
        outer = self.active
        for number in range(at, len(steps)):
            step = steps[number]
            if step.op.name in WAITS and step.run is None and not (ready and number == at):
                return self._rounds(steps, number, wanted)
            mask = self._mask(outer, step.guards)
            if isinstance(mask, np.generic):
                continue  # a branch that nobody takes
            self.active = mask
            try:
                step.run(self) if step.run else self.execute(step.op)
            finally:
                self.active = outer
        return [self.values[value] for value in wanted]

    def _mask(self, outer: Any, guards: Guards) -> Any:
        """Who executes what is under ``guards``: None for all, False for nobody."""
        mask = outer
        for value, holds in guards:
            taken = self.values[value]
            if not isinstance(taken, np.generic):
                taken = taken if holds else ~taken
                mask = taken if mask is None else mask & taken
            elif bool(taken) != holds:
                return np.False_
        return mask

    def _rounds(self, steps: Sequence[_Step], at: int, wanted: Sequence[Value]) -> list[Any]:
        """The steps from a wait on, in as many rounds as it takes until every chip has executed them."""
        outer, step = self.active, steps[at]
        buffers = self.written(*dict.fromkeys(one.op for one in steps[at:]))
        nothing = [jnp.zeros(value.type.shape, jax_dtype(value.type.dtype)) for value in wanted]

        def round_(state: Any) -> Any:
            behind, arrays, results, _ = state

            def execute() -> tuple[Array, list[Any]]:
                waiting = self._mask(behind, step.guards)
                ready = behind & ~self._lacking(step.op, waiting)
                ready = jnp.where(self._anyone(ready), ready, behind)
                self.active = ready
                try:
                    return ready, [jnp.asarray(one) for one in self._from(steps, at, wanted, ready=True)]
                finally:
                    self.active = outer

            (ready, out), arrays = self.within(buffers, arrays, execute)
            results = [jnp.where(ready, new, old) for new, old in zip(out, results, strict=True)]
            behind &= ~ready
            return behind, arrays, results, self._anyone(behind)

        everyone = jnp.asarray(True if outer is None else outer)
        start = (everyone, self.contents(buffers), nothing, self._anyone(everyone))
        _, arrays, results, _ = lax.while_loop(lambda state: state[3], round_, start)
        self.memory.update(zip(buffers, arrays, strict=True))
        return list(results)

    def _lacking(self, op: Op, waiting: Any) -> Array:
        """Whether this chip is ``waiting``, and what it waits for is not there."""
        if isinstance(waiting, np.generic):
            return jnp.asarray(False)
        semaphore, amount = awaited(self, op)
        return waiting & (semaphore.load_all(self.memory).reshape(()) < amount)

    def _anyone(self, mine: Array) -> Array:
        return lax.psum(mine.astype(jnp.int32), self.axes) > 0
