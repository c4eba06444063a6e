"""A problem frozen from data by a child of the judge's, and read.

A process of the author's that never called ``kernel_fn`` leaves two jaxprs. This child, which never ran the author's
code, computes all else of them (``ratchet/exam/problem/freezing.py``). What the process that traced the kernel says of
its problem has to be the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ratchet.exam.candidate import tracer
from ratchet.exam.problem import mesh, problem
from ratchet.process.sandbox.child import Child, Limits
from ratchet.process.sandbox.folder import Folder
from ratchet.process.sandbox.warm import Warm
from ratchet.values import Artefact
from ratchet.values.encoding import encode
from ratchet.values.status import Refusal, Status

WORKER = "ratchet.exam.judge.freezing_worker"
LIMITS = Limits(seconds=900, memory_bytes=8 << 30)


def start(workdir: Path, warm: Warm | None = None) -> Child:
    """Start a child that freezes one problem."""
    return Child(WORKER, directory=workdir, walls=tracer.WALLS, warm=warm)


def frozen(artefact: Artefact, defined: Mapping[str, bytes], child: Child) -> problem.Problem:
    """The problem that follows from what is ``defined``, by ``child``, which is closed; ``artefact`` is the kernel's.

    Raises:
      Refusal: ``NON_DETERMINISTIC`` where the process of the kernel has another problem; ``CONTRACT`` for one that
        cannot be frozen; how the child ended.
    """
    with child:
        for name, content in {**defined, tracer.REQUEST: request(artefact)}.items():
            child.folder.write(name, content)
        ending = child.ask(child.directory, LIMITS)
        if ending.how != "answered":
            why = tracer.ended(ending, "the problem", LIMITS)
            raise Refusal(why.status, f"freezing the problem: {why.message}")
        return read(child.folder, artefact)


def request(artefact: Artefact) -> bytes:
    """What the child reads beside both jaxprs: how inputs lie on the chips, and how the kernel leaves outputs."""
    document = {
        "mesh": encode(artefact.mesh),
        "left": problem.plain_splits(artefact.output_splits),
        "memory_bytes": LIMITS.memory_bytes,
    }
    return json.dumps(document).encode()


def read(folder: Folder, artefact: Artefact) -> problem.Problem:
    """What the child left, every field checked. Raises as ``frozen``."""
    record = tracer.read_record(folder, "the problem")
    with tracer.complete("the problem", "record"):
        document = {
            **record,
            **mesh.plain(artefact.mesh),
            "kernel_name": artefact.kernel_name,
            "description": artefact.problem_description,
            "flops": artefact.flops,
            "output_shardings": problem.plain_splits(artefact.output_splits),
            "work": _work(record["work"]),
        }
        programs = {name: folder.read(name, tracer.MAX_PROGRAM_BYTES) for name in problem.PROGRAMS}
        made = problem.of_document(document, programs)
    for what, here, there in (
        ("reference_fn", made.reference_sha256, artefact.reference_sha256),
        ("generate_inputs", made.inputs_sha256, artefact.inputs_sha256),
    ):
        if here != there:
            raise Refusal(
                Status.NON_DETERMINISTIC,
                f"{what} is {there[:12]} in the process that traces kernel_fn and {here[:12]} in one that does not; "
                "wanted one program: let it depend on nothing but its arguments",
            )
    return made


def _work(given: object) -> dict[str, object]:
    """Counts alone: kinds of products with FLOPs, and bytes; those between chips where there are several."""
    wanted = {"products": dict, "input_bytes": list, "output_bytes": list}
    if not isinstance(given, dict) or set(given) - {"link_bytes"} != set(wanted):
        raise ValueError(f"work is {given!r:.80}")
    if any(not isinstance(given[key], kind) for key, kind in wanted.items()):
        raise ValueError(f"work is {given!r:.80}")
    between = given.get("link_bytes", 0)
    numbers = [*given["products"].values(), *given["input_bytes"], *given["output_bytes"], between]
    if not all(type(n) is int and n >= 0 for n in numbers) or not all(isinstance(k, str) for k in given["products"]):
        raise ValueError(f"work holds {numbers!r:.80}")
    return given
