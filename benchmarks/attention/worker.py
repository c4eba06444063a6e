"""The child process that compiles one program per request for a chip that is not there, and models its run.

A request's folder holds ``request.json``, a recipe of :mod:`benchmarks.attention.programs`; the answer leaves
``answer.json`` there: figures, or the error in words.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.attention.programs import build
from benchmarks.attention.values import rms_errors
from benchmarks.attention.worker_names import COMPILER, DUMP_FOLDER
from ratchet.account.model import model
from ratchet.child import serve
from ratchet.chips import V5E
from ratchet.dump.files import OPTIMIZED, load_hlo
from ratchet.dump.hlo import HloModule
from ratchet.dump.memory import footprint

_WANTED = re.compile(
    r"-(packed-bundles-post-ra|post-bundle-packing-post-ra|final_hlo-static-per-bundle-utilization)\.txt$"
)


def compiled_figures(recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compile a recipe's program ahead of time; what it occupies and, unless ``memory_only``, its modelled run."""
    dumps = Path(os.environ[DUMP_FOLDER])
    for old in dumps.glob("*"):
        old.unlink()
    function, avals = build(recipe)
    options = recipe["config"].get("compiler", {})
    topology = topologies.get_topology_desc(platform="tpu", topology_name=V5E.topology)
    mesh = Mesh(np.array(topology.devices[:1]), ("chip",))
    sharding = NamedSharding(mesh, PartitionSpec())
    placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in avals]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # some kernels ask which chip they are lowered for
        compiled: Any = jax.jit(function).lower(*placed).compile(options)
    memory = compiled.memory_analysis()
    peak = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    if recipe.get("memory_only"):
        return {"peak_bytes": peak, "temp_bytes": memory.temp_size_in_bytes}
    module = compiled.runtime_executable().hlo_modules()[0]
    (folder / OPTIMIZED).write_bytes(module.as_serialized_hlo_module_proto())
    hlo = load_hlo(folder)
    (folder / "schedule").mkdir()
    for dump in dumps.iterdir():
        if _WANTED.search(dump.name) and "schedule-analysis_" not in dump.name:
            shutil.move(dump, folder / "schedule" / dump.name)
    timeline = model(
        folder / "schedule", hlo=hlo, chip=V5E, compiler=os.environ[COMPILER], scalar_inputs=[repeated(hlo)]
    )
    used = footprint(hlo, folder / "schedule", V5E, hbm_bytes=peak)
    return {
        "ms": timeline.latency_ms,
        "mxu_pct": 100 * timeline.mxu_busy_cycles / timeline.cycles,
        "empty_pct": 100 * timeline.empty_bundles / timeline.cycles,
        "wait_pct": 100 * timeline.dma_wait_cycles / timeline.cycles,
        "slots_pct": {
            name: 100 * count / timeline.cycles / timeline.slot_capacity.get(name, 1)
            for name, count in timeline.slot_issues.items()
        },
        "vmem_bytes": used.vmem_bytes,
        "spill_stores": used.spill_stores,
        "hbm_moved_bytes": timeline.hbm_read_bytes + timeline.hbm_write_bytes,
        "peak_bytes": peak,
        "ops": [[op.name, op.cycles / timeline.clock_hz * 1e3] for op in timeline.ops],
    }


def repeated(hlo: HloModule) -> dict[int | str, np.ndarray]:
    """Operands that XLA makes by repeating one integer, which the machine does not follow: a full mask's tables."""
    found: dict[int | str, np.ndarray] = {}
    for op in hlo.entry_ops():
        for number, operand in enumerate(op.operands if op.opcode == "custom-call" else ()):
            made_by = hlo.origin(operand) if operand in hlo.ops else op
            if made_by.opcode == "broadcast" and hlo.ops[made_by.operands[0]].opcode == "constant":
                value = hlo.ops[made_by.operands[0]].literal
                if value is not None and value.dtype.kind in "iu":
                    shape = hlo.ops[operand].types[0].shape
                    found[f"{op.name}:{number}"] = np.full(shape, value)
    return found


def handle(request: Path) -> str:
    """Answer one request."""
    recipe = json.loads((request / "request.json").read_text())
    try:
        figures = rms_errors(recipe) if recipe.get("values") else compiled_figures(recipe, request)
    except Exception as error:  # told as text: a peer may fail in JAX as well as in the compiler
        if "lockfile" in str(error):
            raise
        figures = {"error": f"{type(error).__name__}: {error}"[:2000]}
    (request / "answer.json").write_text(json.dumps(figures))
    return "answer.json"


if __name__ == "__main__":
    serve(handle)
