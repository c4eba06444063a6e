"""The grouped product of a mixture of experts beside jax's and tokamax's kernels, modelled, on the same draw of sizes.

    python -m benchmarks.grouped [--json FILE]

Whole programs from public operands to output at the shapes of ``examples/moe_matmul.py``, compiled for TPU v5e; each
peer with every tiling of a sweep. tokamax needs the extra ``peers``.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.lib.command import command, say
from benchmarks.lib.published.cases import Array, Case
from benchmarks.lib.sources import ROOT, names_of
from benchmarks.lib.table import show
from ratchet.tpu import library
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal

TILES = tuple(itertools.product((256, 512), (1024, 2048), (512, 1024, 2048)))
"""Rows, contracted and other columns of a tile."""
_SEED = 0
Programs = Iterator[tuple[str, str, Callable[..., Any]]]


def programs(kernel: Callable[..., Any], arrays: tuple[jax.Array, ...]) -> Programs:
    """Each implementation with each of its settings."""
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    yield "ours", "", kernel
    for tiling in TILES:
        words = "x".join(map(str, tiling))
        yield "jax megablox", words, functools.partial(gmm, tiling=tiling, preferred_element_type=arrays[0].dtype)
        if importlib.util.find_spec("tokamax"):
            from benchmarks.lib.published.tokamax import grouped

            yield "tokamax", words, grouped(_case(arrays, tiling)).function


def _case(arrays: tuple[jax.Array, ...], tiling: tuple[int, int, int]) -> Case:
    """A grouped product as published timings describe one."""
    x, w, sizes = arrays
    return Case(
        number="", source="", status="", measured_ms=None, timer="", doubtful=False, chip=V5E.name,
        kernel="tokamax pallas_mosaic_tpu gmm", options={},
        arrays=tuple(Array(dtype="bf16", shape=one.shape) for one in (x, w)),
        group_sizes=tuple(np.asarray(sizes).tolist()),
        config=dict(zip(("tile_m", "tile_k", "tile_n"), map(str, tiling), strict=True)),
    )  # fmt: skip


def main() -> None:
    """Model every program on one draw of the problem."""
    options = command(__doc__).parse_args()
    made = names_of((ROOT / "examples" / "moe_matmul.py").read_text())
    arrays = made["generate_inputs"](jax.random.key(_SEED))
    rows: list[dict[str, Any]] = []
    for name, tiling, function in programs(made["kernel_fn"], arrays):
        try:
            exported = library.export(function, *arrays)
            program = library.compile(exported)
            run = library.model(program, scalars=library.steering(program, exported, *arrays))
        except Refusal as refusal:
            say(f"{name} {tiling}: {refusal.status.name}: {refusal.message:.100}")
            continue
        say(f"{name} {tiling}: {run.latency_ms:.4f} ms")
        rows.append({"kernel": name, "tiles": tiling, "ms": run.latency_ms})
    best = [min((row for row in rows if row["kernel"] == name), key=lambda row: row["ms"]) for name in
            dict.fromkeys(row["kernel"] for row in rows)]  # fmt: skip
    show(f"The best of each, rows by expert {np.asarray(arrays[2]).tolist()}", best, json_file=options.json)
    if len(best) > 1:
        print(f"ours is {min(row['ms'] for row in best[1:]) / best[0]['ms']:.2f} times as fast as the best peer")


if __name__ == "__main__":
    main()
