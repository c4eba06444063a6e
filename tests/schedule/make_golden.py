"""Writes the golden dumps of the installed TPU compiler: ``python -m tests.schedule.make_golden``.

One archive per program, ``golden/<libtpu version>/<program>.tar.xz``, with the dumps under neutral names and the
optimised HLO. Paths of the machine and the kernels' bytecode are taken out. Run it once per compiler version.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import tarfile
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def main() -> None:
    """Compiles every program of :mod:`tests.schedule.programs` and packs what the machine reads."""
    from ratchet.schedule.dumps import dump_flags

    with tempfile.TemporaryDirectory() as name:
        dumps = Path(name) / "dumps"
        os.environ.update(
            JAX_PLATFORMS="cpu",
            TPU_SKIP_MDS_QUERY="1",
            TPU_ACCELERATOR_TYPE="v5litepod-4",
            TPU_WORKER_HOSTNAMES="localhost",
            TPU_WORKER_ID="0",
            ALLOW_MULTIPLE_LIBTPU_LOAD="1",
            LIBTPU_INIT_ARGS=" ".join(dump_flags(dumps)),
        )
        _compile_all(dumps, GOLDEN / f"libtpu-{importlib.metadata.version('libtpu')}")


def _compile_all(dumps: Path, target: Path) -> None:
    import jax
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from tests.schedule.programs import PROGRAMS

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    sharding = NamedSharding(Mesh(np.array(topology.devices[:1]), ("x",)), PartitionSpec())
    target.mkdir(parents=True, exist_ok=True)
    for name, (function, shapes) in PROGRAMS.items():
        arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in shapes]
        compiled = jax.jit(function).lower(*arguments).compile()
        files = {"optimized.hlo": compiled.as_text()}
        for path in sorted(dumps.iterdir()):
            if re.search(r"\.txt$", path.name) and "schedule-analysis" not in path.name and "hlo.txt" not in path.name:
                files[re.sub(r"^\d+-", "1-", path.name)] = path.read_text()
            path.unlink()
        with tarfile.open(target / f"{name}.tar.xz", "w:xz") as archive:
            for file, text in files.items():
                data = _neutral(text).encode()
                entry = tarfile.TarInfo(file)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def _neutral(text: str) -> str:
    text = re.sub(r'"(?:/[^"/]+)+/([^"/]+\.py)', r'"\1', text)
    return re.sub(r'"body":"[^"]*"', '"body":""', text)


if __name__ == "__main__":
    main()
