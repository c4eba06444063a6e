"""``./ratchet.sh ablate ID``"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from ratchet.commands.try_ import shown_of
from ratchet.kernelfile.mutation import mutation, partly, subsets
from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.loop.placed import committed
from ratchet.loop.workspace import Interrupts
from ratchet.search.candidates import Candidate, baseline, bench
from ratchet.tpu.chips import CHIPS
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.points import candidates_document, candidates_table
from ratchet.wiring import JudgeFunction, RepositoryJudge

PARENT, WHOLE = "the parent", "the whole change"


def command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Callable[[str], None]) -> int:
    """Try the parts of an experiment's change alone and without each other; each try is an experiment with a row."""
    row = log.find(root, options.id)
    before, after = _versions(root, row)
    file = Path(row.kernel)
    parts = [part.name for part in mutation(before, after, file.name).parts]
    if len(parts) < 2:
        what = f"changed {parts[0]} alone" if parts else "changed nothing that its parent has"
        raise Refusal(Status.USAGE, f"{row.id} {what}: there is nothing to take apart")
    chip = CHIPS[options.chip]
    judge = dataclasses.replace(RepositoryJudge.modelling(root, function, chip), remember=not options.fresh)
    named = {PARENT: before, WHOLE: after}
    named.update({", ".join(names): partly(before, after, names, file.name) for names in subsets(parts)})
    with Interrupts().installed():
        name, _ = committed(root, Path(os.path.relpath(root / file, root)), wait_s=options.wait, progress=say)
        baseline(judge, file, wait_s=options.wait, say=say)
        with bench(judge, name, one_file=False, wait_s=options.wait, say=say) as judged:
            rows = judged.rows(
                [
                    Candidate(text=text, message=f"ablate: {which}\n\nOf experiment {row.id}.")
                    for which, text in named.items()
                ]
            )
    shown = [shown_of(which, one) for which, one in zip(named, rows, strict=True)]
    if options.json:
        print(dumps(candidates_document(shown, of=row.id, parts=parts)))
    else:
        print(f"{row.id} changed {len(parts)} things at once: {', '.join(parts)}")
        print(candidates_table(shown))
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
