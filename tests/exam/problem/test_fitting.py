"""Losses that are fitted to what the reference in its own dtypes reaches."""

import numpy as np
import pytest

from ratchet.exam.problem.deviations import rounded
from ratchet.exam.problem.fitting import WIDEST, fitted, stable
from ratchet.exam.problem.parity import compare
from ratchet.values.status import Status
from tests.exam.problem.test_parity import BF16, COARSE, EXACT, NONE, SIGNS, H, wide


def test_the_loss_is_widened_for_a_native_reference_that_loses_more():
    native = rounded(EXACT, BF16)
    loss, times, _ = fitted(native, EXACT, NONE)
    assert times == 1
    assert (loss == NONE).all()
    far = wide(SIGNS * 3).astype(np.float32)
    loss, times, _ = fitted(far, EXACT, COARSE)
    assert 1 < times < 8
    assert compare(far, EXACT, loss).worst <= 0.5
    assert fitted(EXACT * 1.5, EXACT, COARSE)[1] > 8


def test_nothing_is_asked_where_the_native_reference_overflows():
    native = rounded(EXACT, BF16)
    native[3] = np.nan
    loss, times, _ = fitted(native, EXACT, COARSE)
    assert times == 1
    assert compare(native, EXACT, loss).status is Status.PASS
    got = native.copy()
    got[4, 0] = np.nan
    assert compare(got, EXACT, loss).status is Status.NOT_FINITE


def test_a_native_reference_is_fitted_until_it_reaches_half():
    loss, times, _ = fitted(wide(SIGNS * 4).astype(np.float64), EXACT, COARSE)
    limit = np.hypot(2, 16 / np.sqrt(EXACT.size))
    assert times == pytest.approx(2 * 4 / limit)
    assert loss == pytest.approx(COARSE * times)
    assert fitted(wide(SIGNS * limit / 2.001), EXACT, COARSE)[1] == 1


@pytest.mark.parametrize(("share", "finite"), [(0.5, True), (0.52, False)])
def test_a_native_reference_that_overflows_on_most_elements_decides_nothing(share, finite):
    native = EXACT.copy()
    native.ravel()[: int(share * EXACT.size)] = np.inf
    loss, times, _ = fitted(native, EXACT, COARSE)
    assert np.isfinite(times) == finite
    assert np.isinf(loss).mean() == (share if finite else 0)


@pytest.mark.parametrize(
    ("native", "loss", "count", "odd"),
    [(3, 0.4, 1, 1), (3, 0.6, 1, 0), (3, 0.5, 1, 0), (4, 1.4, 1, 1), (4, 1.6, 1, 0), (3, 0.4, 2, None)],
)
def test_an_integer_of_the_native_reference_may_be_off_by_its_loss(native, loss, count, odd):
    """Of a thousand one may be another, and nothing is asked there; two decide nothing."""
    exact, losses = np.full(1000, 2), np.zeros(1000)
    given = exact.copy()
    given[:count], losses[:count] = native, loss
    found, times, _ = fitted(given, exact, losses)
    assert np.isfinite(times) == (odd is not None)
    assert np.isinf(found).sum() == (odd or 0)


def test_a_reference_is_fitted_in_four_steps_and_in_no_small_ones():
    """Where a loss of nothing is made larger, nothing comes of it: each step is by what is too much."""
    native = rounded(EXACT, BF16)
    native[1, 1] += np.asarray(4 * 2 * H[1, 1], BF16)
    reached = 2 * compare(native, EXACT, NONE).worst
    assert fitted(native, EXACT, NONE)[1] == pytest.approx(reached**4)
    limit = np.hypot(2, 16 / np.sqrt(EXACT.size))
    assert fitted(wide(SIGNS * limit / 2 * 1.05), EXACT, COARSE)[1] == pytest.approx(1.1)
    empty = np.zeros((0, 4))
    assert fitted(empty, empty, empty)[1] == 1
    assert WIDEST == 8, "more than that is the reference's own fault"


UNSTABLE = np.random.default_rng(3).normal(size=(16, 256))


def test_nothing_is_asked_of_rows_in_which_the_reference_is_not_stable():
    native = UNSTABLE.astype(np.float32)
    native[3, 5], native[7, 0], native[9, 1] = np.nan, np.inf, UNSTABLE[9, 1] + 1
    loss = np.full(UNSTABLE.shape, 1e-7)
    asked = np.isfinite(stable(native, UNSTABLE, loss))
    assert [row for row in range(16) if not asked[row].any()] == [3, 7, 9]
    assert asked[[row for row in range(16) if row not in (3, 7, 9)]].all()
    assert np.array_equal(stable(native, UNSTABLE, loss)[0], loss[0]), "what is left is asked as strictly as ever"


def test_nothing_is_asked_where_the_reference_is_nowhere_stable():
    loss = np.full(UNSTABLE.shape, 1e-7)
    assert np.isinf(stable((UNSTABLE + 1).astype(np.float32), UNSTABLE, loss)).all()
    assert np.isinf(stable(np.full(UNSTABLE.shape, np.nan, np.float32), UNSTABLE, loss)).all()
    assert np.isinf(stable(np.int32([[1, 2]]), np.float64([[5, 5]]), np.zeros((1, 2)))).all()
    assert np.isinf(stable(np.float32(2.0), np.float64(1.0), np.float64(0.0))).all()


def test_rows_whose_reference_is_not_finite_stay_asked():
    exact = UNSTABLE.copy()
    exact[2, 3] = np.inf
    asked = np.isfinite(stable(exact.astype(np.float32), exact, np.full(exact.shape, 1e-7)))
    assert asked.all()
