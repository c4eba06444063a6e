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
from ratchet.tpu.machine.arithmetic import Arithmetic
from ratchet.tpu.machine.emitter import Emitter
from ratchet.tpu.machine.rules import RULES
from ratchet.tpu.machine.unknown import Unknown

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


def computed(opcode: str, operands: list[str], **registers: object) -> object:
    """What the generated code of one instruction leaves in register 9."""
    dest = "%p9_p9" if opcode.startswith(("scmp", "sc.")) else "%s9_s9"
    instruction = read_instruction(f"{dest} = {opcode} {', '.join(operands)}")
    lines, _ = Emitter(Columns(flat([])), {}, {}, RULES).bundle((instruction,), 0, 0)
    scope: dict[str, object] = {"X": Arithmetic, **registers}
    exec("\n".join(lines), scope)
    return scope[dest[-2:]]


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


@given(a=WORDS, b=WORDS.filter(bool))
def test_division_gives_quotient_and_remainder_in_that_order(a: int, b: int) -> None:
    results = Arithmetic.divide(a, b)
    assert [results.pop(), results.pop()] == [scalar.divide_unsigned(a, b), scalar.remainder_unsigned(a, b)]


def test_a_division_by_zero_is_unknown_and_no_crash() -> None:
    assert {result.origin for result in Arithmetic.divide(7, 0)} == {"a division by zero"}


@pytest.mark.parametrize("opcode", [opcode for opcode in DEFINED if not opcode.startswith("scmp")])
def test_unknown_passes_through(opcode: str) -> None:
    unknown = Unknown("an operand")
    count = 1 if opcode in ONE_OPERAND else 2
    assert computed(opcode, ["%s1_s1", "%s2_s2"][:count], s1=unknown, s2=3) is unknown
