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

from ratchet.exam.problem.jaxprs import DimensionClasses, FlatJaxpr, Step, constant, constrain, resized

ELEMENTS = 1 << 22
"""Of the largest intermediate of a block: 32 MiB in float64, and there are a few dozen of them."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A function in blocks: ``block`` is the jaxpr of ``(rows, *inputs) -> outputs`` for one of them.

    ``rows``, int32[size], are the numbers of its rows in the whole; the inputs are cut to them.
    """

    block: Any
    count: int
    size: int
    """Of a block, in elements of the axis that is cut."""
    inputs: tuple[int | None, ...]
    """The dimension of each input that is cut; None: every block takes the whole."""
    outputs: tuple[int, ...]

    @property
    def length(self) -> int:
        """Of the axis that is cut: all rows."""
        return self.count * self.size

    def run(self, call: Callable[[list[Any]], list[Any]], count: Any, rows: Any, inputs: Sequence[Any]) -> list[Any]:
        """``count`` blocks of the rows of these numbers, int32 of the length of the axis, one after another.

        ``call`` evaluates ``block`` and returns some multiple of the outputs, in order: values, then their losses. What
        is returned has the shape of all rows; what is beyond ``count`` blocks is zero.
        """

        def one(number: Any) -> list[Any]:
            here = lax.dynamic_slice_in_dim(rows, number * self.size, self.size)
            return call([here, *(_taken(x, here, d) for x, d in zip(inputs, self.inputs, strict=True))])

        def put(number: Any, before: list[Any]) -> list[Any]:
            pairs = zip(before, one(number), strict=True)
            return [
                lax.dynamic_update_slice_in_dim(whole, new, number * self.size, self.outputs[n % len(self.outputs)])
                for n, (whole, new) in enumerate(pairs)
            ]

        parts = jax.eval_shape(one, jnp.int32(0))
        shapes = [_shape(x, self.outputs[n % len(self.outputs)], self.length) for n, x in enumerate(parts)]
        nothing = [jnp.zeros(shape, x.dtype) for shape, x in zip(shapes, parts, strict=True)]
        return lax.fori_loop(0, count, put, nothing)


def blockwise(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> Callable[..., list[Any]] | None:
    """``function`` as it is written, in blocks, as one that returns its outputs as a list; None as ``in_blocks``."""
    blocks = in_blocks(jax.make_jaxpr(function)(*avals))
    if blocks is None:
        return None
    evaluate = core.jaxpr_as_fun(blocks.block)

    def some_at_a_time(*inputs: Any) -> list[Any]:
        every = jnp.arange(blocks.length, dtype=jnp.int32)
        return blocks.run(lambda block: list(evaluate(*block)), blocks.count, every, inputs)

    return some_at_a_time


def in_blocks(closed: Any, elements: int = ELEMENTS) -> Blocks | None:
    """``closed`` in blocks with intermediates of at most ``elements`` each; None if it is small, or cannot be cut."""
    flat = FlatJaxpr(closed)
    largest = max((math.prod(aval.shape) for aval in flat.avals), default=0)
    if largest <= elements or any(isinstance(out, core.Literal) for out in flat.outputs):
        return None
    classes = DimensionClasses()
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


def _most(flat: FlatJaxpr, values: Iterable[int], cut: dict[int, int], size: int) -> int:
    """Elements of the largest of ``values`` in a block."""
    return max(math.prod(_shape(flat.avals[n], cut.get(n), size)) for n in values)


def _traced(flat: FlatJaxpr, cut: dict[int, int], size: int) -> Any:
    """The jaxpr of one block."""

    def block(rows: Any, *inputs: Any) -> list[Any]:
        known: dict[int, Any] = dict(zip(flat.inputs, inputs, strict=True))
        known |= {n: _taken(const, rows, cut.get(n)) for n, const in flat.consts}
        for step in flat.steps:
            args = [constant(x) if isinstance(x, core.Literal) else known[x] for x in step.ins]
            outs = _bind(step, cut.get(step.outs[0]), rows, args)
            known.update(zip(step.outs, outs, strict=True))
        return [known[n] for n in flat.outputs]

    avals = [jax.ShapeDtypeStruct(_shape(flat.avals[n], cut.get(n), size), flat.avals[n].dtype) for n in flat.inputs]
    with jax.enable_x64(False):
        return jax.make_jaxpr(block)(jax.ShapeDtypeStruct((size,), jnp.int32), *avals)


def _taken(array: Any, rows: Any, dimension: int | None) -> Any:
    """The rows of these numbers; all where nothing is cut."""
    return array if dimension is None else jnp.take(array, rows, axis=dimension, mode="clip")


def _bind(step: Step, dimension: int | None, rows: Any, args: list[Any]) -> list[Any]:
    """One equation for a block: its own, with the sizes of the block where it names some, and the rows' numbers."""
    equation, params = step.equation, resized(step.equation, dimension, rows.size)
    if equation.primitive.name == "iota" and dimension is not None and dimension == params["dimension"]:
        return [lax.broadcast_in_dim(rows.astype(params["dtype"]), params["shape"], (dimension,))]
    outs = equation.primitive.bind(*args, **params)
    return list(outs) if equation.primitive.multiple_results else [outs]
