"""The child process that holds the TPU compiler. Compiles exported programs ahead of time, one request each.

A request's folder holds ``kernel.bin`` and ``request.json``; the answer leaves ``compiled.json``, ``stablehlo.mlir``,
``optimized.hlo`` and ``lowered.hlo`` (for people as text, for the judge as protos in ``.pb``) and ``schedule/`` there,
and ``constants.bin`` for a program on several chips: the routing tables of its collectives. The compiler may abort the
process: the parent sees that no answer came.

What is compiled has the judge's tokens in the place of the author's names; ``schedule/tokens.json`` maps them back.
A request to identify a program leaves that table and a digest of what would be compiled, and compiles nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.sharding import Mesh

from ratchet.process.sandbox.child import serve
from ratchet.tpu.compiler.donation import donate, donated
from ratchet.tpu.compiler.environment import CHIP, PROFILES
from ratchet.tpu.compiler.errors import HEADER_BYTES
from ratchet.tpu.compiler.fast.inside import profiled, stubbed
from ratchet.tpu.compiler.inside import clear_dumps, devices_of, mesh_of, move_dumps, optimised
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.files import ALLOCATIONS_PASS, LAST_PASS, LOWERED, OPTIMIZED, without_stamps
from ratchet.tpu.dump.image import constant_segment
from ratchet.tpu.mlir.bindings import hlo_text, stablehlo_of
from ratchet.values.status import Refusal
from ratchet.values.tokens import TOKENS_FILE, encode


def changed(program: export.Exported, shardings: Sequence[Any], mesh: Mesh, asked: Mapping[str, Any]) -> str:
    """What an artefact's program takes, where and what it gives that its record says otherwise, in words, or ``""``."""
    differences = []
    for what, avals in (("inputs", program.in_avals), ("outputs", program.out_avals)):
        got = [[list(a.shape), np.dtype(a.dtype).name] for a in avals]
        if got != asked[what]:
            differences.append(f"its {what} are {got}, declared as {asked[what]}")
    for number, (sharding, aval) in enumerate(zip(shardings, program.in_avals, strict=True)):
        declared = _spread(mesh, asked["splits"][number] if number < len(asked["splits"]) else [])
        if not sharding.is_equivalent_to(declared, len(aval.shape)):
            differences.append(f"input {number} is on the chips as {sharding.spec}, declared as {declared.spec}")
    return "; ".join(differences)


def left_elsewhere(shardings: Any, avals: Sequence[Any], mesh: Mesh, splits: Sequence[Any]) -> str:
    """What the compiled program leaves on other chips than its record says, in words, or ``""``. None: not said."""
    differences = []
    for number, (sharding, aval, split) in enumerate(zip(jax.tree.leaves(shardings), avals, splits, strict=False)):
        if split is None or mesh.size == 1:
            continue
        declared = _spread(mesh, split)
        if not sharding.is_equivalent_to(declared, len(aval.shape)):
            differences.append(f"output {number} is left on the chips as {sharding}, recorded as {declared.spec}")
    return "; ".join(differences)


def _spread(mesh: Mesh, splits: Sequence[Any]) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*map(tuple, splits)))


tokenised = functools.lru_cache(maxsize=1)(tokenise)
"""A program that is identified is mostly compiled next."""


def identify(folder: Path) -> dict[str, Any]:
    """Digest of ``folder/kernel.bin`` without its author's names and places, which go to a table beside it."""
    program, table = tokenised((folder / "kernel.bin").read_bytes())
    (folder / TOKENS_FILE).write_text(encode(table))
    return {"code_sha256": hashlib.sha256(bytes(program.serialize())).hexdigest()}


def compile_program(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Compile ``folder/kernel.bin``; write texts and schedule dumps to ``folder``."""
    mesh, profiles = mesh_of(asked["chip"], asked["axes"]), bool(os.environ.get(PROFILES))
    clear_dumps()
    schedule = folder / "schedule"
    schedule.mkdir()
    start = time.monotonic()
    program, table = tokenised((folder / "kernel.bin").read_bytes())
    (schedule / TOKENS_FILE).write_text(encode(table))
    (folder / "stablehlo.mlir").write_text(str(program.mlir_module()))
    shardings = [sharding or _spread(mesh, []) for sharding in program.in_shardings_jax(mesh)]
    if what := changed(program, shardings, mesh, asked):
        return {"changed": what}
    if asked.get("stubbed"):
        program = stubbed(program)
    avals = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(program.in_avals, shardings, strict=True)
    ]
    placed: dict[str, Any] = (
        {} if avals else {"out_shardings": _spread(mesh, [])}
    )  # else nothing says that it is for a TPU
    try:
        lowered: Any = jax.jit(program.call, **placed).lower(*avals)
        donate(lowered.compiler_ir(dialect="stablehlo"), donated(stablehlo_of(program)))
        lowered_seconds = time.monotonic() - start
        compiled: Any = profiled(lowered) if profiles else lowered.compile()
    finally:  # what failed leaves the table of tokens, and dumps, which say which buffer was too large
        move_dumps(schedule)
        for dump in schedule.glob(f"*-{ALLOCATIONS_PASS}.txt"):
            os.truncate(dump, min(dump.stat().st_size, HEADER_BYTES))  # more is never read
    for label in (ALLOCATIONS_PASS,) if asked.get("stubbed") or profiles else (ALLOCATIONS_PASS, LAST_PASS):
        for dump in schedule.glob(f"*-{label}.txt"):
            dump.unlink()  # one is read of what does not fit, the other by the fast route
    without_stamps(schedule)  # what does not fit is known by them: the last one dumped
    if what := left_elsewhere(compiled.output_shardings, program.out_avals, mesh, asked["output_splits"]):
        return {"changed": what}
    seconds = time.monotonic() - start
    (folder / "lowered.hlo").write_text(lowered.as_text(dialect="hlo"))
    (folder / LOWERED).write_bytes(lowered.compiler_ir(dialect="hlo").as_serialized_hlo_module_proto())
    module = optimised(compiled)
    (folder / "optimized.hlo").write_text(hlo_text(module))
    (folder / OPTIMIZED).write_bytes(module.as_serialized_hlo_module_proto())
    if mesh.size > 1:
        image = constant_segment(compiled.runtime_executable().serialize(), compiler="libtpu")
        (folder / "constants.bin").write_bytes(image)
    hbm = compiled.memory_analysis()
    return {
        "chip_ids": [device.id for device in mesh.devices.flat],
        "hbm_bytes": hbm.argument_size_in_bytes
        + hbm.output_size_in_bytes
        + hbm.temp_size_in_bytes
        - hbm.alias_size_in_bytes,
        "lower_seconds": lowered_seconds,
        "seconds": seconds,
    }


def handle(request: Path) -> str:
    """Answer one request. Whatever the compiler raises is returned as text; the parent classifies it."""
    asked = json.loads((request / "request.json").read_text())
    try:
        record = identify(request) if asked.get("identify") else compile_program(request, asked)
    except Refusal as refusal:
        record = {"refused": [refusal.status.name, refusal.message]}
    except Exception as error:  # the compiler's errors have many types; all are returned
        record = {"error": f"{type(error).__name__}: {error}"}
    (request / "compiled.json").write_text(json.dumps(record))
    return "compiled.json"


if __name__ == "__main__":
    with contextlib.suppress(Exception):  # the first request fails in the same way, and its answer says why
        devices_of(os.environ[CHIP])  # opens the compiler while the parent does other things
    serve(handle)
