"""How often each number is in an array, against counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ratchet.exam.problem import repeats as module
from ratchet.exam.problem.repeats import repeats

FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1.7e308, 0.1, np.inf, -np.inf])
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6)


def counted(array):
    """By comparing each with each."""
    flat = array.reshape(-1)
    return (flat[:, None] == flat[None, :]).sum(1).reshape(array.shape).astype(np.float64)


@given(arrays.arrays(np.float64, SHAPES, elements=FEW | st.floats(allow_nan=False)))
def test_as_counted(array):
    before = array.tobytes()
    assert np.array_equal(repeats(array), counted(array))
    assert array.tobytes() == before


@pytest.mark.parametrize("size", [module.PIECE - 1, module.PIECE, 3 * module.PIECE + 7])
@pytest.mark.parametrize("distinct", [1, 2, 1000, 10**9])
def test_arrays_of_several_pieces(size, distinct):
    drawn = np.random.default_rng(size + distinct).integers(0, distinct, size)
    array = (drawn / 7 * np.where(drawn % 2, 1, -1)).reshape(1, -1)
    _, of, times = np.unique(array, return_inverse=True, return_counts=True)
    assert np.array_equal(repeats(array), times[of].reshape(array.shape))


def test_numbers_of_one_slot():
    """All hash to slot 0, with whichever number of bits: multiples of the factor's inverse, smaller than the shift."""
    inverse = pow(int(module._FACTOR), -1, 1 << 64)
    numbers = np.array([(n * inverse) % (1 << 64) for n in range(1, 3000)], np.uint64).view(np.float64)
    numbers = numbers[~np.isnan(numbers)]
    array = np.concatenate([numbers, numbers[::2], numbers[:1] * 0 + 3.0])
    _, of, times = np.unique(array, return_inverse=True, return_counts=True)
    assert np.array_equal(repeats(array), times[of])
