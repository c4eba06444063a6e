"""State of one kernel while it is translated: its memory, and what is kept beside it for copies and other chips."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.module import KernelModule, Op, Value
from ratchet.tpu.mosaic import events, in_flight
from ratchet.tpu.mosaic.arrays import Array, Number, encode, is_float, one_of
from ratchet.tpu.mosaic.copies import starts
from ratchet.tpu.mosaic.events import LOG, LOGGED, Did
from ratchet.tpu.mosaic.in_flight import IN_FLIGHT, NOWHERE, End
from ratchet.tpu.mosaic.memory import Box, Buffer, Memory
from ratchet.tpu.mosaic.rules import RULES, is_remote, root_of


def never_written(dtype: np.dtype, fill: Array) -> Array:
    """What an element of memory that was never written reads as: see ``ExecutorState.poison``."""
    if is_float(dtype):
        return jnp.where(fill == 0, jnp.nan, 1.5 * fill).astype(dtype)
    return (jnp.int32(-1_431_655_766 + 1) + 1_234_567 * fill).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to read what the module leaves open."""

    f32_matmul_passes: str = "mxu"
    """``mxu``: an f32 product without a precision attribute rounds its operands to bf16, as the matrix unit does;
    ``exact``: it does not, as Pallas's interpret mode."""
    on_wait: bool = False
    """Whether the data of a DMA arrive when it is waited for rather than at once: what Pallas's interpret mode calls
    ``dma_execution_mode="on_wait"`` (see ``ops.dma``)."""
    windows_ahead: bool = False
    """Whether what the pipeline may read before it is written reads as memory never written (see ``operands``)."""
    digests: int = 0
    """How many digests of what the kernel reads are kept, to say where two executions part; 0 keeps none."""
    apart: bool = False
    """Whether a chip whose wait has nothing yet falls behind the others, instead of going on in step (``apart``)."""
    fast: bool = True
    """Whether what compiles faster and computes the same is made: unrolled loops as loops (``rerolled``), notes of
    copies in a loop (``in_flight``), late DMAs first (``hazards``), translations in the background."""


BARRIER = Buffer(name="barrier semaphore", shape=(), dtype=np.dtype(np.int32), space="judge")
"""The semaphore that kernels of all devices share."""

DRAWN = Buffer(name="key of the bits that are drawn", shape=(2,), dtype=np.dtype(np.uint32), space="judge")
"""Of ``rules.DRAWS``: what the seeds made of it, and the draws since."""

_MOST_ARRIVING = 1 << 22
"""Elements of a buffer in HBM that is not read by DMAs and for which arrivals are kept all the same."""


@dataclass(kw_only=True)
class State:
    """Memory at the operation that is being translated, and where in the program that is."""

    kernel: KernelModule
    options: Options
    fill: Array
    """int32 scalar: which pattern memory starts with; 0 is NaN."""
    padding: Array
    """int32 scalar: the same for what is past the ragged edges of inputs."""
    memory: Memory = field(default_factory=dict)
    step: Array = 0
    """Linear index of the grid step."""
    steps_before: Array = 0
    """How many grid steps ran before it."""
    device: Array | None = None
    """Logical id of this device, where the program is sharded."""
    devices: int = 1
    axes: tuple[str, ...] = ()
    """Axes of the mesh along which the devices are numbered."""
    loops: list[tuple[Mapping[Op, Sequence[Op]], Array]] = field(default_factory=list)
    """Unrolled loops that are executed as loops, the innermost last: for each operation those in its place in every
    iteration, and the number of the iteration."""
    active: Any = None
    """Whether this device takes the branch, where branches are executed under a mask."""
    arriving: dict[Buffer, tuple[Buffer, Buffer]] = field(default_factory=dict)
    """With ``on_wait``, for the destination of a DMA: what is arriving, and which semaphore it waits for (or 0)."""
    followed: set[Buffer] = field(default_factory=set)
    """With ``on_wait``, what some DMA reads or writes: its copies in flight are followed."""
    moving: set[Buffer] = field(default_factory=set)
    """With ``on_wait``, arrays of inputs that DMAs read through a window, which the pipeline moves."""
    shared: set[Buffer] = field(default_factory=set)
    """With ``on_wait``, what other chips write: what this one does with it is logged."""
    stamps: dict[Buffer, Buffer] = field(default_factory=dict)
    """With ``windows_ahead``, for an array that windows of an input and of its output share: when each element was
    written."""
    same_array: dict[Value, Value] = field(default_factory=dict)
    """Operands that are aliased to an output -> that output."""
    notes: list[in_flight.Note] = field(default_factory=list)
    """What is to be noted of copies and events, and is not in memory yet."""
    _semaphores: dict[Buffer, int] = field(default_factory=dict)
    _numbers: dict[Buffer, int] = field(default_factory=dict)

    def poison(self, shape: tuple[int, ...], dtype: np.dtype, fill: Array | None = None) -> Array:
        """Memory that was never written, as kept: NaN, or an odd number; other values when ``fill`` is not 0."""
        value = never_written(dtype, self.fill if fill is None else fill)
        return jnp.broadcast_to(encode(value), shape)

    def number_of(self, op: Op, number: Callable[[Op], int]) -> Number:
        """A number of the operation: in an unrolled loop, of the one in this iteration."""
        return self._number_in(op, number, len(self.loops))

    def _number_in(self, op: Op, number: Callable[[Op], int], loops: int) -> Number:
        for depth in reversed(range(loops)):
            others, iteration = self.loops[depth]
            if op in others:
                return one_of([self._number_in(one, number, depth) for one in others[op]], iteration)
        return number(op)

    def copies_of(self, op: Op) -> list[Op]:
        """The operation, in an unrolled loop that is executed as a loop those in its place in every iteration."""
        same = [op]
        for others, _ in reversed(self.loops):
            same = [one for each in same for one in others.get(each, (each,))]
        return same

    # --- copies in flight, with ``on_wait`` ---

    def root(self, value: Value) -> Value:
        """The memref from outside or allocated inside that a view was made from; an aliased input is its output."""
        root = root_of(value)
        return self.same_array.get(root, root)

    def add_shadows(self, value: Value, buffer: Buffer) -> None:
        """With ``on_wait``, what DMAs into a buffer need; not for large arrays in HBM that no DMA reads again, to keep
        the price bounded."""
        root = self.root(value)
        if not self.options.on_wait or root not in self.dma_targets | self.dma_sources:
            return
        self.followed.add(buffer)
        if root in self.remote_targets:
            self.shared.add(buffer)
        if root not in self.dma_targets or buffer in self.arriving:
            return
        if buffer.space == "hbm" and root not in self.dma_sources and math.prod(buffer.shape) > _MOST_ARRIVING:
            return
        array = self.memory[buffer]
        data = Buffer(name=f"arriving in {buffer.name}", shape=buffer.shape, dtype=buffer.dtype, space="judge")
        owner = Buffer(name=f"owner of {buffer.name}", shape=buffer.shape, dtype=np.dtype(np.int32), space="judge")
        self.memory[data] = jnp.zeros(array.shape, array.dtype)
        self.memory[owner] = jnp.zeros(array.shape, jnp.int32)
        self.arriving[buffer] = (data, owner)

    @functools.cached_property
    def _starts(self) -> dict[Op, int]:
        """The operations that start copies, each with its index."""
        return {op: index for index, op in enumerate(starts(self.kernel))}

    @functools.cached_property
    def dma_targets(self) -> frozenset[Value]:
        """The memrefs from outside or allocated inside that some DMA writes to."""
        return frozenset(self.root(value) for value in data_written(self.kernel))

    @functools.cached_property
    def dma_sources(self) -> frozenset[Value]:
        """The memrefs from outside or allocated inside that some DMA reads."""
        return frozenset(self.root(op.operands[0]) for op in self._starts)

    @functools.cached_property
    def remote_targets(self) -> frozenset[Value]:
        """The memrefs that some DMA writes to on another chip."""
        remote = (op for op in self._starts if is_remote(op))
        return frozenset(self.root(value) for op in remote for value in _written_by(op))

    def end(self, buffer: Buffer, box: Box) -> End:
        """One end of a copy, to be followed if something may write there meanwhile."""
        is_fixed = buffer.is_input and buffer.space == "hbm" and buffer not in self.moving
        return NOWHERE if is_fixed or buffer not in self.followed else End(buffer=self.number(buffer), box=box)

    def start_copy(self, semaphore: Array, source: End, target: End) -> None:
        """With ``on_wait``, a copy reads and writes until ``semaphore`` is waited for."""
        if IN_FLIGHT in self.memory and (source.buffer or target.buffer):
            self.notes.append(in_flight.start(semaphore, source, target, self.active))

    def land_copies(self, semaphore: Array, when: Array) -> None:
        """With ``on_wait``, ``semaphore`` was waited for and nothing on it is outstanding, if ``when``."""
        self.notes.append(in_flight.land(semaphore, when if self.active is None else when & self.active))

    # --- events, with ``on_wait`` in kernels that send to other chips ---

    def start_log(self, *, behind_barrier: bool) -> None:
        self.memory[LOG] = jnp.zeros(LOG.shape, jnp.int32)
        self.memory[LOGGED] = jnp.int32(0)
        if behind_barrier:
            self.log(Did.ENTER, None)

    def log(self, did: Did, op: Op | None, **fields: Any) -> None:
        """Log an event of this chip, if it takes the branch: see ``events.row``."""
        if LOG in self.memory:
            place = self.number_of(op, self._places.__getitem__) if op is not None else 0
            self.notes.append(in_flight.event(events.row(did, place, self.step, **fields), self.active))

    def log_access(self, did: Did, op: Op, buffer: Buffer, box: Box, **fields: Any) -> None:
        """Log that memory is read or written which other chips write, too."""
        if buffer in self.shared:
            self.log(did, op, buffer=self.number(buffer), box=box, **fields)

    @functools.cached_property
    def _places(self) -> dict[Op, int]:
        return {op: place for place, op in enumerate(self.kernel.operations())}

    def number(self, buffer: Buffer) -> int:
        """A number of its own for every buffer, from 1."""
        return self._numbers.setdefault(buffer, len(self._numbers) + 1)

    @property
    def shadows(self) -> list[Buffer]:
        """What is kept beside the buffers, is allocated now and changes with DMAs."""
        arriving = [buffer for pair in self.arriving.items() for buffer in (pair[0], *pair[1])]
        return [buffer for buffer in (*arriving, *self.stamps.values(), IN_FLIGHT) if buffer in self.memory]

    def semaphore_base(self, buffer: Buffer) -> int:
        """Number of the first semaphore of a buffer of them, unique in the kernel."""
        return self._semaphores.setdefault(buffer, sum(math.prod(b.shape) for b in self._semaphores))


def data_written(kernel: KernelModule) -> list[Value]:
    """The memrefs that DMAs write to, semaphores left out."""
    return [value for op in kernel.operations() if op.name == "tpu.enqueue_dma" for value in _written_by(op)]


def _written_by(op: Op) -> list[Value]:
    return [value for value in RULES[op.name].writes(op) if "semaphore" not in value.type.dtype]
