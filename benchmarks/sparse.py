"""Gathers on the SparseCores: modelled latencies beside published ones.

    python -m benchmarks.sparse [--json FILE]

Each row of ``benchmarks/data/sparse`` is built as its source has it: a gather alone, or several in a chain that adds
their results. Modelled is the whole program. Wall-clock rows carry one constant per source, fitted to its rows: what a
launch costs, shared by the gathers of a chain. ``others`` predicts a chip by a rate of streams fitted without its rows.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

from benchmarks.lib.command import command, say
from benchmarks.lib.table import Row, show_all
from ratchet.tpu import library
from ratchet.values.status import Refusal

LANES = 128
DATA = Path(__file__).parent / "data" / "sparse" / "published_gathers.csv"


class Timing(NamedTuple):
    """One published row."""

    source: str
    chip: str
    rows: int
    dim: int
    indices: int
    window: int
    cores: str
    """``one``: each SparseCore does all of it; ``both``: they share it."""
    inner: int
    """Gathers of a chain; 0 for one alone."""
    ms: float
    """Of one gather."""
    note: str


def main() -> None:
    options = command(__doc__).parse_args()
    timings = read()
    modelled = {timing: latency(timing) for timing in dict.fromkeys(timings)}
    show_all(tables(modelled), json_file=options.json)


def read() -> list[Timing]:
    with DATA.open(newline="") as file:
        return [
            Timing(
                *(row[name] for name in ("source", "chip")),
                *(int(row[name]) for name in ("rows", "dim", "indices", "window")),
                cores=row["cores"], inner=int(row["inner"]), ms=float(row["ms"]), note=row["note"],
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def program(timing: Timing) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The program that was timed."""
    axis: Any = "subcore" if timing.cores == "one" else ("core", "subcore")

    flat = timing.window < LANES
    window = (
        pl.BlockSpec((timing.window,), lambda i: (i,)) if flat else pl.BlockSpec((1, timing.window), lambda i: (0, i))
    )

    def kernel(table: Any, indices: Any, result: Any) -> None:
        def gather(window: Any, block: Any) -> None:
            pltpu.sync_copy(table.at[window if flat else window.at[0]], block)

        pltpu.emit_pipeline(
            gather,
            grid=(timing.indices // timing.window,),
            in_specs=[window],
            out_specs=[pl.BlockSpec((timing.window, timing.dim), lambda i: (i, 0))],
            core_axis_name=axis,
            dimension_semantics=(pltpu.PARALLEL,),
        )(indices, result)

    def gathered(table: jax.Array, indices: jax.Array) -> jax.Array:
        mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore")
        shape = jax.ShapeDtypeStruct((timing.indices, timing.dim), table.dtype)
        return pl.kernel(kernel, out_type=shape, mesh=mesh)(table, indices if flat else indices[None])

    def chain(table: jax.Array, indices: jax.Array) -> jax.Array:
        total = jnp.zeros((timing.indices, timing.dim), table.dtype)
        for turn in range(timing.inner):
            total += gathered(table, (indices + turn) % timing.rows)
        return total

    return chain if timing.inner else gathered


def latency(timing: Timing) -> float | Refusal:
    """Modelled ms of the whole program."""
    table = jax.ShapeDtypeStruct((timing.rows, timing.dim), jnp.float32)
    indices = jax.ShapeDtypeStruct((timing.indices,), jnp.int32)
    say(f"{timing.chip} {timing.rows}x{timing.dim}, {timing.indices} by {timing.window}, {timing.inner} in a chain")
    try:
        return library.model(library.compile(program(timing), table, indices, chip=timing.chip)).latency_ms
    except Refusal as refusal:
        return refusal


def tables(modelled: dict[Timing, float | Refusal]) -> dict[str, list[Row]]:
    """What is printed, by title."""
    told = {timing: ms for timing, ms in modelled.items() if isinstance(ms, float)}
    launch = {source: _launch(told, source) for source in dict.fromkeys(map(_family, told))}
    errors = {timing: (told[timing] + launch[_family(timing)]) / _whole(timing) - 1 for timing in told}
    rows = [
        {
            "chip": timing.chip,
            "table": f"{timing.rows}x{timing.dim}",
            "indices": timing.indices,
            "window": timing.window,
            "chain": timing.inner or 1,
            "published ms": timing.ms,
            "modelled ms": (told[timing] + launch[_family(timing)]) / max(1, timing.inner),
            "of it launch": launch[_family(timing)] / max(1, timing.inner),
            "error": f"{errors[timing]:+.1%}",
            "note": timing.note,
        }
        for timing in told
    ]
    summary = [
        {
            "chip": chip,
            "rows": len(own),
            "mean error": f"{statistics.mean(map(abs, own)):.1%}",
            "largest": f"{max(map(abs, own)):.1%}",
            "bias": f"{statistics.mean(own):+.1%}",
        }
        for chip in dict.fromkeys(timing.chip for timing in told)
        if (own := [error for timing, error in errors.items() if timing.chip == chip])
    ]
    refused = [
        {"chip": timing.chip, "table": f"{timing.rows}x{timing.dim}", "why": why.message[:200]}
        for timing, why in modelled.items()
        if isinstance(why, Refusal)
    ]
    return {"published gathers": rows, "by chip": summary, "refused": refused}


def _family(timing: Timing) -> str:
    return timing.source.split("@")[0]


def _whole(timing: Timing) -> float:
    return timing.ms * max(1, timing.inner)


def _launch(told: dict[Timing, float], source: str) -> float:
    """The constant of a source with several rows that makes their relative errors least; 0 of one alone."""
    own = [(timing, ms) for timing, ms in told.items() if _family(timing) == source]
    if len(own) < 2:
        return 0.0
    weight = sum(1 / _whole(timing) ** 2 for timing, _ in own)
    return max(0.0, sum((_whole(timing) - ms) / _whole(timing) ** 2 for timing, ms in own) / weight)


if __name__ == "__main__":
    main()
