"""The order of grid steps: row-major under seed 0, and every step once under any other."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.tpu.mosaic.grid import Order


def order(seed, bounds, semantics, dynamic=()):
    """Of a kernel with these bounds, those at ``dynamic`` known only as it runs."""
    static = tuple(None if i in dynamic else bound for i, bound in enumerate(bounds))
    own = tuple(jnp.int32(bound) if i in dynamic else bound for i, bound in enumerate(bounds))
    kernel = SimpleNamespace(bounds=static, semantics=semantics)
    return Order(kernel=kernel, bounds=own, seed=jnp.int32(seed))  # type: ignore[arg-type]


def steps(made):
    count = int(np.prod([int(bound) for bound in made.bounds]))
    return [tuple(int(c) for c in made.coordinates(jnp.int32(n))) for n in range(count)]


def test_seed_zero_is_row_major():
    made = order(0, (2, 1, 3), ("parallel", "arbitrary", "parallel"))
    assert steps(made) == list(itertools.product(range(2), range(1), range(3)))
    assert [int(made.linear(at)) for at in steps(made)] == list(range(6))


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_a_seed_shuffles_parallel_dimensions_alone(seed):
    made = order(seed, (5, 3), ("parallel", "arbitrary"))
    found = steps(made)
    assert sorted(found) == list(itertools.product(range(5), range(3)))
    assert [at[1] for at in found] == [0, 1, 2] * 5
    outer = [at[0] for at in found[::3]]
    assert [at[0] for at in found] == [place for place in outer for _ in range(3)]
    assert outer[0] != 0, "the first step is another"
    assert [int(made.linear(at)) for at in found[:3]] == [3 * outer[0] + i for i in range(3)]


def test_dimensions_and_seeds_are_shuffled_each_in_its_own_way():
    both = steps(order(1, (7, 7), ("parallel", "parallel")))
    assert [a for a, _ in both[::7]] != [b for _, b in both[:7]]
    assert len({tuple(steps(order(seed, (7,), ("parallel",)))) for seed in range(1, 6)}) > 2


def test_two_steps_are_exchanged_and_one_stays():
    assert steps(order(3, (2,), ("parallel",))) == [(1,), (0,)]
    assert steps(order(3, (1, 2), ("parallel", "arbitrary"))) == [(0, 0), (0, 1)]


def test_a_bound_may_be_known_only_as_the_program_runs():
    def last(bound):
        made = Order(
            kernel=SimpleNamespace(bounds=(None, 2), semantics=("parallel", "arbitrary")),  # type: ignore[arg-type]
            bounds=(bound, 2),
            seed=jnp.int32(0),
        )
        return made.coordinates(2 * bound - 1)

    assert [int(at) for at in jax.jit(last)(jnp.int32(3))] == [2, 1]


def test_a_bound_that_is_not_known_is_reversed():
    assert steps(order(0, (3, 2), ("parallel", "arbitrary"), dynamic=(0,))) == list(
        itertools.product(range(3), range(2))
    )
    assert steps(order(9, (3, 2), ("parallel", "arbitrary"), dynamic=(0,))) == [
        (2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1),
    ]  # fmt: skip
    assert steps(order(9, (2, 3), ("arbitrary", "arbitrary"), dynamic=(1,))) == list(
        itertools.product(range(2), range(3))
    )
