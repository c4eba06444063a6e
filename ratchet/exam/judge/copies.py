"""Whether the compiled kernels copy what was copied when they were executed for their values. Pure.

Compared is each copy of a kernel's first run, in the memory of an operand: which operand, from which byte on, how many
bytes, and the order of those that touch the same memory. Memory of the kernel's own is the compiler's to place: there
the same places have to be the same. An operand that XLA keeps in VMEM may be moved by vector code, which has no DMAs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType, byte_of
from ratchet.values.control import ControlFlow
from ratchet.values.copies import (
    A_WINDOW,
    COLUMNS,
    MOST_BLOCKS,
    MOST_COPIES,
    ExecutedCopies,
    IssuedCopies,
    Operand,
    Place,
    unpacked,
)
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import SOURCE_FILE, TokenTable

_HBM, _OWN, _NEITHER = 0, -1, -2
_SPACES = {_HBM: "HBM", 1: "VMEM"}
_WIDTH = 4
_PLACE, _BYTES, _SOURCE, _TARGET = 0, 1, 2, 5
"""Columns of a DMA; of each end the operand, where it begins, and whose window is there."""
_FAR = 1 << 31
"""Arrays of so many elements are not followed: their elements have no number in 32 bits."""


@dataclass
class Compared:
    """What a comparison has found."""

    copies: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    """Of places, how many copies the compiler made vector code of, in all runs of the kernels."""
    vectors: set[str] = field(default_factory=set)
    """Places of kernels on several chips, whose copies are not logged, that may be vector code."""
    apart: list[str] = field(default_factory=list)
    """Differences, each with both sides."""
    misplaced: list[str] = field(default_factory=list)
    """Operands that XLA put into another memory than the kernel names: whatever else differs follows from that."""


class _End(NamedTuple):
    """One side of the copies that an operation starts."""

    number: int
    """As ``Place.source``."""
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    elements: np.ndarray
    """int64[n], for the kernel's values."""
    issued: np.ndarray
    """int64[n, pieces, 2], operand and where."""


def compare(executed: ControlFlow, issued: Sequence[IssuedCopies], hlo: HloModule, tokens: TokenTable) -> Compared:
    """Compare the copies of all kernels.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for more copies than are followed, or logs that do not read.
    """
    compared = Compared()
    launched = {one.launch: one for one in issued}
    called = {one.site: one for one in executed.executed}
    for launch, kernel in hlo.launches.items():
        one, other = called.get("/".join(kernel.op_name.split("/")[-2:])), launched.get(launch)
        if one is None:
            continue
        if one.changed and not (kernel.name == launch and other is not None and other.runs == other.cores == 1):
            compared.apart.append(_unseen(tokens.name(launch), one.changed[0]))
        try:
            _check_memories(one, kernel, hlo, tokens, compared)
            if other is not None and other.cores == 1 and not (compared.apart or compared.misplaced):
                _Kernel(one, other, hlo, tokens, compared).compare()
            if other is None:
                types = _types(kernel, hlo)
                movable = (place.place for place in one.places if _may_be_vector_code(place, types))
                compared.vectors.update(f"{SOURCE_FILE}:{number}" for number in movable)
        except ValueError as error:
            raise Refusal(Status.CANNOT_VERIFY, f"the copies of {tokens.name(launch)} do not read: {error}") from None
    return compared


def _check_memories(
    executed: ExecutedCopies, kernel: HloOp, hlo: HloModule, tokens: TokenTable, compared: Compared
) -> None:
    """Whether XLA put operands where the kernel's module says that they are."""
    types = _types(kernel, hlo)
    if any(operand.number >= len(types) for operand in executed.operands):
        raise ValueError(f"the compiled kernel has {len(types)} operands and results")
    for operand in executed.operands:
        where = types[operand.number].space
        if not operand.block and operand.space == "hbm" and where != _HBM:
            there = _SPACES.get(where, f"memory {where}")
            compared.misplaced.append(
                f"{tokens.name(kernel.name)}: {_called(operand.number, kernel)} is in HBM for the kernel "
                f"(memory_space=pltpu.HBM), and XLA put it in {there}: a copy would go to its address in the wrong "
                "memory. Take memory_space=pl.ANY, or make the operand outside of the jit"
            )


def _types(kernel: HloOp, hlo: HloModule) -> list[ArrayType]:
    """Of a kernel's operands, then of its results."""
    return [hlo.ops[name].types[0] for name in kernel.operands] + list(kernel.types)


def _may_be_vector_code(place: Place, types: Sequence[ArrayType]) -> bool:
    """Whether one end is an operand in VMEM, and the other not in HBM."""
    spaces = [types[number].space for number in (place.source, place.target) if number >= 0]
    return bool(spaces) and _HBM not in spaces


def _called(number: int, kernel: HloOp) -> str:
    inputs = len(kernel.operands)
    return f"operand {number}" if number < inputs else f"result {number - inputs}"


class _Kernel:
    """One call of a kernel, as executed and as issued."""

    def __init__(
        self, executed: ExecutedCopies, issued: IssuedCopies, hlo: HloModule, tokens: TokenTable, compared: Compared
    ) -> None:
        self.executed, self.tokens, self.compared = executed, tokens, compared
        self.kernel, launch = hlo.launches[issued.launch], hlo.ops[issued.launch]
        self.inputs, self.types = len(self.kernel.operands), _types(self.kernel, hlo)
        self.name, self.shared, self.runs = tokens.name(issued.launch), issued.shared, issued.runs
        launched = _types(launch, hlo)
        if len(self.shared) != len(launched):
            raise ValueError(f"{len(launched)} operands and results, {len(self.shared)} when it was modelled")
        self.operands = {operand.number: operand for operand in executed.operands}
        self.brought: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        if executed.count > MOST_COPIES:
            raise self._too_many(executed.count)
        if issued.count > MOST_BLOCKS:
            raise self._too_many(issued.count)
        self.rows = _rows(issued.copies, np.int64, COLUMNS, MOST_BLOCKS)
        self.rows = self.rows[self.rows[:, _BYTES] > 0]
        self.is_fused, self.begins = launch is not self.kernel, dict[int, int]()
        if self.is_fused:
            self._take_out_of(launch, launched, hlo)
        self.blocks = _rows(executed.blocks, np.int32, max(1, len(executed.windows)), MOST_BLOCKS).astype(np.int64)
        if len(self.blocks) < executed.steps:
            raise self._too_many(executed.steps)

    def _take_out_of(self, launch: HloOp, launched: Sequence[ArrayType], hlo: HloModule) -> None:
        """Count operands as the kernel does, not as the fusion that it is in; -2 for what only the fusion has."""
        numbers = hlo.slices(launch.name)
        for number, outer in numbers.items():
            self.types[number] = replace(self.types[number], space=launched[outer].space)
        there = np.full(len(launched) + 2, _NEITHER)
        there[_OWN] = _OWN
        for number, outer in reversed(numbers.items()):
            there[self.shared[outer]] = number
        self.rows = self.rows.copy()
        for end in (_SOURCE, _TARGET):
            self.rows[:, end] = there[self.rows[:, end]]
        self.shared = tuple(
            int(there[self.shared[numbers[n]]]) if n in numbers else _NEITHER for n in range(len(self.types))
        )

    def compare(self) -> None:
        for column, number in enumerate(() if self.is_fused else self.executed.windows):
            operand, type_ = self.operands[number], self.types[number]
            if type_.space == _HBM and len(self.blocks) and not any(operand.low) and _is_near(operand.shape):
                self._window(operand, type_, self.blocks[:, column])
            elif number in self.executed.changed:
                self.compared.apart.append(_unseen(self.name, number))
        self._own()

    def _too_many(self, count: int) -> Refusal:
        return Refusal(
            Status.CANNOT_VERIFY,
            f"{self.name} makes {count:,} copies or grid steps in one run; {MOST_COPIES:,} copies and {MOST_BLOCKS:,} "
            "blocks of windows are compared with those of the compiled program at most; wanted fewer and larger ones",
        )

    def _called(self, number: int) -> str:
        return _called(number, self.kernel)

    def _differs(self, what: str) -> None:
        self.compared.apart.append(f"{self.name}: {what}")

    # --- windows ---

    def _window(self, operand: Operand, type_: ArrayType, elements: np.ndarray) -> None:
        """Blocks in the order in which they are fetched or written back; one that stays is moved once."""
        end, window = (_SOURCE, _TARGET) if operand.number < self.inputs else (_TARGET, _SOURCE)
        rows = self.rows[self.rows[:, window + 2] == operand.number]
        rows = rows[rows[:, end] != A_WINDOW]
        if (rows[:, end] != self.shared[operand.number]).any():
            self._differs(f"a block of {self._called(operand.number)} is moved at an address outside of it")
            return
        wanted, at = byte_of(_unravelled(_changes(elements), operand.shape), type_), rows[:, end + 1]
        got = _changes(at[np.isin(at, wanted)])
        self.compared.copies += len(rows)
        if not np.array_equal(got, wanted) or not self._are_inside(operand, type_, at, wanted):
            self._differs(_apart(f"blocks of {self._called(operand.number)}", wanted, _changes(at)))

    def _are_inside(self, operand: Operand, type_: ArrayType, got: np.ndarray, wanted: np.ndarray) -> bool:
        """Whether all pieces lie in blocks: the compiler may move a block in several."""
        last = [np.array([min(n, dim) - 1]) for n, dim in zip(operand.block, type_.shape, strict=True)]
        blocks = np.sort(wanted)
        before = blocks[np.maximum(np.searchsorted(blocks, got, "right") - 1, 0)]
        return bool(((got >= before) & (got <= before + byte_of(last, type_))).all())

    # --- the kernel's own copies ---

    def _own(self) -> None:
        started = _rows(self.executed.copies, np.int32, _WIDTH, MOST_COPIES).astype(np.int64)
        started = started[started[:, 3] > 0]  # one of dynamic size may have none
        order = np.full(len(started), -1, np.int64)
        for index, place in enumerate(self.executed.places):
            mine = np.flatnonzero(started[:, 0] == index)
            if place.place >= 0 and len(mine):
                order[mine] = self._copies(place, started[mine])
        self._check_brought()
        if not self.compared.apart:
            self._check_order(started, order)

    def _copies(self, place: Place, started: np.ndarray) -> np.ndarray:
        """Compare the copies of one operation; the number among all DMAs of each, -1 where that is not known."""
        issued = np.flatnonzero(self.rows[:, _PLACE] == place.place)
        at = self.tokens.explain(f"{SOURCE_FILE}:{place.place}")
        self.compared.copies += len(started)
        order = np.full(len(started), -1, np.int64)
        if not len(issued) and _may_be_vector_code(place, self.types):
            self.compared.moved[f"{SOURCE_FILE}:{place.place}"] += len(started) * self.runs
            return order
        pieces, rest = divmod(len(issued), len(started))
        if rest or not pieces:
            self._differs(f"the copy at {at} is made {len(started)} times for the values, {len(issued)} when modelled")
            return order
        rows = self.rows[issued].reshape(len(started), pieces, COLUMNS)
        ends = (
            _End(place.source, place.source_shape, place.source_sizes, started[:, 1], rows[..., _SOURCE:][..., :2]),
            _End(place.target, place.target_shape, place.target_sizes, started[:, 2], rows[..., _TARGET:][..., :2]),
        )
        sides = [self._bytes(end, at) for end in ends]
        wanted, got = (np.stack([side[n] for side in sides], 1) for n in (0, 1))
        mine, theirs = np.lexsort(wanted.T), np.lexsort(got.T)
        for side, end in enumerate(ends):
            if not np.array_equal(wanted[mine, side], got[theirs, side]):
                what = f"the copies at {at} in {self._called(end.number)}"
                self._differs(_apart(what, wanted[:, side], got[:, side]))
                return order
        self._check_sizes(ends, at, started[mine, 3], rows[theirs, :, _BYTES].sum(1))
        for end in ends:
            self._check_own_memory(end, at, mine, theirs)
            if self._is_brought(end) and _is_near(end.shape):
                pair = end.elements[mine], end.issued[..., 1].min(1)[theirs]
                self.brought.setdefault(end.number, []).append(pair)
        order[mine] = issued.reshape(len(started), pieces)[theirs, 0]
        return order

    def _bytes(self, end: _End, at: str) -> tuple[np.ndarray, np.ndarray]:
        """Where copies begin in an operand, for the values and as issued; zeros where that is not compared."""
        zeros = np.zeros(len(end.elements), np.int64)
        if end.number < 0 or not _is_near(end.shape) or (end.issued[..., 1] < 0).any():
            return zeros, zeros
        others = end.issued[..., 0][end.issued[..., 0] != self.shared[end.number]]
        if len(others) and self._is_brought(end):
            return zeros, zeros  # see _check_brought
        if len(others):
            there = self._called(int(others[0])) if others[0] >= 0 else "memory outside of it"
            self._differs(f"the copy at {at} is in {self._called(end.number)} for the values, in {there} when modelled")
            return zeros, zeros
        wanted = byte_of(_unravelled(end.elements, end.shape), self.types[end.number])
        got = end.issued[..., 1].min(1)
        if self.is_fused:  # the operand may be a slice of the fusion's, anywhere in it
            got = got - self.begins.setdefault(end.number, int(got.min() - wanted.min()))
        return wanted, got

    def _is_brought(self, end: _End) -> bool:
        """Whether an operand was brought into memory of the kernel's own as a whole, and is copied from or to there."""
        own = (end.issued[..., 0] == _OWN).all() and (end.issued[..., 1] >= 0).all()
        return bool(own) and end.number >= 0 and self.operands[end.number].space == "vmem"

    def _check_brought(self) -> None:
        """The compiler chooses where such an operand is: places in it have to follow each other as in the array."""
        for number, pairs in self.brought.items():
            elements, addresses = (np.concatenate(some) for some in zip(*pairs, strict=True))
            wanted = byte_of(_unravelled(elements, self.operands[number].shape), self.types[number])
            if not np.array_equal(_ranks(wanted), _ranks(addresses)):
                self._differs(
                    f"copies in {self._called(number)}, which is in the kernel's own memory, are at places that follow "
                    "each other otherwise for the values than when modelled"
                )

    def _check_sizes(self, ends: Sequence[_End], at: str, wanted: np.ndarray, got: np.ndarray) -> None:
        """A copy moves at least its elements, and at most the tiles that they are in."""
        most = [_tiles(end.sizes, self.types[end.number]) for end in ends if end.number >= 0 and end.sizes]
        bad = (got < wanted) | (got > min(most, default=_FAR))
        if most and bad.any():
            first = int(np.flatnonzero(bad)[0])
            self._differs(f"the copy at {at} has {wanted[first]:,} bytes for the values, {got[first]:,} when modelled")

    def _check_own_memory(self, end: _End, at: str, mine: np.ndarray, theirs: np.ndarray) -> None:
        """Places in memory of the kernel's own are the same where they were the same for the values."""
        where = end.issued[..., 1].min(1)[theirs]
        if end.number >= A_WINDOW or (where < 0).any():
            return
        pairs = np.unique(np.stack([end.elements[mine], where], 1), axis=0)
        if not len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1])):
            many = len(np.unique(pairs[:, 0])), len(np.unique(pairs[:, 1]))
            self._differs(
                f"the copies at {at} use {many[0]} places of the kernel's own memory for the values, {many[1]} when "
                f"modelled, {len(pairs)} pairs of them"
            )

    def _check_order(self, started: np.ndarray, order: np.ndarray) -> None:
        """Of two copies that touch the same bytes, and one of which writes them, the first was issued first."""
        known = np.flatnonzero(order >= 0)
        places, started, order = self.executed.places, started[known], order[known]
        ends = np.array([(one.source, one.target) for one in places], np.int64).reshape(-1, 2)
        memory = np.concatenate([ends[started[:, 0], 0], ends[started[:, 0], 1]])
        element = np.concatenate([started[:, 1], started[:, 2]])
        when, issued = np.tile(np.arange(len(started)), 2), np.tile(order, 2)
        is_write = np.repeat([False, True], len(started))
        kept = np.flatnonzero(memory != A_WINDOW)
        kept = kept[np.lexsort((is_write[kept], when[kept], element[kept], memory[kept]))]
        memory, element, when, issued, is_write = (a[kept] for a in (memory, element, when, issued, is_write))
        same = np.cumsum((np.diff(memory, prepend=0) != 0) | (np.diff(element, prepend=0) != 0))
        base = same * (len(self.rows) + 2)
        for earlier, later in ((is_write, np.full(len(kept), True)), (~is_write, is_write)):
            latest = np.maximum.accumulate(np.where(earlier, base + issued + 1, base))
            before = np.concatenate([[0], latest[:-1]])
            bad = np.flatnonzero(later & (before > base + issued + 1))
            if len(bad):
                row = started[when[bad[0]]]
                at = self.tokens.explain(f"{SOURCE_FILE}:{places[int(row[0])].place}")
                self._differs(
                    f"the copy at {at} comes after another of the same bytes for the values, before it when modelled"
                )
                return


def _unseen(kernel: str, number: int) -> str:
    return (
        f"{kernel}: the blocks of operand {number} follow from an index that the kernel changes, and no copy shows "
        "when the compiled one reads it; wanted an index that stays"
    )


def _is_near(shape: Sequence[int]) -> bool:
    return math.prod(shape) < _FAR


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """Of each number, how many different ones are smaller."""
    return np.unique(numbers, return_inverse=True)[1]


def _changes(numbers: np.ndarray) -> np.ndarray:
    """Without what is the same as the one before."""
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def _unravelled(elements: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    """Indices per dimension of row-major numbers, wherever they point."""
    index: list[np.ndarray] = []
    for n in reversed(shape[1:]):
        elements, rest = np.divmod(elements, n)
        index.insert(0, rest)
    return [elements, *index] if shape else []


def _tiles(sizes: Sequence[int], type_: ArrayType) -> int:
    """Bytes of the tiles that so many elements are in."""
    tile = type_.tiles[0] if type_.tiles else ()
    padded = [-(-n // t) * t for n, t in zip(sizes[::-1], (*tile[::-1], *(1,) * len(sizes)), strict=False)]
    return math.prod(padded) * type_.item_bits // 8


def _apart(what: str, wanted: np.ndarray, got: np.ndarray) -> str:
    """Both sides, from the first that differs on."""
    length = min(len(wanted), len(got))
    first = int(np.argmax(np.append(wanted[:length] != got[:length], True)))
    sides = (", ".join(f"{n:,}" for n in side[first : first + 3]) or "none" for side in (wanted, got))
    return "{}: number {} and those behind it begin at byte {} for the values, {} when modelled".format(
        what, first + 1, *sides
    )


def _rows(data: bytes, dtype: Any, width: int, most: int) -> np.ndarray:
    raw = np.frombuffer(unpacked(data, most * width * np.dtype(dtype).itemsize), dtype)
    if raw.size % width:
        raise ValueError(f"{raw.size} numbers in rows of {width}")
    return raw.reshape(-1, width)
