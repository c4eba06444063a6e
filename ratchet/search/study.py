"""A search's study on disk, in ``.ratchet/search``: where it began, and its trials as Optuna's tools read them.

Results come from the ledger alone. The study is read for one thing, the point or the file where the search began and
what was expected of its edits then, because HEAD's kernel moves as trials are kept and predictions are added. Removed,
it begins again at HEAD's, and what has a row is still not judged twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.exam.judge.secret import FOLDER, clone_folder
from ratchet.kernelfile.knobs import with_constants
from ratchet.process.root import Root
from ratchet.search import tpe
from ratchet.search.evolve import HOW, Gene
from ratchet.search.progress import lock_of
from ratchet.search.space import Observation, Space
from ratchet.values import Conditions, Point
from ratchet.values.encoding import decode, encode
from ratchet.values.status import Refusal, Status

_START, _ORIGIN = "start", "origin"
_ASKED_S = 0.2
"""Who asks whether a search is under way holds its lock for an instant."""


def edits_id(kernel: str, space: Space | None, conditions: Conditions) -> str:
    """Of a search over the edits of a kernel file; where it began is in the study."""
    axes = [[axis.name, list(map(repr, axis.values))] for axis in space.axes] if space else []
    where = [one.text for one in space.where] if space else []
    text = json.dumps([HOW, kernel, axes, where, repr(replace(conditions, seal=conditions.series))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def study_id(source: bytes, space: Space, how: str, conditions: Conditions) -> str:
    """Of everything that a search's course follows from but where it begins: the same for every point of its space."""
    blank = with_constants(source, "kernel", {axis.name: None for axis in space.axes})
    axes = [[axis.name, list(map(repr, axis.values))] for axis in space.axes]
    where = [one.text for one in space.where]
    comparable = replace(conditions, seal=conditions.series)
    text = json.dumps([hashlib.sha256(blank).hexdigest(), axes, where, how, repr(comparable)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Study:
    """One study. Whoever holds it is the only one who writes it."""

    name: str
    library: Any
    """Optuna's study."""

    def start(self, space: Space, here: Point) -> Point:
        """Where the search began; ``here``, if this is the beginning."""
        places = self.library.user_attrs.get(_START)
        if not _fits(places, space):
            places = {axis.name: axis.index(here[axis.name]) for axis in space.axes}
            self.library.set_user_attr(_START, places)
        return {axis.name: axis.values[places[axis.name]] for axis in space.axes}

    def origin(
        self, here: bytes, program: Callable[[bytes], str], expected: Callable[[bytes], Mapping[Gene, float]]
    ) -> tuple[bytes, Mapping[Gene, float]]:
        """The file where a search over its edits began, and what was expected of them then.

        That is ``here``, unless it is a version that the search came to.
        """
        began = self.library.user_attrs.get(_ORIGIN)
        try:
            if program(here) in began["versions"]:
                return decode(bytes, began["source"]), dict(decode(tuple[tuple[Gene, float], ...], began["expected"]))
        except (TypeError, KeyError, ValueError):  # none yet, or whatever somebody wrote there
            pass
        first = expected(here)
        began = {"source": encode(here), "expected": encode(tuple(first.items())), "versions": [program(here)]}
        self.library.set_user_attr(_ORIGIN, began)
        return here, first

    def came_to(self, versions: Sequence[str]) -> None:
        """Remember which versions a search over edits tried since it began."""
        self.library.set_user_attr(_ORIGIN, {**self.library.user_attrs[_ORIGIN], "versions": list(versions)})

    def add(self, space: Space, observations: Sequence[Observation]) -> None:
        """Write down the trials that are new."""
        there = len(self.library.get_trials(deepcopy=False))
        self.library.add_trials([tpe.frozen(space, one) for one in observations[there:]])


@contextlib.contextmanager
def opened(root: Path, name: str) -> Iterator[Study]:
    """The study ``name`` of a clone, made where there is none.

    Raises:
      Refusal: ``BUSY`` while another process holds it, ``LEDGER_UNWRITABLE``.
    """
    optuna = tpe.optuna()
    top, folder = Root(root), f"{FOLDER}/search"
    clone_folder(root)
    with contextlib.ExitStack() as stack:
        try:
            top.make_folder(folder)
            stack.enter_context(top.locked(lock_of(name), wait_s=_ASKED_S))
        except BlockingIOError:
            raise Refusal(Status.BUSY, "this search is running already: wait for it to end") from None
        except OSError as error:
            message = f"cannot write {folder}: {error.strerror}; make it writable"
            raise Refusal(Status.LEDGER_UNWRITABLE, message) from None
        yield Study(name=name, library=_loaded(optuna, top, f"{folder}/{name}.journal", name, stack))


def _loaded(optuna: Any, top: Root, path: str, name: str, stack: contextlib.ExitStack) -> Any:
    """Optuna's study; a file that it cannot read is put aside. Optuna opens the file by its descriptor: no other."""
    for again in (True, False):
        try:
            descriptor = stack.enter_context(top.changed(path))
            _mend(descriptor)
            backend = optuna.storages.journal.JournalFileBackend(f"/proc/self/fd/{descriptor}", lock_obj=_Unlocked())
            storage = optuna.storages.JournalStorage(backend)
            return optuna.create_study(study_name=name, storage=storage, load_if_exists=True)
        except Exception:  # whatever somebody wrote there
            if not again:
                raise
            top.rename(path, f"{path.removesuffix('.journal')}.unreadable")
    raise AssertionError


class _Unlocked:
    """No lock of Optuna's, which a killed run would leave behind: whoever opened the study is alone with it."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def _mend(descriptor: int) -> None:
    """Cut off the half line of a run that was killed while it wrote."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        whole = file.read().rpartition(b"\n")
    os.ftruncate(descriptor, len(whole[0]) + len(whole[1]))


def _fits(places: Any, space: Space) -> bool:
    return isinstance(places, dict) and all(
        type(places.get(axis.name)) is int and 0 <= places[axis.name] < len(axis.values) for axis in space.axes
    )
