"""The axes along which a function mixes elements."""

import jax
import jax.numpy as jnp
import pytest

from ratchet.exam.problem.axes import input_axes


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


IDS = spec(64, dtype=jnp.int32)
X = spec(64, 512)
CASES = {
    "layernorm": (lambda x, g: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * g, [X, spec(512)], [[1], []]),
    "attention": (
        lambda q, k, v: jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k)), v),
        [spec(4, 64, 32)] * 3,
        [[2], [1, 2], [1]],
    ),
    "embedding": (lambda table, ids: table[ids], [X, IDS], [[0], []]),
    "stencil": (lambda x: x[:, 2:] + x[:, :-2], [X], [[1]]),
    "roll": (lambda x: jnp.roll(x, 1, 0) + x, [X], [[0]]),
    "elementwise": (jax.nn.gelu, [X], [[]]),
    "groups": (lambda x: x.reshape(64, 4, 128).mean(2), [X], [[1]]),
    "cumsum": (lambda x: jnp.cumsum(x, axis=0), [X], [[0]]),
    "scan": (lambda x: jax.lax.scan(lambda c, r: (c + r, c), x[0], x)[1], [X], [[0]]),
    "map": (lambda x: jax.lax.map(lambda r: r.sum(), x), [X], [[1]]),
    "convolution": (
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME"),
        [spec(2, 3, 128), spec(5, 3, 7)],
        [[1, 2], [1, 2]],
    ),
    "segments": (lambda x, ids: jax.ops.segment_sum(x, ids, 5), [X, IDS], [[0], [0]]),
    "top": (lambda x: jax.lax.top_k(x, 5), [X], [[1]]),
    "transposed": (lambda x: jnp.sum(x.T, axis=0), [X], [[1]]),
    "branches": (lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x.sum(0), lambda: x[0]), [X], [[0, 1]]),
    "not known": (lambda x: jnp.abs(jnp.fft.fft(x)), [X], [[0, 1]]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_mixed_is_found(name):
    function, avals, wanted = CASES[name]
    assert input_axes(function, *avals).mixed == wanted


def test_what_is_ordered_is_found():
    def nearest(x, c):
        return jnp.argmin(jnp.sum(c * c, axis=1)[None] - x @ c.T, axis=1)

    assert input_axes(nearest, X, spec(32, 512)).ordered == [[], [0]]
    assert input_axes(lambda x: jax.lax.top_k(x, 5), X).ordered == [[1]]
    assert input_axes(lambda x, y: (x > y).sum(), X, X).ordered == [[], []]
    assert input_axes(lambda x, ids: (x > 1.0, ids[0] > ids[1]), X, IDS).ordered == [None, None]


def test_whole_blocks_are_changed_along_sums_that_no_exponential_weighs():
    assert input_axes(lambda x, w: x @ w, X, spec(512, 8)).whole == [[1], [0]]
    assert input_axes(*(CASES["attention"][0], *CASES["attention"][1])).whole == [[], [], []]


def test_an_input_of_which_one_number_is_made_is_found():
    scale = spec(512)
    assert input_axes(lambda x, s: x * s / jnp.linalg.norm(x), X, scale).total == [list(range(len(X.shape))), []]
    assert input_axes(lambda x: x / jnp.max(jnp.sum(x, axis=0)), X).total == [list(range(len(X.shape)))]
    assert input_axes(lambda x: x / jnp.sum(x, axis=1, keepdims=True), X).total == [[]]
    assert input_axes(lambda x: x.reshape(-1) @ x.reshape(-1), X).total == [list(range(len(X.shape)))]
    assert input_axes(lambda x, s: x * s[0], X, scale).total == [[], []], "one of several is no number made of all"
