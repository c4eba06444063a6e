"""Linear recurrences: which loops are, and what another order of their turns may lose."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ratchet.exam.problem.promote import with_losses
from ratchet.exam.problem.rounding import recurrence
from ratchet.exam.problem.rounding.recurrence import CHUNK
from ratchet.exam.problem.rounding.value import EPS32, RMS

T, WIDTH = 64, 32


def relative(step, *slices, start=None):
    """The loss of a loop's last result over its size, float64[WIDTH]."""
    start = jnp.ones(WIDTH) if start is None else start

    def function(*given):
        return lax.scan(lambda state, now: (step(state, *now), None), start, given)[0]

    avals = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in slices]
    with jax.enable_x64(True):
        exact, loss = jax.jit(with_losses(function, *avals))(*slices)
    return np.asarray(loss / jnp.abs(exact))


DECAY = np.full(T, 0.9, np.float32)
X = np.ones((T, WIDTH), np.float32)
PREFIX = RMS * EPS32 * np.sqrt(T**3 / 6) * -np.log(0.9)
"""What one turn loses by prefix sums, as a share."""


def test_a_decay_loses_what_prefix_sums_do():
    found = relative(lambda h, d, x: d * h + x, DECAY, X)
    kept = np.sum((0.9 ** np.arange(1, T)) ** 2)  # h is nearly constant: turn k of it is left by so much
    np.testing.assert_allclose(found, PREFIX * np.sqrt(kept), rtol=0.01)


def test_the_longest_chunk_limits_it():
    long, short = np.full(4 * CHUNK, 0.9, np.float32), np.full(CHUNK, 0.9, np.float32)
    each = [relative(lambda h, d: d * h + 1, decay) for decay in (long, short)]
    np.testing.assert_allclose(*each, rtol=0.01)


NONE = {
    "a number": (lambda h, x: 0.9 * h + x, (X,)),
    "no product": (lambda h, x: h + x, (X,)),
    "not linear": (lambda h, d, x: d * jnp.tanh(h) + x, (DECAY, X)),
    "a square": (lambda h, d, x: d * h * h / (1 + h) + x, (DECAY, X)),
    "an extreme": (lambda h, d, x: jnp.maximum(d * h, x), (DECAY, X)),
}


def test_a_weak_decay_behind_strong_ones_is_off_by_their_prefixes():
    """The prefixes are as large as all decays of a chunk before: their difference is no more exact than they are."""
    weak, strong = np.full(T, 0.9, np.float32), np.full(T, 0.9, np.float32)
    strong[T // 2 - 8 : T // 2] = 1e-6  # what came before is gone
    both = [relative(lambda h, d, x: d * h + x, decays, X).max() for decays in (weak, strong)]
    assert both[1] > 2 * both[0]


@pytest.mark.parametrize("name", NONE)
def test_other_loops_lose_nothing_by_prefix_sums(name, monkeypatch):
    step, slices = NONE[name]
    before = relative(step, *slices)
    monkeypatch.setattr(recurrence, "CHUNK", 1)
    np.testing.assert_array_equal(relative(step, *slices), before)


LINEAR = {
    "behind a call": lambda h, d, x: jax.jit(lambda a, b: a * b)(d, h) + x,
    "from the other side": lambda h, d, x: x + h * d,
    "started again": lambda h, d, x: jnp.where(x > 2, 0.0, d * h) + x,
    "negative": lambda h, d, x: x - (-d) * h,
    "in another shape": lambda h, d, x: (d * h.reshape(4, -1)).reshape(-1) + x,
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_loop_is_known_however_it_is_written(name):
    plain = relative(lambda h, d, x: d * h + x, DECAY, X)
    np.testing.assert_allclose(relative(LINEAR[name], DECAY, X), plain, rtol=0.05)


def test_what_shares_a_decay_is_off_together():
    """A sum over what one decay scales does not average its loss out; over what each has its own of, it does."""

    def summed(decays):
        def function(given, x):
            def step(h, now):
                h = now[0] * h + now[1]
                return h, jnp.dot(now[1], h, precision="highest")

            return lax.scan(step, jnp.zeros(WIDTH), (given, x))[1]

        avals = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (decays, X)]
        with jax.enable_x64(True):
            exact, loss = jax.jit(with_losses(function, *avals))(decays, X)
        return float(loss[-1] / exact[-1])

    own = np.broadcast_to(DECAY[:, None], (T, WIDTH)).copy()
    assert summed(DECAY) > 2 * summed(own)
