"""What all of a run's time goes to."""

from __future__ import annotations

from dataclasses import replace

from ratchet.tpu.account.reasons import reasons
from ratchet.values.place import Code, Op
from ratchet.values.reason import Reason, Use
from tests.tpu.account.test_losses import COPY, FAR, NEAR, WINDOW, kernel, line, outside


def test_waits_are_told_apart_by_when_and_operations_of_xla_by_which() -> None:
    lines = (
        line(WINDOW, 50, wait_cycles=50),
        line(NEAR, 30, issue_cycles={"VALU": 20}, stall_cycles={"XLU": 10}),
        line(FAR, 7, issue_cycles={"VALU": 7}),
    )
    regions = [replace(kernel(lines), name=name) for name in ("first", "steady", "last")]
    found = reasons([*regions, outside(line(COPY, 40, wait_cycles=40), line(Code.TOP_LEVEL, 2))])
    assert found == (
        Reason(use=Use.ISSUE, unit="VALU", cycles=81, place=NEAR),
        Reason(use=Use.FIRST, unit="", cycles=50, place=WINDOW),
        Reason(use=Use.WAIT, unit="", cycles=50, place=WINDOW),
        Reason(use=Use.LAST, unit="", cycles=50, place=WINDOW),
        Reason(use=Use.OUTSIDE, unit="", cycles=40, place=Op(name="copy.1", opcode="copy")),
        Reason(use=Use.EMPTY, unit="XLU", cycles=30, place=NEAR),
        Reason(use=Use.OUTSIDE, unit="", cycles=2, place=Code.TOP_LEVEL),
    )


def test_links_are_apart_from_other_waits() -> None:
    found = reasons([kernel((line(NEAR, 9, wait_cycles=9, link_wait_cycles=6),))])
    assert {one.use: one.cycles for one in found} == {Use.LINKS: 6, Use.WAIT: 3}
