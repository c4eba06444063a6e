"""The child process that compiles recipes of :mod:`benchmarks.lib.attention.programs` and models them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.attention.programs import build, document_ids
from benchmarks.lib.cache import serve_records
from pallas_flash.kernels.flash_forward import Pattern
from pallas_flash.tables import tiles_of, with_documents
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler.environment import COMPILER
from ratchet.tpu.compiler.inside import clear_dumps, keep, lower
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.dump.memory import footprint
from ratchet.tpu.latency import model


def compiled_figures(recipe: dict[str, Any], folder: Path, _programs: Path) -> dict[str, Any]:
    """Compile a recipe's program ahead of time; what it occupies and, unless ``memory_only``, its modelled run."""
    clear_dumps()
    chip = CHIPS[recipe.get("chip", V5E.name)]
    function, avals = build(recipe)
    compiled = lower(function, avals, chip.name).compile(recipe["config"].get("compiler", {}))
    memory = compiled.memory_analysis()
    peak = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    if recipe.get("memory_only"):
        return {"peak_bytes": peak, "temp_bytes": memory.temp_size_in_bytes}
    keep(compiled, folder)
    hlo = load_hlo(folder)
    known = repeated(hlo) | documents(hlo, recipe)
    timeline = model(folder / "schedule", hlo=hlo, chip=chip, compiler=os.environ[COMPILER], scalar_inputs=[known])
    used = footprint(hlo, folder / "schedule", chip, hbm_bytes=peak)
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
    arrays: dict[int | str, np.ndarray] = {}
    for op in hlo.entry_ops():
        for number, operand in enumerate(op.operands if op.opcode == "custom-call" else ()):
            made_by = hlo.origin(operand) if operand in hlo.ops else op
            if made_by.opcode == "broadcast" and hlo.ops[made_by.operands[0]].opcode == "constant":
                value = hlo.ops[made_by.operands[0]].literal
                if value is not None and value.size == 1 and value.dtype.kind in "iu":
                    shape = hlo.ops[operand].types[0].shape
                    arrays[f"{op.name}:{number}"] = np.full(shape, value)
    return arrays


def documents(hlo: HloModule, recipe: dict[str, Any]) -> dict[int | str, np.ndarray]:
    """The table that our operator makes of the documents beside its kernel: what to do with each tile."""
    shape = recipe["shape"]
    ids = document_ids(shape)
    if ids is None or recipe["impl"] != "ours":
        return {}
    tile = recipe["config"]["table_tile"]
    pattern = Pattern(right=0 if shape["causal"] else None, q_len=shape["seq"], kv_len=shape["seq"])
    states = np.asarray(with_documents(tiles_of(pattern, None, tile), ids, ids, tile))
    return {f"{op.name}:0": states for op in hlo.entry_ops() if op.is_kernel}


if __name__ == "__main__":
    serve_records(compiled_figures)
