"""Runs the corpus: what is chosen of it, by as many lanes as there are cores."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from ratchet.exam.candidate import tracer
from ratchet.exam.judge.steps import internal
from ratchet.exam.judge.workers import Workers, WorkerSlots
from ratchet.process.sandbox.folder import remove
from ratchet.selftest import trees
from ratchet.selftest.corpus import MODEL, Cheat, Corpus, Entry, Honest, Planted, trial
from ratchet.selftest.kernels import Bases, Judge, judge_cheat, judge_honest
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal, Status
from ratchet.values.trial import Trial

MOST_LANES = 4
QUICK_HONEST = (
    *("adam", "all_gather", "block_mask", "conv1d", "embedding_gather", "input_fusion", "int8_matmul"),
    *("layernorm_gain", "quantized_matmul", "row_softmax", "rows_attention", "split_decode"),
)
"""One of each way through the judge."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What of a corpus is run, in this order."""

    entries: tuple[Entry, ...]
    left_out: int
    """Entries of the corpus that are not."""


def choose(corpus: Corpus, *, quick: bool, pattern: str) -> Chosen:
    """The entries whose name or kind ``pattern`` is a part of, or matches with ``*``; with ``quick`` one of each kind.

    Several patterns have commas between them.

    Raises:
      Refusal: ``NOT_FOUND`` where there is none.
    """
    attacks: list[Cheat | Planted] = [*corpus.cheats, *corpus.planted]
    everything = len(corpus.honest) + len(attacks)
    honest = [one for one in corpus.honest.values() if _matches(pattern, one.name)]
    attacks = [one for one in attacks if _matches(pattern, one.name, one.kind)]
    if quick:
        honest = [one for one in honest if one.name in QUICK_HONEST]
        first: dict[str, Cheat | Planted] = {}
        for one in attacks:
            if "quick" not in one.left_out_of:
                first.setdefault(one.kind, one)
        attacks = list(first.values())
    entries: tuple[Entry, ...] = (*honest, *attacks)
    if not entries:
        raise Refusal(Status.NOT_FOUND, f"no entry of the corpus matches {pattern:.60}")
    return Chosen(entries=entries, left_out=everything - len(entries))


def _matches(pattern: str, *names: str) -> bool:
    return any(fnmatch(name, one) or one in name for one in pattern.split(",") for name in names)


def run(
    corpus: Corpus,
    chosen: Chosen,
    *,
    root: Path,
    judge: Judge,
    done: Callable[[Trial], None] = lambda trial: None,
) -> tuple[Trial, ...]:
    """Judge what was chosen; ``done`` is called after each. Nothing below ``root`` changes.

    Raises:
      Refusal: ``NO_SPACE`` or what else the judge cannot start without.
    """
    folder = Path(tempfile.mkdtemp(prefix="ratchet-selftest-"))
    try:
        return _Run(corpus, root=root, judge=judge, folder=folder, done=done).all_of(chosen.entries)
    finally:
        remove(folder)


class _Run:
    def __init__(
        self, corpus: Corpus, *, root: Path, judge: Judge, folder: Path, done: Callable[[Trial], None]
    ) -> None:
        self._root, self._judge, self._folder, self._done = root, judge, folder, done
        self._bases = Bases(corpus.honest, folder, judge)
        self._kernel = corpus.honest["rows_attention"].source
        self._cloning = threading.Lock()
        with tracer.start(folder / "walls") as child:
            self._missing = child.missing
            """The walls of the jail that this machine has no means for."""

    def all_of(self, entries: Sequence[Entry]) -> tuple[Trial, ...]:
        count = min(MOST_LANES, len(os.sched_getaffinity(0)), len(entries))
        compiles = any(getattr(one, "on", MODEL) == MODEL for one in entries)
        with WorkerSlots(count, partial(Workers, V5E, keep=True, compiles=compiles)) as lanes:
            running = [lanes.submit(partial(self._one, *numbered)) for numbered in enumerate(entries)]
            for future in as_completed(running):
                self._done(future.result())
            return tuple(future.result() for future in running)

    def _one(self, number: int, entry: Entry, workers: Workers) -> Trial:
        try:
            return self._trial(entry, self._folder / f"{number:04d}", workers)
        except Refusal as refusal:
            return trial(entry, got=refusal.status.name, reason=refusal.message)
        except Exception as error:  # what a verdict must never do is a result, too
            return trial(entry, got=Status.INTERNAL.name, reason=internal(error))

    def _trial(self, entry: Entry, folder: Path, workers: Workers) -> Trial:
        if isinstance(entry, Honest):
            return judge_honest(entry, self._bases, workers)
        if isinstance(entry, Planted):
            try:
                return trees.play(entry, self._tree(history=entry.history), folder)
            finally:
                remove(folder)
        if entry.wall in self._missing:
            return trial(entry, reason=f"this system offers no {entry.wall} to this user")
        return judge_cheat(entry, self._bases, workers, self._judge, folder)

    def _tree(self, *, history: bool) -> Path:
        """The tree that an attack gets a copy of; made once."""
        with self._cloning:
            clean, lived = self._folder / "clean", self._folder / "lived"
            if not clean.exists():
                trees.new_tree(self._root, clean, self._kernel)
            if history and not lived.exists():
                trees.with_history(clean, lived)
        return lived if history else clean
