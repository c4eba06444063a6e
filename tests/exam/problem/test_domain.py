"""Where inputs have to stay, and what a made number becomes beside that."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from ratchet.exam.problem.domain import domains, in_order, inside
from ratchet.exam.problem.input_regions import TINY

NORMAL = ("normal", 0.0, 0.0)
UNIT, POSITIVE, BELOW = ("uniform", 0.01, 0.99), ("uniform", 0.5, 2.0), ("uniform", -0.9, 0.9)


def found(function, *kinds, dtype=jnp.float32):
    """The domains of a function of arrays [8, 32], each drawn as its kind says."""
    aval = jax.ShapeDtypeStruct((8, 32), dtype)

    def draw(key):
        generator = np.random.default_rng(list(key))
        return [
            (generator.normal(size=(8, 32)) if name == "normal" else generator.uniform(low, high, (8, 32))).astype(
                dtype
            )
            for name, low, high in kinds
        ]

    return domains(function, [aval] * len(kinds), draw)


def newton(x):
    return lax.fori_loop(0, 6, lambda _, y: 0.5 * (y + x / y), x)


def sinkhorn(k):
    def turn(u, _):
        return 1 / (k @ (1 / (k.T @ u))), None

    return lax.scan(turn, jnp.ones(8), None, length=4)[0]


FREE = {
    "softmax": (lambda x: jax.nn.softmax(x, axis=1), NORMAL),
    "log of a softmax": (lambda x: jax.nn.log_softmax(x, axis=1), NORMAL),
    "layernorm": (lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-6), NORMAL),
    "rms norm without epsilon": (lambda x: x * lax.rsqrt(jnp.mean(x * x, 1, keepdims=True)), NORMAL),
    "gelu": (jax.nn.gelu, NORMAL),
    "softplus": (jax.nn.softplus, NORMAL),
    "log of a complement of a logistic function": (lambda x: jnp.log(1 - jax.nn.sigmoid(x)), NORMAL),
    "division by what has both signs": (lambda x: 1 / x, NORMAL),
    "root of a magnitude": (lambda x: jnp.sqrt(jnp.abs(x)), NORMAL),
    "root of a variance that is not negative": (jnp.sqrt, ("uniform", 0.0, 1.0)),
    "entropy that asks for zero": (lambda p: jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0), UNIT),
    "entropy by where alone": (lambda p: jnp.where(p > 0, p * jnp.log(p), 0.0), UNIT),
    "logarithm beside a floor": (lambda p: jnp.log(jnp.maximum(p, 1e-6)), UNIT),
    "dropout by a key": (lambda x: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x, 0), NORMAL),
    "not used": (lambda x: jnp.log(x * 0 + 1.0)[:0], POSITIVE),
    "quantised": (lambda x: x / jnp.max(jnp.abs(x), axis=1, keepdims=True), NORMAL),
}


@pytest.mark.parametrize("name", FREE)
def test_an_input_that_no_operation_limits_may_be_anything(name):
    function, kind = FREE[name]
    assert found(function, kind) == [None]


ABOVE_ZERO = {
    "log": (jnp.log, UNIT),
    "rsqrt": (lax.rsqrt, POSITIVE),
    "division": (lambda x: 1 / x, POSITIVE),
    "division of another": (lambda x: jnp.exp(x) / jnp.sqrt(x), POSITIVE),
    "power": (lambda x: x**-0.3, POSITIVE),
    "geometric mean": (lambda x: jnp.exp(jnp.mean(jnp.log(x), axis=1)), POSITIVE),
    "Newton's root": (newton, POSITIVE),
    "Sinkhorn": (sinkhorn, POSITIVE),
    "inverse of softplus": (lambda x: jnp.log(jnp.expm1(x)), POSITIVE),
}


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_what_has_to_be_positive_is_only_made_positive(name):
    function, kind = ABOVE_ZERO[name]
    ((low, high),) = found(function, kind)
    assert kind[1] * TINY <= low <= kind[1] * TINY * 1.2
    assert high is None


BETWEEN = {
    "gumbel": (lambda u: -jnp.log(-jnp.log(u)), UNIT),
    "logit": (lambda p: jnp.log(p) - jnp.log1p(-p), UNIT),
    "normal quantile": (lambda p: lax.erf_inv(2 * p - 1), UNIT),
    "binary cross-entropy": (lambda p: jnp.log(p) + jnp.log(1 - p), UNIT),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_a_probability_stays_between_zero_and_one(name):
    function, kind = BETWEEN[name]
    ((low, high),) = found(function, kind)
    assert 0 < low <= 0.02
    assert 0.97 < high < 1


@pytest.mark.parametrize("function", [jnp.arctanh, jnp.arcsin, lambda x: jnp.sqrt(1 - x * x)])
def test_what_has_both_signs_keeps_its_size(function):
    ((low, high),) = found(function, BELOW)
    assert -0.9 <= low < -0.8
    assert 0.8 < high <= 0.9


def test_only_the_inputs_that_reach_such_an_operation_have_a_domain():
    x, u, t = found(lambda x, u, t: x / t - jnp.log(-jnp.log(u)), NORMAL, UNIT, POSITIVE)
    assert x is None
    assert None not in u
    assert t[1] is None


def test_what_two_inputs_may_do_together_is_allowed_to_one_of_them():
    a, b = found(lambda a, b: jnp.log(a + b), POSITIVE, POSITIVE)
    assert (a is None) != (b is None), "a sum is positive where one term is"


def test_a_generator_is_only_asked_where_it_matters():
    def draw(key):
        raise AssertionError("drawn")

    aval = jax.ShapeDtypeStruct((8, 32), jnp.float32)
    assert domains(jax.nn.softmax, [aval], draw) == [None]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_what_is_outside_goes_to_the_nearest_end(dtype):
    array = np.array([[-3.0, 0.0, 0.25], [0.5, 24.0, np.nan]], dtype)
    other = np.arange(3, dtype=np.int32)
    clipped, same = inside([array, other], [(0.125, 0.75), None])
    assert clipped.dtype == array.dtype
    np.testing.assert_array_equal(clipped.astype(np.float32), [[0.125, 0.125, 0.25], [0.5, 0.75, np.nan]])
    assert same is other
    (above,) = inside([array], [(0.125, None)])
    assert above.astype(np.float32)[1, 1] == 24


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("axes", "sign"), [((0,), 1), ((1,), -1), ((0, 1), 1), ((), 1)])
def test_what_is_drawn_in_order_is_made_in_order(axes, sign, dtype):
    own, made = np.random.default_rng(0).normal(size=(2, 16, 8)).astype(dtype)
    for axis in axes:
        own = (sign * np.sort(sign * own.astype(np.float32), axis=axis)).astype(dtype)
    (found,) = in_order([made], [own])
    assert sorted(found.ravel().tolist()) == sorted(made.ravel().tolist())
    for axis in (0, 1):
        in_line = (np.diff(sign * found.astype(np.float32), axis=axis) >= 0).all()
        assert in_line == (axis in axes)


def test_constants_indices_and_few_numbers_are_in_no_order():
    numbers = np.arange(16, 0, -1, dtype=np.float32)
    for own in (np.ones(16, np.float32), np.arange(16, dtype=np.int32)):
        assert (in_order([numbers.astype(own.dtype)], [own])[0] == numbers).all()
    assert (in_order([numbers[:7]], [numbers[6::-1]])[0] == numbers[:7]).all()
