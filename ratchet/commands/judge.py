"""``ratchet judge TARGET``: a kernel of the user's, at named problems, without a row; and the judge of a project."""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

from ratchet.exam.candidate import target
from ratchet.exam.candidate.source_closure import Read, work_tree
from ratchet.exam.candidate.target import Case
from ratchet.exam.judge.steps import Progress
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.loop.history import History
from ratchet.project import table
from ratchet.project.judging import ProjectJudge, together
from ratchet.project.table import Project
from ratchet.tpu.chips import V5E
from ratchet.values import MEASURED
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.verdicts import problems_document, problems_table
from ratchet.wiring import JudgeFunction, RepositoryJudge


def is_kernel_file(options: argparse.Namespace) -> bool:
    """Whether what is to be judged is a file with the seven symbols."""
    named = options.target or ""
    return named.endswith(".py") and not (options.inputs or options.input or options.reference)


def command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, progress: Progress) -> int:
    """Judge a target at every problem that the options name, and print them. Nothing is recorded."""
    project = _of_options(options, root)
    kernel = project.root / project.editable
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        copy = Path(folder, kernel.name)
        copy.write_bytes(kernel.read_bytes())
        judge = judge_of(project, options, function, progress, read=work_tree(project.root))
        named = list(judge.each(copy, Path(folder)))
    verdict = together(named, kernel_rel=project.editable, source=kernel.read_bytes())
    shown = [(one.case.name, one.verdict) for one in named]
    if options.json:
        print(dumps(problems_document(shown, verdict.score, verdict.status, reason=verdict.reason)))
    else:
        print(problems_table(shown, verdict.score))
    return verdict.status.exit_code


def judge_of(
    project: Project,
    options: argparse.Namespace,
    function: JudgeFunction,
    progress: Progress,
    *,
    read: Read,
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


def of_repository(
    root: Path, options: argparse.Namespace, function: JudgeFunction, progress: Progress, *, committed: bool
) -> tuple[Path, ProjectJudge] | None:
    """The editable file and the judge of the repository's own project; None where it has none.

    ``committed``: read all files but the editable one from HEAD, not from the work tree.
    """
    project = table.read(root)
    if project is None:
        return None
    read = from_head(root) if committed else work_tree(project.root)
    return project.root / project.editable, judge_of(project, options, function, progress, read=read)


def from_head(root: Path) -> Read:
    """Reads HEAD's files. What the work tree lacks is taken to be in neither: most names that are asked for."""
    history = History(root)

    def read(path: str) -> bytes | None:
        if not (root / path).is_file():
            return None
        entry = history.objects.entry("HEAD", path)
        return history.objects.blob(entry.blob) if entry else None

    return read


def _of_options(options: argparse.Namespace, root: Path) -> Project:
    missing = [f"--{name}" for name in ("reference",) if not getattr(options, name)]
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
        include=target.include_of(root),
        python=options.python,
    )


def _cases(options: argparse.Namespace) -> tuple[Case, ...]:
    if options.inputs:
        return target.cases(options.inputs)
    one = target.inline(options.input, chip=options.chip or V5E.name)
    return (dataclasses.replace(one, name="inputs"),)
