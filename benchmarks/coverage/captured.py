"""Programs of guides and tests: they make their own arrays and mesh and call a kernel at once. They run up to there.

Nothing of theirs is changed but where it runs: the mesh that they make of this process's devices is taken for one of a
TPU slice with the same axes, so that ``jax.shard_map`` gets none of theirs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import jax
import numpy as np
from jax._src import shard_map as shard_maps
from jax.sharding import PartitionSpec

from benchmarks.coverage.calls import Call


class Reached(BaseException):
    """The call that is looked for: no ``Exception``, so that nobody takes it for an error."""

    def __init__(self, function: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
        super().__init__()
        self.function, self.arrays = function, arrays


class _Jitted:
    """In the place of ``jax.jit``: what a program asks of the result first ends it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arrays: Any) -> NoReturn:
        raise Reached(self.function, arrays)

    trace = lower = __call__


_Seen = list[tuple[Mapping[str, int], Any]]
"""The meshes that were mapped over, each with the specs."""


def _captured(run: Callable[[_Seen], object], name: str, **more: Any) -> Call:
    """The first call of a jitted function over a mesh that ``run`` makes.

    ``more`` are other fields of the :class:`Call`, such as its reference.

    Raises:
        ValueError: it makes none, or over more than one mesh.
    """
    seen: _Seen = []
    try:
        with _stopping(seen):
            run(seen)
    except Reached as reached:
        (mesh, specs), *others = seen
        if others:
            raise ValueError("it maps over more than one mesh: which one is meant?") from None
        arrays = tuple(np.asarray(one) for one in reached.arrays)
        listed = (specs,) * len(arrays) if isinstance(specs, PartitionSpec) else specs
        return Call(function=reached.function, arrays=arrays, mesh=mesh, specs=listed, **more)
    raise ValueError(f"{name} calls nothing that is jitted")


@contextmanager
def _stopping(seen: _Seen) -> Iterator[None]:
    real_jit, real_map = jax.jit, jax.shard_map

    def mapped(function: Any = None, *, mesh: Any, in_specs: Any, **options: Any) -> Any:
        if function is None:
            return lambda given: mapped(given, mesh=mesh, in_specs=in_specs, **options)
        seen.append((dict(mesh.shape), in_specs))

        def late(*arrays: Any) -> Any:
            mapped_now = real_map(function, in_specs=in_specs, **options)
            return mapped_now(*arrays)

        return late

    jax.jit, jax.shard_map, shard_maps.shard_map = _Jitted, mapped, mapped
    try:
        yield
    finally:
        jax.jit, jax.shard_map, shard_maps.shard_map = real_jit, real_map, real_map


def of_test(case: type, name: str, **more: Any) -> Call:
    """What the method ``name`` of a class of tests calls; nothing is set up before."""
    return _captured(lambda _: getattr(case(name), name)(), name, **more)


def of_cells(sources: Sequence[str], place: int, instead: Mapping[str, object] | None = None, **more: Any) -> Call:
    """What the cell ``place`` calls, after those before it; ``instead`` are other values of names that they assign.

    Assertions, which ask for a TPU, are left out as under ``python -O``.
    """
    cells, others = sources[: place + 1], instead or {}
    return _captured(lambda seen: run_blocks(cells, others, last=seen.clear), f"cell {place}", **more)


def run_blocks(
    sources: Sequence[str], instead: Mapping[str, object], *, last: Callable[[], object], asserts: bool = False
) -> None:
    """Run blocks in one space, each up to its call, without assertions or with; ``last`` is called before the last.

    ``instead`` are other values of names that they assign.
    """
    space: dict[str, object] = {}
    for source in sources[:-1]:
        with suppress(Reached):
            _run_block(source, space, instead, asserts)
    last()
    _run_block(sources[-1], space, instead, asserts)


def _run_block(source: str, space: dict[str, object], instead: Mapping[str, object], asserts: bool) -> None:
    for statement in ast.parse(source).body:
        exec(compile(ast.Module([statement], []), "<cell>", "exec", optimize=0 if asserts else 1), space)
        space.update({name: value for name, value in instead.items() if name in space})
