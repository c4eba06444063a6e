"""Which integers a generator draws, and other draws of it: ends of ranges, empty and full groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem import draws
from ratchet.exam.problem.draws import EACH, PARTS, SORTED, Drawn
from ratchet.exam.problem.integer_draws import drawn

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)


def found(generate):
    return drawn(lambda data: jax.tree.leaves(generate(jax.random.wrap_key_data(data))), KEY)


@pytest.mark.parametrize(
    ("generate", "wanted"),
    [
        (lambda key: jax.random.randint(key, (9, 1), 3, 17), Drawn(kind=EACH, first=3, last=16)),
        (lambda key: jax.random.randint(key, (9,), -9, 10, jnp.int8).reshape(3, 3), Drawn(kind=EACH, first=-9, last=9)),
        (lambda key: 64 - 8 * jax.random.randint(key, (9,), 0, 5), Drawn(kind=EACH, first=32, last=64)),
        (lambda key: jnp.maximum(jax.random.randint(key, (9,), 0, 5), 2), Drawn(kind=EACH, first=2, last=4)),
        (lambda key: jax.random.choice(key, 16, (9,)), Drawn(kind=EACH, first=0, last=15)),
        (lambda key: jnp.sort(jax.random.randint(key, (9,), 0, 5)), Drawn(kind=SORTED, first=0, last=4)),
        (lambda key: 8 * jnp.bincount(jax.random.randint(key, (64,), 0, 5), length=5),
         Drawn(kind=PARTS, first=0, last=512)),
        (lambda key: jax.random.permutation(key, 16), None),
        (lambda key: jnp.cumsum(jax.random.randint(key, (9,), 0, 5)), None),
        (lambda key: jnp.repeat(jax.random.randint(key, (9,), 0, 5), 2), None),
        (lambda key: jnp.arange(9), None),
        (lambda key: jax.random.normal(key, (9,)), None),
    ],
)  # fmt: skip
def test_how_an_input_is_drawn(generate, wanted):
    assert found(generate) == [wanted]


def test_what_two_inputs_are_made_of_stays_as_it_is():
    def both(key):
        ids = jax.random.randint(key, (64,), 0, 5)
        return ids, jnp.bincount(ids, length=5), jax.random.randint(jax.random.fold_in(key, 1), (9,), 0, 2)

    assert found(both) == [None, None, Drawn(kind=EACH, first=0, last=1)]


@pytest.mark.parametrize("full", [False, True])
def test_ends_of_a_range_are_there_and_nothing_beyond(full):
    generator = np.random.default_rng(1)
    array = generator.integers(100, 900, (64, 2)).astype(np.int32)
    made = draws.extreme(array, Drawn(kind=EACH, first=0, last=1000), generator, full=full)
    assert (made.shape, made.dtype) == (array.shape, array.dtype)
    assert [np.sum(made == end) for end in (0, 1000)] == [16, 16]
    assert (made == array).sum() == 96


def test_one_element_is_either_end():
    how = Drawn(kind=EACH, first=2, last=7)
    for full, end in ((False, 7), (True, 2)):
        assert draws.extreme(np.array(5), how, np.random.default_rng(1), full=full) == end


def test_of_groups_one_is_empty_or_has_all():
    generator = np.random.default_rng(1)
    ids, how = generator.integers(0, 8, 256).astype(np.int32), Drawn(kind=EACH, first=0, last=7)
    some = np.bincount(draws.extreme(ids, how, generator), minlength=8)
    assert (some == 0).sum() == 1
    assert some[0] >= 32 <= some[7]
    assert (draws.extreme(ids, how, generator, full=True) == 7).all()


def test_what_is_sorted_stays_so():
    generator = np.random.default_rng(1)
    array = np.sort(generator.integers(1, 99, (3, 64)), axis=1)
    made = draws.extreme(array, Drawn(kind=SORTED, first=0, last=99), generator)
    assert (np.diff(made, axis=1) >= 0).all()
    assert (made.min(), made.max()) == (0, 99)


@pytest.mark.parametrize(("count", "full"), [(8, False), (8, True), (3, False), (1, True)])
def test_sizes_of_groups_keep_their_sum(count, full):
    generator = np.random.default_rng(1)
    sizes = 8 * np.bincount(generator.integers(0, count, 64), minlength=count).astype(np.int32)
    made = draws.extreme(sizes, Drawn(kind=PARTS, first=0, last=512), generator, full=full)
    assert made.sum() == 512
    assert (made == 0).sum() == (3 if count == 8 and not full else count - 1)
    assert (made % 8 == 0).all()
