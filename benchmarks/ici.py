"""Collectives and a ring of remote copies on the four chips of a v5e slice, modelled, beside the links' roofline.

    python -m benchmarks.ici [--quick] [--json FILE]

``collective us`` is the instruction's time on the chip that enters it last; ``whole us`` is the program, with the
launch barrier before it (``launch us``) and the copies around the collective. ``floor us`` is what has to leave
each chip over its two links. Bandwidth and hop were fitted on other programs; the published figures are for 8 chips
or more (the Scaling Book: sums of large arrays at about 87 GB/s, of 8 bytes in about 6 us).
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.table import show
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import environment
from ratchet.tpu.dump.files import OPTIMIZED, load_hlo
from ratchet.tpu.dump.image import OFFSETS_PASS, constant_segment
from ratchet.tpu.latency import model
from ratchet.values import Timeline

ROWS = (8, 128, 2048, 32768)
"""Rows of 128 floats in each chip's shard: 4 KiB to 16 MiB."""
TINY = (1, 2)
"""8 bytes per chip, as in the published latency of a small sum."""

# Shards that have to leave each of four chips; what passes through a chip on its way counts for that chip too.
FLOOR_SHARDS = {"ring": 3.0, "all_gather": 3.0, "psum": 1.5, "scatter": 0.75, "all_to_all": 1.0, "permute": 1.0}
AROUND = ("copy", "")
"""Opcodes of what is around a collective: copies, and the top level itself."""


def compiled(folder: Path, name: str, shape: tuple[int, int]) -> bytes:
    """Compiles one program for the slice into ``folder``; returns its constants."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from ratchet.tpu.compiler.inside import devices_of, move_dumps, optimised
    from tests.tpu.machine.slice_programs import CHIP_IDS, PROGRAMS

    mesh = Mesh(np.array([devices_of(V5E.name)[i] for i in CHIP_IDS]), ("x",))
    spec = PartitionSpec("x")
    argument: Any = jax.ShapeDtypeStruct(
        (len(CHIP_IDS) * shape[0], shape[1]), np.float32, sharding=NamedSharding(mesh, spec)
    )
    sharded = jax.shard_map(PROGRAMS[name], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    program: Any = jax.jit(sharded).lower(argument).compile()
    move_dumps(folder)
    (folder / OPTIMIZED).write_bytes(optimised(program).as_serialized_hlo_module_proto())
    return constant_segment(program.runtime_executable().serialize(), compiler="libtpu")


def row(name: str, shape: tuple[int, int], timeline: Timeline) -> dict[str, Any]:
    """One line of the table."""
    us = 1e6 / timeline.clock_hz
    collective = min(
        max((op.cycles for op in chip.ops if op.opcode not in AROUND), default=0) for chip in timeline.chips
    )
    size = 4 * shape[0] * shape[1]
    sent = min(chip.ici_bytes for chip in timeline.chips)
    busiest = max(link.busy_cycles for link in timeline.links)
    published = {"psum": "87 GB/s (large)"} if shape != TINY else {"psum": "6 us (8 chips)"}
    return {
        "program": name,
        "bytes per chip": size,
        "whole us": timeline.cycles * us,
        "launch us": max(chip.launch_cycles for chip in timeline.chips) * us,
        "collective us": collective * us,
        "floor us": FLOOR_SHARDS[name] * size / (2 * V5E.ici.link_bytes_per_s) * 1e6,
        "busiest link %": 100 * min(1.0, busiest / collective),
        "waiting for chips %": 100 * timeline.ici_wait_cycles / timeline.cycles,
        "GB/s out per chip": sent / (collective * us) / 1e3,
        "published": published.get(name, ""),
    }


def main() -> None:
    options = command(__doc__, quick="two sizes only").parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        environment.enter(V5E, Path(name) / "dumps", extra_passes=(OFFSETS_PASS,))

        compiler = f"libtpu {importlib.metadata.version('libtpu')}"
        sizes = [(rows_, 128) for rows_ in (ROWS[1:3] if options.quick else ROWS)]
        cases = [("psum", TINY), *((program, shape) for program in FLOOR_SHARDS for shape in sizes)]
        for number, (program, shape) in enumerate(cases):
            folder = Path(name) / str(number)
            folder.mkdir()
            constants = compiled(folder, program, shape)
            timeline = model(folder, hlo=load_hlo(folder), chip=V5E, compiler=compiler, constants=constants)
            rows.append(row(program, shape, timeline))
    show(f"four chips, modelled with {compiler}; links: {V5E.ici.source}", rows, json_file=options.json)


if __name__ == "__main__":
    main()
