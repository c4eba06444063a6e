"""Methods of test classes, run whole: what a TPU would run is exported and executed here, and they judge the results.

Nothing of theirs is changed: ``jax.jit`` and ``pl.kernel`` hand what is called outside of a trace over to us, and JAX's
questions after the device are answered as on the chip.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import jax
import jax.numpy as jnp
from jax._src import core
from jax._src import test_util as jtu
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

import ratchet
from benchmarks.coverage.calls import Call
from benchmarks.coverage.captured import Reached, run_blocks
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.exporting import abstract_mesh, for_tpu
from ratchet.values import Mesh

Run = Callable[[Callable[..., Any], tuple[Any, ...]], Any]


class Found(Exception):
    """A finding of a call."""


def of_method(case: type, name: str, *, chip: str) -> Call:
    """The first call that the method ``name`` makes, judged by the whole method; nothing is set up before.

    Raises:
        ValueError: it calls nothing.
    """

    def program(run: Run) -> None:
        with _on(chip, run):
            getattr(case(name), name)()

    return _judged(program, chip)


def of_blocks(
    sources: Sequence[str], place: int, *, chip: str, number: int = 0, instead: Mapping[str, object] | None = None,
    axis: str = "",
) -> Call:  # fmt: skip
    """The call ``number`` of the block ``place`` of a guide, judged by the block, after what those before it define.

    ``instead`` are other values of names that they assign. With an ``axis`` the guide makes a mesh of chips, and that
    is one chip.
    """
    axes = ((axis, 1),) if axis else ()
    mesh = abstract_mesh(axes, CHIPS[chip].device_kind, CHIPS[chip].cores, "tpu")
    instead = {**(instead or {}), **({"mesh": mesh} if axis else {})}

    def program(run: Run) -> None:
        now: list[Run] = [_stop]
        with _on(chip, lambda function, arrays: now[-1](function, arrays)):  # noqa: PLW0108 - it changes
            run_blocks(sources[: place + 1], instead, last=lambda: now.append(run), asserts=True)

    return _judged(program, chip, number, dict(axes))


def _judged(
    program: Callable[[Run], object], chip: str, number: int = 0, mesh: Mapping[str, int] | None = None
) -> Call:
    before, execute = iter(range(number)), partial(_execute, chip, mesh or {})

    def reach(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
        return _stop(function, arrays) if next(before, None) is None else execute(function, arrays)

    try:
        program(reach)
    except Reached as reached:
        arrays = tuple(jnp.asarray(one) if isinstance(one, int | float) else one for one in reached.arrays)

        specs = (PartitionSpec(),) * len(arrays) if mesh else ()
        return Call(
            function=reached.function, arrays=arrays, chip=chip, mesh=mesh or {}, specs=specs,
            check=partial(program, execute),
        )  # fmt: skip
    raise ValueError("it calls nothing that is jitted")


def _stop(function: Callable[..., Any], arrays: tuple[Any, ...]) -> NoReturn:
    raise Reached(function, arrays)


def _execute(chip: str, mesh: Mapping[str, int], function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    where = {"mesh": mesh, "specs": (PartitionSpec(),) * len(arrays)} if mesh else {}
    program = ratchet.export(function, *arrays, chip=chip, **where)
    with for_tpu(Mesh(axes=tuple(mesh.items())), CHIPS[chip]):
        shapes = jax.eval_shape(function, *arrays)
    result = ratchet.execute(program, *jax.tree.leaves(arrays))
    if result.findings:
        raise Found(str(result.findings[0]))
    return jax.tree.unflatten(jax.tree.structure(shapes), list(map(jnp.asarray, result.outputs)))


@contextlib.contextmanager
def _on(chip: str, run: Run) -> Iterator[None]:
    """While the block runs, ``run`` gets what would run on a TPU, and JAX says that it is on ``chip``."""
    generation = int("".join(filter(str.isdigit, chip)))
    patches: list[Any] = []

    def outermost(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arrays: Any, **named: Any) -> Any:
            if named or not core.trace_state_clean():
                return function(*arrays, **named)
            with _turned(patches, off=True):
                return run(function, arrays)

        return called

    def is_tpu(version: int | None = None, variant: str = "") -> bool:
        return version in (None, generation) and (not variant or chip.endswith(variant))

    instead = (
        (jax, "jit", _jitted(jax.jit, outermost)),
        (jax, "vmap", _vmapped(jax.vmap, outermost)),
        (jax, "device_put", lambda array, *_: array),
        (pl, "kernel", _kernels(pl.kernel, outermost)),
        (jtu, "is_device_tpu", is_tpu),
        (jtu, "is_device_tpu_at_least", lambda version: generation >= version),
        (jtu, "is_cloud_tpu_at_least", lambda *_: True),
    )
    patches += [devices_of(chip), *(mock.patch.object(*one) for one in instead)]
    with for_tpu(chip=CHIPS[chip]), _turned(patches):
        yield


def devices_of(chip: str) -> Any:
    """Within this context JAX says that it has one chip."""
    device = SimpleNamespace(num_cores=CHIPS[chip].cores, device_kind=CHIPS[chip].device_kind, platform="tpu")
    return mock.patch.object(jax, "devices", return_value=[device])


def _jitted(real: Callable[..., Any], outermost: Callable[..., Any]) -> Callable[..., Any]:
    def jit(function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda given: jit(given, **options)
        options.pop("compiler_options", None)
        return outermost(real(function, **options))

    return jit


def _vmapped(real: Callable[..., Any], outermost: Callable[..., Any]) -> Callable[..., Any]:
    return lambda function, *how, **options: outermost(real(function, *how, **options))


def _kernels(real: Callable[..., Any], outermost: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*body: Any, **options: Any) -> Any:
        made = real(*body, **options)
        return outermost(made) if body or "body" in options else lambda given: outermost(made(given))

    return kernel


@contextlib.contextmanager
def _turned(patches: Sequence[Any], *, off: bool = False) -> Iterator[None]:
    """While the block runs, patches are on, or off."""
    for one in patches:
        one.stop() if off else one.start()
    try:
        yield
    finally:
        for one in patches:
            one.start() if off else one.stop()
