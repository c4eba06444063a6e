"""What one chip of a slice does with copies that name cores and chips, apart from any program."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.tpu.chips import V5E
from ratchet.tpu.machine.dma import DmaEngine
from ratchet.tpu.machine.interleaving import Interleaving
from ratchet.tpu.machine.known import KnownMemory
from ratchet.tpu.machine.links import Links
from ratchet.tpu.machine.peers import GeneralDma
from ratchet.tpu.machine.slice_member import Shared, SliceMember
from ratchet.values.status import Refusal, Status

OWN_CORE = 2 << 26
TO_CHIP_1 = 1 | 1 << 14
GRANULES = 65536
FLAG, SOURCE_FLAG = 0x1E7, 0x30


class StubMachine:
    """As much of a machine as its peers use."""

    def __init__(self) -> None:
        self.engine = DmaEngine(V5E, V5E.constants, lambda *_: RuntimeError("deadlock"))
        self.known = KnownMemory()
        self.smem: dict[int, object] = {}

    def refuse(self, address: int, why: str) -> Refusal:
        return Refusal(Status.SCHEDULE_UNKNOWN, why)


@pytest.fixture
def members() -> list[SliceMember]:
    links = Links(V5E.ici, V5E.clock_hz)
    order = Interleaving(2, 0.0, lambda: RuntimeError("deadlock"))
    shared = Shared(links=links, order=order, constants={}, chip_ids=(0, 1))
    shared.members.extend(SliceMember(shared, number) for number in range(2))
    for member in shared.members:
        stub: Any = StubMachine()
        member.attach(stub)
    return shared.members


def copy(overrides: int, flag: int) -> GeneralDma:
    return GeneralDma(0, "hbm", 1 << 20, "vmem", 1 << 10, GRANULES, flag, SOURCE_FLAG, overrides, 0)


def test_a_copy_that_names_its_own_core_stays_and_signals_both_ends(members: list[SliceMember]) -> None:
    here, other = members
    assert here.general_dma(copy(OWN_CORE, FLAG))
    assert here.machine.engine.settled(FLAG) == here.machine.engine.settled(SOURCE_FLAG) == GRANULES
    assert here.machine.engine.read_granules == GRANULES
    assert not other.machine.engine.settled(FLAG)
    assert not here.sent_bytes


@pytest.mark.parametrize(
    ("overrides", "flag"), [(OWN_CORE, FLAG | 2 << 13), (3 << 26, FLAG), (1 << 20, FLAG), (TO_CHIP_1, FLAG)]
)
def test_another_form_of_address_is_refused(members: list[SliceMember], overrides: int, flag: int) -> None:
    with pytest.raises(Refusal, match="of unknown meaning"):
        members[0].general_dma(copy(overrides, flag))
