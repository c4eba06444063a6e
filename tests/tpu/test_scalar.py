"""The scalar unit's arithmetic against NumPy's, and the answers that cannot be known."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu import scalar
from ratchet.tpu.scalar import DENORMAL, DIVISION_BY_ZERO, LEAST, MOST, NAN_BITS, NOT_AN_INTEGER

WORDS = st.integers(LEAST, MOST)
FLOATS = st.floats(width=32, allow_subnormal=False)
FLOAT_OPERATIONS = {
    scalar.float_add: np.add,
    scalar.float_subtract: np.subtract,
    scalar.float_multiply: np.multiply,
    scalar.float_minimum: np.minimum,
    scalar.float_maximum: np.maximum,
}
SMALLEST_NORMAL = 0x00800000
SMALLEST_DENORMAL = 1


def word(value: float) -> int:
    return int(np.float32(value).view(np.int32))


@given(a=WORDS, b=WORDS)
def test_integers_wrap(a: int, b: int) -> None:
    x, y = np.int64(a), np.int64(b)
    assert scalar.add(a, b) == (x + y).astype(np.int32)
    assert scalar.subtract(a, b) == (x - y).astype(np.int32)
    assert scalar.multiply(a, b) == np.int32(np.array(a * b & 0xFFFFFFFF, np.uint32).view(np.int32))
    assert scalar.unsigned(scalar.multiply_high(a, b)) == (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) >> 32
    assert scalar.carry(a, b) == ((a & 0xFFFFFFFF) + (b & 0xFFFFFFFF) >= 2**32)


@given(a=WORDS, amount=st.integers(0, 31))
def test_shifts_inside_the_word(a: int, amount: int) -> None:
    x = np.int32(a)
    assert scalar.shift_left(a, amount) == x << np.int32(amount)
    assert scalar.shift_right_arithmetic(a, amount) == x >> np.int32(amount)
    assert scalar.shift_right_logical(a, amount) == (x.view(np.uint32) >> np.uint32(amount)).view(np.int32)


@given(a=WORDS, amount=st.one_of(st.integers(32, MOST), st.integers(LEAST, -1)))
def test_a_shift_by_the_width_or_more_leaves_nothing_but_the_sign(a: int, amount: int) -> None:
    assert scalar.shift_left(a, amount) == 0
    assert scalar.shift_right_logical(a, amount) == 0
    assert scalar.shift_right_arithmetic(a, amount) == (-1 if a < 0 else 0)


@given(a=WORDS, b=WORDS.filter(bool))
def test_division(a: int, b: int) -> None:
    x, y = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    quotient, remainder = scalar.divide_unsigned(a, b), scalar.remainder_unsigned(a, b)
    assert isinstance(quotient, int)
    assert isinstance(remainder, int)
    assert (quotient & 0xFFFFFFFF) * y + (remainder & 0xFFFFFFFF) == x
    assert (remainder & 0xFFFFFFFF) < y
    assert scalar.divide_signed(a, b) == scalar.wrap(math.trunc(Fraction(a, b)))
    assert scalar.remainder_signed(a, b) == int(math.fmod(a, b))


def test_the_least_integer_divided_by_minus_one_wraps() -> None:
    assert scalar.divide_signed(LEAST, -1) == LEAST
    assert scalar.remainder_signed(LEAST, -1) == 0


@pytest.mark.parametrize(
    "divide",
    [scalar.divide_unsigned, scalar.remainder_unsigned, scalar.divide_signed, scalar.remainder_signed],
)
@pytest.mark.parametrize("a", [0, 5, -5, LEAST])
def test_division_by_zero_has_no_answer(divide, a: int) -> None:  # type: ignore[no-untyped-def]
    assert divide(a, 0) is DIVISION_BY_ZERO


@given(a=WORDS)
def test_leading_zeros(a: int) -> None:
    assert scalar.leading_zeros(a) == len(f"{a & 0xFFFFFFFF:032b}".partition("1")[0])


@given(a=WORDS, b=WORDS)
def test_unsigned_order(a: int, b: int) -> None:
    assert scalar.minimum_unsigned(a, b) & 0xFFFFFFFF == min(a & 0xFFFFFFFF, b & 0xFFFFFFFF)
    assert scalar.maximum_unsigned(a, b) & 0xFFFFFFFF == max(a & 0xFFFFFFFF, b & 0xFFFFFFFF)
    assert scalar.compare_unsigned("lt", a, b) == ((a & 0xFFFFFFFF) < (b & 0xFFFFFFFF))


@pytest.mark.parametrize("operation", FLOAT_OPERATIONS)
@given(a=FLOATS, b=FLOATS)
def test_float_operations_round_once(operation, a: float, b: float) -> None:  # type: ignore[no-untyped-def]
    with np.errstate(all="ignore"):
        wanted = FLOAT_OPERATIONS[operation](np.float32(a), np.float32(b))
    answer = operation(word(a), word(b))
    if answer is DENORMAL:
        assert abs(wanted) <= 2.0**-126
    elif answer is NAN_BITS:
        assert np.isnan(wanted)
    else:
        assert scalar.as_float(answer) == wanted


@pytest.mark.parametrize("answer", [
    scalar.float_add(SMALLEST_DENORMAL, 0),
    scalar.float_subtract(SMALLEST_NORMAL, SMALLEST_NORMAL + 1),
    scalar.float_multiply(SMALLEST_NORMAL, word(0.5)),
    scalar.float_multiply(SMALLEST_NORMAL - 1, word(1e30)),
    scalar.float_multiply(0x00FFFFFF, word(0.5)),  # rounds to a normal number: before flushing, or after?
    scalar.float_maximum(SMALLEST_DENORMAL, 0),
    scalar.float_ceil(SMALLEST_DENORMAL),
    scalar.float_floor(LEAST + SMALLEST_DENORMAL),
    scalar.compare_float("gt", SMALLEST_DENORMAL, 0),
    scalar.compare_float("eq", SMALLEST_DENORMAL, 2 * SMALLEST_DENORMAL),
])  # fmt: skip
def test_denormals_have_no_answer_where_flushing_matters(answer: object) -> None:
    assert answer is DENORMAL


def test_denormals_have_an_answer_where_flushing_does_not_matter() -> None:
    assert scalar.float_add(SMALLEST_DENORMAL, word(1)) == word(1)
    assert scalar.float_floor(SMALLEST_DENORMAL) == 0
    assert scalar.float_multiply(word(1e-30), word(-1e-30)) == word(-0.0), "smaller than any denormal"
    assert scalar.compare_float("lt", SMALLEST_DENORMAL, word(1)) is True


def test_zeros_keep_their_sign() -> None:
    assert scalar.float_minimum(word(0.0), word(-0.0)) == word(-0.0)
    assert scalar.float_maximum(word(-0.0), word(0.0)) == word(0.0)
    assert scalar.float_floor(word(-0.0)) == scalar.float_ceil(word(-0.5)) == word(-0.0)
    assert scalar.compare_float("eq", word(0.0), word(-0.0)) is True


def test_nan_compares_unequal_and_its_bits_are_unknown() -> None:
    nan = word(math.nan)
    assert [scalar.compare_float(name, nan, nan) for name in scalar.RELATIONS] == [False, True, *[False] * 4]
    assert scalar.float_subtract(word(math.inf), word(math.inf)) is NAN_BITS
    assert scalar.float_minimum(word(1.0), nan) is NAN_BITS


@given(a=FLOATS)
def test_floor_and_ceil(a: float) -> None:
    if not math.isnan(a):
        assert scalar.float_floor(word(a)) == word(np.floor(np.float32(a)))
        assert scalar.float_ceil(word(a)) == word(np.ceil(np.float32(a)))


@given(a=WORDS)
def test_integers_become_the_nearest_float(a: int) -> None:
    assert scalar.float_from_integer(a) == word(float(np.int32(a).astype(np.float32)))


@pytest.mark.parametrize("value", [-(2.0**31), -3.0, -0.0, 7.0, 2.0**31 - 128])
def test_integral_floats_become_integers(value: float) -> None:
    assert scalar.float_to_integer(word(value)) == int(value)


@pytest.mark.parametrize("value", [2.0**31, -(2.0**31) - 256, math.inf, -math.inf, math.nan, 0.5, 1e-45])
def test_other_floats_have_no_integer(value: float) -> None:
    assert scalar.float_to_integer(word(value)) is NOT_AN_INTEGER


def test_a_shift_that_brings_ones_in() -> None:
    assert [scalar.shift_left_ones(0, n) for n in (0, 1, 5, 31)] == [0, 1, 31, MOST]
    assert scalar.shift_left_ones(-2, 1) == -3
    assert [scalar.shift_left_ones(7, n) for n in (32, 33, -1)] == [-1, -1, -1]
