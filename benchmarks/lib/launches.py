"""Two kernel files timed beside each other on this CPU by the product's own timing code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ratchet.exam.candidate import tracer
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure.session import CANDIDATE, INCUMBENT, KINDS, Device, Session


@contextmanager
def timed(candidate: str, incumbent: str, workers: Workers, exam: Examiner) -> Iterator[Session]:
    """A session that launches both kernels, given by their sources, at the problem of the first. Raises Refusal."""
    programs, problem = {}, None
    for name, source in ((CANDIDATE, candidate), (INCUMBENT, incumbent)):
        artefact, frozen = tracer.examine(
            source.encode(), "kernel.py", child=workers.candidate(), freeze=problem is None, platform="cpu"
        )
        problem = problem or frozen
        programs[name] = workers.folder(f"{name}.bin")
        programs[name].write_bytes(artefact.program)
    assert problem is not None
    exam.prepare(problem, KINDS)
    device = Device(evaluator="cpu", folder=workers.folder)
    try:
        yield Session(
            device=device,
            inputs=exam.write_inputs(problem, KINDS),
            specs=problem.inputs,
            verify=lambda name, kind, outputs: exam.check_outputs(problem, kind, outputs, what=name),
            programs=programs,
        )
    finally:
        device.close()
