"""The inputs that a kernel is checked on."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.exam.problem import instances
from ratchet.exam.problem.draws import Drawn
from ratchet.values import ArraySpec, Mesh

BF16 = ml_dtypes.bfloat16


def generator(seed=0):
    return np.random.default_rng(seed)


def arrays(rows=1024, width=128, dtype=BF16):
    return [generator(9).normal(size=(rows, width)).astype(dtype)]


@pytest.mark.parametrize("make", [instances.probe, instances.mixed, instances.signed])
def test_the_same_secret_gives_the_same_and_the_originals_stay(make):
    original = arrays()
    kept = original[0].copy()
    first, again, other = make(original, generator(1)), make(original, generator(1)), make(original, generator(2))
    assert original[0].tobytes() == kept.tobytes()
    assert first[0].tobytes() == again[0].tobytes() != other[0].tobytes()
    assert first[0].shape == kept.shape
    assert first[0].dtype == kept.dtype
    assert np.isfinite(first[0].astype(np.float32)).all()


@pytest.mark.parametrize("make", [instances.probe, instances.mixed, instances.signed])
def test_integers_stay_as_generated(make):
    lengths = np.arange(64, dtype=np.int32)
    assert make([lengths], generator())[0].tobytes() == lengths.tobytes()


def test_a_probe_spikes_one_row_in_each_quarter():
    (array,) = arrays()
    (probed,) = instances.probe([array], generator())
    changed = np.flatnonzero((probed != array).any(axis=1))
    assert [row // 256 for row in changed] == [0, 1, 2, 3]
    np.testing.assert_allclose(probed[changed].astype(float), array[changed].astype(float) * instances.SPIKE, rtol=0.01)


def test_a_probe_spikes_along_what_is_mixed():
    array = np.ones((512, 64), np.float32)
    (probed,) = instances.probe([array], generator(), axes=[[1]])
    assert len(np.unique(np.argwhere(probed != array)[:, 1])) == instances.PROBED_ROWS
    assert (probed != array).any(axis=1).all(), "every row has to notice"


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


@pytest.mark.parametrize(
    ("dtype", "numbers", "whether"),
    [
        ("float32", [-0.5, 0.5], True),
        *(("float32", numbers, False) for numbers in ([], [0, 1], [-1, 0], [-np.inf, 1])),
        *(("int8", numbers, True) for numbers in ([[-1, 1]], [[-4, 5]])),
        *(("int8", numbers, False) for numbers in ([-1, 1], [[-1, 2]], [[-2, 0]])),
        ("int32", [[-1, 1]], False),
    ],
)
def test_what_may_have_any_sign(dtype, numbers, whether):
    assert instances.is_of_both_signs(np.array(numbers, dtype)) is whether


@given(shape=st.lists(st.integers(1, 9), min_size=0, max_size=4), seed=st.integers(0, 99))
def test_any_shape(shape, seed):
    original = [np.ones(shape, np.float32), np.ones(shape, np.int8)]
    for make in (instances.probe, instances.mixed, instances.signed):
        for before, after in zip(original, make(original, generator(seed)), strict=True):
            assert (after.shape, after.dtype) == (before.shape, before.dtype)


@pytest.mark.parametrize(
    ("dtype", "shape", "whether"),
    [
        ("int32", (8, 4096), True),
        ("uint8", (), True),
        *((dtype, (size,), size == 1024) for dtype in ("float32", "int8", "uint16") for size in (1024, 1025)),
        ("bfloat16", (4,), False),
    ],
)
def test_what_may_steer(dtype, shape, whether):
    assert instances.steers(ArraySpec(shape=shape, dtype=dtype)) is whether


def test_what_steers_is_never_all_of_the_inputs():
    lengths, floats, narrow = (
        ArraySpec(shape=shape, dtype=dtype)
        for shape, dtype in (((4,), "int32"), ((8, 128), "bfloat16"), ((64, 64), "int8"))
    )
    assert instances.steering([lengths, floats, narrow]) == [0], "narrow ones are data, not what scalar memory holds"
    assert instances.steering([lengths]) == [], "nothing would be left that a kernel cannot know"


@pytest.mark.parametrize(
    ("chips", "kinds"), [(1, ("random", "probe", "mixed")), (2, ("random", "probe-0", "probe-1", "mixed"))]
)
def test_every_chip_has_a_probe_and_what_is_mixed_is_tried_with_one_sign(chips, kinds):
    mesh = Mesh(axes=(("chip", chips),))
    assert instances.kinds(mesh) == instances.kinds(mesh, [(), ()]) == kinds
    assert instances.kinds(mesh, [(), (1,)]) == (*kinds, "signed")
    assert instances.kinds(mesh, [(), (0, 1)], [(), (0, 1)]) == (*kinds, "signed", "small")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_one_number_is_made_of_is_small_and_keeps_its_digits(dtype):
    one, other = (np.random.default_rng(0).normal(size=(64, 48)).astype(dtype) for _ in range(2))
    made, same = instances.small([one, other], [(0, 1), ()])
    assert 0 < np.linalg.norm(made.astype(float)) < instances.SMALL_NORM
    ratio = one.astype(float) / made.astype(float)
    assert (ratio == ratio[0, 0]).all()
    assert same is other


def test_what_cannot_be_made_small_stays():
    zeros, narrow = np.zeros((8, 8), np.float32), np.ones((8, 8), ml_dtypes.float8_e4m3fn)
    assert [a is b for a, b in zip(instances.small([zeros, narrow], [(0, 1)] * 2), (zeros, narrow), strict=True)] == [
        True
    ] * 2


def test_what_structures_are_made_of():
    """Of ones: zeros, tiny values, equal rows and exact integers, large ones, and rows that dominate both kinds."""
    ones = np.ones((4096, 8), np.float32)
    (probed,) = instances.probe([ones], generator())
    assert np.unique(probed).tolist() == [1, 24]
    (mixed,) = instances.mixed([ones], generator(), whole=[[]])
    assert np.unique(mixed).tolist() == [0, 2.0**-10, 1, 2, 5, 6, 40]
    cut = mixed.reshape(64, 64, 8)
    dominating = np.isin(cut, [6, 40]).all(axis=2).sum(axis=1)
    is_long, is_half = (np.isin(np.arange(64) // 8, some) for some in ([0, 1, 4, 5], [2, 6]))
    assert dominating.tolist() == np.where(is_long | is_half, 0, 1).tolist(), "one row in each short region"
    assert {tuple(np.unique(region)) for region in cut[~is_long & ~is_half]} == {
        (0, 6), (2.0**-10, 6), (1, 6), (2, 6), (5, 40)
    }  # fmt: skip
    assert {tuple(np.unique(region)) for region in cut[is_long]} == {(0,), (2.0**-10,)}, "two quarters"
    assert {tuple(np.unique(region)) for region in cut[is_half]} == {(1,), (2,)}, "two eighths, equal and of integers"


def test_along_what_is_mixed_four_columns_dominate():
    ones = np.ones((64, 1024), np.float32)
    (mixed,) = instances.mixed([ones], generator(), [[1]], whole=[[]])
    assert np.unique(mixed[mixed > 0]).tolist() == [2.0**-10, 6 * 2.0**-10, 1, 2, 5, 6, 12, 30]
    assert 2 <= (mixed > np.median(mixed, axis=1, keepdims=True)).sum(axis=1).max() <= 4


def test_along_what_is_mixed_whole_blocks_are_zero_and_equal():
    array = generator(9).normal(size=(64, 1024)).astype(np.float32)
    (mixed,) = instances.mixed([array], generator(), [[1]], whole=[[1]])
    some = mixed[(mixed != 0).any(axis=1)]
    blocks = some.reshape(len(some), 8, 128)
    zero = [place for place in range(8) if not blocks[:, place].any()]
    assert len(zero) == 3
    assert zero[-1] == 7
    assert zero[0] % 2 == 0
    equal = [p for p in range(2, 6) if p not in zero and (blocks[:, p] == blocks[:, p, :1]).mean() > 0.95]
    assert len(equal) == 1


def test_what_is_ordered_has_ties_of_few_bits_and_twins_along_the_order():
    rows, centres = (generator(n).normal(size=(256, 64)).astype(np.float32) / 16 for n in (1, 2))
    x, c = instances.mixed([rows, centres], generator(), [[1], [0, 1]], [[], [0]])
    for array in (x, c):
        units = array * 2.0**16
        assert (units == np.round(units)).all()
        assert np.unique(array).size < 150
    there = c[(c != 0).any(axis=1)]
    assert np.unique(there, axis=0).shape[0] < 0.8 * len(there)
    same = (c[:, None] == c[None]).all(axis=2).sum(axis=1)
    assert (same > 1).mean() > 0.5
    (plain,) = instances.mixed([rows], generator(), [[1]], [None])
    assert np.unique(plain).size > 1000


def test_a_problem_whose_losses_know_no_whole_blocks_has_short_ones():
    ones = np.ones((4096, 8), np.float32)
    (before,), (now,) = (instances.mixed([ones], generator(), whole=whole) for whole in ((), [[]]))
    edges = [np.flatnonzero(np.diff((one == 2).any(axis=1), prepend=0, append=0)) for one in (before, now)]
    assert np.diff(edges[0])[::2].max() < 128
    assert np.diff(edges[1])[::2].max() == 512


def test_small_numbers_become_multiples_and_not_zeros_where_integers_are_asked():
    array = generator(9).normal(size=(4096, 8)).astype(np.float32) / 64
    (mixed,) = instances.mixed([array], generator(), whole=[[]])
    half = [mixed[first : first + 512] for first in (1024, 3072)]
    (whole,) = [one for one in half if np.unique(one, axis=0).shape[0] > 1]
    assert whole.any()
    assert (whole * 128 == np.round(whole * 128)).all()


def test_integers_of_known_draws_reach_their_ends_and_numbers_stay_as_they_are():
    labels, narrow = generator(1).integers(1, 999, 64).astype(np.int32), generator(2).integers(-9, 9, (8, 8))
    how = [Drawn(kind="each", first=0, last=999), Drawn(kind="each", first=-9, last=8)]
    for make in (lambda *given: instances.mixed(*given, drawn=how), lambda *given: instances.signed(*given, drawn=how)):
        made, numbers = make([labels, narrow.astype(np.int8)], generator())
        assert (made.min(), made.max()) == (0, 999)
    (_, same) = instances.mixed([labels, narrow.astype(np.int8)], generator(), drawn=how)
    assert (same == narrow).all()
    assert numbers.dtype == np.int8


def test_as_many_regions_as_there_are_rows():
    (mixed,) = instances.mixed([np.ones((3, 4), np.float32)], generator())
    assert np.unique(mixed).size >= 2
    assert not np.isin(mixed, [6, 40]).any(), "a region of one row holds its structure alone"


@pytest.mark.parametrize("make", [instances.probe, instances.mixed])
def test_two_elements_have_a_structure_and_one_has_none(make):
    changed = [make([np.full(2, 3, np.float32)], generator(seed))[0].tolist() for seed in range(9)]
    assert any(values != [3, 3] for values in changed)
    assert all(make([np.full((1, 1), 3, np.float32)], generator(seed))[0] == 3 for seed in range(9))


def test_which_axes_are_spiked_and_cut():
    shape = (4, 512, 64, 1)
    assert (instances.spiked_axis(shape), instances.region_axis(shape)) == (1, 1)
    assert (instances.spiked_axis(shape, (0, 2)), instances.region_axis(shape, (0, 2))) == (2, 1)
    assert instances.region_axis(shape, (1,)) == 2
    assert instances.region_axis(shape, (0, 1, 2)) == 1, "one row is no region"
    assert instances.region_axis((2, 4, 2), (1,)) == 0


def test_a_probe_on_a_slice_leaves_alone_what_all_chips_hold():
    mesh = Mesh(axes=(("chip", 2),), inputs=((), ((), ("chip",))))
    shared, split = np.ones((4, 8), np.float32), np.ones((4, 16), np.float32)
    for place, own in enumerate((slice(0, 8), slice(8, 16))):
        first, second = instances.probe([shared, split], generator(), mesh, place)
        assert (first == 1).all()
        changed = np.flatnonzero((second != 1).any(axis=0))
        assert len(changed) == instances.PROBED_ROWS
        assert ((changed >= own.start) & (changed < own.stop)).all()
    (only,) = instances.probe([shared], generator(), Mesh(axes=mesh.axes, inputs=((),)), 1)
    assert (only != 1).any(), "where nothing is split, it is what there is"


def test_nothing_dominates_along_where_regions_are_themselves_along_what_is_mixed():
    ones = np.ones((64, 8), np.float32)
    (mixed,) = instances.mixed([ones], generator(), [[0, 1]])
    assert set(np.unique(mixed)) <= {0, 2.0**-10, 1, 2, 5}
    (plain,) = instances.mixed([ones], generator())
    assert plain.tobytes() == mixed.tobytes()


def test_rows_of_one_sign_have_products_far_below_and_far_above_zero():
    """As in attention: queries in regions, keys that are mixed along both axes; each row has 32 keys at least."""
    queries, keys = (generator(n).normal(size=(1024, 128)).astype(BF16) for n in (1, 2))
    one, other = instances.signed([queries, keys], generator(), [[1], [0, 1]])
    scores = one.astype(np.float64) @ other.astype(np.float64).T / np.sqrt(128)
    lowest, highest = scores.min(axis=1), scores.max(axis=1)
    assert np.mean(highest < -110) > 0.3, "an exponential without its maximum is zero"
    assert np.mean(lowest > 110) > 0.3, "and overflows"
    between = scores[:, 1:-1]
    near = between[(highest < -110) & (between.min(axis=1) > -1000)]
    assert near.std(axis=1).max() < 8, "with weights that are not all one key's"
    assert near.size
    above = np.sort(scores[lowest > 110], axis=1)
    assert (above[:, -1] > above[:, -3] + 110).all(), "the first or the last key is above all others"


def test_an_extreme_that_starts_at_zero_shows():
    (x,) = instances.signed([generator(9).normal(size=(64, 256)).astype(np.float32)], generator(), [[1]])
    assert np.mean(x.max(axis=1) < 0) > 0.3
    assert np.mean(x.min(axis=1) > 0) > 0.3
    assert (x.max(axis=1) < -104).any(), "where float32 exponentials are zero"
    (whole,) = instances.signed([generator(9).normal(size=(64, 256)).astype(np.float32)], generator(), [[0, 1]])
    assert whole.max() < -104


def test_either_end_towers_in_some_rows():
    """Where an extreme that leaves it out overflows."""
    (x,) = instances.signed([generator(9).normal(size=(64, 256)).astype(np.float32)], generator(), [[1]])
    for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        assert (x[:, end] > x[:, rest].max(axis=1) + 90).any()
        assert (x[:, end] < x[:, rest].min(axis=1) - 90).any()


def test_the_mean_of_one_sign_is_few_deviations_from_zero():
    (x,) = instances.signed([generator(9).normal(size=(64, 4096)).astype(np.float32)], generator(), [[1]])
    assert (np.abs(x[:, 1:-1].mean(axis=1)) < 6 * x[:, 1:-1].std(axis=1)).all(), (
        "or a variance by its squares would lose its digits"
    )


def test_wholly_mixed_inputs_have_opposite_signs():
    made = instances.signed(
        [generator(n).normal(size=(8, 8)).astype(np.float32) for n in range(3)], generator(), [[0, 1]] * 3
    )
    assert [float(np.sign(one).sum()) / 64 for one in made] == [-1, 1, -1]


def test_what_has_one_sign_or_is_no_number_stays_as_generated():
    steps, flags = np.arange(4096, dtype=np.int8).reshape(64, 64) % 8, np.ones((64, 64), bool)
    none = np.where(np.arange(4096).reshape(64, 64) % 9, -1, 7).astype(np.int16)
    positive, infinite = np.ones((64, 64), np.float32), np.full((64, 64), -np.inf, np.float32)
    infinite[0] = 1
    given = [steps, flags, none, positive, infinite]
    for before, after in zip(given, instances.signed(given, generator(), [[1]] * 5), strict=True):
        assert before.tobytes() == after.tobytes()


def test_matrices_of_narrow_integers_reach_their_extremes():
    """Where a product that is summed in floats would lose its last bits."""
    x = generator(3).integers(-100, 101, (64, 256)).astype(np.int8)
    (made,) = instances.signed([x], generator(), [[1]])
    assert (made.min(), made.max()) == (x.min(), x.max())
    assert np.abs(made.astype(int).sum(axis=1)).max() > 99 * 256


def test_narrow_floats_stay_finite():
    x = generator(3).normal(size=(64, 256)).astype(ml_dtypes.float8_e4m3fn)
    (made,) = instances.signed([x], generator(), [[1]])
    assert np.isfinite(made.astype(np.float32)).all()
