"""What a core's references hold now: numpy arrays, read and written in place. All indices are known numbers here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.tpu.mosaic.arrays import kept_as
from ratchet.tpu.mosaic.memory import Buffer, DynamicSlice, Ref

ON_CHIP = frozenset({"vmem", "smem"})
"""Memories that each core has for itself."""
Selector = tuple[Any, ...]
"""What numpy takes as an index of a buffer: slices, and for rows that are listed an array of their numbers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """A reference of one core, and the memory that it reaches."""

    ref: Ref
    array: np.ndarray
    """Of the whole buffer, as memory keeps it."""
    rows: np.ndarray | None = None
    """Which of the first dimension, where an indirect copy lists them."""

    @property
    def buffer(self) -> Buffer:
        return self.ref.buffer

    @property
    def is_shared(self) -> bool:
        """Whether other cores may reach it, too."""
        return self.buffer.space not in ON_CHIP

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(map(int, self.ref.sizes)) if isinstance(self.ref, DynamicSlice) else self.ref.shape
        return shape if self.rows is None else (len(self.rows), *shape[1:])

    @property
    def selector(self) -> Selector:
        """Where it is in the buffer: at least there, behind a reshape or bitcast."""
        starts, sizes = self.ref.whole_box()
        box: list[Any] = [slice(int(a), int(a) + int(n)) for a, n in zip(starts, sizes, strict=True)]
        if self.rows is not None:
            first = next((d for d, n in enumerate(sizes) if int(n) != 1), 0)
            box = [
                slice(int(a), int(a) + 1) if d < first else one
                for d, (a, one) in enumerate(zip(starts, box, strict=True))
            ]
            box[first] = self.rows + int(starts[first])
        return tuple(box)

    @property
    def is_box(self) -> bool:
        """Whether :attr:`selector` is just what it reaches."""
        return self.ref.base.is_slice if isinstance(self.ref, DynamicSlice) else self.ref.is_slice

    def read(self) -> np.ndarray:
        """A copy of what is there, as memory keeps it."""
        if self.is_box:
            return np.array(self.array[self.selector]).reshape(self.shape)
        whole = np.asarray(self.ref.load_all({self.buffer: self.array})).view(kept_as(self.ref.dtype))
        return whole if self.rows is None else whole[self.rows]

    def write(self, values: np.ndarray) -> None:
        """``values`` as memory keeps them."""
        if self.is_box:
            place = self.array[self.selector]
            self.array[self.selector] = values.reshape(place.shape)
            return
        if self.rows is not None:
            whole = np.array(View(ref=self.ref, array=self.array).read())
            whole[self.rows] = values
            values = whole
        memory = {self.buffer: self.array}
        self.ref.store_all(memory, values.view(self.ref.dtype))
        np.copyto(self.array, np.asarray(memory[self.buffer]))
