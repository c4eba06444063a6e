"""The comparison with the exact reference: what passes is as good as the dtypes allow, and nothing else passes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.judge.parity import compare, floor_of, insensitive, row_rms
from ratchet.values.status import Status

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(7)
EXACT = RNG.normal(size=(64, 128))
NATIVE = EXACT.astype(BF16)
NUDGED = (EXACT * (1 + RNG.normal(size=EXACT.shape) * 2.0**-10)).astype(BF16)
FLOOR = floor_of(EXACT, NATIVE, NUDGED)


def test_the_reference_rounded_passes():
    found = compare(NATIVE, EXACT, FLOOR)
    assert found.status is Status.PASS
    assert found.worst < 1
    assert found.rms == pytest.approx(found.floor_rms, rel=1)


def test_another_rounding_passes():
    down = np.nextafter(NATIVE, BF16(0))
    picked = np.where(RNG.random(EXACT.shape) < 0.3, down, NATIVE).astype(BF16)
    assert compare(picked, EXACT, FLOOR).status is Status.PASS


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x * 0,
        lambda x: x * 1.05,
        lambda x: x + 0.05,
        lambda x: -x,
        lambda x: np.roll(x, 1, axis=0),
        lambda x: np.roll(x, 1, axis=1),
        lambda x: x.astype(ml_dtypes.float8_e4m3fn).astype(np.float64),
        lambda x: np.round(x * 16) / 16,
        lambda x: np.concatenate([x[:-1], x[:1]]),  # one row of 64
    ],
    ids=["zeros", "scaled", "shifted", "negated", "rows", "columns", "float8", "fixed", "one-row"],
)
def test_what_is_wrong_is_wrong(spoil):
    found = compare(spoil(EXACT).astype(BF16), EXACT, FLOOR)
    assert found.status is Status.WRONG_VALUES
    assert found.worst > 1
    assert "got" in found.message
    assert "wanted" in found.message


def test_one_wrong_element_is_found_and_named():
    got = NATIVE.copy()
    got[17, 5] += 1
    found = compare(got, EXACT, FLOOR)
    assert found.status is Status.WRONG_VALUES
    assert "[17, 5]" in found.message


def test_a_small_row_beside_large_ones_has_its_own_floor():
    exact = EXACT.copy()
    exact[3] *= 1e-6
    native = exact.astype(BF16)
    floor = floor_of(exact, native, native)
    got = native.copy()
    got[3] = 0
    assert compare(got, exact, floor).status is Status.WRONG_VALUES


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass(bad):
    got = NATIVE.copy()
    got[63, 127] = bad
    found = compare(got, EXACT, FLOOR)
    assert found.status is Status.NOT_FINITE
    assert "1 of 8192" in found.message
    assert "[63, 127]" in found.message


def test_where_the_reference_is_not_finite_neither_has_to_be_the_kernel():
    exact = EXACT.copy()
    exact[5, 5], exact[6, 6] = np.nan, np.inf
    native = exact.astype(BF16)
    floor = floor_of(exact, native, native)
    assert np.isfinite(floor).all()
    assert compare(native, exact, floor).status is Status.PASS
    finite = native.copy()
    finite[5, 5] = 0
    assert compare(finite, exact, floor).status is Status.WRONG_VALUES


def test_integers_have_to_be_exact():
    exact = np.arange(64.0).reshape(8, 8)
    native = exact.astype(np.int32)
    floor = floor_of(exact, native, native)
    assert compare(native, exact, floor).status is Status.PASS
    native[2, 2] += 1
    assert compare(native, exact, floor).status is Status.WRONG_VALUES


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4)])
def test_any_number_of_axes(shape):
    exact = RNG.normal(size=shape)
    native = exact.astype(np.float32)
    floor = floor_of(exact, native, native)
    assert compare(native, exact, floor).status is Status.PASS
    assert compare((native + 1).astype(np.float32), exact, floor).status is Status.WRONG_VALUES


@settings(max_examples=50)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 1000))
def test_a_common_scale_changes_nothing(scale, seed):
    exact = np.random.default_rng(seed).normal(size=(16, 32))
    worst = []
    for factor in (1.0, scale):
        wide = exact * factor
        native = wide.astype(np.float32)
        got = (wide * (1 + 1e-4)).astype(np.float32)
        worst.append(compare(got, wide, floor_of(wide, native, native)).worst)
    assert worst[0] > 1
    assert worst[1] == pytest.approx(worst[0], rel=0.5)


def test_rows_that_stand_still_are_counted():
    before, after = EXACT, EXACT.copy()
    after[10:20] *= 30
    floor = FLOOR
    still = before.astype(BF16)
    moved = after.astype(BF16)
    assert insensitive(still, moved, before, after, floor) == 0
    assert insensitive(still, still, before, after, floor) == 10
    half = np.where(np.arange(64)[:, None] < 15, moved, still).astype(BF16)
    assert insensitive(still, half, before, after, floor) == 5


def test_row_rms_keeps_the_axis():
    assert row_rms(np.array([[3.0, 4.0]])).tolist() == [[np.sqrt(12.5)]]
    assert row_rms(np.array(-2.0)) == 2.0
