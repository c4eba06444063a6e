"""Damaged files of the compiler are refused, whatever is wrong with them."""

from pathlib import Path

import pytest

from ratchet.dump import image, overflow, utilisation
from ratchet.dump.files import tokens_in
from ratchet.dump.instruction import Unread
from ratchet.dump.listing import read_instruction
from ratchet.dump.text import text_of
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TOKENS_FILE

COUNTS = "MXU, VLOAD:FILL, VSTORE:SPILL\n== UTILIZATION:\n1 2 {}\n"
IMAGE = b"\x08\x01\x12\x08\x08\x01\x1a\x04\x08\x00\x10\x04\x12\x08\x08\x02\x1a\x04\x08\x04\x10\x04\x1a\x08codeDATA"


def test_counts_of_spills() -> None:
    assert utilisation.spills(COUNTS.format(3), file="f") == (3, 2)


@pytest.mark.parametrize("text", [
    COUNTS.format("9" * 19), COUNTS.format("9" * 5000), COUNTS.format("٣"), COUNTS.format("-1"), COUNTS.format(""),
    COUNTS.replace(":SPILL", ":S").format(3),
])  # fmt: skip
def test_damaged_counts_of_spills_are_refused(text: str) -> None:
    with pytest.raises(Refusal, match="f ") as caught:
        utilisation.spills(text, file="f")
    assert caught.value.status is Status.INFRASTRUCTURE


def test_constants_of_an_executable() -> None:
    assert image.constant_segment(b"around" + IMAGE + b"it", compiler="c") == b"DATA"


@pytest.mark.parametrize("data", [b"", IMAGE + IMAGE, IMAGE[:-1], b"\x08\x01\x12" + b"\x80" * 100_000])
def test_a_damaged_executable_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="program images"):
        image.constant_segment(data, compiler="c")


@pytest.mark.parametrize("amount", ["1.2.3M", "...", "M", "9" * 400])
def test_an_amount_that_is_none_is_not_said(amount: str) -> None:
    text = f"memory space vmem. Scoped allocation with size {amount} and limit 16.00M exceeded"
    assert "needs too much VMEM" in overflow.overflow_message(text)


@pytest.mark.parametrize("text", [
    "%v1_v1 = vmul.u32 {}, %v2_v2", "%v1_v1 = vld [vmem:[#allocation2 + {}] sm:$0xff]", "%v{}_v1 = vmul.u32 %v1_v1",
    "%v1_v1 = vmul.u32 %v{}_v1", "%v1_v{} = vmul.u32 %v1_v1", "%9 = sbr.rel target bundleno = {} (0x1)",
])  # fmt: skip
def test_a_number_of_thousands_of_digits_is_no_operand(text: str) -> None:
    """It is refused, or an operand of vector code that stays unread."""
    try:
        instruction = read_instruction(text.format("9" * 5000))
    except ValueError as error:
        assert "does not read as an instruction" in str(error) or "unknown form" in str(error)  # noqa: PT017 - or none
    else:
        assert any(isinstance(operand.value, Unread) for operand in instruction.operands)
    assert read_instruction(text.format("1")).opcode


def test_a_dump_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_bytes(b"abc\xff")
    with pytest.raises(Refusal, match=r"dump\.txt is not UTF-8 at byte 3") as caught:
        text_of(tmp_path / "dump.txt", Status.INFRASTRUCTURE)
    assert caught.value.status is Status.INFRASTRUCTURE


def test_a_damaged_table_of_tokens_is_refused(tmp_path: Path) -> None:
    (tmp_path / TOKENS_FILE).write_text("{}")
    with pytest.raises(Refusal, match=r"tokens\.json is no table of tokens"):
        tokens_in(tmp_path)
