"""The child process that holds the TPU compiler. Compiles exported programs ahead of time, one request each.

A request's folder holds ``kernel.bin`` and ``request.json``; the answer leaves ``compiled.json``,
``optimized.hlo``, ``lowered.hlo``, ``stablehlo.mlir`` and ``schedule/`` there. The compiler may abort the
process: the parent sees that no answer came.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo  # type: ignore[attr-defined]

from ratchet.child import serve
from ratchet.chips import CHIPS
from ratchet.judge import copies, memory
from ratchet.judge.compile import DUMP_FOLDER

_MESHES: dict[str, Mesh] = {}


def mesh_of(chip: str) -> Mesh:
    """One device of the chip's topology, as a mesh. Opens the TPU compiler on first use."""
    if chip not in _MESHES:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=CHIPS[chip].topology)
        _MESHES[chip] = Mesh(np.array(topology.devices[:1]), ("chip",))
    return _MESHES[chip]


def compile_program(folder: Path, chip: str) -> dict[str, Any]:
    """Compile ``folder/kernel.bin``; write texts and schedule dumps to ``folder``."""
    mesh = mesh_of(chip)
    dumps = Path(os.environ[DUMP_FOLDER])
    for old in dumps.glob("*"):
        old.unlink()
    start = time.monotonic()
    program = export.deserialize(bytearray((folder / "kernel.bin").read_bytes()))
    (folder / "stablehlo.mlir").write_text(str(program.mlir_module()))
    sharding = NamedSharding(mesh, PartitionSpec())
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in program.in_avals]
    lowered: Any = jax.jit(program.call).lower(*avals)
    lowered_seconds = time.monotonic() - start
    try:
        compiled: Any = lowered.compile()
    finally:  # a failed compile leaves dumps too, and they say which buffer was too large
        schedule = folder / "schedule"
        schedule.mkdir()
        for dump in dumps.iterdir():
            shutil.move(dump, schedule / dump.name)
        for dump in schedule.glob(f"*{memory.ALLOCATIONS_SUFFIX}"):
            os.truncate(dump, min(dump.stat().st_size, memory.HEADER_BYTES))  # more is never read
    for dump in schedule.glob(f"*{memory.ALLOCATIONS_SUFFIX}"):
        dump.unlink()  # only an overflow is told from them
    seconds = time.monotonic() - start
    lowered_text = lowered.as_text(dialect="hlo")
    (folder / "lowered.hlo").write_text(lowered_text)
    module = compiled.runtime_executable().hlo_modules()[0]
    printing = _hlo.HloPrintOptions()
    printing.print_large_constants = True  # grid bounds and page tables steer control flow
    (folder / "optimized.hlo").write_text(module.to_string(printing))
    (folder / "optimized.hlo.pb").write_bytes(module.as_serialized_hlo_module_proto())
    hbm = compiled.memory_analysis()
    return {
        "kernels": copies.kernels(module),
        "copies": [dataclasses.asdict(copy) for copy in copies.find(module, _hlo.hlo_module_from_text(lowered_text))],
        "hbm_bytes": hbm.argument_size_in_bytes
        + hbm.output_size_in_bytes
        + hbm.temp_size_in_bytes
        - hbm.alias_size_in_bytes,
        "lower_seconds": lowered_seconds,
        "seconds": seconds,
    }


def handle(request: Path) -> str:
    """Answer one request. Whatever the compiler raises is told as text; the parent classifies it."""
    asked = json.loads((request / "request.json").read_text())
    try:
        record = compile_program(request, asked["chip"])
    except Exception as error:  # the compiler's errors have many types; all are told
        record = {"error": f"{type(error).__name__}: {error}"}
    (request / "compiled.json").write_text(json.dumps(record))
    return "compiled.json"


if __name__ == "__main__":
    serve(handle)
