"""The judge. This file is the table of contents of a verdict: every step, in order. It is sealed; do not edit it.

    python prepare.py [--kernel FILE] [--on DEVICE] [--deep] [--json]

judges a kernel file as it stands, without touching the branch, and appends a row to results.tsv.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from ratchet.bootstrap import into_environment  # noqa: E402

if __name__ == "__main__":
    into_environment(ROOT)

from ratchet.starting import starting  # noqa: E402

with starting():  # NumPy is imported here, and takes an interrupt for an error of its own
    from ratchet.candidate import problem as problems
    from ratchet.candidate import room
    from ratchet.chips import V5E, Chip
    from ratchet.compiler import compile
    from ratchet.dump import memory
    from ratchet.judge import audit, correctness, latency, measuring, roofline
    from ratchet.judge.evidence import keep
    from ratchet.judge.steps import Progress, Silent, Steps
    from ratchet.judge.workers import Workers
    from ratchet.values import MEASURED, Against, Conditions, Verdict
    from ratchet.values.status import Status


def judge(
    kernel: Path,
    *,
    root: Path,
    kernel_rel: str,
    conditions: Conditions,
    evidence: Path | None = None,
    chip: Chip = V5E,
    new_problem: bool = False,
    deep: bool = False,
    progress: Progress | None = None,
    workers: Workers | None = None,
    against: Against | None = None,
    budget_s: float = measuring.BUDGET_SECONDS,
    capture: Path | None = None,
) -> Verdict:
    """Judge the file ``kernel`` as ``root/kernel_rel``; the compiler's texts go to ``evidence``.

    Where the kernel has no frozen problem yet, or with ``new_problem``, this file's problem is frozen beside it.
    ``conditions.evaluator`` tells whether its latency is modelled or measured: then it is timed beside the incumbent,
    ``against``, for up to ``budget_s`` seconds, and an XProf trace goes to ``capture``.
    Whatever the kernel does, the answer is a verdict. A sweep passes ``workers`` that it keeps.
    """
    on = conditions.evaluator
    steps = Steps(progress or Silent())
    lock = problems.lock_path(root / kernel_rel)
    source = kernel.read_bytes()
    freeze = new_problem or not lock.exists()
    with contextlib.ExitStack() as children:
        workers = workers or children.enter_context(Workers(chip, compiles=measuring.modelled(on)))
        work = workers.folder("program")
        exam = correctness.Examiner(workers=workers, root=root, evidence=work, progress=steps.note)
        bench = measuring.Bench(evaluator=on, workers=workers, exam=exam, budget_s=budget_s, capture=capture, deep=deep)
        children.callback(bench.close)
        platform = measuring.platform(on)

        artefact, frozen = steps.run(
            "contract",
            lambda: room.step(source, kernel.name, child=workers.candidate(), freeze=freeze, platform=platform),
        ) or (None, None)
        workers.prepare_next()
        problem = steps.run("problem", lambda a: problems.settle(a, lock, frozen), artefact)
        program = footprint = copies = timeline = claims = score = samples = paired = None
        if measuring.modelled(on):
            program = steps.run("compile", lambda a: compile.step(a, chip, work, workers.compiler), artefact)
            footprint = steps.run("memory", memory.step, program)
            copies = steps.run("copies", compile.copy_trap, program)
            steps.run("kernel", audit.program, program)
            parity = steps.run("correctness", lambda p, a: exam.step(p, a, freeze=freeze, deep=deep), problem, artefact)
            timeline = steps.run(
                "schedule", lambda p, q: latency.step(p, chip, q.mesh, exam.steering(q), detail=deep), program, problem
            )
            score = steps.run("roofline", lambda p, t: roofline.step(p, t, chip), problem, timeline)
            claims = steps.run("audit", audit.step, artefact, problem, footprint, timeline)
        else:
            parity = steps.run("correctness", lambda p, a: bench.check(p, a, freeze=freeze), problem, artefact)
        if on in MEASURED and steps.status is Status.PASS:
            rival = steps.run("incumbent", bench.incumbent, against)
            samples, paired = bench.parts(
                steps.run("measure", lambda p, a: bench.step(p, a, rival, against), problem, artefact)
            )
            score = steps.run("roofline", lambda p, s: roofline.measured(p, s, bench.peak(), score), problem, samples)

        if evidence is not None and work.exists():
            keep(work, evidence)
        passed = steps.status is Status.PASS
        if passed and frozen is not None:
            lock.write_bytes(problems.encode(frozen))
        return Verdict(
            status=steps.status,
            reason=steps.reason or f"correct and timed {measuring.by(on)}",
            kernel=kernel_rel,
            kernel_name=artefact.kernel_name if artefact else "",
            conditions=dataclasses.replace(conditions, problem=problem.short if problem else conditions.problem),
            score=score if passed else None,
            steps=tuple(steps.steps),
            footprint=footprint,
            copies=copies or (),
            parity=parity,
            timeline=timeline,
            samples=samples,
            paired=paired,
            claims=claims or (),
            notes=(artefact.jail,) if artefact and artefact.jail else (),
            source_sha256=hashlib.sha256(source).hexdigest(),
            seconds=steps.seconds,
        )


if __name__ == "__main__":
    with starting():
        from ratchet.cli import prepare_main

    sys.exit(prepare_main(sys.argv[1:]))
