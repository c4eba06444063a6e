"""``./ratchet.sh "message"``, ``python prepare.py``, and what is judged without a row: ``judge``, ``across``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.commands.options import PROGRAM, jax_option, json_option, judging, kernel_file, text_option
from ratchet.commands.options import evaluator as evaluator_of
from ratchet.exam.candidate import configuration, target
from ratchet.exam.candidate.source_closure import Read, work_tree
from ratchet.exam.candidate.target import Case
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.loop import log
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.frozen import changed
from ratchet.loop.history import History
from ratchet.loop.judge_only import judge_only
from ratchet.loop.trial import Judge, Outcome
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.project import table
from ratchet.project.judging import ProjectJudge, together
from ratchet.project.table import Project
from ratchet.tpu.chips import V5E
from ratchet.values import MEASURED, Decision
from ratchet.values.status import Refusal, Status
from ratchet.view.console import terminal_width
from ratchet.view.document import dumps
from ratchet.view.streams import Progress
from ratchet.view.terminal import report, result_line
from ratchet.view.text import clean
from ratchet.view.verdict_json import verdict_document
from ratchet.view.verdicts import across_document, across_table, problems_document, problems_table
from ratchet.wiring import BLAME, DUMPS, JudgeFunction, RepositoryJudge, across, evaluator, prune_evidence, refuted

Say = Callable[[str], None]


def run_command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Say) -> int:
    """One experiment: judge the kernel, then keep it as a commit or revert it."""
    idea = Idea(
        message=options.message,
        new_problem=options.new_problem,
        accept_trade=options.accept_trade,
        compound=not options.one_change,
    )
    with Progress() as progress:
        kernel, judge = _subject(root, options, function, progress, committed=True)
        with _tracing(judge, kernel) as judge:
            outcome = run_experiment(idea, root=root, kernel=kernel, judge=judge, wait_s=options.wait, progress=say)
    return _end(root, outcome, options, say)


def prepare_command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Say) -> int:
    """Judge the work tree, and leave git alone."""
    with Progress() as progress:
        kernel, judge = _subject(root, options, function, progress, committed=False)
        with _tracing(judge, kernel) as judge:
            outcome = judge_only(root=root, kernel=kernel, judge=judge, progress=say)
    return _end(root, outcome, options, say)


def judge_options(parser: argparse.ArgumentParser) -> None:
    """A target and its problems, or a kernel file."""
    parser.add_argument(
        "target",
        nargs="?",
        help="package.module:function or path/file.py:function; a kernel file; default: the project",
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="named problems: a TOML file with a table for each")
    parser.add_argument(
        "--input", action="append", metavar="ARRAY", help="instead: one problem's inputs, such as bf16[1024,256]"
    )
    parser.add_argument("--reference", metavar="TARGET", help="the function that says what is right")
    text_option(parser, "--source", "DIR", "the folder of the package; default: src, or the top")
    text_option(parser, "--python", "PATH", "the Python that traces it; default: the judge's")
    jax_option(parser)
    judging(parser)


def judge_command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Say) -> int:
    """Judge a target at every problem that the options name, and print them; of a kernel file its verdict."""
    named = options.target or ""
    if not named or (named.endswith(".py") and not (options.inputs or options.input or options.reference)):
        options.kernel = Path(named) if named else options.kernel
        return prepare_command(options, root=root, function=function, say=say)
    project = _of_options(options, root)
    kernel = project.root / project.editable
    with Progress() as progress, tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        copy = Path(folder, kernel.name)
        paths.write(copy, paths.read(kernel))
        judge = _judge_of(project, options, function, progress, read=work_tree(project.root))
        judged = list(judge.each(copy, Path(folder)))
    verdict = together(judged, kernel_rel=project.editable, source=paths.read(kernel))
    shown = [(one.case.name, one.verdict) for one in judged]
    if options.json:
        print(dumps(problems_document(shown, verdict.score, verdict.status, reason=verdict.reason)))
    else:
        print(problems_table(shown, verdict.score))
    return verdict.status.exit_code


def across_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file."""
    kernel_file(parser)
    jax_option(parser)
    json_option(parser, "print the table as one JSON document")


def across_command(options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction) -> int:
    """Judge a kernel on every chip and print a line for each. The first that does not pass decides the exit code."""
    if not paths.is_file(kernel):
        raise Refusal(Status.NOT_FOUND, f"there is no file {options.kernel}: name a kernel file")
    name = kernel.relative_to(root) if kernel.is_relative_to(root) else kernel
    with Progress() as progress:
        verdicts = across(kernel, root=root, kernel_rel=name.as_posix(), function=function, progress=progress)
    status = next((verdict.status for verdict in verdicts if verdict.status is not Status.PASS), Status.PASS)
    print(dumps(across_document(verdicts, status)) if options.json else across_table(verdicts))
    return status.exit_code


# --- what is judged, and by which judge ---


def _subject(
    root: Path, options: argparse.Namespace, function: JudgeFunction, progress: Progress, *, committed: bool
) -> tuple[Path, Judge]:
    """The kernel file that is named, else the repository's project, else ``kernel.py``.

    ``committed``: read all files of the project but the editable one from HEAD, not from the work tree.
    """
    project = None if options.kernel else table.read(root)
    if project is not None:
        read = from_head(root) if committed else work_tree(project.root)
        return project.root / project.editable, _judge_of(project, options, function, progress, read=read)
    return home.kernel(root, options.kernel), _judge(root, options, function, progress)


def _tracing(judge: Judge, kernel: Path) -> contextlib.AbstractContextManager[Judge]:
    """While the block runs: the judge, for which the file is traced beside what comes before its verdict."""
    return judge.tracing(kernel) if isinstance(judge, RepositoryJudge) else contextlib.nullcontext(judge)


def _judge(root: Path, options: argparse.Namespace, function: JudgeFunction, progress: Progress) -> Judge:
    """The judge of one kernel file."""
    return RepositoryJudge(
        root=root,
        function=function,
        evaluator=evaluator(evaluator_of(options)),
        budget_s=options.budget,
        deep=options.deep,
        new_problem=getattr(options, "new_problem", False),
        progress=progress,
        remember=not options.fresh,
    )


def _judge_of(
    project: Project, options: argparse.Namespace, function: JudgeFunction, progress: Progress, *, read: Read
) -> ProjectJudge:
    """The judge of a project, as the options want it.

    Raises:
      Refusal: ``USAGE`` for a device: a project is modelled.
    """
    if options.on in MEASURED:
        raise Refusal(Status.USAGE, f"--on {options.on} times one kernel file; several problems are modelled: --chip")
    if options.chip:
        cases = tuple(dataclasses.replace(case, chip=options.chip) for case in project.cases)
        project = dataclasses.replace(project, cases=cases)
    own = RepositoryJudge(
        root=project.root,
        function=function,
        evaluator=f"{project.cases[0].chip}-model",
        budget_s=BUDGET_SECONDS,
        deep=options.deep,
        new_problem=getattr(options, "new_problem", False),
        progress=progress,
    )
    return ProjectJudge(project=project, own=own, read=read)


def from_head(root: Path) -> Read:
    """Reads HEAD's files. What the work tree lacks is taken to be in neither: most names that are asked for."""
    history = History(root)

    def read(path: str) -> bytes | None:
        if not paths.is_file(root / path):
            return None
        entry = history.objects.entry("HEAD", path)
        return history.objects.blob(entry.blob) if entry else None

    return read


def _of_options(options: argparse.Namespace, root: Path) -> Project:
    missing = [] if options.reference else ["--reference"]
    if not (options.inputs or options.input):
        missing.append("--inputs")
    if missing:
        message = f"{options.target} needs {' and '.join(missing)}, or a [tool.ratchet] table and no target"
        raise Refusal(Status.USAGE, f"{message}; a file with the seven symbols is judged as path/file.py")
    return table.of_parts(
        kernel=options.target,
        reference=options.reference,
        cases=_cases(options),
        root=root,
        source=options.source,
        include=configuration.include_of(root),
        python=options.python,
    )


def _cases(options: argparse.Namespace) -> tuple[Case, ...]:
    if options.inputs:
        return target.cases(options.inputs)
    one = target.inline(options.input, chip=options.chip or V5E.name)
    return (dataclasses.replace(one, name="inputs"),)


# --- how it ended ---


def _end(root: Path, outcome: Outcome, options: argparse.Namespace, say: Say) -> int:
    """Prune old evidence, print how an experiment ended, and return its exit code, whatever fails here."""
    prune_evidence(root, (outcome.row, outcome.incumbent, outcome.baseline), say)
    try:
        for note in outcome.notes:
            say(note)
        _print(root, outcome, options)
    except Exception:
        traceback.print_exc()
        say(f"the outcome cannot be shown in full; `{PROGRAM} show {outcome.row.id}` has the row")
        if not options.json:
            _print_result(outcome)
    return outcome.status.exit_code


def _print(root: Path, outcome: Outcome, options: argparse.Namespace) -> None:
    verdict, decision = outcome.verdict, outcome.decision
    ended: dict[str, Any] = {
        "outcome": outcome.status,
        "reason": outcome.reason,
        "id": outcome.row.id,
        "commit": outcome.row.commit,
        "incumbent": outcome.incumbent,
        "refuted": refuted(root, outcome.row),
    }
    if options.json:
        print(dumps(verdict_document(verdict, decision=decision or None, **ended)))
        return
    if verdict is None:
        print(f"{outcome.status.name}: {clean(outcome.reason)}")
    else:
        said = changed(log.rows(root), outcome.row)
        print(report(verdict, decision=decision or "none", changed=said, width=terminal_width(), **ended))
        blame = root / DUMPS / outcome.row.id / BLAME
        if options.deep and paths.is_file(blame):
            # The indent keeps text of the kernel's from passing for a line of ours.
            print("", *(f"  {line}".rstrip() for line in paths.read(blame).decode().splitlines()), sep="\n")
    _print_result(outcome)


def _print_result(outcome: Outcome) -> None:
    score = outcome.verdict.score if outcome.verdict else None
    told = outcome.status is not Status.PASS or outcome.decision == Decision.KEPT
    why = outcome.reason if told else ""
    print(result_line(score, decision=outcome.decision or "none", status=outcome.status, why=why))
