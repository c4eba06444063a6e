"""What one element says: half a unit of its dtype, and the value rounded once to it."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.exam.problem.deviations import half_unit, rounded, row_rms

BF16 = ml_dtypes.bfloat16


@settings(max_examples=200)
@given(value=st.floats(-3e38, 3e38), dtype=st.sampled_from([BF16, np.float32]))
def test_half_a_unit_bounds_a_rounding_everywhere(value, dtype):
    exact = np.array([value])
    with np.errstate(over="ignore"):
        off = abs(float(rounded(exact, dtype)[0]) - value)
    assert not np.isfinite(off) or off <= half_unit(exact, dtype)[0]


def test_row_rms_keeps_the_axis():
    assert row_rms(np.array([[3.0, 4.0]])).tolist() == [[np.sqrt(12.5)]]
    assert row_rms(np.array([[[3.0], [5.0]]])).tolist() == [[[3.0], [5.0]]]
    assert row_rms(np.array(-2.0)) == 2.0


@pytest.mark.parametrize(
    ("dtype", "value", "half"),
    [
        (BF16, 1.0, 2.0**-8), (BF16, 1.99, 2.0**-8), (BF16, 2.0, 2.0**-7), (BF16, -1.0, 2.0**-8),
        (np.float32, 1.0, 2.0**-24), (np.float16, 1.0, 2.0**-11), (np.float32, 1e-40, 2.0**-127),
        (BF16, 1e-40, 2.0**-127), (BF16, 0.0, 2.0**-127), (np.float32, 0.0, 2.0**-127), (np.float16, 0.0, 2.0**-15),
        (BF16, np.inf, 2.0**-127), (BF16, np.nan, 2.0**-127), (np.int32, 5.0, 0.0),
    ],
)  # fmt: skip
def test_half_a_unit_in_the_last_place(dtype, value, half):
    assert half_unit(np.array([value]), dtype).tolist() == [half]


@pytest.mark.parametrize("scale", [1.0, 0.25, 2.0**-20])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_is_rounded_once_to_the_nearest_even(sign, scale):
    """Also where a float32 between would make a tie of what is a little more or less than one."""
    unit = 2.0**-7
    values = [
        1 + unit / 2,
        1 + unit / 2 + 2.0**-40,
        1 + 3 * unit / 2,
        1 + 3 * unit / 2 - 2.0**-40,
        1 + unit,
        1 + unit / 3,
    ]
    wanted = [1, 1 + unit, 1 + 2 * unit, 1 + unit, 1 + unit, 1]
    assert (rounded(sign * scale * np.array(values), BF16).astype(np.float64) / (sign * scale)).tolist() == wanted


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, bool])
def test_integers_are_rounded_to_themselves(dtype):
    exact = np.array([0, 1, 1, 0], dtype)
    assert rounded(exact.astype(np.float64), dtype).tolist() == exact.tolist()
