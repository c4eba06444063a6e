"""Finds an axis along which a function only sums, so that it can be evaluated some columns at a time.

A row of attention's scores is long: what is made of it in float64 leaves the processor's cache at every step, and half
of it may be masked. Where all that mixes an axis are sums, extremes and products, these are added up tile after tile.
What needs one of them waits for the next *stage*, which goes over all tiles again: a softmax has three. Products and
exponentials that a later stage needs are kept, all else is cheaper to compute again. Which tiles are
masked as a whole is computed with the rest (``tiled.py``); here is found in which stages they can be left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend import core

from ratchet.exam.problem.jaxprs import DimensionClasses, FlatJaxpr, Step, constrain, summed
from ratchet.exam.problem.rounding.elementwise import ELEMENTWISE, SMOOTH

_KEPT = SMOOTH | {"dot_general", "exp", "exp2"}
"""Operations whose results are kept for later stages: to make them again costs more."""
ELEMENTS = 1 << 22
"""Of the largest intermediate of a function that is evaluated in tiles: 32 MiB in float64."""
TILE = 1 << 18
"""Elements of the largest intermediate of a tile: 2 MiB in float64."""
FEWEST = 64
"""Columns of a tile: with fewer a product is slow."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is done in one go over all tiles. Steps are named by their place, values by their number."""

    steps: tuple[int, ...]
    sums: tuple[int, ...]
    loads: tuple[int, ...]
    """Values that an earlier stage kept."""
    keeps: tuple[int, ...]
    masked: tuple[int, ...]
    """Steps that take the place of ``steps`` in a tile that is masked, where nothing is kept."""
    skips: bool = False
    """Whether a tile that is masked can be left out."""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """A function in tiles along one axis."""

    flat: FlatJaxpr
    dims: dict[int, int]
    """The dimension of each value that lies along the axis."""
    size: int
    tile: int
    plain: tuple[tuple[int, ...], ...]
    """Steps before each stage, and those after the last, that have nothing along the axis."""
    stages: tuple[Stage, ...]
    masks: dict[int, int]
    """Selections by a mask, and the case that is the same in all columns."""
    masking: tuple[int, ...]
    """Steps that the masks are made of."""
    uniform: frozenset[int]
    """Values that are the same in all columns where the masks are."""
    costly: frozenset[int]
    """Values made of a product."""

    @property
    def count(self) -> int:
        return self.size // self.tile


def in_tiles(closed: Any, elements: int = ELEMENTS, tile: int = TILE) -> Tiles | None:
    """``closed`` in tiles; None if it is small, or there is no such axis that no output has."""
    flat = FlatJaxpr(closed)
    sizes = [math.prod(aval.shape) for aval in flat.avals]
    if max(sizes, default=0) < elements or any(isinstance(out, core.Literal) for out in flat.outputs):
        return None
    largest, classes = sizes.index(max(sizes)), DimensionClasses()
    for step in flat.steps:
        constrain(step, classes, summing=True)
    every = [(n, d) for n, aval in enumerate(flat.avals) for d in range(len(aval.shape))]
    options = [
        dims
        for found in classes.free(every).values()
        if len(dims := dict(found)) == len(found) and largest in dims
        if not dims.keys() & set(flat.outputs)
    ]
    options = [dims for dims in options if any(_sums(step, dims) for step in flat.steps)]
    if not options:
        return None
    # What is summed is added to in every tile: the less of that, the better.
    dims = min(options, key=lambda dims: sum(sizes[s.outs[0]] for s in flat.steps if _sums(s, dims)))
    size = flat.avals[largest].shape[dims[largest]]
    most = max(tile * size // sizes[largest], FEWEST)
    width = max(n for n in range(1, most + 1) if size % n == 0)
    return _planned(flat, dims, size, width) if FEWEST <= width < size else None


def _sums(step: Step, dims: dict[int, int]) -> bool:
    """Whether a step takes the columns together."""
    return bool(_along(step, dims)) and step.outs[0] not in dims


def _along(step: Step, dims: dict[int, int]) -> list[int]:
    """The operands of a step that lie along the axis."""
    return [x for x in step.ins if not isinstance(x, core.Literal) and x in dims]


def across(step: Step, dims: dict[int, int]) -> list[tuple[int, ...]]:
    """As ``summed``, of a step that takes the columns together: the dimensions that are the axis, one per operand."""
    pairs = [pair for pair in summed(step.equation) if dims.get(step.ins[pair[0][0]]) == pair[0][1]]
    found = [tuple(d for _, d in pair) for pair in pairs]
    assert found, "a dimension of the axis that is neither in the result nor summed"
    return found


class _Plan:
    """Levels, and what depends on what."""

    def __init__(self, flat: FlatJaxpr, dims: dict[int, int]) -> None:
        self.flat, self.dims = flat, dims
        self.maker = {out: place for place, step in enumerate(flat.steps) for out in step.outs}
        self.level = dict.fromkeys(range(len(flat.avals)), 0)
        costly: set[int] = set()
        for step in flat.steps:
            ins = [x for x in step.ins if not isinstance(x, core.Literal)]
            level = max((self.level[x] for x in ins), default=0) + _sums(step, dims)
            self.level.update(dict.fromkeys(step.outs, level))
            if step.outs[0] in dims and (step.equation.primitive.name == "dot_general" or costly.intersection(ins)):
                costly.update(step.outs)
        self.costly = frozenset(costly)

    def closure(self, roots: Iterable[int], at: Sequence[int] = ()) -> list[int]:
        """The steps along the axis that make these values; those in ``at`` are there already."""
        found, todo = set(), list(roots)
        while todo:
            place = self.maker.get(number := todo.pop())
            if place is not None and number not in at and place not in found:
                found.add(place)
                todo += _along(self.flat.steps[place], self.dims)
        return sorted(found)


def _planned(flat: FlatJaxpr, dims: dict[int, int], size: int, tile: int) -> Tiles:
    plan, steps = _Plan(flat, dims), flat.steps
    last = max(plan.level.values())
    alive = _alive(flat)
    stages, made, kept = [], dict[int, int](), set[int]()
    for level in range(last + 1):
        sums = [n for n, s in enumerate(steps) if n in alive and _sums(s, dims) and plan.level[s.outs[0]] == level + 1]
        roots = [x for n in sums for x in _along(steps[n], dims)]
        places = plan.closure(roots, tuple(made))
        loads = sorted({x for x in [*roots, *(x for n in places for x in _along(steps[n], dims))] if x in made})
        kept.update(loads)
        for n in places:
            if steps[n].equation.primitive.name in _KEPT:
                made[steps[n].outs[0]] = level
        stages.append(
            Stage(
                steps=tuple(places),
                sums=tuple(sums),
                loads=tuple(loads),
                keeps=(),
                masked=tuple(plan.closure(roots)),
            )
        )
    stages = [
        replace(stage, keeps=tuple(sorted(n for n in kept if made[n] == level))) for level, stage in enumerate(stages)
    ]
    plain = [
        tuple(n for n, s in enumerate(steps) if n in alive and _is_plain(s, dims) and plan.level[s.outs[0]] == level)
        for level in range(last + 1)
    ]
    masks, uniform = _masked(plan)
    masking = plan.closure(steps[n].ins[0] for n in masks)
    return Tiles(
        flat=flat,
        dims=dims,
        size=size,
        tile=tile,
        plain=tuple(plain),
        stages=tuple(_skipping(plan, stages, masks, uniform)),
        masks=masks,
        masking=tuple(masking),
        uniform=uniform,
        costly=plan.costly,
    )


def _is_plain(step: Step, dims: dict[int, int]) -> bool:
    return step.outs[0] not in dims and not _along(step, dims)


def _alive(flat: FlatJaxpr) -> set[int]:
    """The steps that the outputs are made of."""
    wanted, found = set(flat.outputs), set()
    for place in reversed(range(len(flat.steps))):
        step = flat.steps[place]
        if wanted.intersection(step.outs):
            found.add(place)
            wanted.update(x for x in step.ins if not isinstance(x, core.Literal))
    return found


def _masked(plan: _Plan) -> tuple[dict[int, int], frozenset[int]]:
    """The masks, and what is the same in all columns of a tile in which each of them picks what is.

    A mask has two cases, of which one is, and follows from integers, inputs and what has no columns.
    """
    masks, uniform, dims = dict[int, int](), set[int](), plan.dims
    for place, step in enumerate(plan.flat.steps):
        if step.outs[0] not in dims:
            continue
        name, along = step.equation.primitive.name, _along(step, dims)
        same = [x not in along or x in uniform for x in step.ins]
        if name == "select_n" and step.ins[0] in along and not same[0]:
            if len(step.ins) == 3 and same[1] != same[2] and _is_mask(plan, step.ins[0]):
                masks[place] = same.index(True) - 1
                uniform.update(step.outs)
        elif not along:
            if name != "iota" or step.equation.params["dimension"] != dims[step.outs[0]]:
                uniform.update(step.outs)
        elif name in ELEMENTWISE and all(same):
            uniform.update(step.outs)
    return masks, frozenset(uniform)


def _is_mask(plan: _Plan, number: int) -> bool:
    return plan.level[number] == 0 and number not in plan.costly


def _skipping(plan: _Plan, stages: list[Stage], masks: dict[int, int], uniform: frozenset[int]) -> Iterable[Stage]:
    """The stages, the last first, with whether each can leave out tiles: what it keeps is then missing there."""
    needed, found = set[int](), list[Stage]()
    is_cheap = functools.partial(_is_cheap, plan, uniform)
    for stage in reversed(stages):
        skips = bool(masks and stage.sums) and not needed.intersection(stage.keeps) and all(map(is_cheap, stage.sums))
        if not skips:
            needed.update(stage.loads)
        found.insert(0, replace(stage, skips=skips))
    return found


def _is_cheap(plan: _Plan, uniform: frozenset[int], place: int) -> bool:
    """Whether what a sum adds up in a masked tile needs no product: one column times their number."""
    along = _along(plan.flat.steps[place], plan.dims)
    return any(x in uniform for x in along) and all(x in uniform or x not in plan.costly for x in along)
