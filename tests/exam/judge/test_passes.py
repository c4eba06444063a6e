"""What is asked of outputs in less time or memory says what the comparison itself says."""

import ml_dtypes
import numpy as np
import pytest

from ratchet.exam.problem import deviations
from ratchet.exam.problem.deviations import rounded
from ratchet.exam.problem.parity import compare, insensitive, passes
from ratchet.values.status import Status

BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPE = (96, 1000)
EXACT = np.random.default_rng(7).standard_normal(SHAPE)
LOSS = np.abs(EXACT) * 2.0**-12


def _spoiled(value):
    """The last of all elements is another: it is in the last of several chunks."""
    got = rounded(EXACT, BF16)
    got[-1, -1] = value
    return got


ANSWERS = {
    "rounded once": rounded(EXACT, BF16),
    "zeros": np.zeros(SHAPE, BF16),
    "one element": _spoiled(9.0),
    "not a number": _spoiled(np.nan),
    "infinite": _spoiled(np.inf),
    "off as a whole, each element a little": (EXACT * (1 + 2.0**-9)).astype(BF16),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_passes_if_its_comparison_does(name):
    assert EXACT.size > 2 * deviations.CHUNK
    found = compare(ANSWERS[name], EXACT, LOSS)
    assert passes(ANSWERS[name], EXACT, LOSS) is (found.status is Status.PASS)
    assert (found.status is Status.PASS) is (name == "rounded once")


def test_integers_and_nothing_pass_as_they_compare():
    numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
    none = np.zeros(numbers.shape)
    assert passes(numbers, numbers, none)
    assert not passes(numbers + 1, numbers, none)
    assert passes(np.zeros((0, 3), BF16), np.zeros((0, 3)), np.zeros((0, 3)))


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_kept_in_float32_compares_as_in_float64(name):
    wide, single = (compare(ANSWERS[name], EXACT.astype(d), LOSS.astype(d)) for d in (np.float64, np.float32))
    assert (single.status, single.criterion) == (wide.status, wide.criterion)
    np.testing.assert_allclose(single.worst, wide.worst, rtol=2e-3)


def test_rows_that_stand_still_are_counted_in_all_chunks():
    after = EXACT * 3
    got = rounded(after, BF16)
    for row in (0, 40, 95):
        got[row] = rounded(EXACT[row], BF16)
    assert insensitive(rounded(EXACT, BF16), got, EXACT, after, LOSS) == 3
    assert insensitive(rounded(EXACT, BF16), rounded(after, BF16), EXACT, after, LOSS) == 0
