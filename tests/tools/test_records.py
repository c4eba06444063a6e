"""The table of records, from rows."""

from __future__ import annotations

from dataclasses import replace

from ratchet.loop import ledger
from tools.documents import ROOT
from tools.records import HEAD, markdown, records

ROWS = {row.id: row for row in ledger.read(ROOT / ledger.NAME)}
BASELINE, KEPT, REVERTED = (
    ROWS[one] for one in ("20261129-013759-de66", "20261129-014547-c297", "20261129-014714-c103")
)


def test_a_record_is_what_stands_beside_the_first() -> None:
    (found,) = records([BASELINE, KEPT, REVERTED])
    assert dict(zip(HEAD, found, strict=True)) == {
        "kernel": "`examples/rmsnorm_backward.py`", "chip": "v5e", "first, ms": "0.4718", "now, ms": "0.2934",
        "floor, ms": "0.2459", "reached": "83.8 %", "experiments": "2", "kept, by whom": "1 engineer",
        "row": f"`{KEPT.id}`",
    }  # fmt: skip


def test_what_nobody_improved_is_none_and_advice_is_a_scripts() -> None:
    assert list(records([BASELINE, REVERTED])) == []
    (found,) = records([BASELINE, replace(KEPT, note="advise: two kernels in one")])
    assert "1 script" in found


def test_a_file_that_is_gone_is_left_out() -> None:
    assert list(records([replace(row, kernel="examples/gone.py") for row in (BASELINE, KEPT)])) == []


def test_this_repository_has_some() -> None:
    assert "| `kernel.py` | v5e | 4.2665 |" in markdown()
