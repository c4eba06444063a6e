"""``advise`` and ``brief``: what to try next, and what the next experiment has to know."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ratchet.advise.advise import Attempt, advise, program
from ratchet.advise.prediction import Modelled, Outlook, outlook
from ratchet.commands.history import timeline_of
from ratchet.commands.options import PROGRAM, count_option, fresh_option, json_option, kernel_file, seconds
from ratchet.exam.judge.request import Request
from ratchet.exam.problem.problem import lock_path
from ratchet.kernelfile import knobs
from ratchet.kernelfile.mutation import mutation
from ratchet.kernelfile.syntax import File
from ratchet.loop import log
from ratchet.loop.decide import conditions_of, scored
from ratchet.loop.history import History
from ratchet.loop.rows import newest
from ratchet.loop.subject import Subject
from ratchet.process import paths
from ratchet.search.brief import RECENT, brief
from ratchet.search.predict import CHECKED, Known, Predictor
from ratchet.search.predictions import Kept
from ratchet.search.sweep import Sweep
from ratchet.tpu.chips import CHIPS
from ratchet.values import Decision, Row, Timeline, Verdict
from ratchet.values.brief import Suggestion, Task
from ratchet.values.status import Refusal, Status
from ratchet.view.advise import Numbered, advice_document, advice_text, modelled_line, patch, title
from ratchet.view.brief import document_within, text_within
from ratchet.view.document import dumps
from ratchet.wiring import JudgeFunction, RepositoryJudge, refuted

_BUDGET_S = 60
_ROWS = 200
"""The newest of the ledger, in which advice that was followed is looked for."""


def advise_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, and what to do with the advice."""
    kernel_file(parser)
    what = parser.add_mutually_exclusive_group()
    count_option(what, "--apply", "make the edit of advice N in the file")
    count_option(what, "--patch", "print the edit of advice N as a patch")
    count_option(parser, "--most", "show at most so many", 5)
    what.add_argument("--all", action="store_true", help="list what was modelled and is not faster, too")
    parser.add_argument(
        "--budget",
        type=seconds(),
        default=_BUDGET_S,
        metavar="SECONDS",
        help=f"model and check edits that are new for so long; what is under way then is finished; default {_BUDGET_S}",
    )
    fresh_option(parser)
    json_option(parser, "print it as one JSON document, with every edit as a patch")


def advise_command(
    options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Model the edits of a kernel file and print what is faster, or make one of them; records nothing."""
    if not paths.is_file(kernel):
        raise Refusal(Status.NOT_FOUND, f"{options.kernel} is no file, wanted a kernel file")
    history = History(root)
    name = Subject.of(history, kernel).kernel
    source = paths.read(kernel)
    File.of(source, kernel.name)  # what is no Python was not judged either, and this says where
    row, timeline = _incumbent(history, name, source)
    if not paths.exists(lock_path(kernel)):
        raise Refusal(Status.NOT_FOUND, f"{name} has no frozen problem any more: restore its lock with git")
    kept, find = _predictions(history, name, source, row, timeline)
    sweep = Sweep(
        kernel=root / name,
        root=root,
        kernel_rel=name,
        conditions=kept.conditions,
        chip=CHIPS[timeline.chip],
        judge=function,
        remember=not options.fresh,
    )
    predictor = Predictor(source=source, sweep=sweep, kept=kept, find=find, say=lambda *done: say(modelled_line(*done)))
    wanted = options.apply or options.patch
    found = predictor.known()
    if options.fresh or not (wanted and found.advice):
        found = predictor.run(options.budget, fresh=options.fresh)
    shown = tuple(enumerate(found.advice, 1))[: options.most]
    if wanted:
        shown = (_chosen(found, wanted, name),)
    if options.apply:
        if paths.read(kernel) != source:  # modelling takes minutes, in which somebody may have saved it
            raise Refusal(Status.DIRTY, f"{name} changed while its edits were modelled: ask again")
        paths.write(kernel, shown[0][1].advice.rewrite.after)
    _print(options, found, shown, row, source, name)
    return Status.PASS.exit_code


def _chosen(found: Outlook, wanted: int, name: str) -> tuple[int, Modelled]:
    """The advice of a number.

    Raises:
        Refusal: NOT_FOUND where there is none at all, USAGE where there are fewer.
    """
    if not found.advice:
        said = f"{len(found.tried) + len(found.failed)} edits were modelled and none is faster"
        left = f", {len(found.unreached)} are left: --budget gives it longer" if found.unreached else ""
        raise Refusal(Status.NOT_FOUND, f"there is no advice for {name}: {said}{left}")
    if wanted > len(found.advice):
        more = f"; {len(found.unreached)} edits are left to model" if found.unreached else ""
        raise Refusal(Status.USAGE, f"there is no advice {wanted} for {name}, wanted 1 to {len(found.advice)}{more}")
    return wanted, found.advice[wanted - 1]


def _print(options: argparse.Namespace, found: Outlook, shown: Numbered, row: Row, source: bytes, name: str) -> None:
    if options.json:
        print(dumps(advice_document(found, shown, row, before=source, kernel=name)))
    elif options.patch:
        print(patch(shown[0][1].advice, source, name), end="")
    elif options.apply:
        said = title(shown[0][1].advice)
        print(f"{said}: written into {name}; judge it: {PROGRAM} --kernel {shlex.quote(name)} 'advise: …'")
    else:
        again = f"{PROGRAM} advise {shlex.quote(name)} --apply 1"
        print(advice_text(found, row, kernel=name, most=options.most, every=options.all, again=again))


def _predictions(
    history: History, name: str, source: bytes, row: Row, timeline: Timeline
) -> tuple[Kept, Callable[[Known], Outlook]]:
    """What is known of a kernel's edits on the chip that its run was modelled for, and what that makes of them."""
    conditions = RepositoryJudge.modelling(history.root, _models_nothing, CHIPS[timeline.chip]).conditions(name)
    file, attempts, own = File.of(source, Path(name).name), tuple(_attempts(history, name, row)), program(source)

    def find(known: Known) -> Outlook:
        return outlook(advise(file, timeline, attempts, known), known, known.get(own), program)

    return Kept(root=history.root, kernel=name, conditions=conditions), find


def _models_nothing(request: Request, *, workers: object = None, progress: object = None) -> Verdict:
    raise AssertionError(f"{request.kernel_rel} is modelled by a `Predictor`, and by nothing else here")


def _incumbent(history: History, name: str, source: bytes) -> tuple[Row, Timeline]:
    """The newest row of these very bytes, and their modelled run.

    Raises:
        Refusal: NOT_FOUND where they were not judged, or the run is not on this disk.
    """
    blob = history.objects.name(source, name)
    rows = [row for row in log.rows(history.root) if row.kernel == name and row.kernel_blob == blob and scored(row)]
    if not rows:
        todo = f'judge it first, {PROGRAM} --kernel {shlex.quote(name)} "baseline"'
        raise Refusal(Status.NOT_FOUND, f"{name} as it is has no row with a score: {todo}")
    for row in reversed(rows):
        if (timeline := timeline_of(history.root, row)) is not None:
            return row, timeline
    todo = f'judge it again, {PROGRAM} --kernel {shlex.quote(name)} --fresh "baseline"'
    raise Refusal(Status.NOT_FOUND, f"the modelled run of {name} is not on this disk any more: {todo}")


def _attempts(history: History, name: str, like: Row) -> Iterator[Attempt]:
    """The newest experiments of the ledger, oldest first, those whose bytes git has."""
    rows = log.rows(history.root)
    latency = {(row.kernel, row.kernel_blob, conditions_of(row)): float(row.median_ms) for row in rows if row.median_ms}
    pairs = _with_parents(history, rows[-_ROWS:])
    blobs = sorted({blob for row, before in pairs for blob in (before, row.kernel_blob)})
    sources = dict(zip(blobs, history.objects.blobs(blobs), strict=True))
    for row, before in pairs:
        old, new = (latency.get((row.kernel, blob, conditions_of(row))) for blob in (before, row.kernel_blob))
        yield Attempt(
            id=row.id,
            before=sources[before],
            after=sources[row.kernel_blob],
            status=row.status,
            kept=row.decision == Decision.KEPT,
            gain=1 - new / old if old and new else None,
            here=row.kernel == name and conditions_of(row) == conditions_of(like),
        )


def _with_parents(history: History, rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Those experiments whose bytes git has, each with the blob that its kernel file was before."""
    missing = history.objects.unresolved([one for row in rows for one in (row.parent, row.kernel_blob)])
    here = [row for row in rows if not missing & {row.parent, row.kernel_blob}]
    parents = [(row, history.objects.entry(row.parent, row.kernel)) for row in here]
    return [(row, before.blob) for row, before in parents if before is not None]


# --- brief ---


def brief_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, and how much may be said."""
    kernel_file(parser)
    count_option(parser, "--tokens", "at most so many", 1500)
    json_option(parser, "print it as one JSON document")


def brief_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print what the next experiment has to know; changes nothing."""
    history = History(root)
    name = Path(os.path.relpath(os.path.realpath(kernel), os.path.realpath(root))).as_posix()
    entry = history.objects.entry(history.checks.head().commit, name)
    if entry is None:
        raise Refusal(Status.NOT_FOUND, f"HEAD has no {name}: commit it, or judge it once, first")
    source = history.objects.blob(entry.blob)
    rows = tuple(row for row in log.rows(root) if row.kernel == name)
    incumbent = newest(rows, kernel=name, blob=entry.blob)
    constants = knobs.values(source, kernel.name)
    found = _known(history, name, source, incumbent)
    made = brief(
        task=Task(
            kernel=name,
            name=str(constants.get("KERNEL_NAME", "")),
            description=str(constants.get("PROBLEM_DESCRIPTION", "")),
            digest=incumbent.problem if incumbent else "",
        ),
        source=source,
        incumbent=incumbent,
        timeline=timeline_of(root, incumbent) if incumbent else None,
        refuted=refuted(root, incumbent) if incumbent else {},
        rows=rows,
        parts=list(_changed_parts(history, rows)),
        suggestions=list(_suggestions(found)),
        no_faster=len(found.tried) + len(found.failed) if found else 0,
        not_modelled=len(found.unreached) if found else 0,
    )
    print(dumps(document_within(made, options.tokens)) if options.json else text_within(made, options.tokens))
    return Status.PASS.exit_code


def _suggestions(found: Outlook | None) -> Iterator[Suggestion]:
    """The fastest of what ``advise`` modelled."""
    if found is None or found.base is None or found.base.score is None:
        return
    for number, one in enumerate(found.advice[:CHECKED], 1):
        yield Suggestion(
            number=number,
            title=title(one.advice),
            predicted_ms=one.latency_ms,
            modelled_ms=found.base.score.latency_ms,
            checked=one.prediction.status is Status.PASS,
        )


def _known(history: History, name: str, source: bytes, incumbent: Row | None) -> Outlook | None:
    """What ``advise`` modelled of HEAD's kernel; None where its modelled run is not on this disk."""
    timeline = timeline_of(history.root, incumbent) if incumbent else None
    if incumbent is None or timeline is None:
        return None
    kept, find = _predictions(history, name, source, incumbent, timeline)
    return find(kept.read())


def _changed_parts(history: History, rows: Sequence[Row]) -> Iterator[frozenset[str]]:
    """What the newest reverted experiments changed, of those whose bytes git has."""
    recent = [row for row in reversed(rows) if row.decision == Decision.REVERTED][:RECENT]
    for row, before in _with_parents(history, recent):
        try:
            change = mutation(history.objects.blob(before), history.objects.blob(row.kernel_blob), row.kernel)
        except Refusal:  # it was no Python
            continue
        yield frozenset(part.name for part in change.parts)
