"""Random kernels that move blocks: each copy of the value executor against each of the schedule machine.

Blocks come and go by the pipeline, over grids of one to three dimensions, by index maps of coordinates and of a
prefetched table; by a pipeline inside of the kernel; or by copies of the kernel's own, by slot and semaphore, or from
an operand in VMEM to rows that a table in SMEM names. Operands are parameters or what XLA computes, of three dtypes, in
HBM or where XLA likes; a result may share the memory of an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.fuzz.rounds import Round
from benchmarks.lib.programs import compiled, of_function, struct
from ratchet.exam.judge import control, copies
from ratchet.exam.judge.workers import Workers
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import NO_TOKENS

AREA = "copies"
DTYPES = ("float32", "bfloat16", "int32")
COLUMNS = 128


class Case(NamedTuple):
    """A function and its inputs; ``what`` names the choices."""

    function: Callable[..., Any]
    inputs: list[np.ndarray]
    what: str


def _array(draw: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.asarray(jnp.asarray(draw.integers(-50, 50, shape), dtype))


def _computed(draw: np.random.Generator) -> Callable[[jax.Array], jax.Array]:
    """Nothing, or what XLA computes before the kernel."""
    return (lambda x: x, lambda x: x + x)[int(draw.integers(2))]


def by_windows(draw: np.random.Generator) -> Case:
    """Blocks that the pipeline moves."""
    dimensions = int(draw.integers(1, 4))
    grid = tuple(int(n) for n in draw.integers(2, (1200, 32, 11)[dimensions - 1], dimensions))
    steps, dtype = int(np.prod(grid)), str(draw.choice(DTYPES))
    rows, many, wide = 16 * int(draw.integers(1, 3)), int(draw.integers(1, 65)), int(draw.integers(1, 4))
    ragged, buffers, is_shared = int(draw.integers(0, 2)) * 8, int(draw.integers(1, 3)), bool(draw.integers(2))
    before, scale = _computed(draw), int(draw.integers(1, 5))

    def number(*at: Any) -> Any:
        total = at[0]
        for n, coordinate in zip(grid[1:], at[1:], strict=True):
            total = total * n + coordinate
        return total

    def call(ids: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def kernel(ids: Any, x: Any, y: Any, o: Any) -> None:
            o[...] = x[...] + y[...]

        chosen = pl.BlockSpec(
            (rows, COLUMNS),
            lambda *at: (at[-1][number(*at[:-1])], jax.lax.rem(at[0], wide)),
            pipeline_mode=pl.Buffered(buffers),
        )
        slow = pl.BlockSpec((rows, COLUMNS), lambda *at: (number(*at[:-1]) // scale, 0))
        each = pl.BlockSpec((rows, COLUMNS), lambda *at: (number(*at[:-1]), 0))
        return pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=grid, in_specs=[chosen, each if is_shared else slow], out_specs=each
            ),
            out_shape=jax.ShapeDtypeStruct((steps * rows, COLUMNS), x.dtype),
            input_output_aliases={2: 0} if is_shared else {},
        )(ids, before(x), y)

    inputs = [
        draw.integers(0, many, steps).astype(np.int32),
        _array(draw, (many * rows - ragged, wide * COLUMNS), dtype),
        _array(draw, ((steps if is_shared else -(-steps // scale)) * rows, COLUMNS), dtype),
    ]
    return Case(call, inputs, f"windows of {rows} rows, {grid=}, {many=}, {wide=}, {buffers=}, {is_shared=}, {dtype}")


def by_hand(draw: np.random.Generator) -> Case:
    """Slices that the kernel copies itself, some in flight while one is used."""
    turns, slots, dtype = int(draw.integers(4, 800)), int(draw.integers(1, 5)), str(draw.choice(DTYPES))
    rows, many, wide = 16 * int(draw.integers(1, 3)), int(draw.integers(1, 33)), int(draw.integers(1, 4))
    space, before = (pl.ANY, pltpu.HBM)[int(draw.integers(2))], _computed(draw)
    before = before if space is pl.ANY else lambda x: x

    def call(ids: jax.Array, x: jax.Array) -> jax.Array:
        def kernel(ids: Any, x: Any, o: Any, here: Any, arrived: Any, left: Any) -> None:
            def fetch(turn: Any) -> Any:
                slot = jax.lax.rem(turn, slots)
                block = x.at[pl.ds(pl.multiple_of(ids[turn] * rows, rows), rows)]
                return pltpu.make_async_copy(block, here.at[slot], arrived.at[slot])

            def body(turn: Any, carry: Any) -> Any:
                fetch(turn).wait()
                out = o.at[pl.ds(pl.multiple_of(turn * rows, rows), rows)]
                back = pltpu.make_async_copy(here.at[jax.lax.rem(turn, slots)], out, left)
                back.start()
                back.wait()

                @pl.when(turn + slots < turns)
                def _() -> None:
                    fetch(turn + slots).start()

                return carry

            for turn in range(min(slots, turns)):
                fetch(turn).start()
            jax.lax.fori_loop(0, turns, body, 0)

        return pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(1,),
                in_specs=[pl.BlockSpec(memory_space=space)],
                out_specs=pl.BlockSpec(memory_space=space),
                scratch_shapes=[
                    pltpu.VMEM((slots, rows, wide * COLUMNS), x.dtype),
                    pltpu.SemaphoreType.DMA((slots,)),
                    pltpu.SemaphoreType.DMA,
                ],
            ),
            out_shape=jax.ShapeDtypeStruct((turns * rows, wide * COLUMNS), x.dtype),
        )(ids, before(x))

    inputs = [
        draw.integers(0, many, turns).astype(np.int32),
        _array(draw, (many * rows, wide * COLUMNS), dtype),
    ]
    return Case(call, inputs, f"copies of {rows} rows, {turns=}, {slots=}, {many=}, {wide=}, {space=}, {dtype}")


def by_pipeline(draw: np.random.Generator) -> Case:
    """Blocks that a pipeline of the kernel's own moves, with up to four buffers each."""
    grid, dtype = tuple(int(n) for n in draw.integers(2, 12, draw.integers(1, 3))), str(draw.choice(DTYPES))
    steps, rows = int(np.prod(grid)), 16 * int(draw.integers(1, 4))
    many, wide, buffers = int(draw.integers(1, 33)), int(draw.integers(1, 4)), int(draw.integers(1, 5))
    buffers = min(buffers, steps + 1)  # with more, JAX's pipeline starts a copy that nobody waits for
    times, before = int(draw.integers(1, 7)), _computed(draw)

    def number(*at: Any) -> Any:
        return at[0] if len(grid) == 1 else at[0] * grid[1] + at[1]

    def call(ids: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def body(x: Any, y: Any, o: Any) -> None:
            o[...] = x[...] + y[...]

        def kernel(ids: Any, x: Any, y: Any, o: Any) -> None:
            block, outer = (rows, COLUMNS), pl.program_id(0)
            chosen = pl.BlockSpec(
                block, lambda *at: (ids[number(*at)], jax.lax.rem(at[0], wide)), pipeline_mode=pl.Buffered(buffers)
            )
            each = pl.BlockSpec(block, lambda *at: (outer * steps + number(*at), 0))
            first = pl.BlockSpec(block, lambda *at: (number(*at), 0), pipeline_mode=pl.Buffered(min(buffers, 2)))
            pltpu.emit_pipeline(body, grid=grid, in_specs=[chosen, first], out_specs=[each])(x, y, o)

        any_ = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(
            kernel,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=(times,), in_specs=[any_, any_], out_specs=any_
            ),
            out_shape=jax.ShapeDtypeStruct((times * steps * rows, COLUMNS), x.dtype),
        )(ids, before(x), y)

    inputs = [
        draw.integers(0, many, steps).astype(np.int32),
        _array(draw, (many * rows, wide * COLUMNS), dtype),
        _array(draw, (steps * rows, COLUMNS), dtype),
    ]
    return Case(call, inputs, f"pipeline of {rows} rows, {grid=}, {times=}, {many=}, {wide=}, {buffers=}, {dtype}")


def by_table(draw: np.random.Generator) -> Case:
    """Rows of an operand in VMEM, or of a window, that go to places of a result which shares an operand's memory."""
    turns, ahead, dtype = int(draw.integers(4, 600)), int(draw.integers(1, 9)), str(draw.choice(DTYPES))
    many, wide, steps = turns + int(draw.integers(1, 65)), int(draw.integers(1, 4)), int(draw.integers(1, 4))
    tile, is_window, before = 8 * (1 + (dtype == "bfloat16")), bool(draw.integers(2)), _computed(draw)

    def call(places: jax.Array, x: jax.Array, cache: jax.Array) -> jax.Array:
        def kernel(places: Any, x: Any, cache: Any, o: Any, left: Any) -> None:
            del cache
            step = pl.program_id(0)

            def copy(turn: Any) -> Any:
                row = pl.multiple_of(places[step * turns + turn] * tile, tile)
                return pltpu.make_async_copy(x.at[turn], o.at[pl.ds(row, tile)], left.at[jax.lax.rem(turn, ahead)])

            @pl.loop(0, turns)
            def _(turn: Any) -> None:
                @pl.when(turn >= ahead)
                def _() -> None:
                    copy(turn - ahead).wait()

                copy(turn).start()

            @pl.loop(max(0, turns - ahead), turns)
            def _(turn: Any) -> None:
                copy(turn).wait()

        any_, shape = pl.BlockSpec(memory_space=pl.ANY), (turns, tile, wide * COLUMNS)
        whole = pl.BlockSpec(shape, lambda i: (0, 0, 0)) if is_window else pl.BlockSpec(memory_space=pltpu.VMEM)
        return pl.pallas_call(
            kernel,
            grid=(steps,),
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), whole, any_],
            out_specs=any_,
            out_shape=jax.ShapeDtypeStruct(cache.shape, cache.dtype),
            scratch_shapes=[pltpu.SemaphoreType.DMA((ahead,))],
            input_output_aliases={2: 0},
        )(places, before(x), cache)

    inputs = [
        np.concatenate([draw.permutation(many)[:turns] for _ in range(steps)]).astype(np.int32),
        _array(draw, (turns, tile, wide * COLUMNS), dtype),
        _array(draw, (many * tile, wide * COLUMNS), dtype),
    ]
    return Case(call, inputs, f"rows to places, {turns=}, {ahead=}, {many=}, {wide=}, {steps=}, {is_window=}, {dtype}")


CASES = by_windows, by_hand, by_pipeline, by_table


def moved(seed: int, workers: Workers) -> Round:
    """One kernel, executed, compiled and run by the machine."""
    draw = np.random.default_rng(seed)
    case = CASES[seed % len(CASES)](draw)
    wrong: list[str] = []
    compared, vector_code = 0, 0
    try:
        made = of_function(case.function, [struct(array.shape, array.dtype) for array in case.inputs])
        run = Loaded(tokenise(made.program)[0], Options()).run(case.inputs)
        wrong += [f"finding: {finding.message}" for finding in run.findings]
        program = compiled(made, workers)
        flow = latency.step(program, V5E, Mesh(), {0: case.inputs[0]})[0].control
        if flow is None:
            wrong.append("the machine cannot say which way it went")
        else:
            found = copies.compare(run.control, flow.issued, load_hlo(program.dump_dir), NO_TOKENS)
            compared, vector_code = found.copies, len(found.moved)
            wrong += found.apart
            wrong += map(str, control.differences(run.control, flow, found.moved))
    except Refusal as refusal:
        if refusal.status is Status.COMPILE_FAILED and " INTERNAL: " in refusal.message:
            return Round(area=AREA, seed=seed, steps=0, outcomes={"the compiler fails": 1}, differences=())
        wrong.append(f"refused: {refusal.status.name}: {refusal.message}")
    return Round(
        area=AREA,
        seed=seed,
        steps=compared,
        outcomes={"vector code": vector_code} | ({} if wrong else {"equal": compared}),
        differences=tuple(f"{case.what}: {what}" for what in wrong),
    )
