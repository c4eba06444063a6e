"""Generated expressions against the one definition of scalar arithmetic, and unknown words passing through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.tpu import scalar
from ratchet.tpu.dump.columns import Columns, flat
from ratchet.tpu.dump.listing import read_instruction
from ratchet.tpu.machine.emitter import Emitter, Untranslatable
from ratchet.tpu.machine.memory import ScalarMemory
from ratchet.tpu.machine.rules import RULES
from ratchet.tpu.machine.words import Arithmetic, NotExecutable, Unknown, UnknownSteers

WORDS = st.one_of(
    st.integers(scalar.LEAST, scalar.MOST),
    st.integers(-40, 40),
    st.floats(width=32).map(scalar.float_word),
    st.floats(-(2.0**-125), 2.0**-125, width=32).map(scalar.float_word),
)

DEFINED: dict[str, Callable[..., object]] = {
    "sadd.s32": scalar.add,
    "ssub.s32": scalar.subtract,
    "smul.u32": scalar.multiply,
    "smulhi.u32": scalar.multiply_high,
    "sc.u32": scalar.carry,
    "sshll.u32": scalar.shift_left,
    "sshllo.u32": scalar.shift_left_ones,
    "sshrl.u32": scalar.shift_right_logical,
    "sshra.s32": scalar.shift_right_arithmetic,
    "smin.u32": scalar.minimum_unsigned,
    "smax.u32": scalar.maximum_unsigned,
    "smin.s32": min,
    "smax.s32": max,
    "sclz": scalar.leading_zeros,
    "scvt.s32.f32": scalar.float_from_integer,
    "scvt.f32.s32": scalar.float_to_integer,
    "sfloor.f32": scalar.float_floor,
    "sceil.f32": scalar.float_ceil,
    "sadd.f32": scalar.float_add,
    "ssub.f32": scalar.float_subtract,
    "smul.f32": scalar.float_multiply,
    "smin.f32": scalar.float_minimum,
    "smax.f32": scalar.float_maximum,
    **{f"scmp.{name}.s32.totalorder": relation for name, relation in scalar.RELATIONS.items()},
    **{f"scmp.{name}.u32.totalorder": partial(scalar.compare_unsigned, name) for name in scalar.RELATIONS},
    **{f"scmp.{name}.f32.partialorder": partial(scalar.compare_float, name) for name in scalar.RELATIONS},
}
ONE_OPERAND = ("sclz", "scvt.s32.f32", "scvt.f32.s32", "sfloor.f32", "sceil.f32")


def left(*texts: str, **known: object) -> dict[str, object]:
    """Registers behind one bundle of these instructions."""
    lines, _ = Emitter(Columns(flat([])), {}, {}, RULES).bundle(tuple(map(read_instruction, texts)), 0, 0)
    scope: dict[str, object] = {"X": Arithmetic, **known}
    exec("\n".join(lines), scope)
    return scope


def behind(*bundles: tuple[str, ...]) -> dict[str, object]:
    """Registers behind several bundles of one block."""
    emitter, lines = Emitter(Columns(flat([])), {}, {}, RULES), list[str]()
    emitter.begin_block(0)
    for address, texts in enumerate(bundles):
        lines += emitter.bundle(tuple(map(read_instruction, texts)), address, address)[0]
    scope: dict[str, object] = {"X": Arithmetic}
    exec("\n".join(lines), scope)
    return scope


SPILL = ("%s7_s1 = smov 9", "%s8_s1 = smov %s7_s1")
"""As where scalars are spilled to HBM: what a bundle makes gets a second name in it."""


@pytest.mark.parametrize("name", ["s7", "s8"])
def test_a_value_may_get_a_second_name_in_its_bundle(name: str) -> None:
    assert behind(("%s6_s1 = smov 5",), SPILL, (f"%s9_s9 = sadd.s32 %{name}_s1, 1",))["s9"] == 10


@pytest.mark.parametrize("bundles", [
    (("%s6_s1 = smov 5",), ("%s8_s1 = smov %s7_s1",)),
    (("%s6_s1 = smov 5",), ("%s8_s2 = smov %s7_s1",)),
    (("%s6_s1 = smov 5",), ("%s7_s1 = smov 9", "%s8_s2 = smov %s7_s1")),
    (("%s6_s1 = smov 5",), SPILL, ("%s9_s9 = sadd.s32 %s6_s1, 1",)),
])  # fmt: skip
def test_a_value_that_its_register_does_not_hold_is_refused(bundles: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(Untranslatable, match="but holds"):
        behind(*bundles)


def computed(opcode: str, operands: list[str], **registers: object) -> object:
    """What the generated code of one instruction leaves in register 9."""
    dest = "%p9_p9" if opcode.startswith(("scmp", "sc.")) else "%s9_s9"
    return left(f"{dest} = {opcode} {', '.join(operands)}", **registers)[dest[-2:]]


@pytest.mark.parametrize("opcode", DEFINED)
@given(a=WORDS, b=WORDS)
@example(a=1, b=32)
@example(a=-1, b=32)
@example(a=7, b=-1)
@example(a=scalar.LEAST, b=31)
@example(a=1, b=scalar.float_word(1.0))  # a denormal
def test_generated_code_computes_what_the_scalar_unit_does(opcode: str, a: int, b: int) -> None:
    words = (a,) if opcode in ONE_OPERAND else (a, b)
    wanted = DEFINED[opcode](*words)
    in_registers = computed(opcode, ["%s1_s1", "%s2_s2"][: len(words)], s1=a, s2=b)
    as_immediates = computed(opcode, ["%s1_s1", str(b)][: len(words)], s1=a)
    for found in (in_registers, as_immediates):
        if isinstance(wanted, scalar.Undefined):
            assert isinstance(found, Unknown)
            assert (found.origin, found.given) == (wanted.what, True)
        else:
            assert found == wanted


@given(a=WORDS, b=WORDS)
def test_a_division_gives_the_quotient_first_and_then_the_remainder(a: int, b: int) -> None:
    results = Arithmetic.divide(a, b)
    for wanted in (scalar.divide_unsigned(a, b), scalar.remainder_unsigned(a, b)):
        found = Arithmetic.popped(results)
        assert found.origin == "a division by zero" if not b else found == wanted
    with pytest.raises(NotExecutable, match="popped twice"):
        Arithmetic.popped(results)


def test_only_a_division_has_results_to_pop_and_they_are_no_word() -> None:
    with pytest.raises(NotExecutable, match="no result of a division"):
        Arithmetic.popped(Unknown("a vector result"))
    with pytest.raises(UnknownSteers, match="the results of a division"):
        bool(Arithmetic.divide(7, 2) + 1)


@pytest.mark.parametrize("opcode", [opcode for opcode in DEFINED if not opcode.startswith("scmp")])
def test_unknown_passes_through(opcode: str) -> None:
    unknown = Unknown("an operand")
    count = 1 if opcode in ONE_OPERAND else 2
    assert computed(opcode, ["%s1_s1", "%s2_s2"][:count], s1=unknown, s2=3) is unknown


def test_a_word_that_nothing_wrote_steers_nothing_and_one_of_the_runtime_is_no_word() -> None:
    memory = ScalarMemory(fixed=[3])
    memory[7] = 5
    assert memory[7] == 5
    beyond = memory[8]
    assert isinstance(beyond, Unknown)
    with pytest.raises(UnknownSteers, match="scalar memory word 8, never written"):
        bool(beyond)
    with pytest.raises(KeyError):
        memory[3]
    assert list(memory) == [7]


# --- what the caller leaves in registers, beside what the first bundle puts there ---

DEAD = "%s83_s2 = inlined_call_operand.hbm [shape: bf16[8,128], index: 2, kind: input, shape index: {}]"
CONSTANT = "%s49_s2 = smov 7"
LIVE = "%s81_s0 = inlined_call_operand.hbm [shape: bf16[8,128], index: 0, kind: input, shape index: {}]"
READS = "%s41_s3 = sadd.s32 %s81_s0, 1"


@pytest.mark.parametrize("texts", [(CONSTANT, DEAD), (DEAD, CONSTANT)])
def test_a_constant_takes_the_register_of_an_argument_that_nobody_reads(texts: tuple[str, ...]) -> None:
    assert left(*texts, A=[100, 200, 300])["s2"] == 7


@pytest.mark.parametrize("texts", [(READS, LIVE), (LIVE, READS)])
def test_an_argument_is_there_before_the_first_bundle(texts: tuple[str, ...]) -> None:
    scope = left(*texts, A=[100, 200, 300])
    assert (scope["s0"], scope["s3"]) == (100, 101)


def test_a_copy_may_begin_where_an_argument_points() -> None:
    argument = read_instruction(LIVE)
    assert Emitter(Columns(flat([(argument,)])), {}, {}, RULES).pointers == {argument.makes: "hbm"}


def test_a_pointer_that_is_moved_or_spilled_points_to_the_same_memory() -> None:
    bundles = [
        ["%s1_s1 = int_to_ptr.hbm [resolvable:$true] %s0_s0", "%s2_s2 = int_to_ptr.vmem [resolvable:$true] %s0_s0"],
        ["%3 = sst [smem:[#allocation7_spill]] %s1_s1", "%4 = sst [smem:[#allocation8_spill]] %s1_s1"],
        ["%5 = sst [smem:[#allocation8_spill]] %s2_s2", "%s6_s3 = sld [smem:[#allocation7_spill]]"],
        ["%s7_s4 = smov %s6_s3", "%s8_s5 = sld [smem:[#allocation8_spill]]", "%s9_s6 = smov (%p1_p1), %s6_s3"],
        ["%10 = dma.general /*src=*/%s7_s4, /*size_in_granules=*/16, /*dst=*/%s8_s5"],
    ]
    columns = Columns(flat([tuple(map(read_instruction, texts)) for texts in bundles]))
    pointers = Emitter(columns, {}, {}, RULES).pointers
    assert {name: pointers.get(name) for name in ("s6", "s7", "s8", "s9")} == {
        "s6": "hbm", "s7": "hbm", "s8": None, "s9": None,
    }  # fmt: skip
