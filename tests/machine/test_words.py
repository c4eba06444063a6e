"""Arithmetic of the scalar unit, against NumPy's float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.machine.unknown import Unknown
from ratchet.machine.words import Words

FLOATS = st.floats(width=32)
NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


def same(word: object, value: np.float32) -> bool:
    assert isinstance(word, int)
    found = np.int32(word).view(np.float32)
    return bool(np.isnan(found) and np.isnan(value)) or found == value


@given(name=st.sampled_from(sorted(NUMPY)), a=FLOATS, b=FLOATS)
def test_float_operations_round_as_float32(name: str, a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        assert same(Words.float_operation(name, bits(a), bits(b)), NUMPY[name](np.float32(a), np.float32(b)))


@given(a=FLOATS)
def test_floor_and_ceil(a: float) -> None:
    assert same(Words.rounded("floor", bits(a)), np.floor(np.float32(a)))
    assert same(Words.rounded("ceil", bits(a)), np.ceil(np.float32(a)))


@given(a=FLOATS)
def test_to_integer_goes_towards_zero_and_stays_in_range(a: float) -> None:
    wanted = 0 if math.isnan(a) else math.trunc(max(-(2.0**31), min(2.0**31 - 1, a)))
    assert Words.to_integer(bits(a)) == wanted


@given(a=st.integers(-(2**31), 2**31 - 1))
def test_leading_zeros(a: int) -> None:
    assert Words.leading_zeros(a) == f"{a & 0xFFFFFFFF:032b}".find("1") % 33


@given(a=st.integers(-(2**31), 2**31 - 1), b=st.integers(1, 2**31 - 1))
def test_division_is_unsigned(a: int, b: int) -> None:
    remainder, quotient = Words.divide(a, b)
    assert isinstance(quotient, int)
    assert isinstance(remainder, int)
    assert (quotient & 0xFFFFFFFF) * b + remainder == a & 0xFFFFFFFF


@pytest.mark.parametrize("call", [
    lambda x: Words.float_operation("add", x, 1), lambda x: Words.float_operation("mul", 1, x),
    lambda x: Words.rounded("floor", x), Words.to_integer, Words.float_bits, Words.as_float, Words.leading_zeros,
    lambda x: Words.least(1, x), lambda x: Words.most(x, 1), lambda x: Words.divide(1, x)[0],
])  # fmt: skip
def test_unknown_passes_through(call) -> None:  # type: ignore[no-untyped-def]
    unknown = Unknown("an operand")
    assert call(unknown) is unknown
