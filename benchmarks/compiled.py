"""Compiles kernel files for a chip that is not there and keeps the schedule machine's input.

    python -m benchmarks.compiled OUT FILE...

writes ``OUT/<stem>/`` for every file: the dumps and ``optimized.hlo.pb``. A process of its own, because the compiler
takes its flags once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from ratchet.dump.files import OPTIMIZED, dump_flags


def main() -> None:
    out, *files = (Path(argument) for argument in sys.argv[1:])
    dumps = out / "dumps"
    os.environ.update(
        JAX_PLATFORMS="cpu",
        TPU_SKIP_MDS_QUERY="1",
        TPU_ACCELERATOR_TYPE="v5litepod-4",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_WORKER_ID="0",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
        LIBTPU_INIT_ARGS=" ".join(dump_flags(dumps)),
    )
    import jax
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from ratchet.candidate.lines import keep_lines_apart

    keep_lines_apart()
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    sharding = NamedSharding(Mesh(np.array(topology.devices[:1]), ("x",)), PartitionSpec())
    for file in files:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernel)
        inputs = jax.eval_shape(kernel.generate_inputs, jax.random.key(0))
        avals = [jax.ShapeDtypeStruct(i.shape, i.dtype, sharding=sharding) for i in inputs]
        compiled = jax.jit(kernel.kernel_fn).lower(*avals).compile()
        target = out / file.stem
        target.mkdir()
        for path in dumps.iterdir():
            path.rename(target / path.name)
        module = compiled.runtime_executable().hlo_modules()[0]
        (target / OPTIMIZED).write_bytes(module.as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main()
