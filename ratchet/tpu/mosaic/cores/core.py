"""One core as a coroutine: it goes through the kernel until it waits for what is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mosaic.arrays import encode, jax_dtype
from ratchet.tpu.mosaic.cores.copies import Copy, Semaphore, Wrong, amount
from ratchet.tpu.mosaic.cores.plan import Run, steps_of
from ratchet.tpu.mosaic.cores.scalars import quick
from ratchet.tpu.mosaic.cores.shared import Place, Shared
from ratchet.tpu.mosaic.cores.views import ON_CHIP, View
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import KINDS, Kind
from ratchet.tpu.mosaic.memory import Buffer, Ref, Whole
from ratchet.tpu.mosaic.ops.control import is_parallel
from ratchet.tpu.mosaic.ops.memory import segments
from ratchet.tpu.mosaic.report import OTHERWISE, THEN
from ratchet.tpu.mosaic.rules import RULES, TERMINATORS, WAYS_OUT, Unsupported
from ratchet.tpu.mosaic.state import BARRIER


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """What a core waits for."""

    ready: Callable[[], bool]
    op: Op


Waits = Generator[Blocked, None, None]
"""A coroutine: where it waits until it ends."""


class Core:
    """One core of a chip while it executes a kernel."""

    def __init__(self, shared: Shared, peers: Sequence[Core], number: int, place: Place) -> None:
        """``peers``: all cores, by number."""
        self.shared, self.peers, self.number, self.place = shared, peers, number, place
        self.name, self.module = shared.names[number], shared.kernel.module
        self.memory: dict[Buffer, np.ndarray] = {}
        fill, padding = np.int32(shared.fill), np.int32(shared.padding)
        self._scalars = Executor(kernel=self.module, options=shared.options, fill=fill, padding=padding)
        self.values: dict[Value, Any] = self._scalars.values
        self.values.update(shared.runs.constants)
        self.step = 0
        self._barriers = 0

    # --- blocks ---

    def block(self, block: Block, arguments: Sequence[Any] = ()) -> Generator[Blocked, None, list[Any]]:
        """Go through a block; what its terminator passes on."""
        self.values.update(zip(block.arguments, arguments, strict=True))
        for step in steps_of(block):
            if isinstance(step, Run):
                self._execute(step)
            elif step.name in TERMINATORS:
                self._give_back(block)
                return [self.values[value] for value in step.operands]
            else:
                yield from self._do(step)
        return []

    def _execute(self, run: Run) -> None:
        shared = self.shared
        flags, counts, shared.digests = shared.runs.execute(
            run, self.values, self.of, seed=shared.seed, fill=shared.fill, padding=shared.padding,
            step=self.step, bounds=shared.bounds, digests=shared.digests,
        )  # fmt: skip
        shared.counts[self.number] += counts
        if (flags >= 0).any():
            shared.flags = flags
            raise Wrong(KINDS[int(np.flatnonzero(flags >= 0)[0]) // 2], None, "")

    def _do(self, op: Op) -> Waits:
        handler = _HANDLERS.get(op.name)
        try:
            if handler is None:
                self._scalar(op)
                return
            if unknown := set(op.attributes) - RULES[op.name].attributes:
                raise Unsupported(f"attribute {sorted(unknown)} of operation {op.name}")
            if (waiting := handler(self, op)) is not None:
                yield from waiting
        except Unsupported as error:
            raise self.module.refusal(str(error), op, WAYS_OUT.get(op.name, "")) from None

    def _scalar(self, op: Op) -> None:
        """A view or a scalar, by the rule that other kernels are traced with, or quickly from the second time on."""
        known = self.shared.runs.quick
        if (fast := known.get(op)) is not None and fast(self.values):
            return
        self._scalars.execute(op)
        for kind, site, bad in self._scalars.reported():
            if bool(bad):
                raise Wrong(kind, op, site.message)
        if op not in known:
            known[op] = quick(op)
        for value in op.results:
            if value.type.kind == "scalar" and not isinstance(self.values[value], np.generic):
                self.values[value] = np.asarray(self.values[value])[()]

    def index_map(self, block: Block, arguments: Sequence[Any]) -> list[int]:
        """Where a window is; an index map waits for nobody."""
        try:
            next(coroutine := self.block(block, arguments))
        except StopIteration as end:
            return [int(one) for one in end.value]
        coroutine.close()
        raise AssertionError("an index map waits")

    # --- control flow ---

    def choose(self, op: Op) -> Waits:
        which = THEN if self.values[op.operands[0]] else OTHERWISE
        self.shared.count(self.number, op, which)
        out = yield from self.block(op.regions[which])
        self.values.update(zip(op.results, out, strict=True))

    def repeat(self, op: Op) -> Waits:
        if op.attributes.get("unsignedCmp"):
            raise Unsupported("scf.for with an unsigned comparison")
        low, high, step = (int(self.values[value]) for value in op.operands[:3])
        if step < 1:
            raise Unsupported(f"scf.for with a step of {step}")
        dtype = jax_dtype(op.operands[0].type.dtype).type
        carried = [self.values[value] for value in op.operands[3:]]
        order = range(low, high, step)
        for index in order[::-1] if self.shared.seed and is_parallel(op) else order:
            self.shared.count(self.number, op)
            carried = yield from self.block(op.regions[0], [dtype(index), *carried])
        self.values.update(zip(op.results, carried, strict=True))

    def repeat_while(self, op: Op) -> Waits:
        before, after = op.regions
        carried = [self.values[value] for value in op.operands]
        while True:
            go, *out = yield from self.block(before, carried)
            if not go:
                break
            self.shared.count(self.number, op)
            carried = yield from self.block(after, out)
        self.values.update(zip(op.results, out, strict=True))

    def region(self, op: Op) -> Waits:
        out = yield from self.block(op.regions[0])
        self.values.update(zip(op.results, out, strict=True))

    # --- memory ---

    def view(self, value: Value, *, core: Core | None = None, rows: np.ndarray | None = None) -> View:
        """A reference, into this core's memory or another's."""
        ref = self.values[value]
        assert isinstance(ref, Ref), ref
        return View(ref=ref, array=(core or self).of(ref.buffer), rows=rows)

    def of(self, buffer: Buffer) -> np.ndarray:
        """A buffer's memory; semaphores and what is allocated are there from the beginning."""
        if buffer not in self.memory:
            self.memory[buffer] = self.shared.memory(self.number, self.place, buffer)
        return self.memory[buffer]

    def alloc(self, op: Op) -> None:
        if op.operands:
            raise Unsupported("memref.alloca of a dynamic size")
        (value,) = op.results
        buffer = self.shared.buffer(value)
        is_first = buffer not in self.memory
        self.values[value] = Whole(buffer)
        array = self.of(buffer)
        if not is_first and op.name == "memref.alloca" and buffer.space in ON_CHIP:
            array[...] = self.shared.unwritten((), buffer.dtype)

    def _give_back(self, block: Block) -> None:
        for op in block.operations:
            if op.name == "tpu.sem_alloc":
                self.check_at_rest(op.results[0])
            elif op.name == "memref.alloca":
                self.shared.copies.check_over(self.view(op.results[0]).array, op)

    def check_at_rest(self, semaphores: Value) -> None:
        """Semaphores have to be at zero when they are given back."""
        if (self.of(self.values[semaphores].buffer) != 0).any():
            what = f"a semaphore of {self.name} is not zero when the kernel ends; what is counted on it begins here"
            raise Wrong(Kind.DMA_NEVER_WAITED, self.shared.counting(semaphores) or semaphores.owner, what)

    def check_barrier_semaphore(self) -> None:
        if BARRIER in self.memory and self.memory[BARRIER] != 0:
            raise Wrong(Kind.DMA_NEVER_WAITED, None, f"the barrier semaphore of {self.name} is not zero at the end")

    def load(self, op: Op) -> None:
        view, at = self._element(op, op.operands[0], op.operands[1:])
        if view.ref.is_slice:
            starts, _ = view.ref.box(at, (1,) * len(at))
            stored = view.array[tuple(map(int, starts))][None].view(view.ref.dtype)
            self.values[op.results[0]] = stored[0]
        else:
            self.values[op.results[0]] = np.asarray(
                view.ref.load({view.buffer: view.array}, at, (1,) * len(at))
            ).reshape(())[()]
        self.shared.digest(self.step, op, np.asarray(self.values[op.results[0]]))

    def store(self, op: Op) -> None:
        view, at = self._element(op, op.operands[1], op.operands[2:])
        value = np.asarray(encode(np.asarray(self.values[op.operands[0]], view.ref.dtype)))
        memory = {view.buffer: view.array}
        if view.ref.is_slice:
            starts, _ = view.ref.box(at, (1,) * len(at))
            view.array[tuple(map(int, starts))] = value
        else:
            view.ref.store(memory, at, value.reshape((1,) * len(at)))
            np.copyto(view.array, np.asarray(memory[view.buffer]))

    def _element(self, op: Op, base: Value, indices: Sequence[Value]) -> tuple[View, list[int]]:
        view, at = self.view(base), [int(self.values[value]) for value in indices]
        if not all(0 <= index < dim for index, dim in zip(at, view.shape, strict=True)):
            what = "a load" if op.results else "a store"
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, f"{what} at {at} leaves a buffer of {view.shape}")
        if not op.results and view.buffer.is_input:
            raise Wrong(Kind.INPUT_WRITTEN, op, f"a store into input {view.buffer.name}")
        return view, at

    # --- copies and semaphores ---

    def enqueue(self, op: Op) -> None:
        (source,), left, (target,), arrived, device, core, subcore = segments(op)
        receiver = self._other(op, device, core, subcore)
        src, dst = self.view(source), self.view(target, core=receiver)
        if src.shape != dst.shape or src.ref.dtype != dst.ref.dtype:
            raise Wrong(
                Kind.SLICE_OUT_OF_BOUNDS, op, f"a DMA from {src.ref.dtype}{src.shape} to {dst.ref.dtype}{dst.shape}"
            )
        if receiver is not self and left:
            self._signal(self, left[0], amount(src), op)
        self._start(op, src, dst, self._semaphore(arrived[0], receiver), adds=False)

    def enqueue_rows(self, op: Op) -> None:
        source, target, offsets, semaphore, *filters = op.operands
        listed = self.values[offsets]
        lists = [(self.view(offsets), self.view(offsets).read())] if isinstance(listed, Ref) else []
        rows = lists[0][1] if lists else np.asarray(listed)
        is_gather = source.type.space not in ON_CHIP
        kept = np.ones(len(rows), bool) if not filters else rows != int(self.values[filters[0]])
        rows, base = rows.astype(np.int64), self.values[source if is_gather else target]
        if len(bad := rows[kept & ((rows < 0) | (rows >= base.shape[0]))]):
            what = f"an indirect DMA names row {bad[0]} of {base.shape[0]}"
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, what)
        src = self.view(source, rows=rows[kept] if is_gather else None)
        dst = self.view(target, rows=None if is_gather else rows[kept])
        dense = dst if is_gather else src
        if dense.shape != (len(rows), *base.shape[1:]):
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, f"{len(rows)} rows of {base.shape} by a DMA beside {dense.shape}")
        count = amount(dense)
        if not kept.all():
            dense = View(ref=dense.ref, array=dense.array, rows=np.flatnonzero(kept))
            src, dst = (src, dense) if is_gather else (dense, dst)
        adds = bool(op.attributes.get("add", False))
        if not (adds or is_gather):
            self._check_rows(op, rows[kept], src)
        self._start(op, src, dst, self._semaphore(semaphore, self), adds=adds, count=count, lists=lists)

    def _check_rows(self, op: Op, rows: np.ndarray, source: View) -> None:
        """A row that is written twice has to be the same both times."""
        data, order = source.read(), np.argsort(rows, kind="stable")
        again = np.flatnonzero(np.diff(rows[order]) == 0)
        for first, second in zip(order[again], order[again + 1], strict=True):
            if data[first].tobytes() != data[second].tobytes():
                what = f"an indirect DMA writes row {rows[first]} twice: which of both stays is chance"
                raise Wrong(Kind.TARGET_OVERWRITTEN, op, what)

    def _start(
        self, op: Op, src: View, dst: View, counted: Semaphore, *, adds: bool, count: int | None = None,
        lists: Sequence[tuple[View, np.ndarray]] = (),
    ) -> None:  # fmt: skip
        """``lists``: of rows, that the copy reads as well."""
        shared = self.shared
        shared.count(self.number, op)
        if dst.buffer.is_input:
            raise Wrong(Kind.INPUT_WRITTEN, op, f"a DMA into {dst.buffer.name}")
        shared.copies.settle(src)
        data = src.read()
        shared.digest(self.step, op, data)
        before = None
        if shared.options.on_wait:
            before = dst.read() if adds else shared.unwritten(data.shape, dst.ref.dtype)
        reads = (src, data), *lists
        shared.copies.start(Copy(core=self.number, op=op, reads=reads, target=dst, adds=adds, before=before), counted)
        self._add(counted, amount(dst) if count is None else count)

    def wait(self, op: Op) -> Waits:
        if op.name == "tpu.sem_wait":
            semaphore, much = op.operands[0], int(self.values[op.operands[1]])
        elif op.name == "tpu.wait_indirect_dma":
            semaphore, source, target = op.operands
            much = amount(self.view(source if source.type.space in ON_CHIP else target))
        elif op.name == "tpu.wait_dma2":
            (semaphore,), _, (end,), *_ = segments(op)
            much = amount(self.view(end))
        else:
            (source,), left, (target,), arrived, *_ = segments(op)
            end, (semaphore,) = (target, arrived) if op.attributes["wait_target"] else (source, left)
            much = amount(self.view(end))
        if much < 0:
            raise Wrong(Kind.NEGATIVE_AMOUNT, op, "a wait for less than nothing")
        where = self._semaphore(semaphore, self)
        array, at = self.of(where[1]), where[2]  # type: ignore[arg-type]
        while array.flat[at] < much:
            yield Blocked(ready=lambda: bool(array.flat[at] >= much), op=op)
        self.shared.copies.clocks.take(self.number, where)
        array.flat[at] -= much
        if array.flat[at] == 0:
            self.shared.copies.land(where, self.number)

    def signal(self, op: Op) -> None:
        (semaphore,), (much,), device, core, subcore = segments(op)
        self._signal(self._other(op, device, core, subcore), semaphore, int(self.values[much]), op)

    def _signal(self, receiver: Core, semaphore: Value, much: int, op: Op) -> None:
        if much < 0:
            raise Wrong(Kind.NEGATIVE_AMOUNT, op, "a signal of less than nothing")
        where = self._semaphore(semaphore, receiver)
        self.shared.copies.clocks.leave(self.number, where)
        self._add(where, much)

    def _semaphore(self, value: Value, core: Core) -> Semaphore:
        ref = self.values[value]
        if not ref.is_slice:
            raise Unsupported("a semaphore behind a reshape")
        starts, _ = ref.whole_box()
        shape = ref.buffer.shape
        at = int(np.ravel_multi_index([int(one) for one in starts], shape)) if shape else 0
        return core.number, ref.buffer, at

    def _add(self, where: Semaphore, much: int) -> None:
        core, buffer, at = where
        self.peers[core].of(buffer).flat[at] += much  # type: ignore[arg-type]

    def _other(self, op: Op, device: Sequence[Value], core: Sequence[Value], subcore: Sequence[Value]) -> Core:
        if device and int(self.values[device[0]]) != 0:
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, "device numbers are 0 to 0")
        if core and not subcore and any(own for _, own in self.shared.places):
            raise Unsupported(f"{op.name} to a core whose subcore is not named")
        wanted = tuple(
            int(self.values[given[0]]) if given else own for given, own in zip((core, subcore), self.place, strict=True)
        )
        if wanted not in self.shared.places:
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, f"core {wanted} is none of the kernel's {len(self.peers)}")
        return self.peers[self.shared.places[wanted]]  # type: ignore[index]

    def barrier(self, op: Op) -> Waits:
        self._barriers += 1
        shared, where = self.shared, ("barrier", self.place[0], int(self.values[op.operands[0]]), self._barriers)
        shared.arrive(self.number, where)
        shared.copies.clocks.leave(self.number, where)
        while not shared.is_complete(where):
            yield Blocked(ready=lambda: shared.is_complete(where), op=op)
        shared.copies.clocks.take(self.number, where)

    def barrier_semaphore(self, op: Op) -> None:
        self.values[op.results[0]] = Whole(BARRIER)

    def number_of(self, op: Op) -> None:
        numbers = {"tpu.device_id": 0, "tpu.core_id": self.place[0], "tpu.subcore_id": self.place[1]}
        self.values[op.results[0]] = np.int32(numbers[op.name])

    def fetch_and_add(self, op: Op) -> None:
        base, *indices, value, core = op.operands
        number = int(self.values[core])
        receiver = self.shared.places.get((self.place[0], number))
        if receiver is None:
            raise Wrong(Kind.SLICE_OUT_OF_BOUNDS, op, f"subcore {number} is none of the kernel's")
        view = self.view(base, core=self.peers[receiver])
        starts, _ = view.ref.box([int(self.values[one]) for one in indices], (1,) * len(indices))
        at = tuple(map(int, starts))
        self.shared.copies.clocks.leave(self.number, ("added to", receiver, view.buffer, at))
        self.shared.copies.clocks.take(self.number, ("added to", receiver, view.buffer, at))
        self.values[op.results[0]] = np.int32(view.array[at])
        view.array[at] += np.int32(self.values[value])


_HANDLERS: dict[str, Callable[[Core, Op], Waits | None]] = {
    "memref.alloca": Core.alloc,
    "memref.load": Core.load,
    "memref.store": Core.store,
    "scf.for": Core.repeat,
    "scf.if": Core.choose,
    "scf.while": Core.repeat_while,
    "tpu.barrier": Core.barrier,
    "tpu.core_id": Core.number_of,
    "tpu.device_id": Core.number_of,
    "tpu.enqueue_dma": Core.enqueue,
    "tpu.enqueue_indirect_dma": Core.enqueue_rows,
    "tpu.fetch_and_add_sync": Core.fetch_and_add,
    "tpu.region": Core.region,
    "tpu.sem_alloc": Core.alloc,
    "tpu.sem_barrier": Core.barrier_semaphore,
    "tpu.sem_signal": Core.signal,
    "tpu.sem_wait": Core.wait,
    "tpu.subcore_id": Core.number_of,
    "tpu.trace": Core.region,
    "tpu.wait_dma": Core.wait,
    "tpu.wait_dma2": Core.wait,
    "tpu.wait_indirect_dma": Core.wait,
}
