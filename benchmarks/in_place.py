"""Kernels that write in place: beside the bytes that they must move, and beside a caller who keeps what it gave.

    python -m benchmarks.in_place [--json FILE]

``floor`` is those bytes, read and written, at the bandwidth of a v5e's HBM as fitted. ``out of place`` is the same
kernel behind a barrier, so that nothing is donated and XLA copies what is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from benchmarks.lib.command import command, say
from benchmarks.lib.programs import modelled, of_function, struct, with_four_devices
from benchmarks.lib.table import show
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values import Mesh

F32, BF16 = jnp.float32, jnp.bfloat16
ROWS, WIDTH, BLOCK = 8192, 4096, 64
ANY, SMEM = (pl.BlockSpec(memory_space=space) for space in (pl.ANY, pltpu.SMEM))
Arrays = Sequence[tuple[tuple[int, ...], Any]]


class Case(NamedTuple):
    """A function of arrays, the first of which it overwrites, and the bytes that each chip has to move for it."""

    function: Callable[..., Any]
    inputs: Arrays
    moved: int
    splits: Sequence[Any] = ()


def bytes_of(arrays: Arrays) -> int:
    return sum(int(np.prod(shape)) * jnp.dtype(dtype).itemsize for shape, dtype in arrays)


def step(update: Callable[..., Any], states: int, *dtypes: Any, first: int = 0, blocks: int = ROWS // BLOCK) -> Case:
    """Blocks of rows, from row ``first`` on; the first operands become the results of ``update``."""

    def kernel(*refs: Any) -> None:
        new = update(*(ref[...].astype(F32) for ref in refs[: len(dtypes)]))
        for ref, value in zip(refs[len(dtypes) :], new, strict=True):
            ref[...] = value.astype(ref.dtype)

    def function(*arrays: jax.Array) -> Any:
        spec, grid = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i + first // BLOCK, 0)), arrays[0].shape[0] // BLOCK
        shapes, pairs = (tuple(arrays[:states]), {n: n for n in range(states)})
        specs = {"in_specs": [spec] * len(dtypes), "out_specs": (spec,) * states, "input_output_aliases": pairs}
        return pl.pallas_call(kernel, grid=(min(blocks, grid),), out_shape=shapes, **specs)(*arrays)

    touched = [((blocks * BLOCK, WIDTH), dtype) for dtype in dtypes]
    return Case(function, [((ROWS, WIDTH), dtype) for dtype in dtypes], bytes_of(touched + touched[:states]))


def placed(many: int, rows: int, length: int, width: int, dtype: Any, *, by_windows: bool = False) -> Case:
    """Blocks of rows that go to where a table says, by copies or by windows."""

    def copy(places: Any, new: Any, _: Any, o: Any, left: Any) -> None:
        for act in ("start", "wait"):

            @pl.loop(0, many)
            def _(n: Any, act: str = act) -> None:
                getattr(pltpu.make_async_copy(new.at[n], o.at[places[n]], left), act)()

    def scale(places: Any, new: Any, _: Any, o: Any) -> None:
        o[...] = 0.5 * new[...]

    def function(old: jax.Array, new: jax.Array, places: jax.Array) -> jax.Array:
        if not by_windows:
            specs = {"in_specs": [SMEM, ANY, ANY], "out_specs": ANY, "scratch_shapes": [pltpu.SemaphoreType.DMA]}
            return pl.pallas_call(copy, out_shape=old, input_output_aliases={2: 0}, **specs)(places, new, old)
        each, there = (
            pl.BlockSpec((1, rows, width), where)
            for where in (lambda i, places: (i, 0, 0), lambda i, places: (places[i], 0, 0))
        )
        spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(many,), in_specs=[each, ANY], out_specs=there)
        return pl.pallas_call(scale, grid_spec=spec, out_shape=old, input_output_aliases={2: 0})(places, new, old)

    new = (many, rows, width), dtype
    return Case(function, [((length, rows, width), dtype), new, ((many,), jnp.int32)], 2 * bytes_of([new]))


def adam(p: Any, m: Any, v: Any, g: Any) -> tuple[Any, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m * jax.lax.rsqrt(v + 1e-8), m, v


SGD, HALVED = step(lambda p, g: (p - 0.1 * g,), 1, F32, F32), step(lambda p: (0.5 * p,), 1, F32)
CACHE, COLUMNS = placed(64, 256, 256, 1024, BF16), P(None, None, "chip")
CASES = {
    "SGD": SGD,
    "momentum, two results": step(lambda p, m, g: (p - 0.1 * (0.9 * m + g), 0.9 * m + g), 2, F32, F32, F32),
    "Adam, bfloat16 gradient": step(adam, 3, F32, F32, F32, BF16),
    "bfloat16 parameters": step(lambda p, g: (p - 0.1 * g,), 1, BF16, BF16),
    "gradient accumulation": step(lambda p, g: (p + g,), 1, F32, BF16),
    "a quarter of the blocks": step(lambda p, g: (0.9 * p + 0.1 * g,), 1, F32, F32, first=2048, blocks=32),
    "two kernels": Case(lambda p, g: HALVED.function(*SGD.function(p, g)), SGD.inputs, SGD.moved + HALVED.moved),
    "cache pages": CACHE,
    "scattered blocks": placed(256, 128, 1024, 512, F32),
    "scattered windows": placed(64, 64, 256, 2048, F32, by_windows=True),
    "SGD on four chips": SGD._replace(moved=SGD.moved // 4, splits=(P("chip"), P("chip"))),
    "cache on four chips": placed(64, 256, 256, 4096, BF16)._replace(moved=CACHE.moved, splits=(COLUMNS, COLUMNS, P())),
}


def latency_ms(case: Case, workers: Workers, *, donates: bool) -> float:
    """Modelled; where nothing is donated, a barrier is between the parameters and the kernel."""

    def function(*arrays: Any) -> Any:
        call, split = case.function, tuple(case.splits)
        call = jax.shard_map(call, in_specs=split, out_specs=split[0], check_vma=False) if split else call
        return call(*(arrays if donates else jax.lax.optimization_barrier(arrays)))

    laid = tuple(tuple((axis,) if axis else () for axis in split) for split in case.splits)
    mesh = Mesh(axes=(("chip", 4),), inputs=laid) if laid else None
    (many, *_), dtype = case.inputs[-1]
    steering = {2: np.arange(many, dtype=np.int32)} if dtype == jnp.int32 else {}
    return modelled(of_function(function, [struct(*one) for one in case.inputs], mesh), workers, steering).latency_ms


def main() -> None:
    options = command(__doc__).parse_args()
    with_four_devices()
    rows = []
    with Workers(V5E, keep=True, compiles=False) as workers:
        for name, case in CASES.items():
            floor = case.moved / V5E.achievable_hbm_bytes_per_s * 1e3
            place, apart = (latency_ms(case, workers, donates=donates) for donates in (True, False))
            found = {"floor, ms": floor, "in place, ms": place, "over the floor": place / floor}
            rows.append({"kernel": name, "MB": case.moved / 1e6} | found | {"out of place, ms": apart})
            say(f"{name}: {place:.4f} ms, {apart:.4f} out of place")
    show("Kernels in place", rows, json_file=options.json)


if __name__ == "__main__":
    main()
