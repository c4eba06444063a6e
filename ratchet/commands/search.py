"""``search``, ``try`` and ``ablate``: several versions of one kernel file, side by side, each with a row."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ratchet.advise.advise import program
from ratchet.commands.branches import branch_options, modelling, on_line
from ratchet.commands.history import timeline_of
from ratchet.commands.options import (
    count,
    count_option,
    kernel_file,
    kernel_option,
    side_by_side,
)
from ratchet.kernelfile.knobs import in_words, tuning
from ratchet.kernelfile.mutation import mutation, partly, subsets
from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.loop.placed import committed
from ratchet.loop.rows import newest
from ratchet.loop.workspace import Interrupts
from ratchet.process import paths
from ratchet.search.candidates import Candidate, baseline, bench
from ratchet.search.evolve import AS_IT_IS, HELP, HOW, PATIENCE, Edits, expected
from ratchet.search.predictions import Kept
from ratchet.search.progress import Progress, Searching, trials_of
from ratchet.search.propose import DEFAULT, STRATEGIES
from ratchet.search.remote import judges
from ratchet.search.run import PATIENCE_BY_KNOB, Course, Knobs, Limits, Result, Search, result_of
from ratchet.search.space import Axis, Observation, Space, space_of
from ratchet.search.study import edits_id, opened, study_id
from ratchet.values import MEASURED, Decision, Point, Row, Timeline
from ratchet.values.status import Refusal, Status
from ratchet.view.console import terminal_width
from ratchet.view.document import dumps
from ratchet.view.points import candidates_document, candidates_table, search_text
from ratchet.view.searching import Screen, decided, stopped
from ratchet.wiring import JudgeFunction, RepositoryJudge

PARENT, WHOLE = "the parent", "the whole change"
_HELP = {**{how: one.help for how, one in STRATEGIES.items()}, HOW: HELP}
_UNITS = {"s": 1, "m": 60, "h": 3600}
_MOST_SECONDS = 1e6

Say = Callable[[str], None]


# --- search ---


def search_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, its space, how it is searched, and when that ends."""
    kernel_file(parser)
    parser.add_argument(
        "--how",
        choices=(*STRATEGIES, HOW),
        default=DEFAULT,
        help="; ".join(f"{said} (default)" if how == DEFAULT else said for how, said in _HELP.items()),
    )
    parser.add_argument(
        "--knob", action="append", metavar="NAME=VALUES", help="BQ=128,256; default: the file's `# tune:` comments"
    )
    parser.add_argument(
        "--where", action="append", metavar="CONDITION", help="'BQ * BKV <= 2**18': what a point has to satisfy"
    )
    count_option(parser, "--budget", "at most so many trials", 60)
    parser.add_argument("--time", type=_duration, metavar="TIME", help="begin nothing new after 90s, 30m, 2h or 1h30m")
    count_option(
        parser,
        "--patience",
        "end after N trials without a better one; default 10 for each knob, 24 for edits, none for a grid",
    )
    parser.add_argument(
        "--batch", type=count, default=4, metavar="N", help="trials proposed at once; default 4; for many lanes more"
    )
    branch_options(parser)
    side_by_side(parser)


def _duration(text: str) -> float:
    """Reads ``90s``, ``30m``, ``2h`` and ``1h30m`` as seconds."""
    seconds, number = 0.0, ""
    for letter in text:
        if letter in _UNITS and number:
            seconds, number = seconds + float(number) * _UNITS[letter], ""
        elif letter in "0123456789." and number.count(".") + (letter == ".") < 2:
            number += letter
        else:
            break
    else:
        if not number and 0 < seconds < _MOST_SECONDS:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r:.60}, wanted a time such as 90s, 30m, 2h or 1h30m")


def search_command(options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Say) -> int:
    """Search the knobs of a kernel file; every trial is an experiment with a row."""
    root, kernel = on_line(root, kernel, options.branch, say)
    asked = _judge(options, root, function)
    with Interrupts().installed(), judges(asked, options.cluster, say=say) as (judge, away):
        name, source = committed(root, Path(os.path.relpath(kernel, root)), wait_s=options.wait, progress=say)
        plan = _plan(options, name, source)
        row = baseline(judge, Path(name), wait_s=options.wait, say=say)
        before = {one.id for one in log.rows(root)}
        with (
            plan.begun(judge) as begun,
            Screen(plan.space, began := float(row.median_ms)) as screen,
            _following(
                root,
                begun.study,
                screen,
                Searching(kernel=name, how=options.how, of=plan.trials, began_ms=began),
                options.time,
            ) as progress,
            bench(
                judge,
                name,
                one_file=True,
                wait_s=options.wait,
                seen=lambda one, row, known: progress.trial(result_of(one.point, row), known=known),
                cluster=away,
            ) as judged,
        ):
            search = Search(
                course=begun.course,
                limits=Limits(
                    trials=options.budget,
                    seconds=options.time,
                    patience=plan.patience if options.patience is None else options.patience,
                ),
                rows=judged.rows,
                record=begun.record,
                say=lambda _line: screen.head(progress.now),
                batch=options.batch,
            )
            result = search.run()
    shown = [(in_words(one.point), one) for one in result.observations]
    began = _before_ms(result, begun.start, began)
    if options.json:
        document = candidates_document(
            shown,
            kernel=name,
            study=begun.study,
            start=dict(begun.start),
            start_ms=began,
            ending=result.ending.name,
            left_out=result.left_out,
            seconds=round(result.seconds, 3),
        )
        print(dumps(document))
    else:
        text = search_text(
            shown,
            ending=result.ending.value,
            before_ms=began,
            left_out=result.left_out,
            seconds=result.seconds,
            new=sum(one.id not in before for one in result.observations),
            how="measured" if judge.evaluator in MEASURED else "modelled",
            width=terminal_width(),
        )
        print(text)
    return (Status.PASS if any(one.kept for one in result.observations) else Status.NOT_BETTER).exit_code


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Begun:
    """A search whose study is held."""

    study: str
    course: Course
    start: Point
    """Where it began."""
    record: Callable[[tuple[Observation, ...]], None]
    """Writes its trials down."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """All that depends on what is searched, the knobs of a file or its edits."""

    space: Space
    """Of the points that are shown."""
    trials: int
    """At most."""
    patience: int
    begun: Callable[[RepositoryJudge], contextlib.AbstractContextManager[_Begun]]


def _plan(options: argparse.Namespace, name: str, source: bytes) -> _Plan:
    return (_over_edits if options.how == HOW else _over_knobs)(options, name, source)


def _over_knobs(options: argparse.Namespace, name: str, source: bytes) -> _Plan:
    file, how = Path(name).name, options.how
    space = space_of(source, file, options.knob or (), options.where or ())

    @contextlib.contextmanager
    def begun(judge: RepositoryJudge) -> Iterator[_Begun]:
        with opened(judge.root, study_id(source, space, how, judge.conditions(name))) as study:
            start = study.start(space, space.nearest(space.constants))
            course = Knobs(source=source, name=file, space=space, how=how, start=start, study=study.name)
            yield _Begun(study=study.name, course=course, start=start, record=partial(study.add, space))

    patience = 0 if how == "grid" else PATIENCE_BY_KNOB * len(space.axes)
    return _Plan(space=space, trials=trials_of(space, options.budget), patience=patience, begun=begun)


def _over_edits(options: argparse.Namespace, name: str, source: bytes) -> _Plan:
    """The edits of a file are shown as one knob that has no list of values."""
    file = Path(name).name
    tuned = bool(options.knob or tuning(source, file).axes)
    if options.where and not tuned:
        raise Refusal(Status.USAGE, "--where without knobs: name them with --knob, or leave the condition out")
    also = space_of(source, file, options.knob or (), options.where or ()) if tuned else None

    @contextlib.contextmanager
    def begun(judge: RepositoryJudge) -> Iterator[_Begun]:
        root, conditions = judge.root, judge.conditions(name)
        known = Kept(root=root, kernel=name, conditions=conditions)
        with opened(root, edits_id(name, also, conditions)) as study:
            start, first = study.origin(
                source, program, lambda text: expected(text, file, _timeline(root, name, text), known.read())
            )
            course = Edits(start=start, name=file, space=also, first=first, study=study.name)
            yield _Begun(
                study=study.name,
                course=course,
                start={HOW: AS_IT_IS},
                record=lambda _all: study.came_to([one.program for one in course.versions]),
            )

    space = Space(axes=(Axis(name=HOW, values=(AS_IT_IS,)),), constants={})
    return _Plan(space=space, trials=options.budget, patience=PATIENCE, begun=begun)


def _timeline(root: Path, name: str, source: bytes) -> Timeline | None:
    """The modelled run of a version that has a row."""
    row = newest(log.rows(root), kernel=name, blob=History(root).objects.name(source, name))
    return timeline_of(root, row) if row else None


@contextlib.contextmanager
def _following(root: Path, study: str, screen: Screen, now: Searching, seconds: float | None) -> Iterator[Progress]:
    """While the block runs its progress can be seen. Raises ``INTERRUPTED`` with what an interrupted search leaves."""
    progress = Progress(root=root, study=study, now=now, seconds=seconds, show=screen.trial)
    try:
        yield progress
    except KeyboardInterrupt:
        raise Refusal(Status.INTERRUPTED, stopped(progress.now)) from None
    finally:
        progress.end()


def _judge(options: argparse.Namespace, root: Path, function: JudgeFunction) -> RepositoryJudge:
    """The judge that ``--on`` or ``--chip`` asks for."""
    judge = modelling(options, root, function)
    return dataclasses.replace(judge, evaluator=options.on, remember=False) if options.on else judge


def _before_ms(result: Result, start: Point, now_ms: float) -> float:
    """The latency where the search began; HEAD's as it is now, where the space does not have that point."""
    first = result.observations[0] if result.observations and result.observations[0].point == start else None
    return first.latency_ms if first and first.latency_ms else now_ms


# --- try ---


def try_options(parser: argparse.ArgumentParser) -> None:
    """Versions of a kernel file."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="versions of the kernel file, of any name")
    kernel_option(parser, "which kernel file they replace; default: kernel.py")
    parser.add_argument("--compound", action="store_true", help="also versions that change several things at once")
    branch_options(parser)
    side_by_side(parser)


def try_command(options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Say) -> int:
    """Judge several versions of one kernel from one parent; the best is kept, and each has a row."""
    files = [_read(file) for file in options.files]
    root, kernel = on_line(root, kernel, options.branch, say)
    asked = _judge(options, root, function)
    with Interrupts().installed(), judges(asked, options.cluster, say=say) as (judge, away):
        name, parent = committed(root, Path(os.path.relpath(kernel, root)), wait_s=options.wait, progress=say)
        candidates = [_candidate(path, text, parent, options) for path, text in files]
        beside = _inside(root, [path for path, _ in files])
        baseline(judge, Path(name), wait_s=options.wait, say=say, beside=beside)
        with (
            _counting(len(candidates), say) as seen,
            bench(judge, name, one_file=False, beside=beside, wait_s=options.wait, seen=seen, cluster=away) as judged,
        ):
            rows = judged.rows(candidates)
    shown = [(path.name, result_of({}, row)) for (path, _), row in zip(files, rows, strict=True)]
    print(
        dumps(candidates_document(shown, kernel=name))
        if options.json
        else candidates_table(shown, width=terminal_width())
    )
    return (Status.PASS if any(one.kept for _, one in shown) else Status.NOT_BETTER).exit_code


@contextlib.contextmanager
def _counting(of: int, say: Say) -> Iterator[Callable[[Candidate, Row, bool], None]]:
    """A line for each candidate that has a row; ``INTERRUPTED`` with what an interruption leaves."""
    rows: list[Row] = []

    def seen(one: Candidate, row: Row, _known: bool) -> None:
        rows.append(row)
        say(decided(row.decision, row.reason, f"{len(rows)} of {of}: {one.message.splitlines()[0]}"))

    try:
        yield seen
    except KeyboardInterrupt:
        kept = sum(row.decision == Decision.KEPT for row in rows) or "none"
        message = f"stopped at {len(rows)} of {of}, {kept} kept; the same command goes on"
        raise Refusal(Status.INTERRUPTED, message) from None


def _read(file: Path) -> tuple[Path, bytes]:
    try:
        return file, paths.read(file)
    except OSError as error:
        raise Refusal(Status.NOT_FOUND, f"{file} cannot be read: {error.strerror}; wanted a kernel file") from None


def _candidate(path: Path, text: bytes, parent: bytes, options: argparse.Namespace) -> Candidate:
    """Raises:
    Refusal: ``USAGE`` where it changes several things at once and that was not asked for, before anything is judged.
    """
    try:
        change = mutation(parent, text, path.name)
    except Refusal:  # no Python: its row says so
        return Candidate(text=text, message=f"try: {path.name}")
    if change.compound and not options.compound:
        message = f"{path.name} changes {change}: try each on its own, or --compound to try them together on purpose"
        raise Refusal(Status.USAGE, message)
    return Candidate(text=text, message=f"try: {path.name}\n\nChanges {change}.")


def _inside(root: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """Those of the files that are in the repository, relative to its top."""
    paths = [Path(os.path.realpath(file)) for file in files]
    return tuple(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))


# --- ablate ---


def ablate_options(parser: argparse.ArgumentParser) -> None:
    """An experiment."""
    parser.add_argument("id", help="an experiment's id or commit, or the beginning of it")
    side_by_side(parser)


def ablate_command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Say) -> int:
    """Try the parts of an experiment's change alone and without each other; each try is an experiment with a row."""
    row = log.find(root, options.id)
    before, after = _versions(root, row)
    file = Path(row.kernel)
    changes = {" with ".join(one): one for one in mutation(before, after, file.name).changes}
    parts = list(changes)
    if len(parts) < 2:
        what = f"changed {parts[0]} alone" if parts else "changed nothing that its parent has"
        raise Refusal(Status.USAGE, f"{row.id} {what}: there is nothing to take apart")
    judge = modelling(options, root, function)
    named = {PARENT: before, WHOLE: after}
    for chosen in subsets(parts):
        names = [name for one in chosen for name in changes[one]]
        named[", ".join(chosen)] = partly(before, after, names, file.name)
    candidates = [
        Candidate(text=text, message=f"ablate: {which}\n\nOf experiment {row.id}.") for which, text in named.items()
    ]
    with Interrupts().installed():
        name, _ = committed(root, Path(os.path.relpath(root / file, root)), wait_s=options.wait, progress=say)
        baseline(judge, file, wait_s=options.wait, say=say)
        with (
            _counting(len(candidates), say) as seen,
            bench(judge, name, one_file=False, wait_s=options.wait, seen=seen) as judged,
        ):
            rows = judged.rows(candidates)
    shown = [(which, result_of({}, one)) for which, one in zip(named, rows, strict=True)]
    if options.json:
        print(dumps(candidates_document(shown, of=row.id, parts=parts)))
    else:
        print(f"{row.id} changed {len(parts)} things at once: {', '.join(parts)}")
        print(candidates_table(shown, width=terminal_width()))
    return Status.PASS.exit_code


def _versions(root: Path, row: Row) -> tuple[bytes, bytes]:
    """The kernel of an experiment's parent, and its own.

    Raises:
      Refusal: ``NOT_FOUND`` where git does not have them here.
    """
    objects = History(root).objects
    if objects.unresolved([row.parent, row.commit]):
        raise Refusal(Status.NOT_FOUND, f"the commits of {row.id} are not here: `{log.FETCH}`")
    entry = objects.entry(row.parent, row.kernel)
    if entry is None:
        raise Refusal(Status.NOT_FOUND, f"the parent of {row.id} has no {row.kernel}: there is nothing to take apart")
    return objects.blob(entry.blob), objects.blob(row.kernel_blob)
