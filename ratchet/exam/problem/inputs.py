"""The inputs of a problem's instances: asked for by instance, computed of one draw, and kept where they are few."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ratchet.exam.problem import array_file, domain, instances, rows
from ratchet.exam.problem.problem import Problem, array_bytes
from ratchet.exam.problem.programs import Arrays, Programs, as_bytes, from_bytes

T = TypeVar("T")

FEW_BYTES = 1 << 27
"""Inputs of all instances of a problem that are kept, at most."""
PUBLIC = np.zeros(2, np.uint32)
"""The key of the public inputs."""
TABLES, DRAWN = "tables", "drawn"
"""Files beside the references: which inputs are the same for every key, and the draw of the judge's key."""
DRAWN_BYTES = 1 << 29
"""Inputs of a problem whose draw is kept in a file, at most. Those of a cache of many keys take seconds to draw."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance of a problem, and where what is known of it is kept."""

    problem: Problem
    kind: str
    secret: bytes
    cache: Path
    whole: bool = False
    """Whether all rows are known in float64, where those of some are enough (``rows.py``)."""

    @property
    def file(self) -> Path:
        """Of its reference."""
        return array_file.path_of(self.cache, rows.file_name(self.problem, self.kind, whole=self.whole))

    def of_kind(self, kind: str) -> Instance:
        return replace(self, kind=kind)


class Inputs:
    """The arrays of instances: a function of the problem, the kind and the judge's secret.

    All kinds are computed of one draw by the problem's own generator. Kept are the last draw and, where they are few,
    the arrays of all its instances; in the folder of an instance the draw, and which inputs are tables.
    """

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._latest: dict[str, tuple[object, Any]] = {}
        self._making = threading.RLock()

    def of(self, instance: Instance) -> Arrays:
        """The arrays of one instance."""
        kept = self._once("instances", (instance.problem.short, instance.secret), dict[str, Arrays])
        arrays = kept.get(instance.kind) or self._made(instance)
        if _are_few(instance.problem):
            kept[instance.kind] = arrays
        return arrays

    def public(self, problem: Problem) -> Arrays:
        """The arrays of a key that everyone knows, for what steers a modelled run."""

        def make() -> Arrays:
            arrays = self.programs.drawn(problem, PUBLIC)
            for position, array in self.steering(problem).items():  # a float may be rounded otherwise beside others
                arrays[position] = array
            return arrays

        return self._once("public", problem.inputs_sha256, make)

    def steering(self, problem: Problem) -> dict[int, np.ndarray[Any, Any]]:
        """What of the public inputs may steer, by position."""

        def make() -> dict[int, np.ndarray[Any, Any]]:
            some = instances.steering(problem.inputs)
            return dict(zip(some, self.programs.drawn(problem, PUBLIC, only=some), strict=True))

        return self._once("steering", problem.inputs_sha256, make)

    def _once(self, what: str, owner: object, make: Callable[[], T]) -> T:
        """What ``make`` returns, kept until it is asked for of another owner."""
        with self._making:
            if what not in self._latest or self._latest[what][0] != owner:
                self._latest.pop(what, None)  # one draw of a cache of many keys is enough
                self._latest[what] = owner, make()
            return cast(T, self._latest[what][1])

    def _made(self, instance: Instance) -> Arrays:
        problem, kind, secret = instance.problem, instance.kind, instance.secret
        if kind == "public":
            return self.public(problem)
        name, _, place = kind.partition("-")
        drawn = arrays = self._draw(instance, kind if name == "fresh" else "random")
        if name in ("random", "probe"):
            arrays = list(arrays)
            for position, array in self.steering(problem).items():
                arrays[position] = array
        generator = np.random.default_rng(list(hashlib.sha256(secret + kind.encode() + b"structure").digest()))
        if name in ("random", "fresh"):
            return arrays
        if name == "probe":
            own = self._to_change(instance, arrays)
            made = instances.probe(arrays, generator, problem.mesh, int(place or 0), problem.mixed_axes, own)
        elif name == instances.SIGNED:
            made = instances.signed(arrays, generator, problem.mixed_axes, problem.drawn)
        elif name == instances.SMALL:
            made = instances.small(arrays, problem.total_axes)
        else:
            asked = problem.mixed_axes, problem.ordered_axes, problem.whole_axes, problem.drawn
            made = instances.mixed(arrays, generator, *asked)
        made = domain.in_order(domain.inside(made, problem.domains), drawn)
        same = self._tables(instance, drawn)
        return [old if number in same else new for number, (old, new) in enumerate(zip(arrays, made, strict=True))]

    def _draw(self, instance: Instance, base: str) -> Arrays:
        """The draw that a kind is made of: of the judge's key, or of another for each ``fresh`` one."""
        key = _key(instance, base)

        def make() -> Arrays:
            if base == "random":
                return self._stored_draw(instance, key)
            return self.programs.drawn(instance.problem, key)

        return self._once("draw", (instance.problem.inputs_sha256, key.tobytes()), make)

    def _stored_draw(self, instance: Instance, key: np.ndarray[Any, Any]) -> Arrays:
        """The draw of the judge's key, kept with the references unless it is large.

        The key is kept with it: a problem that is frozen is tried with others, too.
        """
        problem, path = instance.problem, array_file.path_of(instance.cache, DRAWN)
        if sum(map(array_bytes, problem.inputs)) > DRAWN_BYTES:
            return self.programs.drawn(problem, key)
        stored = array_file.read(path)
        if stored and stored[0].tobytes() == key.tobytes():
            return from_bytes(stored[1:], problem.inputs)
        drawn = self.programs.drawn(problem, key)
        if not stored:
            array_file.write(path, [key, *as_bytes(drawn)])
        return drawn

    def _to_change(self, instance: Instance, arrays: Arrays) -> Arrays:
        """The kept draw, to be written to, with what steers as it is in ``arrays``; nothing where no draw is kept.

        A probe changes a few rows of them: a copy of a cache of keys takes half a second of fresh pages.
        """
        stored = array_file.read(array_file.path_of(instance.cache, DRAWN), to_change=True)
        if not stored or stored[0].tobytes() != _key(instance, "random").tobytes():
            return []
        kept, steering = from_bytes(stored[1:], instance.problem.inputs), self.steering(instance.problem)
        return [np.array(arrays[position]) if position in steering else own for position, own in enumerate(kept)]

    def _tables(self, instance: Instance, drawn: Arrays) -> list[int]:
        """Positions of the inputs that are the same for every key, as ``drawn`` by one: see ``instances.tables``.

        To know it takes another draw of all of them, so it is kept with the references.
        """
        path = array_file.path_of(instance.cache, TABLES)

        def make() -> list[int]:
            stored = array_file.read(path)
            if len(stored) == 1:
                return [int(position) for position in stored[0]]
            found = instances.tables(drawn, self.public(instance.problem))
            array_file.write(path, [np.array(found, np.int64)])
            return found

        return self._once("tables", path, make)


def _key(instance: Instance, base: str) -> np.ndarray[Any, Any]:
    """The key of a draw: it follows from the judge's secret."""
    return np.frombuffer(hashlib.sha256(instance.secret + base.encode()).digest()[:8], np.uint32)


def _are_few(problem: Problem) -> bool:
    """Whether the inputs of all instances may be kept."""
    count = len(instances.kinds_of(problem)) + 1
    return count * sum(map(array_bytes, problem.inputs)) <= FEW_BYTES
