"""The rules of the analysis one by one: what stays exact, what moves how far, and the sums by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ratchet.exam.problem.promote import with_losses

BF16, EPS = jnp.bfloat16, 2.0**-23
OWN = EPS / 4
"""What a rounding to float32 loses of a value of one."""
APART = np.sqrt(2) * OWN
"""What ``x * 1.0`` loses of one before its own rounding."""
X = np.array([[-1.5, -0.3, 0.25, 0.7], [1.0, 2.25, 3.0, -4.0], [0.5, 6.0, -7.0, 1e-3]], np.float32)
X = np.nextafter(X, np.float32(9))
Y = np.array([[0.9, -1.7, -2.0, 0.4], [3.0, -0.6, 1.2, 5.0], [2.0, 0.8, -1.1, 4.0]], np.float32)
Y = np.nextafter(Y, np.float32(9))  # numbers of few bits are sure: see test_ties.py
N = np.array([[3, 1, 2, 0], [7, 5, 4, 6], [2, 2, 8, 1]], np.int32)
STEP = np.nextafter(np.array([0.5, 0.7, 1.5, 2.5], np.float32), np.float32(9))
"""``floor(STEP + 0.5)`` is 1, 1, 2 and 3: less by one, for all that is known, except for the second."""


def evaluated(function: Callable[..., Any], *arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    """The value of a function of one result, and its loss."""
    avals = [jax.ShapeDtypeStruct(np.shape(a), np.asarray(a).dtype) for a in arrays]
    with jax.enable_x64(True):
        exact, loss = jax.jit(with_losses(function, *avals))(*arrays)
    return np.asarray(exact), np.asarray(loss)


def lost(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    return evaluated(function, *arrays)[1]


def unsure(step: jax.Array) -> jax.Array:
    """Integers 1, 1, 2, 3 that may be off by 1, 0, 1 and 1."""
    return jnp.floor(step + 0.5).astype(jnp.int32)


# --- what is exact: comparing it with an equal input has one answer ---

SAME: dict[str, Callable[[Any, Any, Any], Any]] = {
    "negative": lambda x, y, n: -x,
    "absolute": lambda x, y, n: jnp.abs(x),
    "larger": lambda x, y, n: jnp.maximum(x, y),
    "clipped": lambda x, y, n: jnp.clip(x, -1.0, 2.0),
    "picked": lambda x, y, n: jnp.where(x > y, x, y),
    "transposed": lambda x, y, n: x.T.reshape(6, 2)[::-1, 0],
    "repeated": lambda x, y, n: jnp.broadcast_to(x[:, :1], (3, 4)),
    "joined": lambda x, y, n: jnp.concatenate([x, y]),
    "padded": lambda x, y, n: jnp.pad(x, 1),
    "taken": lambda x, y, n: x[jnp.array([2, 0])],
    "cut out": lambda x, y, n: lax.dynamic_slice(x, (n[0, 1], 1), (2, 2)),
    "put in": lambda x, y, n: lax.dynamic_update_slice(x, y[:2, :2], (n[0, 1], 1)),
    "set": lambda x, y, n: x.at[jnp.array([1])].set(y[0]),
    "of an integer": lambda x, y, n: (n * 3 + 1).astype(jnp.float32),
    "of a product of integers": lambda x, y, n: jnp.dot(n, n.T).astype(jnp.float32),
    "of a sum of integers": lambda x, y, n: jnp.sum(n, axis=1).astype(jnp.float32),
    "of an unknown operation on integers": lambda x, y, n: jnp.prod(n, axis=1).astype(jnp.float32),
    "of integers added in places": lambda x, y, n: n.at[jnp.array([1, 1])].add(n[:2]).astype(jnp.float32),
    "of an integer that is cut": lambda x, y, n: x.astype(jnp.int32).astype(jnp.float32),
    "of a comparison": lambda x, y, n: ((x > y) & (n > 2) | ~(y > 0)).astype(jnp.float32),
    "of any comparison": lambda x, y, n: jnp.any(x > y, axis=0).astype(jnp.float32),
    "of a finite one": lambda x, y, n: jnp.isfinite(x).astype(jnp.float32),
    "of a place": lambda x, y, n: jnp.argmax(x, axis=1).astype(jnp.float32),
    "of places": lambda x, y, n: lax.top_k(x, 2)[1].astype(jnp.float32),
    "floor": lambda x, y, n: jnp.floor(x),
    "sign": lambda x, y, n: jnp.sign(x),
    "largest": lambda x, y, n: jnp.max(x, axis=1),
    "sorted": lambda x, y, n: jnp.sort(x, axis=0),
    "sorted along": lambda x, y, n: lax.sort((x, y), num_keys=1)[1],
    "sorted along integers": lambda x, y, n: lax.sort((n, y), num_keys=1)[1],
    "sorted by two": lambda x, y, n: lax.sort((n, x, y), num_keys=2)[2],
    "top": lambda x, y, n: lax.top_k(x, 2)[0],
    "copied": lambda x, y, n: jnp.copy(lax.stop_gradient(lax.optimization_barrier((x, y))[0])),
}
COMPUTED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "multiplied": lambda x, y, n: x * 1.0,
    "larger of a computed one": lambda x, y, n: jnp.maximum(x * 1.0, y * 1.0),
    "larger of one computed": lambda x, y, n: jnp.maximum(jnp.abs(x) * 1.0, 0.0),
    "picked of a computed one": lambda x, y, n: jnp.where(x > -9.0, x * 1.0, y),
    "picked of another computed one": lambda x, y, n: jnp.where(x > -9.0, x, y * 1.0),
    "joined with a computed one": lambda x, y, n: jnp.concatenate([x, y * 1.0]),
    "padded with a computed one": lambda x, y, n: lax.pad(x, y[0, 0] * 1.0, ((0, 0, 0), (1, 0, 0))),
    "put in, computed": lambda x, y, n: lax.dynamic_update_slice(x, y[:2, :2] * 1.0, (1, 1)),
    "set to a computed one": lambda x, y, n: x.at[jnp.array([1])].set(y[0] * 1.0),
    "set in a computed one": lambda x, y, n: (x * 1.0).at[jnp.array([1])].set(y[0]),
    "reduced": lambda x, y, n: lax.reduce_precision(x, 8, 23),
    "sorted along a computed one": lambda x, y, n: lax.sort((x * 1.0, y), num_keys=1)[1],
    "sorted by two, the second computed": lambda x, y, n: lax.sort((n, x * 1.0, y), num_keys=2)[2],
    "sorted, computed": lambda x, y, n: lax.sort((x, y * 1.0), num_keys=1)[1],
}
INPUTS = (X, Y, N)


def answers(function: Callable[..., Any]) -> np.ndarray:
    """What comparing a result with an equal input loses."""
    equal = np.asarray(function(*map(jnp.asarray, INPUTS)), np.float32)
    return lost(lambda x, y, n, e: function(x, y, n) > e, *INPUTS, equal)


@pytest.mark.parametrize("name", SAME)
def test_what_is_picked_from_inputs_is_exact(name: str) -> None:
    assert not answers(SAME[name]).any()


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_is_not_exact(name: str) -> None:
    assert answers(COMPUTED[name]).all()


def test_an_input_that_is_rounded_is_computed_and_one_that_is_widened_is_not() -> None:
    def compared(dtype: Any) -> Callable[..., Any]:
        return lambda x, e: x.astype(dtype).astype(jnp.float32) > e

    narrow = X.astype(BF16)
    assert lost(compared(BF16), X, narrow.astype(np.float32)).all()
    assert not lost(compared(jnp.float32), narrow, narrow.astype(np.float32)).any()
    assert not lost(compared(BF16), narrow, narrow.astype(np.float32)).any()


# --- how near is near: eight losses. Of ``x * 1.0`` near one that is 3.5 units of float32, beside an input 4. One
# itself has few bits, and is sure ---


def ulps(*counts: int) -> np.ndarray:
    return np.float32(1) + np.array(counts, np.float32) * np.float32(EPS)


NEAR: dict[str, tuple[Callable[[Any], Any], np.ndarray, list[float]]] = {
    "compared": (lambda x: x * 1.0 > jnp.ones(4), ulps(0, 3, 5, -10), [0, 1, 0, 0]),
    "compared, equal": (lambda x: x * 1.0 == jnp.ones(4), ulps(0, 3, 5, -10), [0, 1, 0, 0]),
    "floor": (lambda x: jnp.floor(x * 1.0), ulps(0, 3, 4, -3), [0, 1, 0, 1]),
    "floor far below": (lambda x: jnp.floor(x * 1.0), ulps(-1, -3, -4, -9), [1, 1, 0, 0]),
    "ceil": (lambda x: jnp.ceil(x * 1.0), ulps(0, 3, 4, -3), [0, 1, 0, 1]),
    "cut": (lambda x: (x * 1.0).astype(jnp.int32), ulps(0, 3, 4, 9), [0, 1, 0, 0]),
    "place of the largest": (lambda x: jnp.argmax(x * 1.0), ulps(1, 7, 4, -8), [2]),
    "place of the largest, apart": (lambda x: jnp.argmax(x * 1.0), ulps(0, 8, 0, 0), [0]),
    "place of the smallest": (lambda x: jnp.argmin(x * 1.0), ulps(10, 7, 1, 4), [2]),
    "place of the smallest, apart": (lambda x: jnp.argmin(x * 1.0), ulps(9, 8, 0, 8), [0]),
    "places of the top": (lambda x: lax.top_k(x * 1.0, 2)[1], ulps(30, 6, 0, -9), [0, 4]),
    "places of the top, apart": (lambda x: lax.top_k(x * 1.0, 2)[1], ulps(30, 8, 0, -9), [0, 0]),
    "places of the top, below much larger ones": (
        lambda x: lax.top_k(x * 1.0, 3)[1],
        np.append(np.array([1000, 2000], np.float32), ulps(20, 0)),
        [0, 0, 0],
    ),
    "place of the largest of inputs": (jnp.argmax, ulps(0, 3, 1, 2), [0]),
    "places of the top of inputs": (lambda x: lax.top_k(x, 2)[1], ulps(0, 3, 1, 2), [0, 0]),
    "places of all": (lambda x: lax.top_k(x * 1.0, 4)[1], ulps(30, 36, 0, -9), [4, 4, 0, 0]),
    "order": (lambda x: jnp.argsort(x * 1.0), ulps(30, 0, 6, -9), [0, 3, 3, 0]),
    "order, apart": (lambda x: jnp.argsort(x * 1.0), ulps(30, 0, 8, -9), [0, 0, 0, 0]),
    "order of all": (lambda x: jnp.argsort(x * 1.0), ulps(3, 0, 30, 33), [3, 3, 3, 3]),
}


@pytest.mark.parametrize("name", NEAR)
def test_near_is_within_eight_losses(name: str) -> None:
    function, x, wanted = NEAR[name]
    assert np.atleast_1d(np.round(lost(function, x), 3)).tolist() == wanted


@pytest.mark.parametrize("axis", [0, 1])
def test_places_along_any_axis(axis: int) -> None:
    """Two that are near in one line, on either axis of an array that is no square."""
    x = np.moveaxis(np.array([[1, 2, 3, 4, 1], [2, 1, 1, 2, 3], [1, 5, 2, 3, 4]], np.float32), 0, 1 - axis)
    x = np.nextafter(x, np.float32(9))
    along = np.moveaxis(x, axis, -1)

    def lines(function: Callable[[Any], Any], *more: Any) -> list[Any]:
        return np.moveaxis(lost(function, x, *more), axis, -1).tolist()

    assert lost(lambda x: jnp.argmax(x * 1.0, axis=axis), x).tolist() == [0, 0, 0]
    assert lost(lambda x: jnp.argmin(x * 1.0, axis=axis), x).tolist() == [4, 1, 0]
    order = np.argsort(along, axis=1, kind="stable")
    tied = [[4, 4, 0, 0, 0], [4, 4, 4, 4, 0], [0, 0, 0, 0, 0]]
    assert lines(lambda x: jnp.argsort(x * 1.0, axis=axis)) == tied
    payload = np.array([9.0, -2.0, 3.0, 4.0, 5.0], np.float32)
    with_payload = np.moveaxis(np.broadcast_to(payload, (3, 5)), -1, axis)
    moved = np.moveaxis(
        lost(lambda x, v: lax.sort((x * 1.0, v), dimension=axis, num_keys=1)[1], x, with_payload), axis, -1
    )
    np.testing.assert_allclose(
        moved, np.where(np.array(tied) > 0, 9.0, 0.0) + APART * np.abs(payload[order]), rtol=1e-5
    )


def test_what_is_tied_at_the_edge_of_the_top_of_several_lines() -> None:
    x = np.nextafter(np.array([[1, 5, 4, 2, 3], [1, 2, 2, 0, 0], [3, 3, 9, 8, 7]], np.float32), np.float32(99))
    assert lost(lambda x: lax.top_k(x * 1.0, 2)[1], x).tolist() == [[0, 0], [5, 5], [0, 0]]
    assert lost(lambda x: lax.top_k(x * 1.0, 3)[1], x).tolist() == [[0, 0, 0], [5, 5, 0], [0, 0, 0]]
    values = lost(lambda x: lax.top_k(x * 1.0, 2)[0], x)
    np.testing.assert_allclose(values, 2 * OWN * np.array([[5, 4], [2, 2], [9, 8]]), rtol=1e-4)


def test_losses_go_where_their_values_are_sorted_to() -> None:
    """Along keys that are inputs, which no rounding puts in another order."""
    order = np.argsort(X, axis=1)
    loss = lost(lambda x, y: lax.sort((x, y * 1.0), num_keys=1)[1], X, Y)
    np.testing.assert_allclose(loss, 2 * OWN * np.abs(np.take_along_axis(Y, order, axis=1)), rtol=1e-4)


# --- how far something moves, in both directions ---


@pytest.mark.parametrize(
    ("function", "moves"),
    [
        (lambda x: jnp.maximum(x * 1.0, jnp.ones(3)), [0, 1, 2]),
        (lambda x: jnp.minimum(x * 1.0, jnp.ones(3)), [0.5, 1, 0]),
        (lambda x: jnp.maximum(jnp.ones(3), x * 1.0), [0, 1, 2]),
        (lambda x: lax.clamp(1.0, x * 1.0, 9.0), [0, 1, 2]),
        (lambda x: lax.clamp(0.0, x * 1.0, 1.0), [0.5, 1, 0]),
    ],
)
def test_what_is_picked_moves_as_far_as_what_was_computed(function: Callable[[Any], Any], moves: list[float]) -> None:
    exact, loss = evaluated(function, np.array([0.5, 1.0, 2.0], np.float32))
    np.testing.assert_allclose(loss, np.hypot(np.array(moves) * APART, OWN * exact), rtol=1e-4)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda n: n + 5, [1, 0, 1, 1]),
        (lambda n: 5 - n, [1, 0, 1, 1]),
        (lambda n: n * n, [1, 0, 2, 3]),
        (lambda n: n * 3, [3, 0, 3, 3]),
        (lambda n: lax.div(n, 3), [0, 0, 1, 1]),
        (lambda n: lax.max(n, 2), [0, 0, 1, 1]),
        (lambda n: lax.min(n, 2), [1, 0, 1, 0]),
        (lambda n: lax.rem(n, 3), [1, 0, 2, 2]),
        (lambda n: n > 2, [1, 0, 1, 1]),
        (lambda n: jnp.full(4, 2) < n, [1, 0, 1, 1]),
        (lambda n: n == n[::-1], [1, 1, 1, 1]),
        (lambda n: jnp.sign(n - 2), [2, 0, 2, 2]),
        (jnp.sum, 3),
        (jnp.cumsum, [1, 1, 2, 3]),
        (jnp.max, 1),
        (lambda n: jnp.min(-n), 1),
        (lambda n: n.at[jnp.array([0, 0])].add(n[2:]), [3, 0, 1, 1]),
        (lambda n: jnp.zeros(4, jnp.int32).at[jnp.array([1])].add(n[2:3]), [0, 1, 0, 0]),
        (lambda n: jnp.concatenate([n[2:], jnp.array([7, 7])]), [1, 1, 0, 0]),
        (lambda n: (n > 1) | (n > 7), [1, 0, 1, 0]),
        (lambda n: jnp.any((n > 1)[:2]), 1),
        (lambda n: jnp.any((n > 3)[:2]), 0),
        (lambda n: n.astype(jnp.int8).astype(jnp.int32), [1, 0, 1, 1]),
    ],
)
def test_an_integer_moves_as_far_as_either_neighbour(function: Callable[[Any], Any], wanted: Any) -> None:
    assert lost(lambda step: function(unsure(step)), STEP).tolist() == wanted


@pytest.mark.parametrize(
    "product",
    [
        lambda n: n @ jnp.array([[3, 0], [100, 9], [0, 5], [4, 12]]),
        lambda n: jnp.array([[3, 100, 0, 4], [0, 9, 5, 12]]) @ n,
        lambda n: lax.conv(n.reshape(1, 1, 4), jnp.array([[[3, 100, 0, 4]], [[0, 9, 5, 12]]]), (1,), "VALID").ravel(),
    ],
)
def test_a_product_of_integers_moves_as_their_factors_say(product: Callable[[Any], Any]) -> None:
    """What was rounded to 1, 1, 2, 3 is off by 1, 0, 1, 1: as rows that are quantised and multiplied."""
    assert lost(lambda step: product(unsure(step)), STEP).tolist() == [5.0, 13.0]


def test_a_product_of_two_integers_that_are_not_sure() -> None:
    assert lost(lambda step: unsure(step) @ unsure(step), STEP) == pytest.approx(np.sqrt(2 * (1 + 4 + 9)))


def test_the_less_exact_of_two_counts() -> None:
    """A value that was rounded to bfloat16 beside one that was not."""

    def narrow(x: jax.Array) -> jax.Array:
        return (x * 1.0).astype(BF16).astype(jnp.float32)

    for function in (
        lambda x, y: jnp.maximum(narrow(x), y * 1.0),
        lambda x, y: jnp.maximum(y * 1.0, narrow(x)),
        lambda x, y: jnp.where(x < 9.0, narrow(x), y * 1.0),
        lambda x, y: jnp.where(x < 9.0, y * 1.0, narrow(x)),
        lambda x, y: jnp.concatenate([narrow(x), y * 1.0]),
        lambda x, y: jnp.concatenate([y * 1.0, narrow(x)]),
        lambda x, y: (x * 1.0).at[jnp.array([1])].set(narrow(y[0])),
        lambda x, y: narrow(x).at[jnp.array([1])].set(y[0] * 1.0),
    ):
        loss = lost(lambda x, y, f=function: f(x, y) * 1.0, X, Y)
        assert np.median(loss) > 2.0**-12


@pytest.mark.parametrize("function", [jnp.max, jnp.min, lambda x, axis: lax.cummax(x, axis=axis)[:, -1]])
def test_the_extreme_of_equal_ones_is_the_least_exact(function: Callable[..., Any]) -> None:
    def pairs(x: jax.Array) -> jax.Array:
        return function(jnp.stack([x * 1.0, (x + 1000.0) - 1000.0, x * 1.0], axis=1), axis=1)

    x = np.array([1.0, 2.0], np.float32)
    assert (lost(pairs, x) > 100 * OWN).all()
    assert (lost(lambda x: -function(-jnp.stack([x * 1.0, x * 1.0], axis=1), axis=1), x) < 20 * OWN * x).all()


# --- a factor after a product may be rounded into an operand ---


Q, K = (np.round(x * 4).astype(BF16) for x in (X, Y))
R = X[:, :3]
EARLY = np.sqrt(2 * np.square(Q.astype(float)) @ np.square(K.astype(float)).T) * 2.0**-7 / 4


def product(q: Any, k: Any) -> jax.Array:
    """3 x 3, of bfloat16 accumulated in float32: all that can be lost is what a factor costs."""
    return jnp.dot(q, k.T, preferred_element_type=jnp.float32)


AFTER: dict[str, tuple[bool, Callable[[Any, Any], Any]]] = {
    "nothing": (True, lambda p, r: p),
    "a sum": (False, lambda p, r: p + 0.0),
    "the sign": (True, lambda p, r: -p),
    "the absolute": (False, lambda p, r: jnp.abs(p)),
    "the largest": (False, lambda p, r: jnp.max(p[:, :, None], axis=2)),
    "the running largest": (False, lambda p, r: lax.cummax(p, axis=1)),
    "it is turned": (True, lambda p, r: p.T),
    "it is shaped": (True, lambda p, r: p.reshape(9)),
    "it is cut": (True, lambda p, r: p[:, 1:]),
    "it is reversed": (True, lambda p, r: p[::-1]),
    "it is copied": (True, lambda p, r: jnp.copy(p)),
    "it is squeezed": (True, lambda p, r: jnp.squeeze(p.reshape(3, 1, 3), 1)),
    "it is repeated": (False, lambda p, r: jnp.broadcast_to(p[None], (2, 3, 3))),
    "it is joined": (False, lambda p, r: jnp.concatenate([p, p])),
    "it is picked": (True, lambda p, r: jnp.where(r > -99.0, p, 0.0)),
    "it is picked as the second": (True, lambda p, r: jnp.where(r < -99.0, 0.0, p)),
    "it is rounded": (False, lambda p, r: lax.reduce_precision(p, 8, 23)),
}
BY: dict[str, tuple[bool, Callable[[Any, Any], Any]]] = {
    "a number": (True, lambda p, r: p * 0.5),
    "a number before it": (True, lambda p, r: 0.5 * p),
    "division by a number": (True, lambda p, r: p / 2.0),
    "the exponential of a number": (True, lambda p, r: p * jnp.exp(jnp.full((3, 3), -1.0))),
    "a column": (True, lambda p, r: p * r[:, :1]),
    "an array": (False, lambda p, r: p * r),
    "the exponential of an array": (False, lambda p, r: p * jnp.exp(r)),
    "a product": (False, lambda p, r: p * jnp.dot(r, r, precision="highest")),
    "a repeated column": (True, lambda p, r: p * jnp.broadcast_to(r[:, :1], (3, 3))),
    "a repeated column, turned": (True, lambda p, r: p * jnp.broadcast_to(r[:, :1], (3, 3)).T),
    "an array, turned": (False, lambda p, r: p * r.T),
    "a repeated column and a number": (True, lambda p, r: p * (jnp.broadcast_to(r[:, :1], (3, 3)) + 1.0)),
    "a repeated column and an array": (False, lambda p, r: p * (jnp.broadcast_to(r[:, :1], (3, 3)) + r)),
    "the larger of two numbers": (True, lambda p, r: p * jnp.maximum(jnp.full((3, 3), 0.5), jnp.full((3, 3), 0.25))),
    "the larger of a number and an array": (False, lambda p, r: p * jnp.maximum(jnp.full((3, 3), 0.5), r)),
    "one of two numbers": (True, lambda p, r: p * jnp.where(r > 0, jnp.full((3, 3), 0.5), jnp.full((3, 3), 2.0))),
    "a number or an element": (False, lambda p, r: p * jnp.where(r > 0, jnp.full((3, 3), 0.5), r)),
    "a number and an array, joined": (False, lambda p, r: p * jnp.concatenate([jnp.full((1, 3), 0.5), r[:2]])),
}


@pytest.mark.parametrize("name", AFTER)
def test_after_what_a_factor_may_be_rounded_into_an_operand(name: str) -> None:
    counts, function = AFTER[name]
    assert (np.median(lost(lambda q, k, r: function(product(q, k), r) * 0.5, Q, K, R)) > 1e-2) == counts


@pytest.mark.parametrize("name", BY)
def test_which_factors_may_be_rounded_into_an_operand(name: str) -> None:
    counts, function = BY[name]
    assert (np.median(lost(lambda q, k, r: function(product(q, k), r), Q, K, R)) > 1e-2) == counts


def test_what_a_factor_costs_is_a_rounding_of_both_operands() -> None:
    """Where only the sum of the product rounds: not of float32, and no more than that of operands rounded before."""
    np.testing.assert_allclose(lost(lambda q, k: product(q, k) * 0.5, Q, K), EARLY / 2, rtol=1e-4)
    np.testing.assert_allclose(lost(lambda q, k: product(q, k) / 4.0, Q, K), EARLY / 4, rtol=1e-4)
    assert (lost(product, Q, K) < 1e-4).all()
    assert (lost(lambda r: jnp.dot(r, r, precision="highest") * 0.5, R) < 1e-4).all()

    def rounded(q: jax.Array) -> jax.Array:
        return (q.astype(jnp.float32) * 1.5).astype(BF16)

    before = lost(lambda q, k: product(rounded(q), k), Q, K)
    np.testing.assert_allclose(lost(lambda q, k: product(rounded(q), k) * 0.5, Q, K), before / 2, rtol=1e-4)


# --- sums, by the formulas that the module gives: u sqrt(n / 6 sum t^2) and u sqrt(n) |sum| / 3, where u is EPS / 2 ---


def of_terms(terms: np.ndarray, total: np.ndarray, count: int, *, each: float = 0.0, eps: float = EPS) -> np.ndarray:
    """The loss of sums over the last axis of ``terms``, of which each lost ``each`` times itself before."""
    squares = np.sum(np.square(terms), axis=-1)
    variance = each**2 * squares + (eps / 2) ** 2 * (max(count, 2) / 6 * squares + count * total**2 / 9)
    return np.hypot(np.sqrt(variance), OWN * np.abs(total))


def windows(x: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=-1)


def test_a_sum_in_any_order() -> None:
    for function, terms, count in (
        (lambda x: jnp.sum(x, axis=1), X, 4),
        (lambda x: jnp.sum(x, axis=0), X.T, 3),
        (jnp.sum, X.reshape(1, 12), 12),
        (lambda x: jnp.sum(x[:, :1], axis=1), X[:, :1], 1),
        (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "VALID"), windows(X, 2), 2),
        (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 1), "VALID"), windows(X, 3), 3),
    ):
        total, loss = evaluated(function, X)
        np.testing.assert_allclose(total, terms.astype(float).sum(-1).reshape(total.shape), atol=1e-12)
        wanted = of_terms(terms.astype(float), terms.astype(float).sum(-1), count, each=OWN)
        np.testing.assert_allclose(loss, wanted.reshape(loss.shape), rtol=1e-4)


@pytest.mark.parametrize(("dtype", "eps"), [(np.float32, EPS), (BF16, 2.0**-7)])
def test_a_running_sum_is_rounded_to_its_own_dtype(dtype: Any, eps: float) -> None:
    """Of a narrow one each partial sum is; the sum at the end of a whole one is accumulated in float32."""
    x = np.ones((2, 8), np.float32).astype(dtype)
    running = np.tril(np.ones((8, 8)))
    total = np.arange(1.0, 9.0)
    wanted = of_terms(running, total, 8, each=OWN, eps=eps)
    np.testing.assert_allclose(lost(lambda x: jnp.cumsum(x, axis=1), x), np.broadcast_to(wanted, (2, 8)), rtol=1e-4)
    np.testing.assert_allclose(lost(lambda x: jnp.cumsum(x, axis=0), x.T), np.broadcast_to(wanted, (2, 8)).T, rtol=1e-4)
    whole = of_terms(np.ones((1, 8)), np.array([8.0]), 8, each=OWN)
    np.testing.assert_allclose(lost(lambda x: jnp.sum(x, axis=1, dtype=jnp.float32), x), [whole[0]] * 2, rtol=1e-4)


def test_a_product_and_a_convolution_are_sums_of_products() -> None:
    terms = X[:, None].astype(float) * Y[None]
    wanted = of_terms(terms, terms.sum(-1), 4, each=np.sqrt(2) * OWN)
    np.testing.assert_allclose(lost(lambda x, y: jnp.dot(x, y.T, precision="highest"), X, Y), wanted, rtol=1e-4)
    series, filters = X[:, :3].reshape(1, 9, 1).repeat(2, axis=2), Y.reshape(3, 2, 2)
    series[..., 1] *= 0.5

    def convolved(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, y, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), precision=lax.Precision.HIGHEST
        )

    wide = np.lib.stride_tricks.sliding_window_view(series[0].astype(float), 3, axis=0)  # place, input, tap
    terms = np.einsum("pit,tio->poit", wide, filters.astype(float)).reshape(7, 2, 6)
    exact, loss = evaluated(convolved, series, filters)
    np.testing.assert_allclose(exact[0], terms.sum(-1), atol=1e-12)
    np.testing.assert_allclose(loss[0], of_terms(terms, terms.sum(-1), 6, each=np.sqrt(2) * OWN), rtol=1e-4)


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [("default", 2.0**-9), ("high", 2.0**-17), ("highest", np.sqrt(2 + 16 * 2 / 24 + 16 / 36 + 1) * OWN)],
)
def test_a_product_of_one_term_loses_what_its_precision_leaves_out(precision: str, wanted: float) -> None:
    """Of a value that takes all bits of float32; of one that fits into what is kept, nothing."""
    one = np.array([[1.0]], np.float32)
    for value, fits in ((1 + 2.0**-12 + 2.0**-20, False), (1 + 2.0**-10, precision != "default"), (1.5, True)):
        loss = lost(lambda x, y: jnp.dot(x, y, precision=precision), np.array([[value]], np.float32), one)
        np.testing.assert_allclose(
            loss, [[np.sqrt(2 + 16 * 2 / 24 + 16 / 36 + 1) * OWN * value if fits else wanted]], rtol=1e-2
        )


def rounded_to_bf16(x: jax.Array) -> jax.Array:
    return (x * 1.0).astype(BF16).astype(jnp.float32)


@pytest.mark.parametrize(("count", "together"), [(4, False), (5, True), (8, True)])
def test_roundings_of_equal_terms_add_up(count: int, together: bool) -> None:
    """Each is rounded down by 2**-9: what that makes of n terms counts from where it is twice what chance makes."""
    x = np.full((1, count), 1 + 2.0**-9, np.float32)
    wanted = count * 2.0**-9 if together else np.sqrt(count) * 2.0**-9 * (1 + 2.0**-9)
    np.testing.assert_allclose(lost(lambda x: jnp.sum(rounded_to_bf16(x), axis=1), x), [wanted], rtol=1e-3)


def test_roundings_of_equal_terms_add_up_in_products_on_either_side() -> None:
    x, ones = np.full((1, 8), 1 + 2.0**-8 + 2.0**-9, np.float32), np.ones((8, 1), np.float32)
    wanted = [[8 * 2.0**-9]]
    for function in (
        lambda x, y: jnp.dot(rounded_to_bf16(x), y, precision="highest"),
        lambda x, y: jnp.dot(y.T, rounded_to_bf16(x).T, precision="highest"),
    ):
        np.testing.assert_allclose(lost(function, x, ones), wanted, rtol=1e-2)
    assert lost(lambda x: jnp.sum(x.astype(jnp.float32), axis=1), x.astype(BF16)) < 8 * 2.0**-16


# --- numbers that are moved by an index ---

ROWS = np.array([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0], [7.0, -8.0]], np.float32)


def at(x: jax.Array, *where: Any) -> jax.Array:
    """As ``x[where]``, without the operations that make sense of numbers below zero."""
    return x.at[where].get(mode="promise_in_bounds")


def test_a_row_that_is_taken_may_be_another() -> None:
    """By twice the largest number there is: only the rows whose index is not sure, in whatever place they are put."""
    taken = np.array([[16, 16], [0, 0], [16, 16], [16, 16]])
    everything = slice(None)
    for function, wanted in (
        (lambda x, p: at(x, unsure(p) - 1), taken),
        (lambda x, p: at(x.T, everything, unsure(p) - 1), taken.T),
        (lambda x, p: at(x, unsure(p) - 1, jnp.array([1, 1, 0, 0])), taken[:, 0]),
        (lambda x, p: at(x, jnp.array([0, 1, 2, 3]), unsure(p) - 1), taken[:, 0]),
    ):
        assert np.round(lost(function, ROWS, STEP)).tolist() == wanted.tolist()
    holes = np.where(ROWS == 3.0, np.inf, ROWS)
    assert np.round(lost(lambda x, p: at(x, unsure(p) - 1)[:1], holes, STEP)).tolist() == [[16, 16]]
    computed = lost(lambda x, p: at(x * 1.0, unsure(p) - 1), ROWS, STEP)
    np.testing.assert_allclose(computed[1], np.sqrt(3) * OWN * np.abs(ROWS[0]), rtol=1e-4)
    assert (computed[[0, 2, 3]] >= 16).all()


def test_a_part_that_is_cut_out_may_be_another() -> None:
    def cut(x: jax.Array, p: jax.Array, n: int) -> jax.Array:
        return lax.dynamic_slice(x, (unsure(p)[n], 0), (2, 2))

    assert np.round(lost(lambda x, p: cut(x, p, 0), ROWS, STEP)).tolist() == [[16, 16], [16, 16]]
    np.testing.assert_allclose(lost(lambda x, p: cut(x, p, 1), ROWS, STEP), OWN * np.abs(ROWS[1:3]), rtol=1e-4)
    assert np.round(lost(lambda x, p: lax.dynamic_slice(x, (0, unsure(p)[0] - 1), (4, 1)), ROWS, STEP)).max() == 16


def test_a_part_that_is_put_in_may_be_elsewhere() -> None:
    def put(x: jax.Array, p: jax.Array, n: int) -> jax.Array:
        return lax.dynamic_update_slice(x, jnp.full((1, 2), 9.0), (unsure(p)[n], 0))

    assert np.round(lost(lambda x, p: put(x, p, 0), ROWS, STEP)).tolist() == [[16, 16]] * 4
    assert lost(lambda x, p: put(x, p, 1), ROWS, STEP).max() < 1e-5


def test_a_row_that_is_set_may_be_another() -> None:
    """By the largest number that is there and the largest that is put."""
    updates = np.array([[20.0, -30.0]], np.float32)

    def put(x: jax.Array, p: jax.Array, u: jax.Array) -> jax.Array:
        return x.at[unsure(p)[:1]].set(u)

    np.testing.assert_allclose(lost(put, ROWS, STEP, updates), np.full((4, 2), 38.0), rtol=1e-6)
    sure = lost(lambda x, p, u: x.at[unsure(p)[1:2]].set(u), ROWS, STEP, updates)
    exact = ROWS.copy()
    exact[1] = updates
    np.testing.assert_allclose(sure, OWN * np.abs(exact), rtol=1e-4)


@pytest.mark.parametrize("computed", ["what is there", "what is put"])
def test_a_row_that_is_set_loses_what_it_lost_before(computed: str) -> None:
    there, put = (1.0, 0.0) if computed == "what is there" else (0.0, 1.0)

    def times(x: jax.Array, how: float) -> jax.Array:
        return x * 1.0 if how else x

    loss = lost(lambda x, u: times(x, there).at[jnp.array([1])].set(times(u, put)), ROWS, ROWS[:1])
    exact = ROWS.copy()
    exact[1] = ROWS[0]
    factor = np.where(np.arange(4)[:, None] == 1, put, there)
    np.testing.assert_allclose(loss, np.hypot(factor * APART, OWN) * np.abs(exact), rtol=1e-4)


def test_what_is_added_in_places_is_a_sum_of_as_many_terms_as_there_are_rows() -> None:
    updates = np.array([[2.0, 4.0], [8.0, 16.0], [32.0, 64.0]], np.float32)
    for rows, dtype, eps in (((1,), np.float32, EPS), ((1, 1, 3), np.float32, EPS), ((1, 1, 3), BF16, 2.0**-7)):
        places = jnp.array(rows)
        exact, loss = evaluated(
            lambda x, u, at=places: x.at[at].add(u), ROWS.astype(dtype), updates[: len(rows)].astype(dtype)
        )
        squares, count = np.square(ROWS.astype(float)) * OWN**2, max(2, len(rows))
        for row, update in zip(rows, updates, strict=False):
            squares[row] += np.square(update) * (OWN**2 + (eps / 2) ** 2 * count / 6)
        variance = squares + (eps / 2) ** 2 * count * exact**2 / 9
        np.testing.assert_allclose(loss, np.hypot(np.sqrt(variance), OWN * np.abs(exact)), rtol=1e-4)


def test_what_is_added_in_an_unsure_place_may_be_anywhere() -> None:
    """For each such place by the largest number that is added."""
    updates = np.array([[2.0, 4.0], [8.0, 16.0], [-32.0, 1.0], [3.0, 3.0]], np.float32)
    for count, wanted in ((1, 4), (2, 16), (3, 64), (4, 96)):
        loss = lost(lambda x, p, u, n=count: x.at[unsure(p)[:n] - 1].add(u[:n]), ROWS, STEP, updates)
        np.testing.assert_allclose(loss, np.full((4, 2), wanted), rtol=1e-5)
    counts = lost(lambda p: jnp.zeros(5, jnp.int32).at[unsure(p)].add(jnp.array([1, 1, 2, 1])), STEP)
    assert counts.tolist() == [6, 6, 6, 6, 6]
    assert lost(lambda x, u: x.at[jnp.zeros(0, jnp.int32)].add(u), ROWS[:0], ROWS[:0]).shape == (0, 2)


# --- functions ---


def test_functions_lose_eight_roundings_of_their_own() -> None:
    """And what their argument lost, times how steep they are."""
    x = np.array([0.5, 1.5, 3.0], np.float32)
    for function, steep, own in (
        (jnp.log, lambda x: 1 / x, 8),
        (jnp.tanh, lambda x: 1 / np.cosh(x) ** 2, 8),
        (lax.rsqrt, lambda x: -0.5 * x**-1.5, 8),
        (lambda x: lax.pow(x, jnp.float32(2.5)), None, 8),
        (lambda x: lax.rem(x, jnp.float32(4.0)), lambda x: 1 + 0 * x, 0),
    ):
        exact, loss = evaluated(function, x)
        argument = OWN * x * (steep(x) if steep else 2.5 * x**1.5)
        second = 0.0 if steep else exact * np.log(x) * OWN * 2.5
        wanted = np.sqrt(argument**2 + second**2 + ((own**2 + 1) * OWN**2) * exact**2)
        np.testing.assert_allclose(loss, wanted, rtol=1e-3)


@pytest.mark.parametrize(("function", "scale", "most"), [(jnp.exp, 1.0, 40.0), (jnp.exp2, np.log(2), 40.0)])
def test_an_exponential_of_what_lost_much_is_bounded(function: Any, scale: float, most: float) -> None:
    """By what forty do: beyond, nothing would be left that can be compared. What is less moves all the way."""
    for large, bounded in ((8.0, False), (2000.0, True)):
        x = np.array([large / OWN], np.float32)
        before = float(lost(lambda x: (x + 1.0) - x, x)[0])
        exact, loss = evaluated(lambda x: function((x + 1.0) - x), x)
        moved = most if bounded else before * scale
        assert (before * scale > most) == bounded
        np.testing.assert_allclose(loss, exact * np.expm1(moved), rtol=1e-3)


def test_an_exponential_rounds_its_argument_once_more() -> None:
    x = np.array([0.5, 1.0], np.float32)
    for function, scale in ((jnp.exp, 1.0), (jnp.exp2, np.log(2))):
        exact, loss = evaluated(function, x)
        wanted = exact * np.sqrt((scale * OWN * x) ** 2 + (8 * OWN) ** 2 + OWN**2)
        np.testing.assert_allclose(loss, wanted, rtol=1e-3)


@pytest.mark.parametrize(("power", "between"), [(2, 0), (3, 1), (4, 1), (7, 3), (-3, 1)])
def test_a_power_is_rounded_after_each_multiplication(power: int, between: int) -> None:
    """To bfloat16 here; and the argument, which is an input, moves as often as it is a factor."""
    x = np.array([1.5, 2.0], np.float32).astype(BF16)
    exact, loss = evaluated(lambda x: lax.integer_pow(x, power), x)
    narrow = 2.0**-7 / 4
    wanted = np.abs(exact) * np.sqrt((OWN * power) ** 2 + between * narrow**2 + OWN**2)
    np.testing.assert_allclose(loss, wanted, rtol=1e-3)


@pytest.mark.parametrize("x", [3.0, -0.5])
def test_an_unknown_operation_loses_four_times_what_its_operand_does(x: float) -> None:
    """Beside one rounding of its largest value: of a product of one factor, whose derivative is one."""
    loss = lost(lambda x: jnp.prod(x, axis=1), np.array([[x]], np.float32))
    np.testing.assert_allclose(loss, [np.sqrt(16 + 16 + 1) * OWN * abs(x)], rtol=1e-4)


def test_an_unknown_operation_is_tried_with_four_draws_of_signs() -> None:
    """Of two factors: signs that agree in k of them move a product by both, and others by nothing."""
    loss = lost(lambda x: jnp.prod(x, axis=1), np.ones((64, 2), np.float32))
    agree = ((loss / OWN) ** 2 - 16 - 1) / 16
    np.testing.assert_allclose(agree, np.round(agree), atol=1e-3)
    assert {1, 2, 3} <= set(np.round(agree).tolist()) <= {0, 1, 2, 3, 4}


def test_an_unknown_operation_with_several_results() -> None:
    """Of which some are integers, about which nothing is said."""
    x = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)
    lower = lost(lambda x: lax.linalg.lu(x)[0], x)
    assert (lower > OWN).all()
    assert not lost(lambda x: lax.linalg.lu(x)[2], x).any()


def test_what_is_rounded_on_purpose_loses_that() -> None:
    loss = lost(lambda x: lax.reduce_precision(x, 8, 5) * 1.0, X)
    np.testing.assert_allclose(loss, 2.0**-5 / 4 * np.abs(X), rtol=1e-4)
    twice = lost(lambda x: lax.reduce_precision((x * 1.0).astype(BF16).astype(jnp.float32), 8, 23) * 1.0, X)
    assert np.median(twice) > 2.0**-12


def test_where_either_case_may_be_meant_their_distance_is_lost() -> None:
    x = np.array([1.0, 1.0, 2.0], np.float32)
    loss = lost(lambda x, a, b: jnp.where(x * 1.0 > 1.0, a, b), x, *np.array([[5, np.inf, 5], [2, 3, 2]], np.float32))
    np.testing.assert_allclose(loss, [3.0, 3.0, 5 * OWN], rtol=1e-5)
    loss = lost(lambda x, a: jnp.where(x * 1.0 > 1.0, a * 1.0, 2.0), x, np.full(3, 5, np.float32))
    np.testing.assert_allclose(loss, [3.0, 3.0, np.hypot(APART, OWN) * 5], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e15])
def test_a_product_loses_in_proportion_however_large_its_operands_are(scale):
    x = np.array([[1.5, -2.0, 0.75], [1e-6, 3e-6, 2e-6]], np.float32)

    def product(a, b):
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), precision="highest")

    np.testing.assert_allclose(lost(product, x * np.float32(scale), x.T), scale * lost(product, x, x.T), rtol=1e-3)
