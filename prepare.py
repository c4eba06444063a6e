"""The judge. This file is the table of contents of a verdict: every step, in order. It is sealed; do not edit it.

    python prepare.py [--kernel FILE] [--on DEVICE] [--deep] [--json]

judges the kernel file of the work tree, without touching the branch, and appends a row to results.tsv.
"""

from __future__ import annotations

if __name__ == "__main__":  # go on in the private environment's Python, before a file beside this one is imported
    import os  # these two are there already
    import sys

    root = os.path.dirname(os.path.realpath(__file__))
    python = os.path.realpath(f"{root}/.venv/bin/python")  # under its own name it reads no pyvenv.cfg
    if python.startswith(f"{root}/") and os.path.exists(python):
        sys.exit(f"the interpreter of .venv is {python}, inside the repository: remove .venv, `./ratchet.sh` makes it")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON"))}
    command = [
        python if os.path.exists(python) else sys.executable,
        "-I",
        "-S",
        f"{root}/ratchet/process/boot/start.py",
        "prepare",
    ]
    os.execve(command[0], [*command, *sys.argv[1:]], kept)

import dataclasses
import hashlib

from ratchet.process.boot.start import starting

with starting():  # NumPy is imported here, and takes an interrupt for an error of its own
    from ratchet.exam.judge import audit
    from ratchet.exam.judge.bench import opened
    from ratchet.exam.judge.measured import Measured
    from ratchet.exam.judge.modelled import Modelled
    from ratchet.exam.judge.request import Request
    from ratchet.exam.judge.steps import Progress, Silent, Steps
    from ratchet.exam.judge.workers import Workers
    from ratchet.tpu.compiler import compile
    from ratchet.tpu.dump import memory
    from ratchet.values import SCORED, Verdict


def judge(request: Request, *, workers: Workers | None = None, progress: Progress | None = None) -> Verdict:
    """Judge a kernel file. Whatever the kernel does, and whatever a step raises, the answer is a verdict.

    The compiler works beside the values: both start from the exported program. What ends first is said in order.
    A step is left out where one of its needs is None. ``bench.model`` is None on a CPU or GPU, ``bench.device``
    where no device is timed; with a TPU attached both are there, and the measured score counts. Where the kernel has
    no frozen problem yet, this file's own is frozen beside it once it passes. A sweep passes ``workers`` that it keeps.
    A program that was judged before under the same conditions has that verdict, if ``request.remember``.
    """
    steps = Steps(progress or Silent())
    with opened(request, workers, steps.note) as bench:
        model, device = bench.model, bench.device

        artefact, frozen = steps.run("contract", bench.trace) or (None, None)
        problem = steps.run("problem", bench.problem, artefact, frozen=frozen)

        digest = hashlib.sha256(bench.source).hexdigest()
        known = bench.identity(artefact, problem)
        if earlier := bench.recall(steps, known, kernel=request.kernel_rel, source_sha256=digest):
            return earlier

        checks = steps.begin("correctness", bench.values, problem, artefact)
        program = steps.run("compile", Modelled.compile, model, artefact)
        footprint = steps.run("memory", memory.step, program)
        copies = steps.run("copies", compile.copy_trap, program)
        steps.run("kernel", audit.program, program)

        run = steps.begin("schedule", Modelled.latency, model, problem, program)

        parity = steps.end(bench.worthwhile(checks, steps, problem, steps.peek(run)))
        timeline = steps.end(run)
        steps.run("control", Modelled.control, model, problem, program, timeline, parity)
        modelled = steps.run("roofline", Modelled.score, model, problem, timeline)
        claims = steps.run("audit", audit.step, artefact, problem, footprint, timeline)

        steps.run("incumbent", Measured.incumbent, steps.passing(device), request.against)
        timing = steps.run("measure", Measured.latency, steps.passing(device), problem, artefact)
        measured = steps.run("roofline", Measured.score, device, problem, timing, modelled=modelled)

        bench.record(steps, frozen)
        verdict = Verdict(
            status=steps.status,
            reason=steps.reason or f"correct and timed {bench.timed}",
            kernel=request.kernel_rel,
            kernel_name=artefact.kernel_name if artefact else "",
            conditions=dataclasses.replace(
                request.conditions, problem=problem.short if problem else request.conditions.problem
            ),
            score=(measured or modelled) if steps.status in SCORED else None,
            steps=tuple(steps.steps),
            footprint=footprint,
            copies=copies or (),
            parity=parity,
            timeline=timeline,
            samples=timing.samples if timing else None,
            paired=timing.paired if timing else None,
            claims=claims or (),
            notes=(artefact.jail,) if artefact and artefact.jail else (),
            source_sha256=digest,
            seconds=steps.seconds,
        )
        return bench.remember(known, verdict)
