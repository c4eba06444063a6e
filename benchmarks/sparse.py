"""Gathers on the SparseCores: modelled latencies beside published ones.

    python -m benchmarks.sparse [--written] [--json FILE]

``--written`` compiles programs with such work for each chip instead, and says what libtpu writes of it and what becomes
of its latency.

Each row of ``benchmarks/data/sparse`` is built as its source has it: a gather alone, or several in a chain that adds
their results. Modelled is the whole program. Wall-clock rows carry one constant per source, fitted to its rows: what a
launch costs, shared by the gathers of a chain.
"""

from __future__ import annotations

import csv
import statistics
import tempfile
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
from ratchet.tpu.account.band import STREAMS_WIDTH
from ratchet.tpu.dump import tiles
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
    parser = command(__doc__)
    parser.add_argument("--written", action="store_true", help="list what libtpu writes of programs of the SparseCores")
    options = parser.parse_args()
    if options.written:
        rows = [written(chip, name) for chip in ("v5p", "v6e", "tpu7x") for name in KINDS]
        show_all({"what is written": rows}, json_file=options.json)
        return
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


def written(chip: str, kind: str) -> Row:
    """What libtpu writes of one program's work on SparseCores, and its modelled latency or why there is none."""
    function, *shapes = KINDS[kind]
    row: dict[str, Any] = {"chip": chip, "program": kind}
    say(f"{chip} {kind}")
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) / "compiled"
        try:
            arrays = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
            compiled = library.compile(function, *arrays, chip=chip, folder=where)
            files = [path for path in where.rglob("*_bundles.txt") if not path.name.startswith("sc-start")]
            parts = [tiles.parse(path.read_text(), file=path.name, compiler=compiled.compiler) for path in files]
            sections = [section for part in parts for section in part.values()]
            opcodes = {one.opcode for section in sections for bundle in section.bundles for one in bundle}
            row["programs"] = len(parts)
            for name, title in ((tiles.SEQUENCER, "bundles of sequencers"), (tiles.TILES, "of tiles")):
                row[title] = sum(len(part[name].bundles) for part in parts if name in part)
            streams = sorted(name.removeprefix("stream.") for name in opcodes if name.startswith("stream."))
            row["streams"] = " ".join(streams)
            row["latency"] = f"{library.model(compiled).latency_ms:.4f} ms"
        except Refusal as refusal:
            row["latency"] = f"{refusal.status.name}: {refusal.message[:110]}"
    return row


def _tiled(body: Callable[..., None], scratch: Any = ()) -> Callable[[jax.Array], jax.Array]:
    """A kernel of all vector subcores of 1024 rows, 32 for each of two cores' tiles."""

    def function(x: jax.Array) -> jax.Array:
        mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=2, num_subcores=16)
        return pl.kernel(body, out_type=x, mesh=mesh, scratch_types=[pltpu.VMEM((32, 128), x.dtype), *scratch])(x)

    return function


def _own() -> Any:
    return pl.ds((jax.lax.axis_index("core") * 16 + jax.lax.axis_index("subcore")) * 32, 32)


def _copied(x: Any, o: Any, block: Any) -> None:
    pltpu.sync_copy(x.at[_own()], block)
    pltpu.sync_copy(block, o.at[_own()])


def _computed(x: Any, o: Any, block: Any) -> None:
    pltpu.sync_copy(x.at[_own()], block)

    @pl.loop(0, 4000)
    def _(_turn: Any) -> None:
        block[0, pl.ds(0, 16)] = block[0, pl.ds(0, 16)] * 1.5 + 1.0

    pltpu.sync_copy(block, o.at[_own()])


def _steered(x: Any, o: Any, block: Any) -> None:
    pltpu.sync_copy(x.at[_own()], block)

    @pl.when(jnp.max(block[0, pl.ds(0, 8)]) > 0)
    def _() -> None:
        pltpu.sync_copy(block, o.at[_own()])


def _of_scalars(x: jax.Array) -> jax.Array:
    def body(x: Any, o: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("core") * 512, 512)
        pltpu.sync_copy(x.at[rows], o.at[rows])

    return pl.kernel(body, out_type=x, mesh=plsc.ScalarSubcoreMesh(axis_name="core", num_cores=2))(x)


def _doubled(x: jax.Array) -> jax.Array:
    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    block = pl.BlockSpec((None, 4096, x.shape[2]), lambda i, j: (i, j, 0))
    grid = (x.shape[0], x.shape[1] // 4096)
    return pl.pallas_call(body, grid=grid, in_specs=[block], out_specs=block, out_shape=x)(x)


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


_F32, _BF16, _S32 = jnp.float32, jnp.bfloat16, jnp.int32
_TABLE, _INDICES, _ROWS = ((65536, 128), _F32), ((32768,), _S32), ((1024, 128), _F32)
_GATHER = Timing("", "", 65536, 128, 32768, 128, "both", 0, 1.0, "")
KINDS: dict[str, Any] = {
    "Pallas gather": (program(_GATHER), _TABLE, _INDICES),
    "Pallas gather beside a TensorCore kernel": (
        lambda x, i, y: (program(_GATHER)(x, i), _doubled(y)), _TABLE, _INDICES, ((4, 8192, 128), _F32)
    ),
    "Pallas copy": (_tiled(_copied), _ROWS),
    "Pallas arithmetic": (_tiled(_computed), _ROWS),
    "Pallas, steered by values": (_tiled(_steered), _ROWS),
    "Pallas scalar subcores": (_of_scalars, _ROWS),
    "XLA gather": (lambda x, i: jnp.take(x, i, axis=0), ((1000000, 128), _F32), ((65536,), _S32)),
    "XLA scatter": (
        lambda x, i, u: x.at[i].add(u), ((200000, 128), _F32), ((4096,), _S32), ((4096, 128), _F32)
    ),
    "XLA sort": (jnp.sort, ((32768,), _F32)),
    "XLA transpose of a kernel's result": (lambda x: jnp.swapaxes(_doubled(x), 0, 1), ((8, 16384, 128), _BF16)),
}  # fmt: skip


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
    largest = max(map(abs, errors.values()), default=0.0)
    band = {"largest error": largest, "three times": 3 * largest, "width of the band": STREAMS_WIDTH}
    refused = [
        {"chip": timing.chip, "table": f"{timing.rows}x{timing.dim}", "why": why.message[:200]}
        for timing, why in modelled.items()
        if isinstance(why, Refusal)
    ]
    return {
        "published gathers": rows,
        "by chip": summary,
        "band": [{name: f"{share:.1%}" for name, share in band.items()}],
        "refused": refused,
    }


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
