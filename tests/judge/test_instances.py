"""The inputs that a kernel is checked on."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.judge import instances
from ratchet.values import ArraySpec

BF16 = ml_dtypes.bfloat16


def generator(seed=0):
    return np.random.default_rng(seed)


def arrays(rows=1024, width=128, dtype=BF16):
    return [generator(9).normal(size=(rows, width)).astype(dtype)]


@pytest.mark.parametrize("make", [instances.probe, instances.mixed])
def test_the_same_secret_gives_the_same_and_the_originals_stay(make):
    original = arrays()
    kept = original[0].copy()
    first, again, other = make(original, generator(1)), make(original, generator(1)), make(original, generator(2))
    assert original[0].tobytes() == kept.tobytes()
    assert first[0].tobytes() == again[0].tobytes() != other[0].tobytes()
    assert first[0].shape == kept.shape
    assert first[0].dtype == kept.dtype
    assert np.isfinite(first[0].astype(np.float32)).all()


@pytest.mark.parametrize("make", [instances.probe, instances.mixed])
def test_integers_stay_as_generated(make):
    lengths = np.arange(64, dtype=np.int32)
    assert make([lengths], generator())[0].tobytes() == lengths.tobytes()


def test_a_probe_spikes_one_row_in_each_quarter():
    (array,) = arrays()
    (probed,) = instances.probe([array], generator())
    changed = np.flatnonzero((probed != array).any(axis=1))
    assert [row // 256 for row in changed] == [0, 1, 2, 3]
    np.testing.assert_allclose(probed[changed].astype(float), array[changed].astype(float) * instances.SPIKE, rtol=0.01)


def test_a_probe_finds_the_long_axis():
    array = np.ones((4, 512, 64), np.float32)
    (probed,) = instances.probe([array], generator())
    changed = np.unique(np.argwhere(probed != array)[:, 1])
    assert len(changed) == instances.PROBED_ROWS


def test_mixed_holds_every_structure():
    (array,) = arrays(rows=4096)
    (mixed,) = instances.mixed([array], generator())
    wide = mixed.astype(np.float64)
    stripes = wide.reshape(instances.STRIPES, -1, 128)
    size = np.sqrt(np.median(np.square(stripes), axis=(1, 2)))
    assert (size == 0).any(), "a stripe of zeros"
    assert (size > instances.LARGE / 3).any(), "a stripe of large values"
    assert ((size > 0) & (size < 0.01)).any(), "a stripe of tiny values"
    assert any((stripe == np.round(stripe)).mean() > 0.9 and stripe.any() for stripe in stripes), "exact integers"
    same = [np.median((stripe == stripe[0]).all(axis=1)) == 1 and stripe[0].any() for stripe in stripes]
    assert any(same), "equal rows"


def test_a_probe_spikes_along_what_is_mixed():
    array = np.ones((512, 64), np.float32)
    (probed,) = instances.probe([array], generator(), axes=[[1]])
    assert len(np.unique(np.argwhere(probed != array)[:, 1])) == instances.PROBED_ROWS
    assert (probed != array).any(axis=1).all(), "every row has to notice"


def test_stripes_are_beside_what_is_mixed_and_a_few_columns_dominate():
    array = generator(9).normal(size=(64, 1024)).astype(np.float32)
    (mixed,) = instances.mixed([array], generator(), [[1]])
    size = np.sqrt(np.median(np.square(mixed.astype(np.float64)), axis=1))
    assert (size == 0).any()
    assert ((size > 0) & (size < 0.01)).any(), "a row made of tiny values alone: where an epsilon shows"
    assert (size > instances.LARGE / 3).any()
    columns = np.sqrt(np.mean(np.square(mixed[size > 0.1]), axis=0))
    assert np.sum(columns > 3 * np.median(columns)) >= instances.PROBED_ROWS - 1


def test_no_structure_makes_a_negative_zero():
    (mixed,) = instances.mixed(arrays(rows=512), generator())
    zeros = mixed.astype(np.float32) == 0
    assert zeros.any()
    assert not np.signbit(mixed.astype(np.float32)[zeros]).any()


def test_tables_are_inputs_that_no_key_changes():
    x, other, table = (np.full((8, 128), fill, np.float32) for fill in (1, 2, 3))
    ids = np.arange(8, dtype=np.int32)
    assert instances.tables([x, table, ids], [other, table, ids]) == [1]
    assert instances.tables([table], [table]) == [], "nothing would be left to change"


@given(shape=st.lists(st.integers(1, 9), min_size=0, max_size=4), seed=st.integers(0, 99))
def test_any_shape(shape, seed):
    original = [np.ones(shape, np.float32), np.ones(shape, np.int8)]
    for make in (instances.probe, instances.mixed):
        for before, after in zip(original, make(original, generator(seed)), strict=True):
            assert (after.shape, after.dtype) == (before.shape, before.dtype)


@pytest.mark.parametrize(
    ("dtype", "shape", "whether"),
    [
        ("int32", (8, 4096), True),
        ("uint8", (), True),
        ("int8", (2048,), False),
        ("float32", (4,), True),
        ("float32", (2048,), False),
        ("bfloat16", (4,), False),
    ],
)
def test_what_may_steer(dtype, shape, whether):
    assert instances.steers(ArraySpec(shape=shape, dtype=dtype)) is whether


def test_what_steers_a_modelled_run_is_what_a_kernel_is_checked_on():
    def made(fill):
        return [np.full(4, fill, np.int32), np.full((8, 128), fill, BF16), np.full((64, 64), fill, np.int8)]

    lengths, floats, narrow = instances.steered(made(1), made(0))
    assert not lengths.any()
    assert floats.all()
    assert narrow.all(), "data, and not what scalar memory holds"
    (only,) = instances.steered([np.ones(4, np.int32)], [np.zeros(4, np.int32)])
    assert only.all(), "nothing would be left that a kernel cannot know"
