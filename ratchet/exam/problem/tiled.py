"""Evaluates a function in tiles: see ``tiles.py``.

A tile in which every mask picks the case that is the same in all columns is not computed. What is summed there is one
column times their number, and what such a column is multiplied with is summed first: that is the same sum in another
order, whatever the fill is, and where the other operand is infinite or not a number, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from ratchet.exam.problem.jaxprs import Step, constant, resized
from ratchet.exam.problem.rounding.equation import PARTS, node_of
from ratchet.exam.problem.rounding.value import Parts, Value, exact
from ratchet.exam.problem.tiles import Stage, Tiles, across

Apply = Callable[[Any, list[Value]], list[Value]]
Here = dict[int, Value]
_ARRAYS = ("v", "s", "variance", "early", "sure")


def run(tiles: Tiles, apply: Apply, args: Sequence[Value]) -> list[Value]:
    """The outputs of the function at ``args``; ``apply`` gives the results of one equation."""
    now = _Run(tiles, apply, args)
    for stage, plain in zip(tiles.stages, tiles.plain, strict=True):
        for place in plain:
            now.step(place, now.known)
        if stage.sums:
            now.stage(stage)
    return [now.known[n] for n in tiles.flat.outputs]


def _arrays(value: Value) -> dict[str, Any]:
    """The arrays of a value that there are."""
    return {name: array for name in _ARRAYS if not isinstance(array := getattr(value, name), bool | None)}


def _mapped(value: Value, function: Callable[[Any], Any]) -> Value:
    return replace(value, along=None, key=None, **{name: function(array) for name, array in _arrays(value).items()})


class _Run:
    """One evaluation."""

    def __init__(self, tiles: Tiles, apply: Apply, args: Sequence[Value]) -> None:
        self.tiles, self.apply = tiles, apply
        self.known: Here = dict(zip(tiles.flat.inputs, args, strict=True))
        self.known |= {n: exact(const) for n, const in tiles.flat.consts}
        self.kept: dict[int, dict[str, Any]] = {}
        """Of the values that a stage keeps, the arrays of all tiles, one after another."""
        self.traced: Here = {}
        """Values of a tile as they were traced last: of use is only what is known of them before they are computed."""

    def read(self, x: Any, here: Here) -> Value:
        if isinstance(x, core.Literal):
            return exact(constant(x), spread=True)
        return here[x] if x in here else self.known[x]

    def step(self, place: int, here: Here, width: int = 0, start: Any = 0) -> None:
        """One equation; along the axis of a tile ``width`` columns of it, from ``start``."""
        step = self.tiles.flat.steps[place]
        equation, dim = step.equation, self.tiles.dims.get(step.outs[0])
        inputs = [self.read(x, here) for x in step.ins]
        if dim is not None:
            equation = equation.replace(params=resized(equation, dim, width))
        outs = self.apply(equation, inputs)
        if equation.primitive.name == "iota" and dim == equation.params["dimension"]:
            outs = [replace(out, v=out.v + jnp.asarray(start, out.v.dtype)) for out in outs]
        here.update(zip(step.outs, outs, strict=True))

    # --- one stage ---

    def stage(self, stage: Stage) -> None:
        """Go over all tiles, and finish what is summed."""
        tiles, parts = self.tiles, list[Parts]()

        def full(number: Any) -> Any:
            here = self.tile(number, stage.loads)
            for place in stage.steps:
                self.step(place, here, tiles.tile, number * tiles.tile)
            here |= {n: replace(here[n], variance=None) for n in stage.keeps}  # ``s`` takes half the memory
            self.traced |= here
            parts[:] = [self.parts(tiles.flat.steps[place], here) for place in stage.sums]
            return [one.arrays for one in parts], {n: _arrays(here[n]) for n in stage.keeps}

        def skipped(number: Any) -> Any:
            here = self.tile(number, ())
            for place in stage.masked:
                self.masked_step(place, here, number)
            return [self.parts(tiles.flat.steps[place], here).arrays for place in stage.sums]

        skips = stage.skips and self.masks_are_certain()
        order, end = self.order if skips else (jnp.arange(tiles.count, dtype=jnp.int32), jnp.int32(tiles.count))
        shapes, of_a_tile = jax.eval_shape(full, jnp.int32(0))
        first = [[_first(one.join, a) for a in arrays] for one, arrays in zip(parts, shapes, strict=True)]
        nothing = jax.tree.map(lambda a: jnp.zeros((tiles.count, *a.shape), a.dtype), of_a_tile)

        def joined(before: Any, sums: Any) -> Any:
            return [list(map(one.join, *pair)) for one, *pair in zip(parts, before, sums, strict=True)]

        def computed(place: Any, carry: Any) -> Any:
            (before, kept), number = carry, order[place]
            sums, new = full(number)
            put = functools.partial(lax.dynamic_update_index_in_dim, index=number, axis=0)
            return joined(before, sums), jax.tree.map(put, kept, new)

        sums, kept = lax.fori_loop(0, end, computed, (first, nothing))
        if skips:  # they keep nothing
            sums = lax.fori_loop(end, tiles.count, lambda place, before: joined(before, skipped(order[place])), sums)
        self.kept |= kept
        for place, one, arrays in zip(stage.sums, parts, sums, strict=True):
            self.known[tiles.flat.steps[place].outs[0]] = replace(one.finish(arrays), sure=None, along=None, key=None)

    def tile(self, number: Any, loads: Sequence[int]) -> Here:
        """Inputs and constants of a tile, and what was kept of it."""
        width = self.tiles.tile
        here = {}
        for n, x in self.known.items():
            if n in self.tiles.dims:
                cut = functools.partial(lax.dynamic_slice_in_dim, slice_size=width, axis=self.tiles.dims[n])
                here[n] = _mapped(x, functools.partial(cut, start_index=number * width))
        for n in loads:
            one = {k: lax.dynamic_index_in_dim(a, number, 0, keepdims=False) for k, a in self.kept[n].items()}
            here[n] = replace(self.traced[n], along=None, key=None, **one)
        return here

    def parts(self, step: Step, here: Here) -> Parts:
        """What a sum is made of in a tile; of operands that have one column, which stands for all."""
        inputs, node = [self.read(x, here) for x in step.ins], node_of(step.equation)
        (ends,) = across(step, self.tiles.dims)
        node, width = replace(node, parts=self.tiles.size // inputs[0].v.shape[ends[0]]), self.tiles.tile
        if any(x.v.shape[d] == 1 for x, d in zip(inputs, ends, strict=True)):
            if len(ends) > 1:
                node = replace(node, paired=lambda *pair: _paired(pair, ends, width))
            elif node.name == "reduce_sum":
                node = replace(node, bind=_times(width, node.bind))
        return PARTS[node.name](node, inputs)

    # --- tiles that are masked ---

    def masks_are_certain(self) -> bool:
        """Whether the masks are: a comparison of what was computed may be off."""
        certain: list[bool] = []
        jax.eval_shape(lambda number: certain.extend(x.s is None for x, _ in self.masks(number)), jnp.int32(0))
        return all(certain)

    def masks(self, number: Any) -> list[tuple[Value, int]]:
        """The masks of a tile, and what they say where there is nothing to compute."""
        here = self.tile(number, ())
        for place in self.tiles.masking:
            self.step(place, here, self.tiles.tile, number * self.tiles.tile)
        return [(self.read(self.tiles.flat.steps[n].ins[0], here), case) for n, case in self.tiles.masks.items()]

    @functools.cached_property
    def order(self) -> tuple[Any, Any]:
        """The numbers of the tiles, int32, and how many have something to compute: the others come last.

        In those every mask is one throughout.
        """

        def one(number: Any) -> Any:
            return jnp.all(jnp.stack([jnp.all(x.v == case) for x, case in self.masks(number)]))

        masked = lax.map(one, jnp.arange(self.tiles.count, dtype=jnp.int32))
        return jnp.argsort(masked, stable=True).astype(jnp.int32), jnp.sum(~masked, dtype=jnp.int32)

    def masked_step(self, place: int, here: Here, number: Any) -> None:
        """As ``step``, where all is masked: one column of what is the same in all, and no product."""
        tiles, step = self.tiles, self.tiles.flat.steps[place]
        if step.outs[0] in tiles.uniform:
            inner = self.picked(step, tiles.masks[place], here) if place in tiles.masks else dict(here)
            self.step(place, inner, 1)
        elif step.outs[0] not in tiles.costly:
            widened = {x: self.widened(x, here[x]) for x in step.ins if not isinstance(x, core.Literal) and x in here}
            self.step(place, inner := here | widened, tiles.tile, number * tiles.tile)
        else:
            return
        here.update({n: inner[n] for n in step.outs})

    def widened(self, number: int, value: Value) -> Value:
        """One column repeated, beside others that are not."""
        if number not in self.tiles.dims:
            return value
        shape = list(self.tiles.flat.avals[number].shape)
        shape[self.tiles.dims[number]] = self.tiles.tile
        return _mapped(value, lambda a: jnp.broadcast_to(a, tuple(shape)))

    def picked(self, step: Step, case: int, here: Here) -> Here:
        """One column of the mask of a selection, and nothing in place of the cases that it does not pick."""
        mask, *cases = step.ins
        dim = self.tiles.dims[step.outs[0]]

        def nothing(array: Any) -> Any:
            return jnp.zeros((*array.shape[:dim], 1, *array.shape[dim + 1 :]), array.dtype)

        left = [x for n, x in enumerate(cases) if n != case]
        column = _mapped(self.read(mask, here), lambda a: lax.slice_in_dim(a, 0, 1, axis=dim))
        return here | {mask: column} | {x: _mapped(self.traced[x], nothing) for x in left}


def _times(count: int, bind: Callable[..., Any]) -> Callable[..., Any]:
    """A sum of one column that stands for so many."""
    return lambda x: count * bind(x)


def _first(join: Callable[[Any, Any], Any], array: Any) -> Any:
    """What changes nothing when it is joined with an array of this shape and dtype."""
    if join is jnp.add:
        return jnp.zeros(array.shape, array.dtype)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    low, high = (-jnp.inf, jnp.inf) if is_float else ((of := jnp.iinfo(array.dtype)).min, of.max)
    return jnp.full(array.shape, low if join is jnp.maximum else high, array.dtype)


def _paired(pair: Sequence[Any], ends: Sequence[int], width: int) -> tuple[Any, ...]:
    """Both operands of a product with one column, where one of them has one that stands for ``width``."""
    summed = [x if x.shape[d] == 1 else jnp.sum(x, axis=d, keepdims=True) for x, d in zip(pair, ends, strict=True)]
    if all(x.shape[d] == 1 for x, d in zip(pair, ends, strict=True)):
        summed[0] = width * summed[0]
    return tuple(summed)
