"""The comparison with the exact reference: what passes is as good as the dtypes allow, and nothing else passes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.exam.problem.deviations import half_unit, rounded, row_rms
from ratchet.exam.problem.parity import ENOUGH, compare, counted, insensitive
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


def test_the_line_beside_the_rounding_is_where_it_is_said_to_be():
    """What a kernel loses before its last rounding: nothing worth six bits more is asked, two are too few."""
    off = RNG.uniform(-1, 1, EXACT.shape) * H
    assert compare((EXACT + off / 16).astype(BF16), EXACT, NONE).worst < 0.6
    assert compare((EXACT + off / 2).astype(BF16), EXACT, NONE).worst > 1
    exact = np.random.default_rng(3).normal(size=(512, 512))  # a common factor: four bits more
    for shift, right in ((2.0**-13, True), (2.0**-11, False)):
        found = compare((exact * (1 + shift)).astype(BF16), exact, np.zeros(exact.shape))
        assert (found.worst <= 1) is right
        assert right or found.criterion.startswith("gain")


def test_one_wrong_element_is_found_and_named():
    got = rounded(EXACT, BF16)
    got[17, 5] += 1
    found = compare(got, EXACT, NONE)
    assert found.status is Status.WRONG_VALUES
    assert "[17, 5]" in found.message
    assert found.message.startswith("one element is off, ")
    assert "times what is allowed" in found.message


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
    got[17, 5], got[63, 127] = bad, np.inf
    found = compare(got, EXACT, COARSE)
    assert found.status is Status.NOT_FINITE
    said = f"2 of 8192 elements are {bad} where the reference is finite, the first at [17, 5]"
    assert found.message == said


def test_where_the_reference_is_not_finite_neither_has_to_be_the_kernel():
    exact = EXACT.copy()
    exact[5, 5], exact[6, 6] = np.nan, np.inf
    got = rounded(exact, BF16)
    assert compare(got, exact, NONE).status is Status.PASS
    got[5, 5] = 0
    assert compare(got, exact, NONE).status is Status.WRONG_VALUES


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


def ratio(off, exact=EXACT, loss=COARSE):
    """The largest error over its allowance, and what it is of, where nothing is rounded."""
    found = compare((exact + off * loss).astype(np.float64), exact, loss)
    return found.criterion, found.worst


def test_every_allowance_is_the_formula_that_is_written_down():
    """Signs as they come, so that no common factor is meant; the loss is 2**-6 everywhere."""
    size, row = EXACT.size, EXACT.shape[1]
    assert ratio(spread((7, 9), 40.0)) == ("element", pytest.approx(40 / 16))
    assert ratio(spread((7,), 9.0) * SIGNS) == ("row", pytest.approx(9 / np.hypot(4, 16 / np.sqrt(row))))
    assert ratio(SIGNS * 6) == ("whole", pytest.approx(6 / np.hypot(2, 16 / np.sqrt(size))))
    off = np.sign(EXACT)
    along, chance = np.sum(np.abs(EXACT)) * COARSE[0, 0], np.sqrt(np.sum(np.square(EXACT))) * COARSE[0, 0]
    assert ratio(2 * off) == ("gain", pytest.approx(2 * along / (1.5 * along + 4 * 2 * chance), rel=1e-3))


def test_a_comparison_says_how_far_off_the_whole_is():
    exact = np.full((4, 4), 2.0)
    got = np.full((4, 4), 2.5)
    found = compare(got, exact, np.full((4, 4), 0.25))
    assert (found.rms, found.floor_rms) == (pytest.approx(0.25), pytest.approx(0.125))
    assert found.status is Status.PASS
    coarse = compare(got.astype(BF16), exact, np.zeros((4, 4)))
    assert coarse.floor_rms == pytest.approx(2.0**-8 / np.sqrt(3), rel=1e-6)


def test_the_limit_itself_passes():
    exact, loss = np.zeros((1,)), np.ones((1,))
    assert compare(np.full((1,), 0.0), exact, loss).worst == 0
    elements = np.zeros((1, 4096))
    at = elements.copy()
    at[0, 0] = 16.0
    found = compare(at, elements, np.ones_like(elements))
    assert found.worst <= 1
    assert found.status is Status.PASS


def test_an_integer_may_be_off_by_what_a_rounding_before_it_moves():
    exact = np.zeros((1, 6))
    loss = np.array([[0.0, 0.49, 0.5, 1.4, 1.5, 4.0]])
    for off, worst in ((1, np.inf), (2, np.inf)):
        got = np.full((1, 6), off, np.int32)
        assert compare(got, exact, loss).worst == worst
    allowed = np.array([[0, 0, 1, 1, 2, 4]], np.int32)
    assert compare(allowed, exact, loss).status is Status.PASS
    for place in range(6):
        over = allowed.copy()
        over[0, place] += 1
        found = compare(over, exact, loss)
        assert found.status is Status.WRONG_VALUES
        assert f"[0, {place}]" in found.message
        assert found.message.startswith("an integer is wrong, ")
    far = compare(np.array([[0, 0, 0, 0, 0, 40]], np.int32), exact, loss)
    assert far.worst == 10
    beyond = compare(np.array([[1, 0, 0, 0, 0, 0]], np.int32), exact, loss)
    assert "beyond all of what is allowed" in beyond.message


@pytest.mark.parametrize(
    ("move", "follow", "counted"),
    [(80, 0.0, 0), (80.5, 0.0, 1), (81, 0.09, 1), (81, 0.11, 0), (1000, 0.09, 1), (1000, 0.1, 0)],
)
def test_a_row_stands_still_that_moves_less_than_a_tenth_of_what_it_has_to(move, follow, counted):
    """And it has to by eighty times what its precision is."""
    before, loss = np.zeros((1, 8)), np.ones((1, 8))
    after = before + move
    assert insensitive(before, before + move * follow, before, after, loss) == counted


def test_integers_and_what_is_not_finite_do_not_stand_still():
    before = np.zeros((2, 8))
    after = before + 1000.0
    assert insensitive(before.astype(np.int32), before.astype(np.int32), before, after, before + 1) == 0
    after[0] = np.inf
    assert insensitive(before, before, before, after, before + 1) == 1
    loss = before + np.array([[1.0], [np.inf]])
    assert insensitive(before, before, before, before + 1000.0, loss) == 2
    after = before + np.array([[np.nan], [0.0]])
    assert insensitive(before, after, before, before + 1000.0, loss) == 1


def test_a_common_factor_needs_as_many_elements_as_tell_it_from_chance():
    for size, counts in ((4095, False), (4096, True)):
        exact = np.random.default_rng(2).normal(size=(size,))
        found = compare(exact + 2 * np.sign(exact) * 2.0**-6, exact, np.full(size, 2.0**-6))
        assert found.criterion == ("gain" if counts else found.criterion)
        assert (found.criterion == "gain") is counts
    few = np.random.default_rng(2).integers(1, 9, size=(8192,)).astype(np.float64)
    assert compare(few + 2 * 2.0**-6, few, np.full(8192, 2.0**-6)).criterion != "gain", "equal ones say it once"
    many = np.random.default_rng(2).integers(1, 999, size=(8192,)).astype(np.float64)
    assert compare(many + 2 * 2.0**-6, many, np.full(8192, 2.0**-6)).criterion == "gain"


def test_one_element_on_the_wrong_side_of_a_rounding():
    """A factor of 1.0004 of few distinct values, of which no sum says anything: each is a half and a bit away."""
    exact = np.random.default_rng(5).choice(np.random.default_rng(4).uniform(0.5, 4, 128), (256, 256))
    found = compare((exact * 1.0004).astype(BF16), exact, np.full(exact.shape, 1e-7))
    assert (found.status, found.criterion) == (Status.WRONG_VALUES, "side")
    assert "one element is rounded to the wrong side" in found.message
    assert compare((exact * (1 + 2.0**-14)).astype(BF16), exact, np.full(exact.shape, 1e-7)).status is Status.PASS
    one = np.ones((64, 64))
    for off, criterion in ((0.12, ""), (0.13, "side")):  # of a half: the exact value is so far from the tie
        spot = one.copy()
        spot[3, 4] += (1 - off) * 2.0**-8
        got = one.astype(BF16)
        got[3, 4] += BF16(2.0**-7)
        found = compare(got, spot, 0 * one)
        assert (found.status is Status.PASS) is not bool(criterion)
        assert found.criterion == (criterion or found.criterion)


def test_where_rows_are_off_together_a_row_is_one_draw():
    off = spread((7,), 7.0)
    assert compare(wide(off), EXACT, COARSE).criterion == "row"
    assert compare(wide(off), EXACT, COARSE, alike=True).status is Status.PASS
    assert compare(wide(spread((7,), 9.0)), EXACT, COARSE, alike=True).criterion == "row"
    assert compare(wide(SIGNS * 4.5), EXACT, COARSE, alike=True).criterion == "whole"
    assert compare(wide(EXACT / np.mean(np.abs(EXACT)) * 1.6), EXACT, COARSE, alike=True).status is Status.PASS
    assert compare(wide(spread((7, 9), 17.0)), EXACT, COARSE, alike=True).criterion == "element"


def test_what_is_empty_and_what_is_infinite_asks_nothing():
    empty = compare(np.zeros((0, 4)), np.zeros((0, 4)), np.zeros((0, 4)))
    assert (empty.status, empty.worst, empty.message) == (Status.PASS, 0.0, "it has no elements")
    exact, loss = EXACT.copy(), NONE.copy()
    loss[3, 3], exact[4, 4], loss[4, 4] = np.inf, np.inf, np.inf
    got = rounded(EXACT, BF16)
    got[3, 3], got[4, 4] = np.nan, 7
    assert compare(got, exact, loss).status is Status.PASS


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
def test_where_the_answer_is_zero_nothing_but_zero_passes(dtype):
    """A rectifier that leaves half of what it cuts off: no rounding makes that of a zero."""
    exact = np.maximum(rounded(EXACT, dtype).astype(np.float64), 0)
    got = rounded(exact, dtype)
    assert compare(got, exact, NONE).worst == 0
    for left in (2.0**-9, 2.0**-13):
        wrong = np.where(exact == 0, np.float32(left), got.astype(np.float32)).astype(dtype)
        found = compare(wrong, exact, NONE)
        assert found.status is Status.WRONG_VALUES
        assert found.worst > 10
    assert (
        compare(np.where(exact == 0, np.float32(1e-6), 0).astype(dtype) + got, exact, NONE + 1e-6).status is Status.PASS
    )


# --- where each line is, by the formulas of the module's first lines, losses and half units beside each other ---

UNIT = 2.0**-23
"""Of float32 between one and two."""
HALF = UNIT / 2
GRID = 1 + np.random.default_rng(5).permutation(2**18)[: 256 * 256].reshape(256, 256) * UNIT * 32
"""Distinct float32 values between one and two."""
PLUS = np.random.default_rng(6).choice([-1.0, 1.0], GRID.shape)


def gain_allowed(loss: float, apart: np.ndarray, exact: np.ndarray) -> float:
    """What a common factor may be, where each element is ``apart`` from the rounded exact value."""
    return np.sum((1.5 * loss + HALF / 16) * np.abs(exact)) + 4 * np.sqrt(np.sum(np.square(apart * exact)))


def test_a_common_factor_may_be_off_by_a_part_of_a_rounding():
    """A quarter of the elements is one unit too large, where the loss is a quarter of a rounding."""
    apart = np.where(np.arange(GRID.size).reshape(GRID.shape) % 4 == 0, UNIT, 0.0)
    found = compare((GRID + apart).astype(np.float32), GRID, np.full(GRID.shape, HALF / 4))
    assert found.criterion == "gain"
    assert found.worst == pytest.approx(np.sum(apart * GRID) / gain_allowed(HALF / 4, apart, GRID))


@pytest.mark.parametrize(
    ("loss", "error", "counts"),
    [(1 / 16, 1.2, False), (1 / 16, 1.3, True), (1 / 8, 1.2, True), (1 / 8.5, 1.2, False)],
)
def test_a_tie_that_a_loss_decides_says_nothing_of_a_common_factor(loss, error, counts):
    """Each is rounded the wrong way, off by ``error`` half units: up to one and four losses it may have been a tie."""
    exact = GRID + (2 - error) * HALF
    found = compare((GRID + UNIT).astype(np.float32), exact, np.full(GRID.shape, loss * HALF))
    apart = np.full(GRID.shape, UNIT)
    if counts:
        assert found.criterion == "gain"
        assert found.worst == pytest.approx(np.sum(apart * exact) / gain_allowed(loss * HALF, apart, exact))
    else:
        assert found.criterion == "whole"
        assert found.worst == pytest.approx((error - 1) / (loss + 1 / 64) / np.hypot(2, 16 / 256), rel=1e-6)


def test_the_rounding_and_the_loss_of_an_element_are_both_allowed():
    got = GRID.astype(np.float32)
    got[7, 9] += 6 * UNIT
    found = compare(got, GRID, np.full(GRID.shape, HALF / 4))
    beyond_its_rounding = (12 - 1) / (1 / 8 + 16 / 4)
    assert (found.criterion, found.worst) == ("element", pytest.approx(beyond_its_rounding))


def test_an_excess_is_measured_by_the_loss_and_a_64th_of_a_rounding():
    got = (GRID + PLUS * UNIT).astype(np.float32)
    found = compare(got, GRID, np.full(GRID.shape, HALF / 4))
    assert found.criterion == "whole"
    assert found.worst == pytest.approx(1 / (1 / 4 + 1 / 64) / np.hypot(2, 16 / 256))


CUBE = np.random.default_rng(8).normal(size=(8, 16, 32))
CUBE_SIGNS = np.random.default_rng(9).choice([-1.0, 1.0], CUBE.shape)


@pytest.mark.parametrize(
    ("where", "criterion", "count", "said"),
    [
        ((2, 3), "row", 32, "a row is off as a whole, "),
        ((2,), "slice of axis 0", 512, "the slice at 2 of axis 0 is off as a whole, "),
        ((slice(None), 3), "slice of axis 1", 256, "the slice at 3 of axis 1 is off as a whole, "),
    ],
)
def test_a_part_of_an_output_is_off(where, criterion, count, said):
    errors = np.zeros(CUBE.shape)
    errors[where] = 9.0
    found = compare(CUBE + errors * CUBE_SIGNS * 2.0**-6, CUBE, np.full(CUBE.shape, 2.0**-6))
    assert (found.criterion, found.worst) == (criterion, pytest.approx(9 / np.hypot(4, 16 / np.sqrt(count))))
    assert found.message.startswith(said)
    assert "; [2, 3, " in found.message or criterion != "row"


def test_what_is_at_one_place_of_every_row_is_no_part():
    errors = np.zeros(CUBE.shape)
    errors[..., 5] = 9.0
    found = compare(CUBE + errors * CUBE_SIGNS * 2.0**-6, CUBE, np.full(CUBE.shape, 2.0**-6))
    assert (found.criterion, found.worst) == ("whole", pytest.approx(9 / np.sqrt(32) / np.hypot(2, 16 / 64)))


def test_an_element_that_is_off_is_named_before_its_row():
    """Two elements, one and a half times too far: their row is off by more, and so is the small whole."""
    got = np.zeros((2, 4))
    got[1, 1:3] = 24.0
    found = compare(got, np.zeros((2, 4)), np.ones((2, 4)))
    assert found.criterion == "element"
    assert found.worst == pytest.approx(24 / np.sqrt(4) / np.hypot(2, 16 / np.sqrt(8)))


def normal(*shape):
    return np.random.default_rng(11).normal(size=shape)


@pytest.mark.parametrize(
    ("shape", "where", "criterion"),
    [
        ((4, 4096), (1,), "gain of axis 0"),
        ((4, 2048), (1,), "row"),
        ((512, 2, 64), (slice(None), 1), "gain of axis 1"),
        ((4096,), (), "gain"),
    ],
)
def test_a_common_factor_of_a_part_needs_as_many_elements(shape, where, criterion):
    exact = normal(*shape)
    errors = np.zeros(shape)
    errors[where] = 2.2
    found = compare(exact + errors * np.sign(exact) * 2.0**-6, exact, np.full(shape, 2.0**-6))
    assert found.criterion == criterion
    whole, _, axis = criterion.partition(" of axis ")
    part = f"the slice at 1 of axis {axis}" if axis else "the output"
    assert found.message.startswith(f"{part} is off by a common factor, ") == (whole == "gain")


def test_errors_beside_a_reference_of_zeros_have_a_size():
    found = compare(np.full((4, 4), 0.5), np.zeros((4, 4)), np.ones((4, 4)))
    assert 1e300 < found.rms < np.inf


@pytest.mark.parametrize(
    ("loss", "error", "worst"), [(0.5, 2, 4.0), (0.9, 7, 7 / 0.9), (0.3, 1, np.inf), (0.2, 1, np.inf), (2.0, 3, 1.5)]
)
def test_by_how_much_an_integer_is_off(loss, error, worst):
    assert compare(np.array([error], np.int32), np.zeros(1), np.array([loss])).worst == pytest.approx(worst)


@pytest.mark.parametrize(
    ("got", "wanted", "shown"),
    [
        (1.5, 1.0, ("1.5", "1")),
        (1.00000001, 1.0, ("1.00000001", "1")),
        (1.234567, 1.0, ("1.23457", "1")),
        (1.0, 1.0, ("1", "1")),
        (0.1, 0.1, ("0.1", "0.1")),
        (0.1234567890123456, 0.1234567890123457, ("0.1234567890123456", "0.1234567890123457")),
        (0.1 + 0.2, 0.3, ("0.30000000000000004", "0.29999999999999999")),
    ],
)
def test_as_many_digits_are_shown_as_it_takes(got, wanted, shown):
    message = compare(np.array([got]), np.array([wanted]), np.full(1, 1e-12)).message
    assert f"[0]: got {shown[0]}, wanted {shown[1]}, where the loss is 1e-12" in message


@pytest.mark.parametrize(("off", "passes"), [(15, True), (17, False)])
def test_a_small_element_may_lose_units_of_float32_of_its_row(off, passes):
    """As ``1 + erf(x)`` does: next to nothing of the row, and all of the element."""
    exact = np.full((4, 1024), 1.0)
    exact[1, 7] = 1e-5
    got = exact.astype(np.float32)
    got[1, 7] += off * 2.0**-23 * row_rms(exact)[1, 0]
    assert (compare(got, exact, np.full(exact.shape, 1e-12)).worst <= 1) is passes
    got = exact.astype(np.float32)
    got[2, 7] = 1 - off * 2.0**-24
    assert compare(got, exact, np.full(exact.shape, 1e-12)).worst > 1, "a large one may not"


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("distinct", "size"), [(64, ENOUGH), (ENOUGH - 7, ENOUGH), (0, 1)])
def test_counts_that_were_kept_compare_as_ones_that_are_made(distinct, size, alike):
    rng = np.random.default_rng(distinct)
    exact = rng.normal(size=ENOUGH) if not distinct else rng.normal(size=distinct)[rng.integers(0, distinct, ENOUGH)]
    exact = exact.reshape(64, -1)
    loss, got = np.full(exact.shape, 1e-4), rounded(exact * (1 + 1e-3), ml_dtypes.bfloat16)
    counts = counted(exact, loss, got.dtype, alike=alike)
    assert counts.size == (0 if alike else size)
    if counts.shape == exact.shape:
        values, times = np.unique(exact, return_counts=True)
        assert (counts == times[np.searchsorted(values, exact)]).all()
    assert compare(got, exact, loss, alike=alike, counts=counts) == compare(got, exact, loss, alike=alike)


@pytest.mark.parametrize(("size", "dtype"), [(ENOUGH - 1, np.float32), (2 * ENOUGH, np.int32), (0, np.float32)])
def test_what_says_nothing_of_a_common_factor_is_not_counted(size, dtype):
    assert not counted(np.ones(size), np.zeros(size), np.dtype(dtype)).size


# --- outputs of several chunks ---

LARGE = np.random.default_rng(7).standard_normal((96, 1000))
LARGE_LOSS = np.abs(LARGE) * 2.0**-12


def _spoiled(value):
    """The last of all elements is another: it is in the last of several chunks."""
    got = rounded(LARGE, BF16)
    got[-1, -1] = value
    return got


ANSWERS = {
    "rounded once": rounded(LARGE, BF16),
    "zeros": np.zeros(LARGE.shape, BF16),
    "one element": _spoiled(9.0),
    "not a number": _spoiled(np.nan),
    "infinite": _spoiled(np.inf),
    "off as a whole, each element a little": (LARGE * (1 + 2.0**-9)).astype(BF16),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_kept_in_float32_compares_as_in_float64(name):
    wide, single = (compare(ANSWERS[name], LARGE.astype(d), LARGE_LOSS.astype(d)) for d in (np.float64, np.float32))
    assert (single.status, single.criterion) == (wide.status, wide.criterion)
    assert (wide.status is Status.PASS) is (name == "rounded once")
    np.testing.assert_allclose(single.worst, wide.worst, rtol=2e-3)


def test_rows_that_stand_still_are_counted_in_all_chunks():
    after = LARGE * 3
    got = rounded(after, BF16)
    for row in (0, 40, 95):
        got[row] = rounded(LARGE[row], BF16)
    assert insensitive(rounded(LARGE, BF16), got, LARGE, after, LARGE_LOSS) == 3
    assert insensitive(rounded(LARGE, BF16), rounded(after, BF16), LARGE, after, LARGE_LOSS) == 0
