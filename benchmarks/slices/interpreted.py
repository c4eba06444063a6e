"""The child of ``benchmarks.slices --interpreter``: one kernel file executed twice, here and by JAX's TPU interpreter.

    python -m benchmarks.slices.interpreted FILE

It prints the largest difference of an output over its largest value, or why one of the two executed nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 8)

from jax.experimental.pallas import tpu as pltpu  # noqa: E402 - the number of devices comes first
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import ratchet  # noqa: E402
from benchmarks.lib.programs import largest_error  # noqa: E402
from benchmarks.lib.sources import names_of  # noqa: E402
from ratchet.tpu.exporting import in_one_line  # noqa: E402


def compared(source: str) -> str:
    """How far the two are apart."""
    kernel = names_of(source)
    meta = kernel["get_tiling_meta"]()
    axes, splits = meta["mesh"], [PartitionSpec(*split) for split in meta["input_shardings"]]
    arrays = jax.tree.leaves(kernel["generate_inputs"](jax.random.key(0)))
    chips = int(np.prod([*axes.values()]))
    mesh = Mesh(np.array(jax.devices()[:chips]).reshape(tuple(axes.values())), tuple(axes))
    program = ratchet.export(kernel["kernel_fn"], *arrays, mesh=axes, specs=splits)
    ours = ratchet.execute(program, *arrays)
    if ours.findings:
        return f"a finding: {ours.findings[0]}"
    placed = [jax.device_put(one, NamedSharding(mesh, split)) for one, split in zip(arrays, splits, strict=True)]
    with jax.set_mesh(mesh), pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(dma_execution_mode="on_wait")):
        theirs = jax.tree.leaves(jax.jit(kernel["kernel_fn"])(*placed))
    return f"{largest_error(ours.outputs, [np.asarray(one) for one in theirs]):.2g}"


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        try:
            said = compared(Path(sys.argv[1]).read_text())
        except Exception as error:  # whatever the interpreter raises
            said = in_one_line(error)
    print(json.dumps(said))
