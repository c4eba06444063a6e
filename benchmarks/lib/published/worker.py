"""The child process that builds published kernels and compiles them ahead of time.

A record has the key of the compiled program, or says why there is none. Programs already compiled are reused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.lib.cache import serve_records
from benchmarks.lib.published.cases import Array, Case, parse_array
from benchmarks.lib.published.kernels import NotBuilt, build
from ratchet.tpu.compiler.environment import COMPILER
from ratchet.tpu.compiler.inside import clear_dumps, keep, lower
from ratchet.tpu.dump.image import constant_segment


def _case(recipe: dict[str, Any]) -> Case:
    arrays: tuple[Array, ...] = tuple(parse_array(text) for text in recipe["arrays"])
    return Case(
        number="", source="", status="", measured_ms=None, timer="", doubtful=False, arrays=arrays,
        kernel=recipe["kernel"], chip=recipe["chip"], config=recipe["config"],
        group_sizes=tuple(recipe["group_sizes"]), options=recipe["options"],
    )  # fmt: skip


def compile_case(recipe: dict[str, Any], _folder: Path, programs: Path) -> dict[str, Any]:
    """Lowers, compiles unless that very program has been, and files the dumps under the program's key."""
    clear_dumps()
    try:
        built = build(_case(recipe))
    except NotBuilt as error:
        return {"not_built": str(error)}
    if built.chips > 1:
        lowered = jax.jit(built.function).lower(*built.avals)
    else:
        lowered = lower(built.function, built.avals, recipe["chip"])
    identity = json.dumps([lowered.as_text(), recipe["chip"], os.environ[COMPILER]])
    key = hashlib.sha256(identity.encode()).hexdigest()[:24]
    scalars = {name: np.asarray(values) for name, values in built.scalars.items()}
    folder = programs / key
    if not (folder / "compiled.json").exists():
        _compile(lowered, folder, chips=built.chips)
    record = json.loads((folder / "compiled.json").read_text())
    steering = ""
    if scalars:  # beside the program, by their own digest: one program serves many group sizes
        digest = hashlib.sha256(b"".join(name.encode() + v.tobytes() for name, v in sorted(scalars.items())))
        steering = f"scalars-{digest.hexdigest()[:16]}.npz"
        np.savez_compressed(folder / steering, **scalars)  # type: ignore[arg-type]
    return {"key": key, "scalars": steering, **record}


def _compile(lowered: Any, folder: Path, *, chips: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    record = {}
    try:
        compiled = lowered.compile()
        if chips > 1:  # what collectives look up is in the executable alone
            image = constant_segment(compiled.runtime_executable().serialize(), compiler=os.environ[COMPILER])
            (folder / "constants.bin").write_bytes(image)
        keep(compiled, folder)
    except Exception as error:  # the compiler's errors have many types; all are kept
        if "lockfile" in str(error):
            raise
        record = {"error": f"{type(error).__name__}: {error}"[:4000]}
    (folder / "compiled.json").write_text(json.dumps(record))


if __name__ == "__main__":
    serve_records(compile_case)
