"""The float64 evaluation of a reference, against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem import parity
from ratchet.exam.problem.promote import with_losses


def exact(function, *arrays):
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    with jax.enable_x64(True):
        both = [np.asarray(x) for x in jax.jit(with_losses(function, *avals))(*arrays)]
    return both[: len(both) // 2]


def softmax_times(q, k):
    scores = jnp.dot(q, k, preferred_element_type=jnp.float32)
    return jax.nn.softmax(scores, axis=1).astype(jnp.bfloat16)


def test_casts_and_products_are_widened():
    q = jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)), jnp.bfloat16)
    k = jnp.asarray(np.random.default_rng(1).normal(size=(8, 16)), jnp.bfloat16)
    (got,) = exact(softmax_times, q, k)
    scores = np.asarray(q, np.float64) @ np.asarray(k, np.float64)
    wanted = np.exp(scores - scores.max(1, keepdims=True))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, wanted / wanted.sum(1, keepdims=True), rtol=1e-12)


def test_a_cast_to_what_has_no_infinity_stops_at_its_largest():
    x = jnp.asarray([0.7, 5.5, 7.0, -900.0], jnp.float32)
    (got,) = exact(lambda x: (x * x * jnp.sign(x)).astype(jnp.float4_e2m1fn), x)
    np.testing.assert_allclose(got, [0.49, 6.0, 6.0, -6.0], rtol=1e-6)
    (wide,) = exact(lambda x: x.astype(jnp.float8_e5m2), x)
    np.testing.assert_allclose(wide, x, rtol=1e-12)


def test_loops_and_branches_are_widened():
    def function(x):
        total, squares = jax.lax.scan(lambda c, v: (c + v, (v * v).astype(jnp.bfloat16)), jnp.float32(0), x)
        halved = jax.lax.while_loop(lambda c: c > 1, lambda c: (c / 3).astype(jnp.float32), total)
        return jax.lax.cond(total > 0, lambda: halved, lambda: -halved), squares

    x = jnp.asarray([0.1, 0.2, 7.3], jnp.float32)
    value, squares = exact(function, x)
    wide = np.asarray(x, np.float64)
    wanted = wide.sum()
    while wanted > 1:
        wanted /= 3
    np.testing.assert_allclose(value, wanted, rtol=1e-14)
    np.testing.assert_allclose(squares, wide**2, rtol=1e-14)


def test_integers_stay_integers():
    (got,) = exact(lambda n: n // 2, jnp.arange(5, dtype=jnp.int32))
    assert got.dtype == np.int32


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.lax.bitcast_convert_type(x, jnp.uint32) >> 16,
        lambda x: jnp.where(jax.random.bernoulli(jax.random.key(3), 0.9, x.shape), x, 0),
        lambda x: x + jax.random.uniform(jax.random.key(1), x.shape),
        lambda x: jnp.linalg.solve(x + 16 * jnp.eye(32), x),
        lambda x: x.astype(jnp.bfloat16) ** 3,
        jax.grad(lambda x: jax.lax.scan(lambda c, _: (jax.checkpoint(jnp.sin)(c), None), x, None, length=3)[0].sum()),
    ],
    ids=["bits of an input", "bernoulli", "uniform", "a linear system", "a power in bfloat16", "what is made again"],
)
def test_what_references_use_has_a_meaning_in_float64(function):
    x = np.asarray(jax.random.normal(jax.random.key(0), (32, 32), jnp.float32))
    with jax.enable_x64(True):
        exact, loss = map(np.asarray, jax.jit(with_losses(function, x))(x))
    native = np.asarray(jax.jit(function)(x))
    assert parity.compare(native, exact, loss).worst <= 0.5


def test_the_bits_of_a_computed_float_have_none():
    x = np.ones((4,), np.float32)
    with pytest.raises(NotImplementedError, match="bits of a computed float32"), jax.enable_x64(True):
        with_losses(lambda x: jax.lax.bitcast_convert_type(x * 3, jnp.uint32), x)(x)
