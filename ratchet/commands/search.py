"""``sweep``, ``search``, ``try`` and ``ablate``: several versions of one kernel file, side by side."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ratchet.commands.branches import branch_options, modelling, on_line
from ratchet.commands.options import (
    PROGRAM,
    chip_option,
    count,
    count_option,
    fresh_option,
    json_option,
    kernel_file,
    kernel_option,
    knobs_argument,
    side_by_side,
)
from ratchet.exam.problem import problem as problems
from ratchet.kernelfile.knobs import choices, in_words, points, with_constants
from ratchet.kernelfile.mutation import mutation, partly, subsets
from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.loop.placed import committed
from ratchet.loop.workspace import Interrupts
from ratchet.process import paths
from ratchet.search.candidates import Candidate, baseline, bench
from ratchet.search.progress import Progress, Searching, trials_of
from ratchet.search.propose import DEFAULT, STRATEGIES
from ratchet.search.remote import judges
from ratchet.search.run import PATIENCE_BY_KNOB, Limits, Result, Search, result_of
from ratchet.search.space import Space, space_of
from ratchet.search.study import opened, study_id
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import CHIPS
from ratchet.values import MEASURED, Decision, Point, Row, SweepResult
from ratchet.values.status import Refusal, Status
from ratchet.view.console import terminal_width
from ratchet.view.document import dumps
from ratchet.view.points import candidates_document, candidates_table, search_text
from ratchet.view.searching import Screen, decided, stopped
from ratchet.view.verdicts import best_of, offer, ranked, sweep_document, sweep_line, sweep_table
from ratchet.wiring import JudgeFunction, RepositoryJudge

PARENT, WHOLE = "the parent", "the whole change"
_UNITS = {"s": 1, "m": 60, "h": 3600}
_MOST_SECONDS = 1e6
_CHECKED = 3
"""Of the fastest points of a sweep, those whose values are checked until one is right."""

Say = Callable[[str], None]


# --- sweep ---


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


# --- search ---


def search_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, its space, how it is searched, and when that ends."""
    kernel_file(parser)
    parser.add_argument(
        "--how",
        choices=tuple(STRATEGIES),
        default=DEFAULT,
        help="; ".join(f"{one.help} (default)" if how == DEFAULT else one.help for how, one in STRATEGIES.items()),
    )
    parser.add_argument(
        "--knob", action="append", metavar="NAME=VALUES", help="BQ=128,256; default: the file's `# tune:` comments"
    )
    parser.add_argument(
        "--where", action="append", metavar="CONDITION", help="'BQ * BKV <= 2**18': what a point has to satisfy"
    )
    count_option(parser, "--budget", "at most so many trials", 60)
    parser.add_argument("--time", type=_duration, metavar="TIME", help="begin nothing new after 90s, 30m, 2h or 1h30m")
    count_option(parser, "--patience", "end after N trials without a better one; default 10 for each knob")
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
        space = space_of(source, kernel.name, options.knob or (), options.where or ())
        row = baseline(judge, Path(name), wait_s=options.wait, say=say)
        patience = 0 if options.how == "grid" else PATIENCE_BY_KNOB * len(space.axes)
        limits = Limits(
            trials=options.budget,
            seconds=options.time,
            patience=patience if options.patience is None else options.patience,
        )
        conditions = judge.conditions(name)
        before = {one.id for one in log.rows(root)}
        with (
            opened(root, study_id(source, space, options.how, conditions)) as study,
            Screen(space, float(row.median_ms)) as screen,
            _following(root, study.name, screen, _begun(name, options, space, row), options.time) as progress,
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
                source=source,
                name=kernel.name,
                space=space,
                how=options.how,
                limits=limits,
                study=study,
                rows=judged.rows,
                say=lambda _line: screen.head(progress.now),
                batch=options.batch,
            )
            result = search.run()
    shown = [(in_words(one.point), one) for one in result.observations]
    began = _before_ms(result, float(row.median_ms))
    if options.json:
        document = candidates_document(
            shown,
            kernel=name,
            study=study.name,
            start=dict(result.start),
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


def _begun(name: str, options: argparse.Namespace, space: Space, row: Row) -> Searching:
    """A search before its first trial; ``row`` is of HEAD's kernel."""
    of = trials_of(space, options.budget)
    return Searching(kernel=name, how=options.how, of=of, began_ms=float(row.median_ms))


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


def _before_ms(result: Result, now_ms: float) -> float:
    """The latency where the search began; HEAD's as it is now, where the space does not have that point."""
    first = result.observations[0] if result.observations and result.observations[0].point == result.start else None
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
