"""The reader of bundle listings: whatever is written in the grammar reads back; anything else is refused."""

from __future__ import annotations

import re
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.dump.columns import Columns, flat, numbered, ranges
from ratchet.tpu.dump.instruction import (
    Access,
    Address,
    Argument,
    Immediate,
    Operand,
    Predicate,
    Register,
    Source,
    Unread,
)
from ratchet.tpu.dump.listing import MOST_DELAY, parse, read_instruction, set_aside
from ratchet.tpu.dump.outline import PASSED_ON, SPARSE_CORE_DONE, parse_outline
from ratchet.values.place import Window
from ratchet.values.status import Refusal, Status
from tests.tpu.account.test_blame import instruction

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

Written = tuple[str, int, str, list[str]]
"""Opcode, number of the value, operands, comments."""

instructions = st.tuples(
    words.map("v".__add__).map(lambda text: text.rstrip(".")),
    st.integers(0, 99999),
    operands,
    st.lists(comments().map(str.strip), max_size=2),
)


def write(bundles: list[list[Written]]) -> str:
    lines = []
    for address, bundle in enumerate(bundles):
        parts = []
        for opcode, number, text, notes in bundle:
            tail = "".join(f" /* {note} */" for note in notes)
            parts.append(f"%v{number}_v{number % 32} = {opcode}{' ' + text if text else ''}{tail}")
        inside = "{ " + "  ;;  ".join(parts) + " }" if parts else "{}"
        lines.append(f"{address:#6x}   :  {inside}" if address else f"     0   :  {inside}")
    return HEADER + "\n".join(lines) + "\n"


def outline(count: int, allocations: str = "") -> str:
    return f"// head\n$region0: #{{x}}\n{allocations}  // region range: [0, {count})\n  %a = b\n"


@given(st.lists(st.lists(instructions, max_size=4), min_size=1, max_size=20))
def test_what_is_written_reads_back(bundles: list[list[Written]]) -> None:
    listing = parse(write(bundles), outline(len(bundles)), file="f.txt", compiler="c")
    assert [len(bundle) for bundle in listing.bundles] == [len(bundle) for bundle in bundles]
    for found, (opcode, number, text, notes) in zip(
        (i for bundle in listing.bundles for i in bundle), (i for bundle in bundles for i in bundle), strict=True
    ):
        assert (found.opcode, found.dest) == (opcode, Register("v", number, number % 32))
        assert str(found) == f"{opcode} {text}".strip()
        assert found.notes.text == " ".join(notes)


@given(st.lists(st.lists(instructions, max_size=3), min_size=2, max_size=6), st.data())
def test_truncation_is_refused(bundles: list[list[Written]], data: st.DataObject) -> None:
    text = write(bundles)
    cut = data.draw(st.integers(0, len(text) - 3))
    with pytest.raises(Refusal) as refusal:
        parse(text[:cut], outline(len(bundles)), file="f.txt", compiler="c 1.2")
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN
    assert "f.txt (c 1.2)" in refusal.value.message


def test_a_bundle_less_than_the_outline_says_is_noticed() -> None:
    with pytest.raises(Refusal, match="2 bundles, but the compiler's outline says 3: the dump is incomplete"):
        parse(write([[], []]), outline(3), file="f.txt", compiler="c")


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


def one(text: str, allocations: str = "") -> object:
    """The only instruction of a listing with this text."""
    listing = f"{HEADER}     0   :  {{ {text} }}\n"
    ((instruction,),) = parse(listing, outline(1, allocations), file="f.txt", compiler="c 1.2").bundles
    return instruction


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", ""),
        (" %s7_s7 and %v8", " %s9_s9"),  # registers behind a bundle, and behind an empty one: nobody's operands
        (" 50 %", ""),  # of which not even one is a register
    ],
)
def test_what_is_behind_a_bundle_is_no_operand(first: str, second: str) -> None:
    listing = (
        f"{HEADER}     0   :  {{ %s1_s1 = smov 1 ;; %s2_s2 = sadd.s32 %s1_s1, %s5_s5 }}{first}\n"
        f"   0x1   :  {{}}{second}\n"
        "   0x2   :  { %s3_s3 = sadd.s32 %s2_s2, %s4_s4 }\n"
    )
    (one, two), nothing, (three,) = parse(listing, outline(3), file="f", compiler="c").bundles
    assert [one.reads, two.reads, nothing, three.reads] == [(), ("s1", "s5"), (), ("s2", "s4")]
    assert [one.register, two.register, three.makes, three.registers] == ["s1", "s2", "s3", ("s2", "s4")]


R3, R4, P1, P2 = Register("s", 3, 0), Register("s", 4, 1), Register("p", 1, 5), Register("p", 2, 6)
HERE = "  #allocation7 [shape = 'u32[]', space=smem, size = 0x4]\n"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("sadd.s32 4294967295, %s3_s0", [Immediate(-1), R3]),
        ("smov.u32 2.5", [Immediate(0x40200000)]),
        ("smov.u32 -1e+30", [Immediate(0xF149F2CA - 2**32)]),
        ("scalar_lea.smem %s3_s0, 2 [#allocation7]", [R3, Immediate(2)]),
        ("vsyncpa [#allocation7 + $0x10], 0", [Address("#allocation7", 16, ()), Immediate(0)]),
        ("sld [smem:[%s3_s0 + %s4_s1]]", [Access("smem", Address("", 0, (R3, R4)), True)]),
        ("sld [smem:[#allocation7 + %s4_s1]]", [Access("smem", Address("#allocation7", 0, (R4,)), True)]),
        ("vpush 10", [Immediate(10)]),
        ("spop %10", [Register("", 10, None)]),
    ],
)
def test_operands_are_values(text: str, values: list[object]) -> None:
    assert [operand.value for operand in one(f"%s9_s9 = {text}", HERE).operands] == values


@pytest.mark.parametrize(
    ("text", "whole"),
    [("[vmem:[%s3_s0 + $0x8] sm:$0xff]", True), ("[vmem:[%s3_s0 + $0x8] ss:$2 sm:$0xff]", False)],
)
def test_a_load_with_a_stride_is_distinguished_from_one_of_rows_side_by_side(text: str, whole: bool) -> None:
    assert one(f"%v9_v9 = vld {text}").operands == (Operand("", Access("vmem", Address("", 8, (R3,)), whole)),)


@pytest.mark.parametrize(
    ("text", "predicate", "values"),
    [
        ("sadd.s32 (%p1_p5), %s3_s0, 1", Predicate(P1, False, None), [R3, Immediate(1)]),
        ("smov (!%p1_p5, %s4_s1), %s3_s0", Predicate(P1, True, R4), [R3]),
        ("sld [smem:[%s3_s0]] (!%p1_p5)", Predicate(P1, True, None), [Access("smem", Address("", 0, (R3,)), True)]),
        ("smov (!1), %s3_s0", Predicate(True, True, None), [R3]),
        ("por %p1_p5, %p2_p6", None, [P1, P2]),
    ],
)
def test_predicates(text: str, predicate: Predicate | None, values: list[object]) -> None:
    found = one(f"%s9_s9 = {text}")
    assert found.predicate == predicate
    assert [operand.value for operand in found.operands] == values


def test_operand_markers_name_operands() -> None:
    text = "%1 = dma.hbm_to_vmem [thread:$0]  (%p1_p5), /*hbm=*/%s3_s0, /*size_in_granules=*/16 /* why */"
    found = one(text)
    assert found.operands == (Operand("hbm", R3), Operand("size_in_granules", Immediate(16)))
    assert (found.named("hbm"), found.named("vmem"), found.notes.text) == (R3, None, "why")


@pytest.mark.parametrize(
    ("mark", "results"), [("kRem", "remainder"), ("kDiv", "quotient"), ("kDivAndRem", "both"), ("kRemote", "")]
)
def test_what_a_division_gives(mark: str, results: str) -> None:
    assert one(f"%1 = sdivrem.u32 %s3_s0, 3 /* {mark} */").notes.results == results
    assert one(f'%1 = sdivrem.u32 %s3_s0, 3 /* loc("t":9:1) :: {mark} */').notes.results == results


def test_branches_calls_and_arguments() -> None:
    text = (
        "     0   :  { %s1_s0 = inlined_call_operand.hbm [shape: f32[8,128], index: 3, kind: input, shape index: {}]"
        "  ;;  %s2_s1 = inlined_call_operand.<no memory space> [shape: f32[], index: 4, kind: input, shape index: {}]"
        " }\n"
        "   0x1   :  { %9 = sbr.rel (!%p1_p5) target bundleno = 0 (0x0), region = 3 }\n"
        "   0x2   :  { %10 = inlined_call %s1_s0 /* %fusion.3 = fusion(%x) */  ;;  %11 = call /* <late> */ }\n"
    )
    (hbm, scalar), (branch,), calls = parse(HEADER + text, outline(3), file="f", compiler="c").bundles
    assert (hbm.space, hbm.form.argument) == ("hbm", Argument(3, "input"))
    assert (scalar.space, scalar.form.argument) == ("", Argument(4, "input"))
    assert (branch.form.target, branch.predicate) == (0, Predicate(P1, True, None))
    assert [call.notes.called for call in calls] == ["fusion.3", "<late>"]


def test_a_branch_may_lead_right_behind_the_last_bundle() -> None:
    assert one("%9 = sbr.rel target bundleno = 1 (0x1)").form.target == 1


HOSTILE = "k*/  ;;  %9_s9 = sadd.s32 1, 1 if X else None ;; %8 = sbr.rel target bundleno = 0 (0x0) /*"


def test_the_name_of_a_source_file_is_only_a_name() -> None:
    found = one(f'%s1_s1 = smov 7 /* loc("{HOSTILE}":16:8 to :16) */')
    assert found.notes.source == Source(file=HOSTILE, line=16, column=8)
    assert (found.makes, found.operands) == ("s1", (Operand("", Immediate(7)),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%s9_s9 = sadd.s32 __import__('os'), 1", "unknown form"),
        ("%s9_s9 = sadd.s32 %s1_s1 None else 1, 1", "unknown form"),
        ("%s9_s9;X = sadd.s32 1, 1", "does not read as an instruction"),
        ("%s9_s9 = sbr.abs target bundleno = 0 (0x0)", "branch of unknown form"),
        ("%9 = sbr.rel target bundleno = 0 (0x1)", "unknown form"),
        ("%9 = sbr.rel target bundleno = 7 (0x7)", "behind the end"),
        ("%9 = vdelay -5", "a delay of -5 cycles"),
        ("%9 = vdelay 4294967291", "a delay of -5 cycles"),
        ("%9 = vdelay 0", "a delay of 0 cycles"),
        (f"%9 = vdelay {MOST_DELAY + 1}", f"a delay of {MOST_DELAY + 1} cycles"),
        ("%9 = dma.hbm_to_vmem /*size_in_granules=*/4294967295", "a copy of -1 granules"),
        ("%9 = vsyncpa [#allocation7], 0", "#allocation7 is not among the allocations"),
        ("%9 = smov 1 /* a \x01 mark */", "control character"),
        ("%9 = smov 1 /* one */ */", "never began"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(Refusal, match=re.escape(said)) as refusal:
        one(text)
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN
    assert "f.txt (c 1.2)" in refusal.value.message


def test_numbers_that_are_just_possible() -> None:
    for text in ("dma.hbm_to_vmem /*size_in_granules=*/0", "vdelay 1", f"vdelay {MOST_DELAY}"):
        assert one(f"%9 = {text}").opcode in text
    assert MOST_DELAY == 1 << 20


def test_vector_operands_may_stay_unread() -> None:
    assert read_instruction("%v1_v1 = vfoo.f32 @new ~form, %v2_v2").reads == ("v2",)


def test_a_move_is_into_another_register() -> None:
    assert read_instruction("%s1_s1 = smov 5").moves
    assert read_instruction("%s2_s2 = smov %s1_s1").moves
    assert not read_instruction("%s2_s1 = smov %s1_s1").moves


def test_the_place_of_a_result_is_no_part_of_the_opcode() -> None:
    instruction = read_instruction("%1 = vmatmul.mubr.bf16.gmra.mrb[12].mxu0 %v2_v2")
    assert instruction.opcode == "vmatmul.mubr.bf16.gmra.mrb.mxu0"


def test_words_that_a_program_passes_on_to_its_sparse_cores() -> None:
    lines = [
        "#allocation0 [shape = 'u32[]', space=smem, size = 0x4, offset = 0xfff90, fixed_abs, tag = 'tc block word']",
        "#allocation1 [shape = 'u32[]', space=smem, size = 0x4, offset = 0xfff88, fixed_abs, tag = 'tc block word']",
        "#allocation2 [shape = 's32[]', space=sflag, size = 0x4, offset = 0x3cb0, fixed_abs, "
        "tag = 'x - SC 1 program completion sync flag ']",
        "#allocation3 [shape = 's32[]', space=sflag, size = 0x4, tag = 'output of prepare_start_a-start.1@{}']",
    ]
    text = "\n".join([*lines, "$region0: #{main}  // region range: [0, 1)"])
    allocations, _ = parse_outline(text, file="f", compiler="c")
    assert [one.role for one in allocations.values()] == ["output ptr", PASSED_ON, f"{SPARSE_CORE_DONE} 1", ""]
    assert allocations["#allocation3"].prepared_op == "a-start.1"
    assert not allocations["#allocation3"].awaited_op


@pytest.mark.parametrize(("size", "offset", "fits"), [
    (1 << 45, 0, True), ((1 << 45) + 1, 0, False), (0, 1 << 45, True), (0, (1 << 45) + 1, False),
])  # fmt: skip
def test_no_memory_is_larger_than_32_tebibytes(size: int, offset: int, fits: bool) -> None:
    line = f"  #allocation2 [shape = 'f32[8]', space=hbm, size = {size:#x}, offset = {offset:#x}]\n"
    if fits:
        parse(write([[]]), outline(1, line), file="f", compiler="c")
    else:
        with pytest.raises(Refusal, match="more than any memory holds"):
            parse(write([[]]), outline(1, line), file="f", compiler="c")


def test_roles_and_windows_of_allocations() -> None:
    text = outline(
        1,
        "  #allocation2 [shape = 'u8[8]', space=vmem, size = 0x80, tag = 'output window allocation for operator "
        "output 3. The window shape is x']\n"
        "  #allocation3 [shape = 'u32[]', space=smem, size = 0x4, offset = 0x0, fixed_abs, tag = 'a - chip ID']\n"
        "  #allocation4 [shape = 'u32[]', space=smem, size = 0x4, tag = 'scratch of an author, chip ID']\n"
        "  #allocation5 [shape = 's32[]', space=sflag, size = 0x4, tag = 'output of copy-start.1@{2}']\n",
    )
    found = parse(write([[]]), text, file="f", compiler="c").allocations
    assert found["#allocation2"].window == Window(kind="output", number=3)
    assert [found[f"#allocation{n}"].role for n in (2, 3, 4, 5)] == ["", "chip ID", "", ""]
    assert found["#allocation5"].awaited_op == "copy-done.1"


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


@given(st.lists(st.sampled_from(["/*", "*/", "/", "*", "a=", ' loc("', '"', '":3', "\\", " ", "x", "\n"]), max_size=20))
def test_nothing_of_a_comment_stays(pieces: list[str]) -> None:
    try:
        text, notes = set_aside("".join(pieces))
    except ValueError:
        return
    assert not {"/*", "*/"} & {text[at : at + 2] for at in range(len(text))}
    assert text.count("\x01") >= len(notes)


def test_comments_that_say_the_same_share_a_number() -> None:
    text, notes = set_aside('a /* loc("x /* y":3:4) */ b /* z */ c /* loc("x /* y":3:4) */')
    assert text == "a \x010\x02 b \x011\x02 c \x010\x02"
    assert notes == ['loc("x /* y":3:4)', "z"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_ranges_one_after_another(pairs: list[tuple[int, int]]) -> None:
    starts, sizes = np.array(pairs, np.int64).reshape(-1, 2).T
    assert ranges(starts, sizes).tolist() == list(chain.from_iterable(range(a, a + n) for a, n in pairs))


@given(st.lists(st.text(max_size=1)))
def test_numbers_stand_for_items(items: list[str]) -> None:
    numbers, distinct = numbered(items)
    assert [distinct[number] for number in numbers] == items
    assert distinct == list(dict.fromkeys(items))


def test_a_value_is_its_last_maker() -> None:
    bundles = [
        (instruction("vadd.f32", 3, "v1_v1"), instruction("vadd.f32", 3, "v2_v2", "%v1_v1")),
        (),
        (instruction("vsub.f32", 4, "v1_v1", "%v2_v2"),),
    ]
    columns = Columns(flat(bundles))
    assert columns.first.tolist() == [0, 2, 2, 3]
    assert columns.bundle.tolist() == [0, 0, 2]
    assert [columns.opcodes[number] for number in columns.opcode] == ["vadd.f32", "vadd.f32", "vsub.f32"]
    assert columns.makes.tolist() == [2, 1, 2]
    assert columns.reads.tolist() == [2, 1]
    assert columns.reader.tolist() == [1, 2]
    assert list(columns.of_bundle(0)) == [0, 1]
    assert columns.maker("v1") == bundles[2][0]
    assert columns.maker("v7") is None
    assert columns.bundles == bundles
    assert columns.bundles[-1:] == [bundles[2]]
    assert columns.bundles != bundles[:2]


def test_a_listing_may_be_empty() -> None:
    columns = Columns(flat([(), ()]))
    assert columns.first.tolist() == [0, 0, 0]
    assert len(columns) == len(columns.reads) == 0


def test_a_general_dma_says_between_which_memories_it_moves() -> None:
    dma = "%440 = dma.general /*src=*/%s2_s1, /*dst=*/%s4_s2, /*dst_syncflagno_1=*/0"
    assert read_instruction(f"{dma} /* hbm-to-vmem */").notes.between == ("hbm", "vmem")
    assert read_instruction(f'{dma} /* loc("vmem-to-hbm":3:8) */').notes.between is None, "a name of the author's"
