"""Sound files for the parsers to read, made here and now by the judge's own writers and the compiler."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax import export

from benchmarks.fuzz import expressions
from benchmarks.lib.programs import compiled, examined, of_function, struct
from benchmarks.lib.sources import ROOT
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem
from ratchet.loop import ledger
from ratchet.loop.journal import Plan
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.hlo import KERNEL
from ratchet.tpu.mlir.bindings import ir, stablehlo_of
from ratchet.tpu.mlir.calls import target, walk
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.values import Mesh, Program, Row, control, encoding


@dataclass(frozen=True, kw_only=True)
class Samples:
    """One sound file of each kind."""

    program: Program
    """A compiled kernel of scalars."""
    steering: Mapping[int | str, Any]
    compiled: Mapping[str, bytes]
    """What the compiler's process left, by path."""
    artefact: bytes
    body: bytes
    """The kernel's serialised module within the artefact, in base64."""
    configuration: bytes
    candidate: Mapping[str, bytes]
    """What the candidate's process left."""
    lock: bytes
    answer: bytes
    arrays: bytes
    timeline: bytes
    ledger: bytes
    journal: bytes
    executable: bytes = (
        b"\x08\x01\x12\x08\x08\x01\x1a\x04\x08\x00\x10\x04\x12\x08\x08\x02\x1a\x04\x08\x04\x10\x04\x1a\x08codeDATA"
    )
    """Of two segments, as ``ratchet.tpu.dump.image`` reads it."""
    error: bytes = (
        b"E1001: CompileTimeScopedVmemOom: Ran out of memory in memory space vmem. Scoped allocation with size 20.00M "
        b"and limit 16.00M exceeded. Used 156.25M of 128.00M vmem. Allocation (size=209715200) would exceed memory "
        b"(size=134217728) #allocation2 [shape = 'u8[209715200]{0}', space=vmem, size = 0xc800000, scoped, tag = 'x']"
    )

    def named(self, end: str) -> str:
        """The first file whose path ends so."""
        return next(name for name in sorted(self.compiled) if name.endswith(end))

    def top(self, end: str) -> str:
        """The listing or outline of the top-level program."""
        named = [name for name in sorted(self.compiled) if name.endswith(f"-{end}") and "-TLP-" in name]
        return next(name for name in named if "schedule-analysis" not in name)

    def repository(self, root: Path) -> None:
        """An empty repository with the ledger in it."""
        root.mkdir()
        (root / ledger.NAME).write_bytes(self.ledger)
        who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
        for command in (["init", "-q", "-b", "main"], [*who, "commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)


def made(workers: Workers) -> Samples:
    """Compiles one kernel."""
    drawn = [("repeated", 0, ("select", ("lt", 0, 1), 1, 2)), ("halvings", ("shift right", 1, 2))]
    words = expressions.steps(drawn, 8, seed=0)
    given = np.ascontiguousarray(words.reshape(-1))
    artefact = of_function(expressions.kernel(drawn, len(words)), [struct(given.shape, np.int32)])
    program = compiled(artefact, workers)
    folder = program.dump_dir
    timeline, summary = latency.step(program, V5E, Mesh(), {0: given})
    run = Loaded(tokenise(artefact.program)[0], Options()).run([given])
    body, configuration = _kernel(artefact.program)
    stored = io.BytesIO()
    np.savez(stored, input0=given, input1=words)
    answer = {
        "status": "PASS", "message": "", "seconds": 0.5, "worst": 0.25, "rms": 1e-7, "floor_rms": 1e-7,
        "module_version": 5, "modules": ["00"], "operations": ["arith.addi"], "control": control.encode(run.control),
    }  # fmt: skip
    rows = _ledger()
    candidate, lock = _candidate()
    return Samples(
        program=program,
        steering={0: given},
        compiled={str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()},
        artefact=artefact.program,
        body=body,
        configuration=configuration,
        candidate=candidate,
        lock=lock,
        answer=json.dumps(answer).encode(),
        arrays=stored.getvalue(),
        timeline=json.dumps({"timeline": encoding.encode(timeline), "summary": summary}).encode(),
        ledger=rows,
        journal=_journal(rows),
    )


def _kernel(program: bytes) -> tuple[bytes, bytes]:
    """The kernel's module as it is in the artefact, in base64, and its configuration."""
    module = stablehlo_of(export.deserialize(bytearray(program)))
    (call,) = (op for op in walk(module.operation) if target(op) == KERNEL)
    configuration = str(ir.StringAttr(call.attributes["backend_config"]).value)
    body = json.loads(configuration)["custom_call_config"]["body"].encode()
    if body not in program:
        raise ValueError("the artefact does not hold its kernel's module as one text")
    return body, configuration.encode()


def _candidate() -> tuple[dict[str, bytes], bytes]:
    """What a candidate's process leaves, and the lock of the problem that it froze."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.py").write_bytes((ROOT / "examples" / "first.py").read_bytes())
        examined(folder / "kernel.py", freeze=False)
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".json")}
        _, frozen = examined(folder / "kernel.py", freeze=True)
        assert frozen is not None
        return files, problem.encode(frozen)


def _ledger() -> bytes:
    """Three rows."""
    data: bytes | None = None
    for number in range(3):
        one = Row(**dict.fromkeys(ledger.COLUMNS, f"{number}.5"))
        one = dataclasses.replace(one, id=f"20260101-00000{number}-0000", note='a "note"\twith\\escapes\n')
        data = (data or b"") + ledger.addition(data, one).text.encode()
    assert data is not None
    return data


def _journal(rows: bytes) -> bytes:
    """A decision that was not enacted."""
    one = dataclasses.replace(ledger.parse_row(ledger.lines_of(rows)[-1]), id="20260101-000009-0000")
    added = ledger.addition(rows, one)
    plan = Plan(
        branch="refs/heads/main", old="0" * 40, new="1" * 40, kernel="k.py", judged="2" * 40, lock="k.py.lock.json"
    )
    record = {"id": one.id, "plan": dataclasses.asdict(plan), "added": dataclasses.asdict(added)}
    return json.dumps(record).encode()
