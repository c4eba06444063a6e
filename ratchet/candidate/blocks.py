"""Cuts a function into equal blocks along an axis on which its rows have nothing to do with each other.

The float64 reference of attention holds several matrices of sequence times sequence at once. Query rows are independent
of each other, so it is evaluated some rows at a time. Which axes those are is found from the jaxpr: dimensions of
intermediates that have to be cut together form a class, and a class that nothing mixes can be cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from ratchet.candidate.dims import Classes, constrain
from ratchet.candidate.flat import Flat, Step, constant, resized

ELEMENTS = 1 << 22
"""Of the largest intermediate of a block: 32 MiB in float64, and there are a few dozen of them."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A function in blocks: ``block`` is the jaxpr of ``(start, *inputs) -> outputs`` for one of them."""

    block: Any
    count: int
    size: int
    """Of a block, in elements of the axis that is cut."""
    inputs: tuple[int | None, ...]
    """The dimension of each input that is cut; None: every block takes the whole."""
    outputs: tuple[int, ...]

    def run(self, call: Callable[[list[Any]], list[Any]], inputs: Sequence[Any]) -> list[Any]:
        """All blocks, one after another, by ``call``, which evaluates ``block`` and may give each output several times.

        ``call`` returns some multiple of the outputs, in order: values, then their losses.
        """

        def one(number: Any) -> list[Any]:
            start = number * self.size
            cut = [
                x if d is None else lax.dynamic_slice_in_dim(x, start, self.size, d)
                for x, d in zip(inputs, self.inputs, strict=True)
            ]
            return call([start, *cut])

        stacked = lax.map(one, jnp.arange(self.count, dtype=jnp.int32))
        return [self._joined(x, self.outputs[n % len(self.outputs)]) for n, x in enumerate(stacked)]

    def _joined(self, stacked: Any, dimension: int) -> Any:
        apart = jnp.moveaxis(stacked, 0, dimension)
        shape = list(apart.shape)
        shape[dimension : dimension + 2] = [self.count * self.size]
        return apart.reshape(shape)


def blockwise(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> Callable[..., list[Any]] | None:
    """``function`` as it is written, in blocks, as one that returns its outputs as a list; None as ``in_blocks``."""
    blocks = in_blocks(jax.make_jaxpr(function)(*avals))
    if blocks is None:
        return None
    evaluate = core.jaxpr_as_fun(blocks.block)

    def some_at_a_time(*inputs: Any) -> list[Any]:
        return blocks.run(lambda block: list(evaluate(*block)), inputs)

    return some_at_a_time


def in_blocks(closed: Any, elements: int = ELEMENTS) -> Blocks | None:
    """``closed`` in blocks with intermediates of at most ``elements`` each; None if it is small, or cannot be cut."""
    flat = Flat(closed)
    largest = max((math.prod(aval.shape) for aval in flat.avals), default=0)
    if largest <= elements or any(isinstance(out, core.Literal) for out in flat.outputs):
        return None
    classes = Classes()
    for step in flat.steps:
        constrain(step, classes)
    every = [(n, d) for n, aval in enumerate(flat.avals) for d in range(len(aval.shape))]
    options = [
        {n: d for n, d in dims}
        for dims in classes.free(every).values()
        if len({n for n, _ in dims}) == len(dims) and set(flat.outputs) <= {n for n, _ in dims}
    ]
    if not options:
        return None
    cut = min(options, key=lambda option: _most(flat, range(len(flat.avals)), option, 1))
    first = flat.outputs[0]
    whole = flat.avals[first].shape[cut[first]]
    sizes = [whole // count for count in range(1, whole + 1) if whole % count == 0]
    # What is not cut is as large in a block of any size: it does not count.
    size = next((size for size in sizes if _most(flat, cut, cut, size) <= elements), sizes[-1])
    if size == whole:
        return None
    block = _traced(flat, cut, size)
    return Blocks(
        block=block,
        count=whole // size,
        size=size,
        inputs=tuple(cut.get(n) for n in flat.inputs),
        outputs=tuple(cut[n] for n in flat.outputs),
    )


def _shape(aval: Any, dimension: int | None, size: int) -> tuple[int, ...]:
    return tuple(size if d == dimension else extent for d, extent in enumerate(aval.shape))


def _most(flat: Flat, values: Iterable[int], cut: dict[int, int], size: int) -> int:
    """Elements of the largest of ``values`` in a block."""
    return max(math.prod(_shape(flat.avals[n], cut.get(n), size)) for n in values)


def _traced(flat: Flat, cut: dict[int, int], size: int) -> Any:
    """The jaxpr of one block."""

    def block(start: Any, *inputs: Any) -> list[Any]:
        known: dict[int, Any] = dict(zip(flat.inputs, inputs, strict=True))
        for n, const in flat.consts:
            known[n] = lax.dynamic_slice_in_dim(const, start, size, cut[n]) if n in cut else const
        for step in flat.steps:
            args = [constant(x) if isinstance(x, core.Literal) else known[x] for x in step.ins]
            outs = _bind(step, cut.get(step.outs[0]), size, start, args)
            known.update(zip(step.outs, outs, strict=True))
        return [known[n] for n in flat.outputs]

    avals = [jax.ShapeDtypeStruct(_shape(flat.avals[n], cut.get(n), size), flat.avals[n].dtype) for n in flat.inputs]
    with jax.enable_x64(False):
        return jax.make_jaxpr(block)(jax.ShapeDtypeStruct((), jnp.int32), *avals)


def _bind(step: Step, dimension: int | None, size: int, start: Any, args: list[Any]) -> list[Any]:
    """One equation for a block: its own, with the sizes of the block where it names some."""
    equation, params = step.equation, resized(step.equation, dimension, size)
    name = equation.primitive.name
    outs = equation.primitive.bind(*args, **params)
    if name == "iota" and dimension == params["dimension"]:
        outs = outs + start.astype(outs.dtype)
    return list(outs) if equation.primitive.multiple_results else [outs]
