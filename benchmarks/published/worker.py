"""The child process that builds published kernels and compiles them ahead of time, one case per request.

A request's folder holds ``request.json`` (the case's recipe and the folder of compiled programs); the answer leaves
``answer.json`` there: the key of the compiled program, or why there is none. Programs already compiled are reused.
"""

from __future__ import annotations

import hashlib
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

from benchmarks.published.build import NotBuilt, build
from benchmarks.published.cases import Array, Case, parse_array
from benchmarks.published.store import COMPILER, DUMP_FOLDER
from ratchet.child import serve
from ratchet.chips import CHIPS
from ratchet.dump.files import OPTIMIZED

_WANTED = re.compile(
    r"-(packed-bundles-post-ra|post-bundle-packing-post-ra|final_hlo-static-per-bundle-utilization)\.txt$"
)
_MESHES: dict[str, Mesh] = {}


def _mesh(chip: str) -> Mesh:
    if chip not in _MESHES:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=CHIPS[chip].topology)
        _MESHES[chip] = Mesh(np.array(topology.devices[:1]), ("chip",))
    return _MESHES[chip]


def _case(recipe: dict[str, Any]) -> Case:
    arrays: tuple[Array, ...] = tuple(parse_array(text) for text in recipe["arrays"])
    return Case(
        number="", source="", status="", measured_ms=None, timer="", doubtful=False, arrays=arrays,
        kernel=recipe["kernel"], chip=recipe["chip"], config=recipe["config"],
        group_sizes=tuple(recipe["group_sizes"]), options=recipe["options"],
    )  # fmt: skip


def compile_case(recipe: dict[str, Any], programs: Path) -> dict[str, Any]:
    """Lowers, compiles unless that very program has been, and files the dumps under the program's key."""
    dumps = Path(os.environ[DUMP_FOLDER])
    for old in dumps.glob("*"):
        old.unlink()
    built = build(_case(recipe))
    mesh = _mesh(recipe["chip"])
    sharding = NamedSharding(mesh, PartitionSpec())
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in built.avals]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # some kernels ask which chip they are lowered for
        lowered: Any = jax.jit(built.function).lower(*avals)
    identity = json.dumps([lowered.as_text(), recipe["chip"], os.environ[COMPILER]])
    key = hashlib.sha256(identity.encode()).hexdigest()[:24]
    scalars = {name: np.asarray(values) for name, values in built.scalars.items()}
    folder = programs / key
    if not (folder / "compiled.json").exists():
        _compile(lowered, folder, dumps)
    record = json.loads((folder / "compiled.json").read_text())
    steering = ""
    if scalars:  # beside the program, by their own digest: one program serves many group sizes
        digest = hashlib.sha256(b"".join(name.encode() + v.tobytes() for name, v in sorted(scalars.items())))
        steering = f"scalars-{digest.hexdigest()[:16]}.npz"
        np.savez_compressed(folder / steering, **scalars)  # type: ignore[arg-type]
    return {"key": key, "scalars": steering, **record}


def _compile(lowered: Any, folder: Path, dumps: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        compiled: Any = lowered.compile()
    except Exception as error:  # the compiler's errors have many types; all are told
        record = {"error": f"{type(error).__name__}: {error}"[:4000]}
        if "lockfile" in record["error"]:
            raise
    else:
        record = {}
        module = compiled.runtime_executable().hlo_modules()[0]
        (folder / OPTIMIZED).write_bytes(module.as_serialized_hlo_module_proto())
        (folder / "schedule").mkdir()
        for dump in dumps.iterdir():
            if _WANTED.search(dump.name) and "schedule-analysis_" not in dump.name:
                shutil.move(dump, folder / "schedule" / dump.name)
    (folder / "compiled.json").write_text(json.dumps(record))


def handle(request: Path) -> str:
    """Answer one request."""
    asked = json.loads((request / "request.json").read_text())
    try:
        record = compile_case(asked["recipe"], Path(asked["programs"]))
    except NotBuilt as error:
        record = {"not_built": str(error)}
    except Exception as error:  # told as text: a published kernel may fail in JAX as well as in the compiler
        record = {"error": f"{type(error).__name__}: {error}"[:4000]}
    (request / "answer.json").write_text(json.dumps(record))
    return "answer.json"


if __name__ == "__main__":
    serve(handle)
