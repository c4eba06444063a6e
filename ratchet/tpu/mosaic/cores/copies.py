"""Copies between memories that cores started, and the semaphores that count them.

As in ``ops.dma`` a semaphore has the bytes of a copy from its start on, and a wait takes them off. Data arrive at once,
or with ``Options.on_wait`` when nothing on the semaphore is outstanding; until then the target holds memory never
written, and is compared with that when they arrive, as the source is with what it held at the start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.arrays import bits, decode, encode
from ratchet.tpu.mosaic.cores.races import Access, Clocks, Conflict
from ratchet.tpu.mosaic.cores.views import View
from ratchet.tpu.mosaic.findings import Kind

Semaphore = tuple[int, object, int]
"""The core that has it, its buffer, and its position there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy:
    """One that was started and is not known to be over."""

    core: int
    op: Op
    reads: tuple[tuple[View, np.ndarray], ...]
    """Its source and what that held at the start; then a list of rows, where that is in memory."""
    target: View
    adds: bool
    before: np.ndarray | None
    """What the target holds until it arrives; None where it has."""

    @property
    def data(self) -> np.ndarray:
        return self.reads[0][1]

    @property
    def followed(self) -> list[tuple[View, np.ndarray]]:
        """What it reads and somebody may write meanwhile: no inputs."""
        return [(view, held) for view, held in self.reads if not view.buffer.is_input]

    @property
    def accesses(self) -> list[tuple[View, Access]]:
        """What it does to which memory."""
        target = self.target, Access.ADD if self.adds else Access.WRITE
        return [*((view, Access.READ) for view, _ in self.followed), target]


class Wrong(Exception):
    """A finding, which ends the execution."""

    def __init__(self, kind: Kind, op: Op | None, message: str) -> None:
        super().__init__(message)
        self.kind, self.op, self.message = kind, op, message


@dataclass(kw_only=True)
class Copies:
    """All copies in flight, and who accessed what."""

    clocks: Clocks
    names: Sequence[str]
    """Of the cores."""
    flying: dict[Semaphore, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    _added: dict[int, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    """Additions to memory that cores share, which come before it is next read or written: in the order of the cores, so
    that sums have one order."""
    _written: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """Of each memory, what was last written to it, whether or not it has arrived, and where that is known."""

    def start(self, copy: Copy, counted: Semaphore) -> None:
        """Begin a copy, that ``counted`` is waited for by.

        Raises:
            Wrong: for memory that another copy or core accesses, and nothing orders the two.
        """
        for view, access in copy.accesses:
            same = self._same_as_last(copy) if access is Access.WRITE else None
            found = self.clocks.access(copy.core, access, view.array, view.selector, in_flight=True, same=same)
            if found is not None:
                raise self._conflict(copy, view, access, found)
        self.flying[counted].append(copy)
        self.clocks.leave(copy.core, counted)
        if copy.before is None:
            self._arrive(copy)
        elif not copy.adds:
            self.settle(copy.target)
            copy.target.write(copy.before)

    def _same_as_last(self, copy: Copy) -> np.ndarray | None:
        """Where in its target a copy writes what was last written there, and note what it writes."""
        target, at = copy.target, copy.target.selector
        empty = np.empty_like(target.array), np.zeros(target.array.shape, bool)
        last, known = self._written.setdefault(id(target.array), empty)
        same = None
        if target.is_box:
            data = copy.data.reshape(known[at].shape)
            same = known[at] & (_bits(last[at]) == _bits(data)).reshape(data.shape)
            last[at] = data
        known[at] = target.is_box
        return same

    def land(self, counted: Semaphore, waiter: int) -> None:
        """All copies on a semaphore are over, as ``waiter`` knows.

        Raises:
            Wrong: where a source was written, or a target, before.
        """
        for copy in self.flying.pop(counted, ()):
            for view, access in copy.accesses:
                self.clocks.landed(copy.core, waiter, access, view.array, view.selector)
            for view, held in copy.followed:
                self.settle(view)
                if view.read().tobytes() != held.tobytes():
                    what = f"{view.buffer.name} is written before the wait for a DMA that reads it, which begins here"
                    raise Wrong(Kind.SOURCE_OVERWRITTEN, copy.op, what)
            if copy.before is None:
                continue
            if not copy.adds and not _holds(copy.target.read(), copy.before, copy.data):
                what = f"{copy.target.buffer.name} is written before the wait for a DMA into it, which begins here"
                raise Wrong(Kind.TARGET_OVERWRITTEN, copy.op, what)
            self._arrive(copy)

    def check_over(self, array: np.ndarray, op: Op) -> None:
        """Memory is given back by ``op``'s block.

        Raises:
            Wrong: for a copy in flight that reads or writes it.
        """
        for copy in (one for copies in self.flying.values() for one in copies):
            if copy.target.array is array:
                raise Wrong(
                    Kind.TARGET_OVERWRITTEN, op, "the end of the scope of scratch, where a DMA is yet to arrive"
                )
            if any(view.array is array for view, _ in copy.reads):
                raise Wrong(Kind.SOURCE_OVERWRITTEN, op, "the end of the scope of scratch, which a DMA may still read")

    def settle(self, view: View) -> None:
        """Carry out the additions to a memory that were left for later."""
        for copy in sorted(self._added.pop(id(view.array), ()), key=lambda one: one.core):
            _add(copy.target, copy.data)

    def settle_all(self) -> None:
        for copies in list(self._added.values()):
            self.settle(copies[0].target)

    def _arrive(self, copy: Copy) -> None:
        if copy.adds and copy.target.is_shared:
            self._added[id(copy.target.array)].append(copy)
        elif copy.adds:
            _add(copy.target, copy.data)
        else:
            self.settle(copy.target)
            copy.target.write(copy.data)

    def _conflict(self, copy: Copy, view: View, access: Access, found: Conflict) -> Wrong:
        does = {Access.READ: "reads", Access.ADD: "adds to", Access.WRITE: "writes"}
        if found.core == copy.core:
            kind = Kind.SOURCE_OVERWRITTEN if found.access is Access.READ else Kind.TARGET_OVERWRITTEN
            kind = Kind.READ_BEFORE_WAIT if access is Access.READ else kind
            what = (
                f"a DMA that {does[access]} {view.buffer.name}, which one that is not waited for {does[found.access]}"
            )
            return Wrong(kind, copy.op, what)
        who, other = self.names[copy.core], self.names[found.core]
        what = f"{who} {does[access]} {view.buffer.name} where {other} {does[found.access]} it: nothing orders the two"
        if found.in_flight:
            what += ", and the other's copy is not waited for"
        return Wrong(Kind.CORES_RACE, copy.op, what)


def _add(target: View, data: np.ndarray) -> None:
    """Row after row: some may be the same."""
    if target.is_box and target.array.dtype == target.ref.dtype:
        place = target.array[target.selector]
        np.add.at(target.array, target.selector, data.reshape(place.shape))
        return
    rows = range(len(data)) if target.rows is None else target.rows
    for row, values in zip(rows, data, strict=True):
        one = View(ref=target.ref, array=target.array, rows=np.array([row]))
        old, new = (np.asarray(decode(kept, target.ref.dtype)) for kept in (one.read(), values[None]))
        one.write(np.asarray(encode(old + new)))


def amount(view: View) -> int:
    """What a transfer of it adds to its semaphore."""
    return math.prod(view.shape) * bits(view.ref.dtype) // 8


def _holds(found: np.ndarray, before: np.ndarray, data: np.ndarray) -> bool:
    """Whether each element of a target is still what it was, or what this copy brings: another may have brought it."""
    return bool(((_bits(found) == _bits(before)) | (_bits(found) == _bits(data))).all())


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
