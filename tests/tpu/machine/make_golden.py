"""Writes the golden dumps of the installed TPU compiler: ``python -m tests.tpu.machine.make_golden``.

One archive per program, ``golden/<libtpu version>/<program>.tar.xz``, with the dumps under neutral names and the
optimised HLO as a proto. Paths and bytecode are taken out. Run it once per compiler version.
``python -m tests.tpu.machine.make_golden slice`` writes those of the programs for four chips, ``golden_slice/``, and
``sparse`` those that hand work to the SparseCores of a tpu7x, ``golden_sparse/``. Names of programs behind that write
these alone.
"""

from __future__ import annotations

import importlib.metadata
import io
import re
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.tpu.chips import TPU7X, V5E
from ratchet.tpu.compiler import environment
from ratchet.tpu.dump.files import OPTIMIZED
from ratchet.tpu.dump.hlo import parse_module

GOLDEN = Path(__file__).parent / "golden"


GOLDEN_SLICE = Path(__file__).parent / "golden_slice"
GOLDEN_SPARSE = Path(__file__).parent / "golden_sparse"


def main() -> None:
    """Compiles every program and packs what the machine reads."""
    from ratchet.tpu.dump.image import OFFSETS_PASS

    version = f"libtpu-{importlib.metadata.version('libtpu')}"
    slices = sys.argv[1:2] == ["slice"]
    sparse = sys.argv[1:2] == ["sparse"]
    wanted = sys.argv[1 + slices + sparse :]
    with tempfile.TemporaryDirectory() as name:
        dumps = Path(name) / "dumps"
        environment.enter(TPU7X if sparse else V5E, dumps, extra_passes=(OFFSETS_PASS,) if slices else ())
        if slices:
            _compile_slices(dumps, GOLDEN_SLICE / version, wanted)
        else:
            _compile_all(dumps, (GOLDEN_SPARSE if sparse else GOLDEN) / version, wanted, sparse=sparse)


def _compile_all(dumps: Path, target: Path, wanted: list[str], *, sparse: bool) -> None:
    import jax

    from ratchet.tpu.compiler.inside import lower
    from tests.tpu.machine import programs, sparse_programs

    every, chip = (sparse_programs.PROGRAMS, TPU7X) if sparse else (programs.PROGRAMS, V5E)
    for name in wanted or every:
        function, shapes = every[name]
        compiled = lower(function, [jax.ShapeDtypeStruct(*shape) for shape in shapes], chip.name).compile()
        _pack(target / f"{name}.tar.xz", {OPTIMIZED: _proto(compiled), **_texts(dumps)})


def _compile_slices(dumps: Path, target: Path, wanted: list[str]) -> None:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from ratchet.tpu.compiler.inside import devices_of
    from ratchet.tpu.dump.image import constant_segment
    from tests.tpu.machine.slice_programs import CHIP_IDS, CHIPS, PROGRAMS, SHARD

    mesh = Mesh(np.array([devices_of(V5E.name)[i] for i in CHIP_IDS]), ("x",))
    spec = PartitionSpec("x")
    argument = jax.ShapeDtypeStruct((CHIPS * SHARD[0], SHARD[1]), np.float32, sharding=NamedSharding(mesh, spec))
    for name in wanted or PROGRAMS:
        sharded = jax.shard_map(PROGRAMS[name], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        compiled = jax.jit(sharded).lower(argument).compile()
        constants = constant_segment(compiled.runtime_executable().serialize(), compiler=target.name)
        files = {OPTIMIZED: _proto(compiled), "constants.bin": constants, **_texts(dumps)}
        _pack(target / f"{name}.tar.xz", files)


def _proto(compiled: Any) -> bytes:
    """The optimised HLO without the kernels' bytecode and without what JAX says of sources."""
    module = parse_module(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
            instruction.backend_config = re.sub(rb'"body":"[^"]*"', b'"body":""', instruction.backend_config)
    module.ClearField("stack_frames")
    return bytes(module.SerializeToString(deterministic=True))


def _texts(dumps: Path) -> dict[str, str]:
    """What the machine reads of the dumps, which are removed; of the top level only where allocations lie."""
    files = {}
    for path in sorted(dumps.iterdir()):
        if re.search(r"\.txt$", path.name) and "schedule-analysis" not in path.name and "hlo.txt" not in path.name:
            text = _neutral(path.read_text())
            if "final-top-level-llo" in path.name:
                text = "".join(line for line in text.splitlines(keepends=True) if "#allocation" in line[:20])
            files[re.sub(r"^\d+-|(?<=_)\d+(?=_bundles)", "1-" if path.name[0].isdigit() else "1", path.name)] = text
        path.unlink()
    return files


def _pack(target: Path, files: Mapping[str, str | bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as archive:
        for file, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _neutral(text: str) -> str:
    return re.sub(r'"(?:/[^"/]+)+/([^"/]+\.py)', r'"\1', text)


if __name__ == "__main__":
    main()
