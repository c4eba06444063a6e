"""Cycles that a core waits for a cross-lane unit beside the compiler's schedule."""

from __future__ import annotations

from ratchet.tpu.dump.instruction import Bundle, Form, Instruction
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.programs import interlocked

PERMUTES = ("vperm.xlu0", "vrot.lane.b32.xlu0")
REDUCES = "vmax.xlane.f32.xlu0"


def instruction(opcode: str, target: int | None = None) -> Instruction:
    form = Form(text="", operands=(), predicate=None, allocations=(), spill=False, target=target, argument=None)
    return Instruction(opcode=opcode, makes="v0", register="v0", reads=(), registers=(), form=form)


def listing(length: int, **opcodes: str) -> Listing:
    """Bundles by address, ``at3="vperm.xlu0"``; the others are empty."""
    bundles: list[Bundle] = [()] * length
    for name, opcode in opcodes.items():
        bundles[int(name.removeprefix("at"))] = (instruction(opcode),)
    return Listing(file="f", bundles=bundles, allocations={})


def issued(changed: Listing) -> list[int]:
    return [address for address, bundle in enumerate(changed.bundles) if bundle]


def after(before: Listing, extra: int = 1) -> Listing:
    return interlocked(before, extra=extra, delay_slots=2)


def test_a_permutation_holds_its_unit_for_longer_than_scheduled() -> None:
    for opcode in PERMUTES:
        changed = after(listing(17, at0=opcode, at8=opcode, at16=REDUCES))
        assert issued(changed) == [0, 9, 18]
        assert len(changed.bundles) == 19
    assert issued(after(listing(9, at0=PERMUTES[0], at8=PERMUTES[0]), extra=3)) == [0, 11]


def test_what_comes_later_or_to_another_unit_does_not_wait() -> None:
    for other in (
        listing(10, at0="vperm.xlu0", at9="vperm.xlu0"),
        listing(9, at0="vperm.xlu0", at8="vperm.xlu1"),
        listing(9, at0="vperm.xlu0", at8="vpop.permute.xlu0"),
        listing(9, at0=REDUCES, at8="vperm.xlu0"),
        listing(2, at0="vset.pattern.permute.xlu0", at1="vperm.xlu0"),
    ):
        assert after(other) is other


def test_idle_cycles_of_a_unit_make_up_for_a_wait() -> None:
    """The wait for the first unit gives the second its cycle more, too."""
    changed = after(listing(10, at0="vperm.xlu0", at1="vperm.xlu1", at8="vperm.xlu0", at9="vperm.xlu1"))
    assert issued(changed) == [0, 1, 9, 10]


def test_branches_go_to_the_same_instructions_and_keep_their_delay_slots() -> None:
    before = listing(22, at0="vperm.xlu0", at8="vperm.xlu0", at12="vadd.f32", at18="vperm.xlu0")
    before.bundles[16] = (instruction("sbr.rel", target=12),)  # type: ignore[index]
    changed = after(before)
    assert [i.form.target for bundle in changed.bundles for i in bundle if i.opcode == "sbr.rel"] == [13]
    assert issued(changed) == [0, 9, 13, 17, 19]  # the last is in a delay slot
    assert changed.where(13) == "f bundle 0xc"
    assert before.where(13) == "f bundle 0xd"


def test_a_unit_is_free_where_control_flow_joins() -> None:
    before = listing(20, at4="vperm.xlu0", at12="vperm.xlu0")
    before.bundles[16] = (instruction("sbr.rel", target=12),)  # type: ignore[index]
    assert after(before) is before
