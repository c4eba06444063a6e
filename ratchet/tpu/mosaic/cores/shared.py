"""What the cores of a chip share while they execute a call: memory, copies, barriers, and what is reported."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.arrays import encode
from ratchet.tpu.mosaic.cores.copies import Copies, Wrong
from ratchet.tpu.mosaic.cores.races import Clocks
from ratchet.tpu.mosaic.cores.runs import Runs
from ratchet.tpu.mosaic.findings import KINDS, Finding
from ratchet.tpu.mosaic.memory import Buffer
from ratchet.tpu.mosaic.report import counters, counters_of, digest, reads
from ratchet.tpu.mosaic.rules import root_of
from ratchet.tpu.mosaic.state import BARRIER, Options, never_written

Place = tuple[int, int]
"""The number of a core, and of a subcore in it."""
_OF_ALL = frozenset({"hbm", "any"})
_COUNTING = frozenset({"tpu.enqueue_dma", "tpu.enqueue_indirect_dma", "tpu.sem_signal"})


class Shared:
    """Of one execution of a call."""

    def __init__(  # noqa: PLR0913 - what is executed, and by keyword how
        self, kernel: Kernel, places: Sequence[Place], runs: Runs, *, bounds: tuple[int, ...], names: Sequence[str],
        seed: int, fill: int, padding: int, options: Options,
    ) -> None:  # fmt: skip
        """
        Args:
            places: of the cores, by number; ``names`` likewise.
            bounds: of the grid.
            seed, fill, padding: as ``Chip`` has them.
        """
        self.kernel, self.runs, self.options, self.bounds = kernel, runs, options, bounds
        self.seed, self.fill, self.padding, self.names = seed, fill, padding, names
        self.places: Mapping[Place, int] = {place: number for number, place in enumerate(places)}
        self.copies = Copies(clocks=Clocks(cores=len(places)), names=names)
        self.flags = np.full(2 * len(KINDS), -1, np.int32)
        self.counts = np.zeros((len(places), counters_of(kernel.module)), np.int32)
        self.digests = np.zeros(options.digests, np.int32)
        self._subcores = len(places) // len({core for core, _ in places})
        self._arrived: dict[object, set[int]] = defaultdict(set)
        self._memory: dict[tuple[object, Buffer], np.ndarray] = {}

    # --- memory ---

    def buffer(self, value: Value) -> Buffer:
        """Of what is allocated."""
        return self.runs.buffer(value, "semaphore" if "semaphore" in value.type.dtype else "scratch")

    def memory(self, number: int, place: Place, buffer: Buffer) -> np.ndarray:
        """The memory of a buffer that a core reaches for the first time."""
        owner: object = number
        if buffer.space == "vmem_shared":
            owner = ("core", place[0])
        elif buffer.space in _OF_ALL:
            owner = "chip"
        if (owner, buffer) not in self._memory:
            counts = buffer is BARRIER or buffer.space == "semaphore_mem"
            fresh = np.zeros(buffer.shape, np.int32) if counts else self.unwritten(buffer.shape, buffer.dtype)
            self._memory[owner, buffer] = fresh
        return self._memory[owner, buffer]

    def unwritten(self, shape: Sequence[int], dtype: np.dtype, *, padding: bool = False) -> np.ndarray:
        """Memory that was never written, or what is past the ragged edge of an input, as memory keeps it."""
        return np.array(np.broadcast_to(_never_written(dtype, self.padding if padding else self.fill), shape))

    # --- barriers ---

    def arrive(self, number: int, where: object) -> None:
        self._arrived[where].add(number)

    def is_complete(self, where: object) -> bool:
        """Whether all subcores of a core are at a barrier of theirs."""
        return len(self._arrived[where]) == self._subcores

    # --- what is said of it ---

    def count(self, number: int, op: Op, which: int = 0) -> None:
        """Count one execution of an operation, or of its body ``which``."""
        if op in self._counters:
            self.counts[number, self._counters[op] + which] += 1

    @functools.cached_property
    def _counters(self) -> dict[Op, int]:
        return counters(self.kernel.module)

    def digest(self, step: int, op: Op, data: np.ndarray) -> None:
        """With ``Options.digests``, keep one of what an operation reads."""
        if self.options.digests and op in self._readers:
            cell = min(step * len(self._readers) + self._readers[op], self.options.digests - 1)
            mixed = int(self.digests[cell]) * 31 + int(digest(jnp.asarray(data)))
            self.digests = np.array(self.digests)
            self.digests[cell] = mixed & 0x7FFFFFFF

    @functools.cached_property
    def _readers(self) -> dict[Op | int, int]:
        return {place: number for number, place in enumerate(reads(self.kernel.module, self.kernel.outputs))}

    def counting(self, semaphores: Value) -> Op | None:
        """The first operation that counts on some semaphores."""
        ops = (op for op in self.kernel.module.operations() if op.name in _COUNTING)
        return next((op for op in ops for value in _counted(op) if root_of(value) is semaphores), None)

    def report(self, wrong: Wrong, step: int) -> None:
        """The finding that ended the execution, unless a compiled run has reported it."""
        if (self.flags >= 0).any():
            return
        name, location = (wrong.op.name, wrong.op.location) if wrong.op is not None else ("", "")
        site = Finding(kind=wrong.kind, operation=name, location=location, message=wrong.message)
        if site not in self.runs.sites:
            self.runs.sites.append(site)
        at = 2 * KINDS.index(wrong.kind)
        self.flags[at : at + 2] = step, self.runs.sites.index(site)


def _counted(op: Op) -> Sequence[Value]:
    return [value for value in op.operands if "semaphore" in value.type.dtype]


@functools.lru_cache(maxsize=256)
def _never_written(dtype: np.dtype, fill: int) -> np.ndarray:
    return np.asarray(encode(never_written(dtype, jnp.int32(fill))))
