"""Kernels that write in place: beside the bytes that they must move, and beside a caller who keeps what it gave.

    python -m benchmarks.in_place [NAME …] [--json FILE]

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
from ratchet.values import Artefact, Mesh

F32, BF16, I32 = jnp.float32, jnp.bfloat16, jnp.int32
ROWS, WIDTH, BLOCK = 2048, 4096, 64
ANY, SMEM = (pl.BlockSpec(memory_space=space) for space in (pl.ANY, pltpu.SMEM))


class Case(NamedTuple):
    """A function of arrays, the first of which it overwrites."""

    function: Callable[..., Any]
    inputs: Sequence[tuple[tuple[int, ...], Any]]
    moved: int
    """Bytes that each chip has to read or write."""
    splits: Sequence[Any] = ()
    """Of each input over four chips."""


def bytes_of(*arrays: tuple[tuple[int, ...], Any]) -> int:
    return sum(int(np.prod(shape)) * jnp.dtype(dtype).itemsize for shape, dtype in arrays)


def step(update: Callable[..., Any], states: int, *dtypes: Any, first: int = 0, blocks: int = ROWS // BLOCK) -> Case:
    """Block by block from row ``first``; the first operands become the results of ``update``."""

    def kernel(*refs: Any) -> None:
        new = update(*(ref[...].astype(F32) for ref in refs[: len(dtypes)]))
        for ref, value in zip(refs[len(dtypes) :], new, strict=True):
            ref[...] = value.astype(ref.dtype)

    def function(*arrays: jax.Array) -> Any:
        spec = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i + first // BLOCK, 0))
        return pl.pallas_call(
            kernel,
            grid=(min(blocks, arrays[0].shape[0] // BLOCK),),
            in_specs=[spec] * len(dtypes),
            out_specs=(spec,) * states,
            out_shape=tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays[:states]),
            input_output_aliases={n: n for n in range(states)},
        )(*arrays)

    touched = [((blocks * BLOCK, WIDTH), dtype) for dtype in dtypes]
    return Case(function, [((ROWS, WIDTH), dtype) for dtype in dtypes], bytes_of(*touched, *touched[:states]))


def copies(many: int, rows: int, length: int, width: int, dtype: Any) -> Case:
    """``many`` copies of ``rows`` rows to where a table says."""

    def kernel(places: Any, new: Any, old: Any, o: Any, left: Any) -> None:
        del old
        for act in ("start", "wait"):

            @pl.loop(0, many)
            def _(n: Any, act: str = act) -> None:
                getattr(pltpu.make_async_copy(new.at[n], o.at[places[n]], left), act)()

    def function(old: jax.Array, new: jax.Array, places: jax.Array) -> jax.Array:
        return pl.pallas_call(
            kernel,
            in_specs=[SMEM, ANY, ANY],
            out_specs=ANY,
            out_shape=jax.ShapeDtypeStruct(old.shape, old.dtype),
            scratch_shapes=[pltpu.SemaphoreType.DMA],
            input_output_aliases={2: 0},
        )(places, new, old)

    new = (many, rows, width), dtype
    return Case(function, [((length, rows, width), dtype), new, ((many,), I32)], 2 * bytes_of(new))


def windows(many: int, length: int) -> Case:
    """Scaled rows to blocks that a prefetched table names."""

    def kernel(places: Any, new: Any, old: Any, o: Any) -> None:
        del places, old
        o[...] = 0.5 * new[...]

    def function(old: jax.Array, new: jax.Array, places: jax.Array) -> jax.Array:
        block = (1, 64, WIDTH)
        there = pl.BlockSpec(block, lambda i, places: (places[i], 0, 0))
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(many,),
            in_specs=[pl.BlockSpec(block, lambda i, places: (i, 0, 0)), ANY],
            out_specs=there,
        )
        shape = jax.ShapeDtypeStruct(old.shape, old.dtype)
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=shape, input_output_aliases={2: 0})(places, new, old)

    new = (many, 64, WIDTH), F32
    return Case(function, [((length, 64, WIDTH), F32), new, ((many,), I32)], 2 * bytes_of(new))


def adam(p: Any, m: Any, v: Any, g: Any) -> tuple[Any, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m * jax.lax.rsqrt(v + 1e-8), m, v


def momentum(p: Any, m: Any, g: Any) -> tuple[Any, ...]:
    return p - 0.1 * (0.9 * m + g), 0.9 * m + g


SGD, CACHE = step(lambda p, g: (p - 0.1 * g,), 1, F32, F32), copies(16, 256, 64, 1024, BF16)
HALVED = step(lambda p: (0.5 * p,), 1, F32)
ON_FOUR, WHOLE = P("chip"), P()
CASES = {
    "SGD": SGD,
    "momentum, two results": step(momentum, 2, F32, F32, F32),
    "Adam, bfloat16 gradient": step(adam, 3, F32, F32, F32, BF16),
    "bfloat16 parameters": step(lambda p, g: (p - 0.1 * g,), 1, BF16, BF16),
    "gradient accumulation": step(lambda p, g: (p + g,), 1, F32, BF16),
    "a quarter of the blocks": step(lambda p, g: (0.9 * p + 0.1 * g,), 1, F32, F32, first=512, blocks=8),
    "two kernels": Case(lambda p, g: HALVED.function(*SGD.function(p, g)), SGD.inputs, SGD.moved + HALVED.moved),
    "cache pages": CACHE,
    "scattered rows": copies(2048, 8, 8192, 512, F32),
    "scattered windows": windows(64, 256),
    "SGD on four chips": SGD._replace(moved=SGD.moved // 4, splits=(ON_FOUR, ON_FOUR)),
    "cache on four chips": copies(16, 256, 64, 4096, BF16)._replace(
        moved=CACHE.moved, splits=(P(None, None, "chip"), P(None, None, "chip"), WHOLE)
    ),
}


def latency_ms(case: Case, workers: Workers, *, donates: bool) -> float:
    """Modelled; where nothing is donated, a barrier is between the parameters and the kernel."""

    def function(*arrays: Any) -> Any:
        call = case.function
        if case.splits:
            call = jax.shard_map(call, in_specs=tuple(case.splits), out_specs=case.splits[0], check_vma=False)
        return call(*(arrays if donates else jax.lax.optimization_barrier(arrays)))

    mesh = (
        Mesh(
            axes=(("chip", 4),), inputs=tuple(tuple((axis,) if axis else () for axis in split) for split in case.splits)
        )
        if case.splits
        else None
    )
    made: Artefact = of_function(function, [struct(*one) for one in case.inputs], mesh)
    steering = {2: np.arange(case.inputs[2][0][0], dtype=np.int32)} if case.inputs[-1][1] is I32 else {}
    return modelled(made, workers, steering).latency_ms


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only kernels whose name begins so")
    options = parser.parse_args()
    with_four_devices()
    rows = []
    with Workers(V5E, keep=True, compiles=False) as workers:
        for name, case in CASES.items():
            if options.names and not name.startswith(tuple(options.names)):
                continue
            floor = case.moved / V5E.achievable_hbm_bytes_per_s * 1e3
            place, apart = (latency_ms(case, workers, donates=donates) for donates in (True, False))
            rows.append(
                {"kernel": name, "MB": case.moved / 1e6, "floor, ms": floor, "in place, ms": place,
                 "over the floor": place / floor, "out of place, ms": apart}
            )  # fmt: skip
            say(f"{name}: {place:.4f} ms, {apart:.4f} out of place")
    show("Kernels in place", rows, json_file=options.json)


if __name__ == "__main__":
    main()
