"""Compile an exported program as plainly as can be: no dump, token or annotation. Prints wall and CPU seconds, as JSON.

python -m benchmarks.verdict.bare PROGRAM
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import environment


def main() -> None:
    os.environ.update(environment.environment(V5E, None))
    import jax
    from jax import export

    from ratchet.tpu.compiler.inside import mesh_of

    program = export.deserialize(bytearray(Path(sys.argv[1]).read_bytes()))
    mesh = mesh_of(V5E.name, [["chip", program.nr_devices]] if program.nr_devices > 1 else [])
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    shardings = [sharding or whole for sharding in program.in_shardings_jax(mesh)]
    avals = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(program.in_avals, shardings, strict=True)
    ]
    lowered = jax.jit(program.call).lower(*avals)
    start, cpu = time.monotonic(), time.process_time()
    lowered.compile()
    print(json.dumps([time.monotonic() - start, time.process_time() - cpu]))


if __name__ == "__main__":
    main()
