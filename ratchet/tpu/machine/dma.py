"""DMAs and sync flags: the part of the machine where time passes other than by bundles.

One queue serves all DMAs that touch HBM (:mod:`ratchet.tpu.machine.hbm`). DMAs between on-chip memories have a queue of
their own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from math import ceil, inf
from typing import Any, NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.fitted import Constants
from ratchet.tpu.machine.hbm import HbmQueue
from ratchet.tpu.machine.tiles import Work

GRANULE_BYTES = 32
"""Unit of DMA sizes and of DMA sync-flag counts."""

KEPT = 50_000
"""DMAs and waits kept at each end of a run for the timeline; those between are counted, not kept."""


class Ends:
    """The first and the last of a long sequence, and how many there were."""

    def __init__(self, keep: int) -> None:
        self.first: list[Any] = []
        self.last: deque[Any] = deque(maxlen=keep)
        self.keep = keep
        self.count = 0

    def add(self, item: tuple[Any, ...]) -> None:
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(item)
        else:
            self.last.append(item)


class GeneralDma(NamedTuple):
    """A DMA whose memories are given by its pointers. Addresses of HBM and VMEM in granules; they may be unknown."""

    now: int
    """Cycle of issue."""
    source: str
    start: object
    target: str
    stop: object
    granules: int
    flag: int
    """Sync flag that moves at the target when all has arrived."""
    source_flag: int
    """Sync flag that moves at the source when all has been read; 0 is a dummy."""
    overrides: int
    """Which chip the target is on; 0 for this one."""
    address: int
    """Bundle, for messages."""
    place: int = -1
    """Number of the program's operation that it comes from; -1 for none."""


class Worked(Exception):
    """A copy was started where there may be none."""


class DmaEngine:
    """HBM and on-chip DMA queues and the sync flags that they move."""

    def __init__(self, chip: Chip, constants: Constants, deadlock: Callable[[int, int, int, int], Exception]) -> None:
        self._chip = chip
        self._hbm = HbmQueue(chip, constants)
        self._sparse_free: dict[int, int] = {}
        """Per SparseCore, when its last program ends."""
        self.latency = constants.read_issue_cycles + constants.read_latency_cycles
        """Of a read of HBM, beyond the time its bytes take."""
        self._local_cost = GRANULE_BYTES / constants.local_bytes_per_cycle
        self._local_latency = constants.local_latency_cycles
        self._deadlock = deadlock
        self._local_free = 0.0
        self._values: dict[int, int] = {}
        self._pending: defaultdict[int, deque[tuple[float, int, bool]]] = defaultdict(deque)
        """Per sync flag, in order of time: when it will move, by how much, and whether by traffic between chips."""
        self.read_granules = 0
        self.write_granules = 0
        self.local_granules = 0
        self.wait_cycles = 0
        self.transfers = Ends(KEPT)
        self.waits = Ends(KEPT)
        self.waited_on: dict[int, int] = {}
        """Cycles waited per sync flag."""
        self.remote_wait_cycles = 0
        """Part of ``wait_cycles``: what ended the wait came from another chip, or was on its way to one."""
        self.remote_waits = Ends(KEPT)
        self.core_wait_cycles = 0
        """Likewise: for a word of the other core of the chip."""

    @property
    def hbm_busy_cycles(self) -> float:
        """Cycles for which copies occupy HBM, turnarounds included."""
        return self._hbm.busy_cycles

    def shared_by(self, cores: int) -> None:
        """From now on so many cores of the chip work: each has an equal part of HBM's bandwidth."""
        self._hbm.shared_by(cores)

    def start(self, now: int, source: str, target: str, granules: int, flag: int, piece: int = 0) -> float:
        """Issues a DMA of ``granules`` x 32 B that will add as many to ``flag``; returns when it does.

        ``piece`` is the number of granules that are contiguous in HBM; 0 if all are.
        """
        reads, writes, size = source == "hbm", target == "hbm", granules * GRANULE_BYTES
        if reads or writes:
            contiguous = (piece or granules) * GRANULE_BYTES
            begin, done = self._hbm.copy(now, size, contiguous, writes=not reads)
            if reads:
                self.read_granules += granules
            if writes:
                self.write_granules += granules
            if reads and writes:  # the write follows the read in the queue
                _, done = self._hbm.copy(begin, size, contiguous, writes=True)
        else:
            self.local_granules += granules
            begin = self._local_free if self._local_free > now else now
            self._local_free = end = begin + granules * self._local_cost
            done = end + self._local_latency
        self.arrive(done, flag, granules, remote=False)
        self.transfers.add((now, int(begin), ceil(done), size, source, target))
        return done

    def arrive(self, time: float, flag: int, amount: int, *, remote: bool) -> None:
        """``flag`` will move by ``amount`` at ``time``; ``remote`` if traffic between chips moves it."""
        pending = self._pending[flag]
        pending.append((time, amount, remote))
        if len(pending) > 1 and pending[-2][0] > time:
            # A faster queue overtook a slower one on the same flag: keep arrivals in order of time.
            self._pending[flag] = deque(sorted(pending))

    def later(self, now: int, cycles: int, flag: int, amount: int) -> None:
        """``flag`` will move by ``amount`` in ``cycles``: a unit beside the TensorCore moves it."""
        self.arrive(now + cycles, flag, amount, remote=False)

    def offload(
        self, now: int, core: int, moved: int, flag: int, *, exchanged: bool = False, work: Work | None = None
    ) -> None:
        """SparseCore ``core`` runs its next program, which moves so many bytes; then ``flag`` moves by 1.

        ``exchanged``: with other chips, which are taken to begin at the same time. ``work``: of a kernel. Its bytes
        come first in the queue of HBM, all at once.
        """
        sparse = self._chip.sparse_cores
        begin = max(now, self._sparse_free.get(core, 0))
        rates = sparse.start_s, sparse.bytes_per_s
        start_s, bytes_per_s = (sparse.exchange_start_s, sparse.exchange_bytes_per_s) if exchanged else rates
        end = begin + ceil((start_s + (work.seconds if work else 0) + moved / bytes_per_s) * self._chip.clock_hz)
        self._sparse_free[core] = end
        if work:
            self.read_granules += work.read_bytes // GRANULE_BYTES
            self.write_granules += work.written_bytes // GRANULE_BYTES
            self._hbm.carry(now, work.read_bytes + work.written_bytes)
        self.arrive(end, flag, 1, remote=exchanged)

    def carry(self, granules: int, *, writes: bool) -> None:
        """Charges HBM for what a link reads or writes: it is many times slower, so the queue does not hold it up."""
        if writes:
            self.write_granules += granules
        else:
            self.read_granules += granules
        self._hbm.occupy(self._hbm.free, granules * GRANULE_BYTES * self._hbm.cycles_per_byte)

    def reached(self, flag: int, least: int) -> float:
        """Cycle at which ``flag`` will hold ``least`` by what is in flight now: 0 if it does, infinite if never."""
        value = self._values.get(flag, 0)
        time = 0.0
        for arrival, amount, _ in self._pending.get(flag, ()):
            if value >= least:
                break
            value += amount
            time = arrival
        return time if value >= least else inf

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        """Cycle at which ``flag`` holds at least ``least``, not before ``now``."""
        value = self._values.get(flag, 0)
        pending = self._pending.get(flag)
        time: float = now
        remote = False
        if pending:
            while pending and (value < least or pending[0][0] <= time):
                arrival, amount, remote = pending.popleft()
                value += amount
                time = max(time, arrival)
            self._values[flag] = value
        if value < least:
            raise self._deadlock(flag, value, least, address)
        until = ceil(time)
        if until > now:
            self.wait_cycles += until - now
            self.waited_on[flag] = self.waited_on.get(flag, 0) + until - now
            self.waits.add((now, until, flag))
            if remote:
                self.remote_wait_cycles += until - now
                self.remote_waits.add((now, until, flag))
        return until

    def waited_for_core(self, now: int, until: int) -> None:
        """The other core of the chip was waited for."""
        self.wait_cycles += until - now
        self.core_wait_cycles += until - now

    def add(self, flag: int, amount: int) -> None:
        self._values[flag] = self._values.get(flag, 0) + amount

    def set(self, now: int, flag: int, value: int) -> None:
        self.value(now, flag)  # whatever came before is overwritten too
        self._values[flag] = value

    def value(self, now: int, flag: int) -> int:
        """What ``flag`` holds at ``now``."""
        pending = self._pending.get(flag)
        value = self._values.get(flag, 0)
        while pending and pending[0][0] <= now:
            value += pending.popleft()[1]
        self._values[flag] = value
        return value

    def final_value(self, flag: int) -> int:
        """What ``flag`` will hold once all that is in flight has arrived."""
        return self._values.get(flag, 0) + sum(amount for _, amount, _ in self._pending.get(flag, ()))


class Idle(DmaEngine):
    """One whose core is expected to copy nothing. Raises Worked where it does."""

    def start(self, now: int, source: str, target: str, granules: int, flag: int, piece: int = 0) -> float:
        raise Worked
