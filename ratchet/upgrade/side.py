"""One side of `ratchet upgrade-check`: targets exported, compiled, modelled and executed under one JAX.

``start.py upgrade ENVIRONMENT FOLDER`` runs it with the packages of that environment. ``FOLDER`` holds
``request.json``; a file for each target, written as soon as anything is known, and the outputs' bytes are left there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ratchet.commands.ci import costs_of
from ratchet.commands.targets import Compilers
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.target import Case, Exported, Target
from ratchet.upgrade.upgrade import FAILED, REQUEST, case_of, side_name
from ratchet.values import ArraySpec, Explanation, OpKind
from ratchet.values.change import Costs
from ratchet.values.status import Ended, Refusal, Status

SEED = 20
_KEY = ArraySpec(shape=(2,), dtype="uint32")


def main() -> int:
    """Answer the request in the folder that the command line names.

    Whatever is wrong with a target is in its file, and what stops all is in ``FAILED``.
    """
    folder = Path(sys.argv[1])
    request = json.loads((folder / REQUEST).read_text())
    try:
        with Compilers.start() as compilers:
            for number, one in request["targets"]:
                for record in _side(one, request["values"], folder, compilers):
                    _write(folder / side_name(number), record)
    except Refusal as refusal:
        _write(folder / FAILED, {"status": refusal.status.name, "message": refusal.message})
        return refusal.status.exit_code
    return Status.PASS.exit_code


def _write(path: Path, record: Mapping[str, Any]) -> None:
    """Whole or not at all: this process may be killed at any time."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.rename(path)


def _side(request: Mapping[str, Any], values: bool, folder: Path, compilers: Compilers) -> Iterator[dict[str, Any]]:
    """What is known so far: without values first, ``finished`` at the end."""
    target = targets.parse(request["text"])
    case = case_of(request)
    record: dict[str, Any] = {"target": request["title"], "chip": case.chip, "jax_version": "", "finished": False}
    try:
        exported = targets.export(target, case)
    except Refusal as refusal:
        yield {**record, "costs": _refused(refusal), "finished": True}
        return
    record["jax_version"] = exported.jax_version
    try:
        explanation = compilers.explained(exported, case.chip, request["title"])
    except Refusal as refusal:
        record["costs"] = _refused(refusal)
    else:
        record |= {"costs": _costs(costs_of(explanation)), **_parts(explanation)}
    yield record
    known = _values(target, case, exported, folder) if values else {"no_values": "--no-values"}
    yield {**record, **known, "finished": True}


def _refused(refusal: Refusal) -> dict[str, Any]:
    if refusal.status in (Status.INTERRUPTED, Status.NO_SPACE, Status.USAGE, Status.NOT_FOUND):
        raise refusal
    ended = isinstance(refusal, Ended) or refusal.status is Status.INFRASTRUCTURE
    return _costs(Costs(status=Status.UNSETTLED if ended else refusal.status, reason=refusal.message))


def _costs(costs: Costs) -> dict[str, Any]:
    return {**asdict(costs), "status": costs.status.name}


def _parts(explanation: Explanation) -> dict[str, Any]:
    """Time by operation and bytes by copy, under names that two compilers have in common."""
    timeline = explanation.timeline
    ops: dict[str, float] = {}
    for op in explanation.ops:
        of_kernel = f"kernel {op.name.rpartition('.')[0] or op.name}"
        name = of_kernel if op.kind is OpKind.KERNEL else f"{op.kind.value} {op.origin or op.opcode}"
        ops[name] = ops.get(name, 0.0) + (op.cycles / timeline.clock_hz * 1e3 if timeline else 0.0)
    copies: dict[str, int] = {}
    for copy in explanation.copies:
        if copy.injected and copy.kind != "prefetch":
            name = f"{copy.kind} of {copy.cause or 'no known cause'}"
            copies[name] = copies.get(name, 0) + copy.size_bytes
    return {"op_ms": ops, "copy_bytes": copies}


def _values(target: Target, case: Case, exported: Exported, folder: Path) -> dict[str, Any]:
    """The outputs on drawn inputs, as files below ``folder``, or why there are none."""
    from ratchet.tpu.mosaic import run

    try:
        arrays = list(_arrays(target, case, exported))
        result = run.load(exported.program).check(arrays)
    except Refusal as refusal:
        return {"no_values": f"{refusal.status.name}: {refusal.message}"}
    outputs = []
    for array in result.outputs:
        data = array.tobytes()
        name = hashlib.sha256(data).hexdigest()
        (folder / name).write_bytes(data)
        outputs.append({"shape": list(array.shape), "dtype": array.dtype.name, "file": name})
    return {"outputs": outputs, "findings": [str(finding) for finding in result.findings]}


def _arrays(target: Target, case: Case, exported: Exported) -> Iterator[Any]:
    """A target's inputs: of its generator and a public key, or drawn by NumPy, which is the same under every JAX.

    Raises:
      Refusal: ``CANNOT_VERIFY`` for integers of more than 8 bits, whose values matter.
    """
    import jax.numpy as jnp
    import numpy as np

    from ratchet.tpu.mosaic import run

    if case.generator:
        generator = targets.parse_generator(case.generator, target)
        made = targets.export(generator, Case(inputs=(_KEY,), chip=case.chip))
        yield from run.load(made.program).check([np.array([0, SEED], np.uint32)]).outputs
        return
    rng = np.random.default_rng(SEED)
    for spec in exported.inputs:
        dtype = jnp.dtype(spec.dtype)
        if jnp.issubdtype(dtype, jnp.floating):
            yield rng.normal(size=spec.shape).astype(dtype)
        elif dtype == jnp.bool_:
            yield rng.integers(0, 2, spec.shape).astype(dtype)
        elif jnp.iinfo(dtype).bits <= 8:
            info = jnp.iinfo(dtype)
            yield rng.integers(int(info.min), int(info.max) + 1, spec.shape).astype(dtype)
        else:
            message = f"an input is {spec.dtype}, whose values matter: name a function of a key with --input"
            raise Refusal(Status.CANNOT_VERIFY, message)
