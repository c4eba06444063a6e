"""Two kernel files timed beside each other on this CPU by the product's own timing code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import freezing
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices
from ratchet.exam.measure.session import CANDIDATE, INCUMBENT, KINDS, Device, Session
from ratchet.exam.problem.problem import Problem
from ratchet.tpu.chips import V5E


@contextmanager
def timed(candidate: str, incumbent: str) -> Iterator[Session]:
    """A session that launches both kernels, given by their sources, at the problem of the first. Raises Refusal."""
    programs = {}
    problem: Problem | None = None
    with tempfile.TemporaryDirectory() as folder, Workers(V5E, compiles=False) as workers:
        for name, source in ((CANDIDATE, candidate), (INCUMBENT, incumbent)):
            wanted = tracer.TraceRequest(source=source.encode(), name="kernel.py", platform="cpu")
            artefact = tracer.result(workers.tracing(wanted))
            if problem is None:
                defined = tracer.definition(wanted, workers.author())
                problem = freezing.frozen(artefact, defined, workers.freezer())
            programs[name] = workers.folder(f"{name}.bin")
            programs[name].write_bytes(artefact.program)
        assert problem is not None
        exam = Examiner(workers=workers, root=Path(folder), compiler=devices.compiler("cpu"))
        exam.prepare(problem, KINDS)
        with closing(Device(evaluator="cpu", folder=workers.folder)) as device:
            yield Session(
                device=device,
                inputs=exam.write_inputs(problem, KINDS),
                specs=problem.inputs,
                verify=lambda name, kind, outputs: exam.check_outputs(problem, kind, outputs, what=name),
                programs=programs,
            )
