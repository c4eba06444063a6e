"""``./ratchet.sh sweep FILE NAME=VALUES…``"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.commands.options import PROGRAM
from ratchet.exam.problem import problem as problems
from ratchet.kernelfile.knobs import choices, in_words, points, with_constants
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import CHIPS
from ratchet.values import Point, SweepResult
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.verdicts import offer, ranked, sweep_document, sweep_line, sweep_table
from ratchet.wiring import JudgeFunction, RepositoryJudge


def command(
    options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Model every point and print them ranked, or write one point into the file."""
    if not kernel.is_file():
        raise Refusal(Status.NOT_FOUND, f"{options.kernel} is no file, wanted a kernel file")
    axes = [choices(text) for text in options.knobs]
    wanted = points(axes)
    if options.apply:
        return _apply(kernel, wanted)
    shown = os.path.relpath(kernel, root)
    if not problems.lock_path(kernel).exists():
        todo = f'judge it once, {PROGRAM} --kernel {shown} "baseline"'
        raise Refusal(Status.NOT_FOUND, f"{shown} has no frozen problem yet: {todo}")
    chip = CHIPS[options.chip]
    judge = RepositoryJudge.modelling(root, function, chip)
    sweep = Sweep(
        kernel=kernel,
        root=root,
        kernel_rel=shown,
        conditions=judge.conditions(shown),
        chip=chip,
        judge=function,
        values=options.values,
        remember=not options.fresh,
    )
    results: list[SweepResult] = []
    for result in sweep.run([{}, *wanted]):
        results.append(result)
        say(f"{len(results)} of {len(wanted) + 1}: {sweep_line(result)}")
    results = ranked(results)
    if options.json:
        print(dumps(sweep_document(results, kernel=shown, evaluator=judge.evaluator)))
        return Status.PASS.exit_code
    print(sweep_table(results, [name for name, _ in axes], kernel=shown))
    if results[0].verdict.score is not None:
        print(offer(results[0], kernel=shown))
    return Status.PASS.exit_code


def _apply(kernel: Path, wanted: Sequence[Point]) -> int:
    """Write a point into the kernel file: every other byte stays."""
    if len(wanted) != 1:
        raise Refusal(Status.USAGE, f"--apply writes one point, and {len(wanted)} are named: give each knob one value")
    before = kernel.read_bytes()
    after = with_constants(before, kernel.name, wanted[0])
    if after != before:
        kernel.write_bytes(after)
    print(f"{in_words(wanted[0])} in {kernel.name}: {'written' if after != before else 'as it was'}")
    return Status.PASS.exit_code
