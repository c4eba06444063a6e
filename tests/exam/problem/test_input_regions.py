"""Regions of an array, each of another structure."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.exam.problem import input_regions
from ratchet.exam.problem.input_regions import Sizes, Structures

BF16 = ml_dtypes.bfloat16


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


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("piece", [7, 600, 1 << 18])
def test_regions_are_the_same_in_pieces_of_any_size(axis, piece, monkeypatch):
    monkeypatch.setattr(input_regions, "_PIECE", piece)
    array = drawn((1, 150, 20, 130))
    how = Structures.drawn(array.shape[axis], np.random.default_rng(1), whole=True)
    assert how.is_zero.any()
    new = np.array(array)
    how.write(array, new, axis)
    assert new.tobytes() == one_by_one(array, how, axis).tobytes()


def test_every_structure_is_there_and_one_row_of_each_short_region_dominates_not_its_first():
    how = Structures.drawn(2048, np.random.default_rng(5), whole=True)
    factors = set(how.factor.tolist())
    assert factors == {1.0, input_regions.LARGE, input_regions.TINY, input_regions.DOMINATING, input_regions.TOWERING}
    assert (how.source != np.arange(2048)).any()
    assert how.is_integer.any()
    assert how.is_zero.any()
    dominating = np.isin(how.factor, [input_regions.DOMINATING, input_regions.TOWERING]).reshape(64, 32)
    is_whole = np.isin(np.arange(64) // 8, [0, 1, 2, 4, 5, 6])
    assert dominating.sum(1).tolist() == np.where(is_whole, 0, 1).tolist()
    assert not dominating[:, 0].any()
    assert (how.source[how.factor > input_regions.LARGE] == np.flatnonzero(how.factor > input_regions.LARGE)).all()


@given(st.integers(1, 20_000))
def test_regions_make_up_an_axis_and_begin_where_blocks_do(length):
    edges = input_regions.edges(length)
    assert (edges[0], edges[-1]) == (0, length)
    widths = np.diff(edges)
    assert (widths > 0).all()
    assert length < input_regions.FEWEST or 1 / 4 < widths[widths > length / 9].sum() / length <= 1 / 2 or length < 64
    short = 1 << int(widths[1:-1].min(initial=1)).bit_length() - 1
    assert (edges[:-1] % short == 0).all()
    assert 64 <= length / short <= 128 or short == 1


@given(st.integers(6, 13).map(lambda power: 1 << power), st.integers(0, 1 << 32))
@settings(max_examples=50)
def test_where_blocks_of_any_size_begin_there_is_all_that_can_be(length, seed):
    kinds = range(6)
    found = input_regions.cut(length, np.random.default_rng(seed), long=kinds[:2], short=kinds[2:])
    at = np.empty(length, int)
    for first, end, _, kind in found:
        at[first:end] = kind
    for blocks in (2, 4, 8, 16, 32, 64):
        first, *_ = whole = at.reshape(blocks, -1).T
        assert len(set(first.tolist())) == min(blocks, len(kinds)), "the first place of a block is of every kind"
        of_one = {block[0] for block in whole.T if (block == block[0]).all()}
        assert of_one >= ({0, 1} if blocks > 2 else set()), "and a whole one of each of the long ones"
    assert set(at.tolist()) == set(kinds)


@pytest.mark.parametrize("size", [8 << power for power in range(9)])
def test_there_is_a_whole_block_of_each_structure_of_every_usual_size(size):
    how = Structures.drawn(16 * size, np.random.default_rng(size), whole=True)
    same = how.source.reshape(16, size)
    kinds = {
        "zeros": how.is_zero, "integers": how.is_integer,
        "tiny": how.factor == input_regions.TINY, "equal": (same == same[:, :1]).reshape(-1),
    }  # fmt: skip
    for name, places in kinds.items():
        assert places.reshape(16, size).all(axis=1).any(), name


@given(st.integers(6, 13).map(lambda power: 1 << power), st.integers(0, 1 << 32))
@settings(max_examples=50)
def test_with_halves_blocks_of_any_size_begin_with_all_that_can_be(length, seed):
    kinds = range(6)
    found = input_regions.cut(length, np.random.default_rng(seed), long=kinds[:2], half=kinds[2:4], short=kinds[4:])
    assert (found[0].first, found[-1].end) == (0, length)
    assert all(a.end == b.first for a, b in itertools.pairwise(found))
    kind_at = {region.first: region.kind for region in found}
    held = np.concatenate([np.full(region.end - region.first, region.kind) for region in found])
    assert len({kind_at[begin] for begin in range(0, length, length // 4)}) == 4
    assert len({int(held[begin]) for begin in range(0, length, length // 8)}) == 6


@given(st.integers(1, input_regions.FEWEST - 1), st.integers(0, 1 << 32))
def test_of_few_places_each_becomes_another(length, seed):
    kinds = range(6)
    found = input_regions.cut(length, np.random.default_rng(seed), long=kinds[:2], short=kinds[2:])
    assert len({region.kind for region in found}) == min(length, 6)
    assert not any(region.is_long for region in found)


@pytest.mark.parametrize("dtype", [BF16, np.float32, np.int8])
@pytest.mark.parametrize("axis", [0, 1])
def test_sizes_with_a_scale_for_each_place_are_those_of_each_region(dtype, axis, monkeypatch):
    monkeypatch.setattr(input_regions, "_PIECE", 50)
    array = drawn((40, 30), dtype) * dtype(20) if dtype is np.int8 else drawn((40, 30), dtype)
    scales = np.repeat(np.array([2.0, 0.0, -64.0, 0.0, 64.0], np.float32), array.shape[axis] // 5)
    at_once, each = np.array(array), np.array(array)
    Sizes(array, at_once).write_scaled(scales, axis)
    for place, scale in enumerate(scales):
        if scale:
            Sizes(array, each).write({axis: slice(place, place + 1)}, scale)
    assert at_once.tobytes() == each.tobytes()
    assert (np.moveaxis(at_once, axis, 0)[scales == 0] == np.moveaxis(array, axis, 0)[scales == 0]).all()
