"""FLOPs as written, loops as often as they turn."""

import jax
import jax.numpy as jnp
import pytest
from jax import export

from ratchet.tpu.mlir.bindings import stablehlo_of
from ratchet.tpu.mlir.flops import flops

X = jax.ShapeDtypeStruct((64,), jnp.float32)
M = jax.ShapeDtypeStruct((8, 16), jnp.float32)


def count(function, *arrays):
    module = stablehlo_of(export.export(jax.jit(function), platforms=["cpu"])(*arrays))
    with module.context:
        return flops(module)


def scanned(turns):
    def function(x):
        return jax.lax.scan(lambda carry, _: (jnp.exp(carry) * 2, None), x, length=turns)[0]

    return function


def test_what_a_scan_computes_counts_once_a_turn():
    # Two operations on each of 64 elements, the counter's addition and its comparison.
    assert count(scanned(1000), X) == 1000 * (2 * 64 + 2)
    assert count(scanned(3), X) == 3 * (2 * 64 + 2)


def test_a_loop_in_a_loop():
    inner = scanned(5)

    def outer(x):
        return jax.lax.fori_loop(0, 7, lambda _, one: inner(one), x)

    assert count(outer, X) == pytest.approx(7 * 5 * 2 * 64, rel=0.05)


def test_a_loop_of_unknown_length_counts_once():
    def function(x):
        return jax.lax.while_loop(lambda one: one[0] < 5, lambda one: one * 2, x)

    assert 64 <= count(function, X) <= 64 + 4


def test_products_count_two_for_each_multiplication_and_reductions_what_they_take():
    assert count(lambda a: a @ a.T, M) == 2 * 8 * 8 * 16
    assert count(lambda a: a.sum(axis=1), M) == 8 * 16


def test_elementwise_work_is_as_xla_counts_it():
    def function(x):
        return jnp.tanh(x) * x + jnp.sqrt(x)

    found = jax.jit(function).lower(X).cost_analysis()
    assert count(function, X) == found["flops"] + found["transcendentals"] == 4 * 64
