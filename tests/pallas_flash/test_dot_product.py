"""The operator with JAX's arguments against JAX's own in float64."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_flash import dot_product_attention
from tests.pallas_flash.cases import SMALL
from tests.tiers import slow_but

BATCH, T, S, HEADS, KEY_HEADS, DIM = 2, 150, 170, 4, 2, 64
LENGTHS = {"query_seq_lengths": np.int32([100, 150]), "key_value_seq_lengths": np.int32([33, 170])}
OPTIONS = {
    "causal": {"is_causal": True, "scale": 0.3},
    "window": {"local_window_size": (40, 3), "return_residual": True},
    "symmetric window": {"local_window_size": 20, "is_causal": True},
    "lengths": {**LENGTHS, "is_causal": True},
    "keys' lengths": {"key_value_seq_lengths": LENGTHS["key_value_seq_lengths"]},
    "mask": {"mask": (np.arange(T)[:, None] % 7 <= np.arange(S)[None, :] % 9)[None, None]},
    "mask of keys": {"mask": (np.arange(S) % 3 > 0)[None, None, None]},
}


def operands(dtype="float32"):
    rng = np.random.default_rng(0)
    shapes = ((BATCH, T, HEADS, DIM), (BATCH, S, KEY_HEADS, DIM), (BATCH, S, KEY_HEADS, DIM))
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def results(attend, arrays, options):
    """Outputs, and the gradients of the first one's squares."""

    def loss(*x):
        found = attend(*x, **options)
        out = found[0] if isinstance(found, tuple) else found
        return (out**2).sum(), found

    gradients, found = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*arrays)
    return jax.tree.leaves((found, gradients))


@pytest.mark.parametrize("name", slow_but(2, list(OPTIONS)))
def test_values_and_gradients_are_those_of_jax(name):
    options, arrays = OPTIONS[name], operands()
    mine = results(dot_product_attention, arrays, {**options, "config": SMALL})
    with jax.enable_x64(True):
        wanted = results(
            jax.nn.dot_product_attention, [jnp.asarray(np.asarray(x, np.float64)) for x in arrays], options
        )
    for got, exact in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def test_operands_without_a_batch_are_one_sequence():
    q, k, v = operands()
    out, lse = dot_product_attention(q[0], k[0], v[0], is_causal=True, return_residual=True, config=SMALL)
    whole, all_lse = dot_product_attention(q, k, v, is_causal=True, return_residual=True, config=SMALL)
    np.testing.assert_allclose(out, whole[0], atol=1e-6)
    np.testing.assert_allclose(lse, all_lse[0], atol=1e-6)


def test_it_has_the_arguments_of_jax():
    mine, theirs = (inspect.signature(f).parameters for f in (dot_product_attention, jax.nn.dot_product_attention))
    assert [name for name in mine if name != "config"] == list(theirs)
    assert all((mine[name].kind, mine[name].default) == (theirs[name].kind, theirs[name].default) for name in theirs)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"bias": np.zeros((1, 1, T, S))}, "bias is given"),
        ({"implementation": "cudnn"}, "implementation is given"),
        ({"mask": np.ones((1, HEADS, T, S), bool)}, "one for all heads"),
        ({"mask": np.ones((1, 1, T, S + 1), bool)}, rf"wanted bool\[{T}, {S}\]"),
        ({"key_value_seq_lengths": np.zeros((3,), np.int32)}, r"key_value_seq_lengths is \[3\], wanted \[2\]"),
    ],
)
def test_what_is_not_supported_is_named(options, reported):
    with pytest.raises(ValueError, match=reported):
        dot_product_attention(*operands(), **options, config=SMALL)


def test_operands_of_other_ranks_are_named():
    q, k, v = operands()
    with pytest.raises(ValueError, match="have 2, 4, 4 dimensions, wanted 4 each or 3"):
        dot_product_attention(q[0, 0], k, v)


def test_a_traced_mask_is_refused():
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda mask: dot_product_attention(*operands(), mask=mask, config=SMALL))(np.ones((1, 1, T, S), bool))
