"""The reader of bundle listings: whatever is written in the grammar reads back; anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.dump.bundles import Instruction, parse
from ratchet.values.status import Refusal, Status

HEADER = "= control target key start\nLB: loop body\n= control target key end\n\n"

words = st.text("abcdefgxyz0123456789._", min_size=1, max_size=12)
plain_comment = st.text("abc %,;{}[]()=:0x1>\n#", max_size=30).filter(lambda t: not t.strip().endswith("="))


@st.composite
def comments(draw: st.DrawFn) -> str:
    """A comment's inside; comments nest."""
    text = draw(plain_comment)
    if draw(st.booleans()):
        text += f"/* {draw(plain_comment)} */{draw(plain_comment)}"
    return text


operands = st.lists(
    st.one_of(
        st.integers(0, 2**32 - 1).map(str),
        st.tuples(st.integers(0, 9999), st.integers(0, 31)).map(lambda t: f"%s{t[0]}_s{t[1]}"),
        st.integers(0, 40).map(lambda n: f"[#allocation{n}]"),
    ),
    max_size=4,
).map(", ".join)

instructions = st.builds(
    lambda opcode, number, text, notes: Instruction("s" + opcode, f"s{number}_s{number % 32}", text, tuple(notes)),
    words,
    st.integers(0, 99999),
    operands,
    st.lists(comments().map(str.strip), max_size=2),
)


def write(bundles: list[list[Instruction]]) -> str:
    lines = []
    for address, bundle in enumerate(bundles):
        parts = []
        for opcode, dest, text, notes in bundle:
            tail = "".join(f" /* {note} */" for note in notes)
            parts.append(f"%{dest} = {opcode}{' ' + text if text else ''}{tail}")
        inside = "{ " + "  ;;  ".join(parts) + " }" if parts else "{}"
        lines.append(f"{address:#6x}   :  {inside}" if address else f"     0   :  {inside}")
    return HEADER + "\n".join(lines) + "\n"


def outline(count: int, allocations: str = "") -> str:
    return f"// head\n$region0: #{{x}}\n{allocations}  // region range: [0, {count})\n  %a = b\n"


@given(st.lists(st.lists(instructions, max_size=4), min_size=1, max_size=20))
def test_what_is_written_reads_back(bundles: list[list[Instruction]]) -> None:
    listing = parse(write(bundles), outline(len(bundles)), file="f.txt", compiler="c")
    assert [list(bundle) for bundle in listing.bundles] == bundles


@given(st.lists(st.lists(instructions, max_size=3), min_size=2, max_size=6), st.data())
def test_truncation_is_refused(bundles: list[list[Instruction]], data: st.DataObject) -> None:
    text = write(bundles)
    cut = data.draw(st.integers(0, len(text) - 3))
    with pytest.raises(Refusal) as refusal:
        parse(text[:cut], outline(len(bundles)), file="f.txt", compiler="c 1.2")
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN
    assert "f.txt (c 1.2)" in refusal.value.message


@given(st.text(max_size=200))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        parse(text, outline(1), file="f.txt", compiler="c")


def test_allocations() -> None:
    text = outline(
        1,
        "  #allocation2 [shape = 'f32[8,1]{1,0}', space=vmem, size = 0x80, offset = 0x10, scoped, tag = 'x [1]']\n"
        "  #allocation3 [shape = 'u32[]', space=smem, size = 0x4, offset = 0xfff98, fixed_abs, tag = 'registry']\n"
        "  #allocation4_spill [shape = 'u32[1]{0}', space=smem, size = 0x4]\n",
    )
    found = parse(write([[]]), text, file="f", compiler="c").allocations
    assert [(a.space, a.size_bytes, a.offset_bytes, a.fixed) for a in found.values()] == [
        ("vmem", 0x80, 0x10, False),
        ("smem", 4, 0xFFF98, True),
        ("smem", 4, None, False),
    ]
    assert found["#allocation2"].tag == "x [1]"


def test_operand_markers_become_part_of_the_operand() -> None:
    text = (
        "     0   :  { %1 = dma.hbm_to_vmem /*hbm=*/%s1_s1, /*size_in_granules=*/16 /* why */ } /* Start region 0 */\n"
    )
    listing = parse(HEADER + text, outline(1), file="f", compiler="c")
    assert listing.bundles[0][0].operands == "hbm=%s1_s1, size_in_granules=16"
    assert listing.bundles[0][0].notes == ("why",)
    assert listing.regions == ["Start region 0"]
