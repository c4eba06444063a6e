"""Where equal numbers have one order in any honest arithmetic, and where they have not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem.promote import with_losses
from tests.imports import OLDER_JAX

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(16, 32)).astype(np.float32)
FEW = np.round(2 * X)
TWINS = np.concatenate([FEW, FEW])
"""Of few bits, and each row there twice."""


def lost(function, *arrays):
    """By how much the last output of a function may be off."""
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    with jax.enable_x64(True):
        # The others, which only an older XLA has, may give equal numbers different exponentials.
        judged = {"xla_cpu_use_fusion_emitters": True} if OLDER_JAX else {}
        return np.asarray(jax.jit(with_losses(function, *avals), compiler_options=judged)(*arrays)[-1])


def nearest(x, c):
    both = jnp.dot(x, c.T, precision="highest")
    return jnp.argmin(jnp.sum(x * x, axis=1)[:, None] + jnp.sum(c * c, axis=1)[None, :] - 2.0 * both, axis=1)


def likeliest(x, w):
    return jax.lax.top_k(jax.nn.softmax(jnp.dot(x, w.T) / 8, axis=-1), 4)[1]


def best_paths(x, moves):
    def step(state, row):
        sums = state[:, None] + moves
        return jnp.max(sums, axis=0) + row, jnp.argmax(sums, axis=0)

    return jax.lax.scan(step, x[0], x[1:])[1]


def chosen(x, w):
    bias = jnp.asarray(np.tile([0.25, 0.5, 0.25, 0.25], 8), jnp.float32)
    return jax.lax.top_k(jax.nn.sigmoid(jnp.dot(x, w.T) / 8) + bias, 4)[1]


def ordered(x, c):
    return jnp.argsort(jnp.dot(x, c.T) * 0.5 - 1.0, axis=1)


@pytest.mark.parametrize("function", [nearest, likeliest, chosen, ordered])
def test_the_first_of_equal_ones_is_asked_for_where_nothing_is_rounded(function):
    assert not lost(function, FEW, TWINS).any()
    assert lost(function, X, np.concatenate([X, X])).any(), "another order of a sum may make either the larger one"


def test_what_a_loop_carries_is_as_sure_as_what_it_is_made_of():
    moves = np.round(2 * RANDOM.normal(size=(32, 32))).astype(np.float32)
    moves[1::2] = moves[::2]
    assert not lost(best_paths, np.repeat(FEW[:, ::2], 2, axis=1), moves).any()
    assert lost(best_paths, np.repeat(X[:, ::2], 2, axis=1), moves).any()


def test_a_function_keeps_equal_ones_equal_along_its_line_and_a_formula_of_two_does_not():
    assert not lost(lambda x: jnp.argmax(jnp.exp(x) * jnp.sum(jnp.exp(x), axis=1, keepdims=True), axis=1), FEW).any()
    assert lost(lambda x: jnp.argmax(jnp.exp(x) / (1.0 + jnp.exp(x)), axis=1), FEW).any()


def test_a_sum_is_told_apart_by_its_terms():
    def first(x, y):
        return jnp.argmax(jnp.exp(x) + y)

    twins = np.array([1.0, 2.0, 2.0], np.float32), np.array([0.0, 1.0, 1.0], np.float32)
    assert not lost(first, *twins)
    same = np.array([0.0, 0.0, -50.0], np.float32), np.array([1.0, 1.0, 2.0], np.float32)
    assert lost(first, *same), "2 of a function and 2 of an input may be apart"


def test_sums_of_more_bits_than_a_float32_has_are_not_sure():
    wide = FEW * np.where(np.arange(32) % 2, 1.0, 2.0**22).astype(np.float32)
    twins = np.concatenate([wide, wide])
    assert lost(lambda c: jnp.argmax(jnp.sum(c, axis=1)), twins)
    assert not lost(lambda c: jnp.argmax(jnp.sum(c, axis=1)), TWINS)


def test_an_unsure_one_beside_equal_ones_leaves_their_order_open():
    one = np.nextafter(np.float32(3), np.float32(4))

    def top(x, y):
        return jax.lax.top_k(jnp.concatenate([x * 1.0, y * 1.1]), 2)[1]

    equal = np.array([3, 3, 1], np.float32)
    assert not lost(top, equal, np.ones(1, np.float32)).any()
    assert lost(top, equal, np.array([one / 1.1], np.float32)).all()


def test_a_rounding_of_a_tie_has_one_answer_where_it_is_one():
    halves = np.array([[0.5, 1.5, -2.5, 3.0]], np.float32)
    assert not lost(lambda x: jnp.round(x + 1.0).astype(jnp.int32), halves).any()
    assert lost(lambda x: jnp.round(x * 1.1).astype(jnp.int32), halves / np.float32(1.1)).any()


def test_a_sort_that_promises_no_order_has_none():
    ties = np.array([[1.0, 1.0, 2.0]], np.float32)

    def places(*, is_stable):
        iota = jnp.arange(3, dtype=jnp.int32)[None]
        return lambda x: jax.lax.sort((x, iota), num_keys=1, is_stable=is_stable)[1]

    assert not lost(places(is_stable=True), ties).any()
    assert lost(places(is_stable=False), ties)[0].tolist() == [2, 2, 0]
