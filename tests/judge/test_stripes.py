"""Stripes of an array, each of another structure."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.judge import stripes
from ratchet.judge.stripes import Sizes, Structures

BF16 = ml_dtypes.bfloat16
SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


def drawn(shape, dtype=BF16, seed=3):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def one_by_one(array, how, axis):
    """What ``how`` makes of an array, place by place along the axis."""
    new = np.moveaxis(np.array(array), axis, 0)
    old = np.moveaxis(array, axis, 0)
    for place in range(len(new)):
        row = np.asarray(old[how.source[place]], np.float32) * how.factor[place]
        if how.is_integer[place]:
            row = np.round(row * 2) + 0.0
        new[place] = np.zeros_like(row) if how.is_zero[place] else row
    return np.moveaxis(new, 0, axis)


@given(SHAPES, st.data())
def test_places_make_up_an_array_each_once(shape, data):
    piece = data.draw(st.integers(1, 40))
    seen = np.zeros(shape, int)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stripes, "_PIECE", piece)
        for some in stripes._places(shape):
            assert seen[some].size <= max(piece, 1)
            seen[some] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("piece", [7, 600, 1 << 18])
def test_stripes_are_the_same_in_pieces_of_any_size(axis, piece, monkeypatch):
    monkeypatch.setattr(stripes, "_PIECE", piece)
    array = drawn((150, 20, 130))
    how = Structures.drawn(array.shape[axis], np.random.default_rng(1))
    assert how.is_zero.any()
    new = np.array(array)
    how.write(array, new, axis)
    assert new.tobytes() == one_by_one(array, how, axis).tobytes()


def test_every_structure_is_there_and_one_row_of_each_stripe_dominates():
    how = Structures.drawn(64 * 32, np.random.default_rng(5))
    factors = set(how.factor.tolist())
    assert factors == {1.0, stripes.LARGE, stripes.TINY, stripes.DOMINATING, stripes.TOWERING}
    assert (how.source != np.arange(64 * 32)).any()
    assert how.is_integer.any()
    assert how.is_zero.any()
    dominating = np.isin(how.factor, [stripes.DOMINATING, stripes.TOWERING]).reshape(64, 32)
    assert (dominating.sum(1) == 1).all()
    assert (how.source[how.factor > stripes.LARGE] == np.flatnonzero(how.factor > stripes.LARGE)).all()


@pytest.mark.parametrize("dtype", [BF16, np.float32, np.int8])
@pytest.mark.parametrize("axis", [0, 1])
def test_sizes_with_a_scale_for_each_place_are_those_of_each_stripe(dtype, axis, monkeypatch):
    monkeypatch.setattr(stripes, "_PIECE", 50)
    array = drawn((40, 30), dtype) * dtype(20) if dtype is np.int8 else drawn((40, 30), dtype)
    scales = np.repeat(np.array([2.0, 0.0, -64.0, 0.0, 64.0], np.float32), array.shape[axis] // 5)
    at_once, each = np.array(array), np.array(array)
    Sizes(array, at_once).write_scaled(scales, axis)
    for place, scale in enumerate(scales):
        if scale:
            Sizes(array, each).write({axis: slice(place, place + 1)}, scale)
    assert at_once.tobytes() == each.tobytes()
    assert (np.moveaxis(at_once, axis, 0)[scales == 0] == np.moveaxis(array, axis, 0)[scales == 0]).all()
