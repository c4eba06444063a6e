"""How long a kernel takes on the tiles of the SparseCores: their bundles executed, their streams timed.

Every tile executes the program of the tiles (``tec``), one bundle a cycle, at the clock of the TensorCore (assumed).
A stream occupies the engine of its tile for its granules, and HBM for its bytes, first in, first out among all tiles;
its flag moves ``stream_latency_s`` later. These constants were chosen by hand on the published gathers of ``python -m
benchmarks.sparse``, in sample. What nobody timed is refused by name: other streams and memories, work of the sequencer,
kernels that are bound by their own bundles. Addresses, and so what is in a table of indices, are not used.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.tiles import SEQUENCER, TILES, Section
from ratchet.tpu.machine.tile_code import MEMORY, UNKNOWN, Step, signed, translate
from ratchet.tpu.machine.words import UnknownSteers
from ratchet.values.status import Refusal, Status

MOST_BUNDLES = 3 << 20
"""Executed on all tiles together: some seconds here."""
MOST_ISSUING = 0.5
"""From this share of its time with bundles on, a kernel is bound by them; none such was timed."""
_WORD_BYTES = 4
_ENTRY = "execute0_lowered"
_CODE = frozenset({"simem", "timem"})
"""Memories of instructions: what the sequencer copies there is the program."""
_FEW = frozenset(f"${n:#x}" for n in range(1, 17))
"""Granules that it may read for itself: addresses of the results, where there are several."""

Refuse = Callable[[str], Refusal]


class Work(NamedTuple):
    """What one SparseCore does in a kernel."""

    seconds: float
    """From the first bundle of its tiles to the last."""
    read_bytes: int
    written_bytes: int
    """Streamed out of HBM, and into it."""


class _Tile:
    """The state of one tile."""

    def __init__(self, core: int, number: int) -> None:
        self.core, self.number = core, number
        self.s: list[Any] = [UNKNOWN] * 33
        self.p: list[Any] = [UNKNOWN] * 32
        self.given: defaultdict[int, Any] = defaultdict(lambda: UNKNOWN)
        """Words that the sequencer gave with the task."""
        self.smem: defaultdict[Any, Any] = defaultdict(lambda: UNKNOWN)
        self.events: deque[tuple[str, int, int]] = deque()
        """Those of its last bundle that have not happened yet."""
        self.flags: defaultdict[int, int] = defaultdict(int)
        self.pending: defaultdict[int, deque[tuple[float, int]]] = defaultdict(deque)
        self.now = self.engine_free = 0.0
        self.written = 0.0
        """When its last stream into HBM is over."""
        self.at = 0
        self.bundles = self.read_bytes = self.written_bytes = 0
        self.branch = -1
        self.left = 0
        """Delay slots until the branch is taken."""
        self.is_over = False


def work(program: Mapping[str, Section], chip: Chip, name: str) -> list[Work]:
    """What each SparseCore does.

    Args:
        program: as :func:`ratchet.tpu.dump.tiles.parse` reads it.
        chip: what it was compiled for.
        name: of the operation, for messages.

    Raises:
        Refusal: NOT_MODELLED for what nobody timed, or where values decide what a tile does.
    """

    def refuse(what: str) -> Refusal:
        return Refusal(Status.NOT_MODELLED, f"{name} (the SparseCores): {what}: its latency is not modelled")

    _check_sequencer(program[SEQUENCER], refuse)
    tasks = [label for label in program[TILES].labels if label.startswith("execute")] if TILES in program else []
    if not tasks:
        raise refuse("it has no program for the tiles")
    if tasks != [_ENTRY]:
        raise refuse(f"its tiles execute {', '.join(tasks)[:60]}; timed was {_ENTRY} alone")
    run = _Run(program[TILES], chip, refuse)
    run.execute()
    longest = max(run.tiles, key=lambda one: one.now)
    if longest.bundles * run.cycle_s > MOST_ISSUING * longest.now:
        raise refuse("its tiles are bound by their own instructions, and no such kernel was timed")
    cores = range(chip.sparse_cores.cores)
    ends = [max(tile.now for tile in run.tiles if tile.core == core) for core in cores]
    read = [sum(tile.read_bytes for tile in run.tiles if tile.core == core) for core in cores]
    written = [sum(tile.written_bytes for tile in run.tiles if tile.core == core) for core in cores]
    return [Work(*one) for one in zip(ends, read, written, strict=True)]


class _Run:
    """All tiles of a device, the one that is behind the others first."""

    def __init__(self, section: Section, chip: Chip, refuse: Refuse) -> None:
        self._section, self._cores, self._refuse = section, chip.sparse_cores, refuse
        self.cycle_s = 1 / chip.clock_hz
        self.tiles = [_Tile(core, n) for core in range(self._cores.cores) for n in range(self._cores.tiles)]
        self._steps: dict[int, Step] = {}
        self._memory = _Memory(chip)
        self._queue = [(0.0, index) for index in range(len(self.tiles))]
        self._waiting: dict[tuple[int, int], list[int]] = {}
        """By SparseCore and barrier, the tiles that are at it."""
        self._left = MOST_BUNDLES

    def execute(self) -> None:
        """Until all have ended."""
        for tile in self.tiles:
            tile.at = self._section.labels[_ENTRY]
        while self._queue:
            _, index = heapq.heappop(self._queue)
            tile = self.tiles[index]
            try:
                self._advance(index, tile)
            except UnknownSteers:
                what = f"bundle {tile.at:#x} of its tiles depends on values that are not followed"
                raise self._refuse(what) from None
        if self._waiting:
            raise self._refuse("its tiles deadlock at a barrier")

    def _advance(self, index: int, tile: _Tile) -> None:
        """Until it is over, at a barrier, or has an event and others are behind it: what they do comes first."""
        while True:
            while tile.events:
                if self._queue and self._queue[0][0] < tile.now:
                    heapq.heappush(self._queue, (tile.now, index))
                    return
                kind, flag, amount = tile.events.popleft()
                if kind == "meet":
                    self._meet(index, tile, flag)
                    return
                _happen(tile, self._memory, kind, flag, amount, self._refuse)
            if tile.is_over:
                return
            step = self._steps.get(tile.at)
            if step is None:
                step = self._steps[tile.at] = translate(self._section, tile.at, self._cores, self._refuse)
            self._left -= 1
            if self._left < 0:
                raise self._refuse(f"its tiles execute more than {MOST_BUNDLES} bundles")
            _advance(tile, step, self.cycle_s)

    def _meet(self, index: int, tile: _Tile, barrier: int) -> None:
        here = self._waiting.setdefault((tile.core, barrier), [])
        here.append(index)
        if len(here) == self._cores.tiles:
            del self._waiting[tile.core, barrier]
            latest = max(self.tiles[one].now for one in here)
            for one in here:
                self.tiles[one].now = latest
                heapq.heappush(self._queue, (latest, one))


class _Memory:
    """HBM as the tiles share it."""

    def __init__(self, chip: Chip) -> None:
        streams = chip.sparse_cores
        self.per_byte = 1 / (streams.stream_hbm_share * chip.hbm_bytes_per_s)
        self.engine_per_byte = 1 / (streams.granule_bytes * streams.granules_per_s)
        self.latency_s = streams.stream_latency_s
        self.free = 0.0

    def stream(self, tile: _Tile, size: int, *, writes: bool) -> float:
        """Starts a stream of so many bytes; returns when its flag moves."""
        begin = max(tile.now, tile.engine_free)
        if writes:
            tile.written_bytes += size
        else:
            tile.read_bytes += size
        tile.engine_free = begin + size * self.engine_per_byte
        self.free = max(self.free, begin) + size * self.per_byte
        return max(tile.engine_free, self.free) + self.latency_s


def _advance(tile: _Tile, step: Step, cycle_s: float) -> None:
    """Executes a bundle, and leaves its events."""
    taken = step.run(tile)
    tile.bundles += step.cycles
    tile.now += step.cycles * cycle_s
    tile.is_over = taken and step.target < 0
    tile.at += 1
    if taken:
        tile.branch, tile.left = step.target, step.slots
    elif tile.branch >= 0:
        tile.left -= 1
    if tile.branch >= 0 and tile.left == 0:
        tile.at, tile.branch = tile.branch, -1


def _happen(tile: _Tile, memory: _Memory, kind: str, flag: int, amount: int, refuse: Refuse) -> None:
    """What an event does with streams and flags."""
    if kind in ("read", "write"):
        done = memory.stream(tile, amount * _WORD_BYTES, writes=kind == "write")
        tile.pending[flag].append((done, amount))
        tile.written = max(tile.written, done if kind == "write" else 0.0)
    elif kind == "fence":
        tile.now = max(tile.now, tile.written)
    elif kind == "add":
        tile.flags[flag] += signed(amount)
    elif kind == "set":
        pending = tile.pending[flag]
        while pending and pending[0][0] <= tile.now:
            pending.popleft()
        tile.flags[flag] = amount
    else:
        _wait(tile, kind, flag, amount, refuse)


def _wait(tile: _Tile, kind: str, flag: int, amount: int, refuse: Refuse) -> None:
    """Until a flag holds at least ``amount``, or by ``kind`` as much: all that is under way has arrived then."""
    pending, value, exactly = tile.pending[flag], tile.flags[flag], kind == "equal"
    while pending and (value < amount or exactly or pending[0][0] <= tile.now):
        time, words = pending.popleft()
        value += words
        tile.now = max(tile.now, time)
    if value < amount or (exactly and value != amount):
        raise refuse(f"a tile waits for ever for flag {flag}")
    tile.flags[flag] = value


def _check_sequencer(section: Section, refuse: Refuse) -> None:
    """Refuses a sequencer that does more than fetch programs and give tasks."""
    for bundle in section.bundles:
        for one in bundle:
            spaces = {match[1] for text in (*one.targets, *one.operands) for match in MEMORY.finditer(text)}
            fetches = one.opcode == "dma.local" and "smem" in spaces and not _FEW.isdisjoint(one.operands[-1:])
            if one.opcode.startswith(("stream.", "dma.")) and not spaces & _CODE and not fetches:
                raise refuse(f"its sequencer copies ({one.opcode})")
