"""What a machine may do with other chips: the interface, and that of a program on one chip, which has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ratchet.tpu.machine.dma import DmaEngine
from ratchet.tpu.machine.known import KnownMemory
from ratchet.tpu.machine.programs import Unit
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Refusal

_TO_A_CHIP = 1 << 14
"""Bit of a DMA's overrides that sends it to another chip; above it is the core on chips that have two."""


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


class Attached(Protocol):
    """A :class:`ratchet.tpu.machine.machine.Machine` as its peers use it."""

    smem: dict[int, object]
    engine: DmaEngine
    known: KnownMemory
    calls: list[tuple[str, tuple[object, ...]]]

    def where(self, address: int) -> str:
        """A bundle in words."""

    def flag_name(self, flag: int) -> str:
        """A sync flag in words."""

    def forget(self, space: str, where: object) -> None:
        """Something wrote into a memory at an address that is not known."""

    def refuse(self, address: int, why: str) -> Refusal:
        """What is raised for something at a bundle that cannot be executed."""

    def leave_out(self, what: Unmodelled) -> None:
        """Notes what of the program is not modelled."""


class Peers(Protocol):
    """The other chips as one machine sees them."""

    number: int
    """The compiler's logical id of this machine's chip."""
    start_up: Mapping[str, int]
    """What the runtime stores in scalar memory that differs from chip to chip, by role of the allocation."""

    def attach(self, machine: Attached) -> None:
        """Called once, with the machine that these are the peers of."""

    def begin(self, top: Unit) -> None:
        """The top level is loaded and about to run."""

    def before_wait(self, now: int, flag: int, least: int, address: int) -> None:
        """Returns once nothing that another chip does can change when this wait ends."""

    def after_wait(self, unit: Unit, address: int, end: int) -> None:
        """A wait of ``unit`` is over."""

    def settle(self, now: int) -> None:
        """Returns once everything is known that reaches this chip up to ``now``."""

    def agrees(self, unit: Unit, address: int) -> bool:
        """Whether a vector result moved to a scalar there is the launch check's "yes"."""

    def signal(self, now: int, word: int, amount: int, address: int) -> None:
        """Adds to a sync flag of the chip and core that ``word`` names."""

    def general_dma(self, dma: GeneralDma) -> bool:
        """Takes over a copy to a chip; False if it stays on this one."""

    def keeps(self, space: str, granule: object) -> bool:
        """Whether what is known of that memory holds whatever is written there."""


class Alone:
    """A program on one chip."""

    number = 0

    def __init__(self, core: int = 0) -> None:
        """``core`` is the one that runs, of a chip whose program runs on several."""
        self.start_up: Mapping[str, int] = {"core index": core}

    def attach(self, machine: Attached) -> None:
        self._machine = machine

    def begin(self, top: Unit) -> None:
        pass

    def before_wait(self, now: int, flag: int, least: int, address: int) -> None:
        pass

    def after_wait(self, unit: Unit, address: int, end: int) -> None:
        pass

    def settle(self, now: int) -> None:
        pass

    def agrees(self, unit: Unit, address: int) -> bool:
        return False

    def signal(self, now: int, word: int, amount: int, address: int) -> None:
        raise self._machine.refuse(address, "a signal to another chip in a program for one chip")

    def general_dma(self, dma: GeneralDma) -> bool:
        if dma.overrides & _TO_A_CHIP:
            raise self._machine.refuse(dma.address, "a copy to another chip in a program for one chip")
        return False

    def keeps(self, space: str, granule: object) -> bool:
        return False
