"""``./ratchet.sh search [FILE]``"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from ratchet.commands.branches import on_line
from ratchet.kernelfile.knobs import in_words
from ratchet.loop import log
from ratchet.loop.placed import committed
from ratchet.loop.workspace import Interrupts
from ratchet.search.candidates import baseline, bench
from ratchet.search.remote import judges
from ratchet.search.run import PATIENCE_BY_KNOB, Limits, Result, Search
from ratchet.search.space import Tried, space_of
from ratchet.search.study import opened, study_id
from ratchet.tpu.chips import CHIPS
from ratchet.values import MEASURED
from ratchet.values.status import Status
from ratchet.view.document import dumps
from ratchet.view.points import Shown, candidates_document, search_text
from ratchet.wiring import JudgeFunction, RepositoryJudge


def command(
    options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Search the knobs of a kernel file; every trial is an experiment with a row."""
    root, kernel = on_line(root, kernel, options.branch, say)
    asked = asked_for(options, root, function)
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
            bench(judge, name, one_file=True, wait_s=options.wait, say=say, cluster=away) as judged,
        ):
            search = Search(
                source=source,
                name=kernel.name,
                space=space,
                how=options.how,
                limits=limits,
                study=study,
                rows=judged.rows,
                say=say,
                batch=options.batch,
            )
            result = search.run()
    shown = [shown_of(one) for one in result.tried]
    began = _before_ms(result, float(row.median_ms))
    if options.json:
        print(dumps(_document(result, shown, name=name, study=study.name, before_ms=began)))
    else:
        new = sum(one.id not in before for one in result.tried)
        text = search_text(
            shown,
            ending=result.ending.value,
            before_ms=began,
            left_out=result.left_out,
            seconds=result.seconds,
            new=new,
            how="measured" if judge.evaluator in MEASURED else "modelled",
        )
        print(text)
    kept = any(one.kept for one in result.tried)
    return Status.PASS.exit_code if kept else Status.NOT_BETTER.exit_code


def asked_for(options: argparse.Namespace, root: Path, function: JudgeFunction) -> RepositoryJudge:
    """The judge that ``--on`` or ``--chip`` asks for."""
    judge = dataclasses.replace(
        RepositoryJudge.modelling(root, function, CHIPS[options.chip]), remember=not options.fresh
    )
    return dataclasses.replace(judge, evaluator=options.on, remember=False) if options.on else judge


def _before_ms(result: Result, now_ms: float) -> float:
    """The latency where the search began; HEAD's as it is now, where the space does not have that point."""
    first = result.tried[0] if result.tried and result.tried[0].point == result.start else None
    return first.latency_ms if first and first.latency_ms else now_ms


def _document(result: Result, shown: list[Shown], *, name: str, study: str, before_ms: float) -> dict[str, object]:
    return candidates_document(
        shown,
        kernel=name,
        study=study,
        start=dict(result.start),
        start_ms=before_ms,
        ending=result.ending.name,
        left_out=result.left_out,
        seconds=round(result.seconds, 3),
    )


def shown_of(one: Tried) -> Shown:
    """A trial as the table shows it."""
    return Shown(
        name=in_words(one.point),
        point=one.point,
        latency_ms=one.latency_ms,
        vmem_bytes=one.vmem_bytes,
        status=one.status.name,
        id=one.id,
        kept=one.kept,
        reason=one.reason,
    )
