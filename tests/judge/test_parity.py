"""The comparison with the exact reference: what passes is as good as the dtypes allow, and nothing else passes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.judge.parity import compare, fitted, half_unit, insensitive, rounded, row_rms
from ratchet.values.status import Status

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(7)
EXACT = RNG.normal(size=(64, 128))
H = half_unit(EXACT, BF16)
NONE = np.zeros(EXACT.shape)
COARSE = np.full(EXACT.shape, 2.0**-6)
"""A loss well above the rounding, so that what passes is decided by it."""


def wide(off):
    """``EXACT`` off by so many losses of ``COARSE``, in a dtype that rounds nothing of it."""
    return (EXACT + off * COARSE).astype(np.float64)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_the_exact_value_rounded_once_reaches_half_of_the_limit(dtype):
    for exact in (EXACT, EXACT * 1e-3, EXACT * 100, np.round(EXACT * 4) / 4):
        found = compare(rounded(exact, dtype), exact, NONE)
        assert found.status is Status.PASS
        assert found.worst <= 0.5


@settings(max_examples=200)
@given(value=st.floats(-3e38, 3e38), dtype=st.sampled_from([BF16, np.float32]))
def test_half_a_unit_bounds_a_rounding_everywhere(value, dtype):
    exact = np.array([value])
    with np.errstate(over="ignore"):
        off = abs(float(rounded(exact, dtype)[0]) - value)
    assert not np.isfinite(off) or off <= half_unit(exact, dtype)[0]


def test_a_row_with_one_large_element_is_judged_element_by_element():
    exact = EXACT.copy()
    exact[:, 3] *= 1000
    assert compare(rounded(exact, BF16), exact, NONE).worst <= 0.5
    got = rounded(exact, BF16)
    got[9, 40] += 0.05
    assert compare(got, exact, NONE).status is Status.WRONG_VALUES


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x * 0,
        lambda x: x * 1.05,
        lambda x: x * 1.005,
        lambda x: x + 0.05,
        lambda x: -x,
        lambda x: np.roll(x, 1, axis=0),
        lambda x: np.roll(x, 1, axis=1),
        lambda x: x.astype(ml_dtypes.float8_e4m3fn).astype(np.float64),
        lambda x: np.round(x * 16) / 16,
        lambda x: np.concatenate([x[:-1], x[:1]]),  # one row of 64
        lambda x: (x / 1.3).astype(BF16).astype(np.float64) * 1.3,  # a gain after a rounding
    ],
    ids="zeros scaled half-a-percent shifted negated rows columns float8 fixed one-row twice-rounded".split(),
)
def test_what_is_wrong_is_wrong(spoil):
    found = compare(spoil(EXACT).astype(BF16), EXACT, NONE)
    assert found.status is Status.WRONG_VALUES
    assert found.worst > 1.1
    assert "got" in found.message
    assert "wanted" in found.message


def spread(where, off):
    errors = np.zeros(EXACT.shape)
    errors[where] = off
    return errors


SIGNS = RNG.choice([-1.0, 1.0], EXACT.shape)
LINE = {
    "element": (spread((7, 9), 15.0), spread((7, 9), 17.0)),
    "row": (spread((7,), 4.0) * SIGNS, spread((7,), 4.4) * SIGNS),
    "slice of axis 0": (spread((slice(None), 5), 3.0) * SIGNS, None),
    "whole": (SIGNS * 1.9, SIGNS * 2.2),
    "gain": (EXACT / np.mean(np.abs(EXACT)) * 0.9, EXACT / np.mean(np.abs(EXACT)) * 1.5),
}


@pytest.mark.parametrize("criterion", LINE)
def test_the_line_is_where_it_is_said_to_be(criterion):
    """Fails if a constant of the allowance changes: each of these is a little on either side of one."""
    below, above = LINE[criterion]
    assert compare(wide(below), EXACT, COARSE).worst <= 1
    if above is not None:
        found = compare(wide(above), EXACT, COARSE)
        assert found.status is Status.WRONG_VALUES
        assert found.criterion == criterion
        assert 1 < found.worst < 1.35


def test_the_line_beside_the_rounding_is_where_it_is_said_to_be():
    """What a kernel loses before its last rounding: nothing worth six bits more is asked, two are too few."""
    off = RNG.uniform(-1, 1, EXACT.shape) * H
    assert compare((EXACT + off / 16).astype(BF16), EXACT, NONE).worst < 0.6
    assert compare((EXACT + off / 2).astype(BF16), EXACT, NONE).worst > 1
    exact = np.random.default_rng(3).normal(size=(512, 512))  # a common factor: four bits more
    for shift, passes in ((2.0**-13, True), (2.0**-11, False)):
        found = compare((exact * (1 + shift)).astype(BF16), exact, np.zeros(exact.shape))
        assert (found.worst <= 1) is passes
        assert passes or found.criterion.startswith("gain")


def test_one_wrong_element_is_found_and_named():
    got = rounded(EXACT, BF16)
    got[17, 5] += 1
    found = compare(got, EXACT, NONE)
    assert found.status is Status.WRONG_VALUES
    assert "[17, 5]" in found.message
    assert found.message.startswith("one element is off, ")
    assert "times what is allowed" in found.message


def test_what_was_got_and_wanted_differ_in_what_is_shown():
    exact = np.full((8, 128), 0.00999017)
    got = exact.astype(np.float32)
    got[1, 2] += np.float32(1e-8)
    message = compare(got, exact, np.full(exact.shape, 1e-12)).message
    first, second = (message.split(word)[1].split(",")[0] for word in ("got ", "wanted "))
    assert float(first) != float(second)


def test_one_head_that_is_off_by_a_factor_is_named():
    exact = np.random.default_rng(1).normal(size=(16, 128, 64))
    loss = np.full(exact.shape, 2.0**-9)
    got = exact.copy()
    got[11] *= 1.008
    found = compare(got.astype(BF16), exact, loss)
    assert found.status is Status.WRONG_VALUES
    assert "the slice at 11 of axis 0" in found.message


def test_a_small_row_beside_large_ones_has_its_own_scale():
    exact = EXACT.copy()
    exact[3] *= 1e-6
    got = rounded(exact, BF16)
    got[3] = 0
    assert compare(got, exact, NONE).status is Status.WRONG_VALUES


def test_what_cancels_is_judged_by_its_loss():
    exact, loss = EXACT.copy(), NONE.copy()
    exact[5, 5], loss[5, 5] = 0.0, 1e-6
    got = exact.astype(np.float32)
    got[5, 5] = 3e-6
    assert compare(got, exact, loss).status is Status.PASS
    assert compare(got, exact, NONE).status is Status.WRONG_VALUES


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass(bad):
    got = rounded(EXACT, BF16)
    got[63, 127] = bad
    found = compare(got, EXACT, COARSE)
    assert found.status is Status.NOT_FINITE
    assert "1 of 8192" in found.message
    assert "[63, 127]" in found.message


def test_where_the_reference_is_not_finite_neither_has_to_be_the_kernel():
    exact = EXACT.copy()
    exact[5, 5], exact[6, 6] = np.nan, np.inf
    got = rounded(exact, BF16)
    assert compare(got, exact, NONE).status is Status.PASS
    got[5, 5] = 0
    assert compare(got, exact, NONE).status is Status.WRONG_VALUES


def test_integers_have_to_be_exact_unless_a_rounding_decides():
    exact = np.arange(64).reshape(8, 8)
    got, loss = exact.astype(np.int32), np.zeros((8, 8))
    assert compare(got, exact, loss).worst == 0
    got[2, 2] += 1
    assert compare(got, exact, loss).status is Status.WRONG_VALUES
    loss[2, 2] = 1.0
    assert compare(got, exact, loss).status is Status.PASS
    got[2, 2] += 1
    assert compare(got, exact, loss).status is Status.WRONG_VALUES


def test_booleans_are_integers():
    exact = EXACT > 0
    assert compare(exact, exact, NONE).status is Status.PASS
    assert compare(~exact, exact, NONE).status is Status.WRONG_VALUES


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4), (0, 4)])
def test_any_number_of_axes(shape):
    exact = RNG.normal(size=shape)
    got, loss = exact.astype(np.float32), np.zeros(shape)
    assert compare(got, exact, loss).status is Status.PASS
    if exact.size:
        assert compare((got + 1).astype(np.float32), exact, loss).status is Status.WRONG_VALUES


@settings(max_examples=50)
@given(power=st.integers(-20, 20), seed=st.integers(0, 1000))
def test_a_common_power_of_two_changes_nothing(power, seed):
    exact = np.random.default_rng(seed).normal(size=(16, 32))
    loss = np.abs(exact) * 2.0**-22
    worst = []
    for factor in (1.0, 2.0**power):
        got = (exact * factor * (1 + 1e-4)).astype(np.float32)
        worst.append(compare(got, exact * factor, loss * factor).worst)
    assert worst[0] > 1
    assert worst[1] == pytest.approx(worst[0], rel=1e-6)


def test_the_loss_is_widened_for_a_native_reference_that_loses_more():
    native = rounded(EXACT, BF16)
    loss, times = fitted(native, EXACT, NONE)
    assert times == 1
    assert (loss == NONE).all()
    far = wide(SIGNS * 3).astype(np.float32)
    loss, times = fitted(far, EXACT, COARSE)
    assert 1 < times < 8
    assert compare(far, EXACT, loss).worst <= 0.5
    assert fitted(EXACT * 1.5, EXACT, COARSE)[1] > 8


def test_nothing_is_asked_where_the_native_reference_overflows():
    native = rounded(EXACT, BF16)
    native[3] = np.nan
    loss, times = fitted(native, EXACT, COARSE)
    assert times == 1
    assert compare(native, EXACT, loss).status is Status.PASS
    got = native.copy()
    got[4, 0] = np.nan
    assert compare(got, EXACT, loss).status is Status.NOT_FINITE


def test_rows_that_stand_still_are_counted():
    before, after = EXACT, EXACT.copy()
    after[10:20] *= 30
    still, moved = before.astype(BF16), after.astype(BF16)
    assert insensitive(still, moved, before, after, NONE) == 0
    assert insensitive(still, still, before, after, NONE) == 10
    half = np.where(np.arange(64)[:, None] < 15, moved, still).astype(BF16)
    assert insensitive(still, half, before, after, NONE) == 5


def test_row_rms_keeps_the_axis():
    assert row_rms(np.array([[3.0, 4.0]])).tolist() == [[np.sqrt(12.5)]]
    assert row_rms(np.array(-2.0)) == 2.0
