"""``sweep``: many values of a file's knobs, modelled side by side and ranked; nothing is recorded."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.commands.options import PROGRAM, chip_option, fresh_option, json_option, kernel_file, knobs_argument
from ratchet.exam.problem import problem as problems
from ratchet.kernelfile.knobs import choices, in_words, points, with_constants
from ratchet.process import paths
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import CHIPS
from ratchet.values import Point, SweepResult
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.verdicts import best_of, offer, ranked, sweep_document, sweep_line, sweep_table
from ratchet.wiring import JudgeFunction, RepositoryJudge

_CHECKED = 3
"""Of the fastest points of a sweep, those whose values are checked until one is right."""

Say = Callable[[str], None]


def sweep_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, its knobs, and whether to write a point."""
    kernel_file(parser, "a kernel file that was judged once; default: kernel.py")
    knobs_argument(parser)
    chip_option(parser)
    parser.add_argument("--values", action="store_true", help="check the values of every point, too")
    parser.add_argument("--apply", action="store_true", help="write one point into the file, and model nothing")
    fresh_option(parser)
    json_option(parser, "print the table as one JSON document")


def sweep_command(options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Say) -> int:
    """Model every point and print them ranked, or write one point into the file."""
    if not paths.is_file(kernel):
        raise Refusal(Status.NOT_FOUND, f"{options.kernel} is no file, wanted a kernel file")
    axes = [choices(text) for text in options.knobs]
    wanted = points(axes)
    if options.apply:
        return _apply(kernel, wanted)
    shown = os.path.relpath(kernel, root)
    if not paths.exists(problems.lock_path(kernel)):
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
    if not options.values:
        results = _with_values(sweep, results, say)
    if options.json:
        print(dumps(sweep_document(results, kernel=shown, evaluator=judge.evaluator)))
        return Status.PASS.exit_code
    print(sweep_table(results, [name for name, _ in axes], kernel=shown))
    if results[0].verdict.score is not None:
        print(offer(results, kernel=shown))
    return Status.PASS.exit_code


def _with_values(sweep: Sweep, results: Sequence[SweepResult], say: Say) -> list[SweepResult]:
    """The points, ranked, the best with its values checked: where they are wrong, the next ones, a few at most."""
    ordered = list(results)
    for _ in range(_CHECKED):
        best = best_of(ordered)
        if best is None or best.verdict.status is not Status.UNCHECKED:
            break
        say(f"checking the values of the best: {in_words(best.point)}")
        (checked,) = dataclasses.replace(sweep, values=True).run([best.point])
        say(sweep_line(checked))
        ordered = ranked([checked, *(one for one in ordered if one is not best)])
    return ordered


def _apply(kernel: Path, wanted: Sequence[Point]) -> int:
    """Write a point into the kernel file: every other byte stays."""
    if len(wanted) != 1:
        raise Refusal(Status.USAGE, f"--apply writes one point, and {len(wanted)} are named: give each knob one value")
    before = paths.read(kernel)
    after = with_constants(before, kernel.name, wanted[0])
    if after != before:
        paths.write(kernel, after)
    print(f"{in_words(wanted[0])} in {kernel.name}: {'written' if after != before else 'as it was'}")
    return Status.PASS.exit_code
