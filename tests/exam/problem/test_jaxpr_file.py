"""What is read of a written jaxpr is exported as the program that the function itself is exported as, to the byte."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from ratchet.exam.problem import jaxpr_file
from ratchet.tpu.exporting import exported, without_locations

F32 = jnp.float32
X, M, N, G = (jax.ShapeDtypeStruct(*one) for one in [((8,), F32), ((8, 8), F32), ((8,), jnp.int32), ((1,), jnp.int32)])
TABLE = jnp.arange(64.0)
KEY = jax.random.key(9)


@jax.custom_jvp
def by_vectors(x):
    return x * jnp.arange(8.0) * TABLE[:8]


by_vectors.defjvp(lambda p, t: (p[0], t[0]))


@jax.custom_vjp
def by_derivatives(x):
    return jnp.sin(x) * TABLE[:8]


by_derivatives.defvjp(lambda x: (x, x), lambda r, g: (g,))

FUNCTIONS = {
    "relu": (jax.nn.relu, X),
    "gelu": (jax.nn.gelu, X),
    "silu": (jax.nn.silu, X),
    "log_softmax": (jax.nn.log_softmax, X),
    "custom jvp": (by_vectors, X),
    "custom vjp": (by_derivatives, X),
    "its gradient": (jax.grad(lambda x: jax.nn.relu(by_vectors(x)).sum()), X),
    "a gradient": (jax.grad(lambda x: by_derivatives(x).sum()), X),
    "hessian": (jax.hessian(lambda x: jnp.sin(x).sum()), X),
    "vmap": (jax.vmap(by_vectors), M),
    "remat": (jax.checkpoint(lambda x: jnp.sin(x) * 2), X),
    "remat of a gradient": (
        jax.grad(
            lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)), policy=jax.checkpoint_policies.everything_saveable)(
                x
            ).sum()
        ),
        X,
    ),
    "scan": (lambda x: lax.scan(lambda c, y: (c * 0.5 + y, c), jnp.float32(0), x), X),
    "while": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)), X),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), X),
    "switch": (lambda x: lax.switch(x[0].astype(jnp.int32), [jnp.sin, jnp.cos, jnp.tanh], x), X),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 3)), X),
    "cumulative": (lambda x: (jnp.cumsum(x), jnp.cumprod(x), lax.cummax(x)), X),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), X),
    "solve": (lambda m: (jnp.linalg.solve(m, m), jnp.linalg.inv(m)), M),
    "factors": (lambda m: (jnp.linalg.cholesky(m), jnp.linalg.eigh(m), jnp.linalg.qr(m)), M),
    "triangular": (lambda m: jax.scipy.linalg.solve_triangular(m, m), M),
    "convolution": (lambda m: lax.conv_general_dilated(m[None, None], m[None, None, :3, :3], (1, 1), "SAME"), M),
    "windows": (lambda m: lax.reduce_window(m, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"), M),
    "gather": (lambda m, i: m[i], M, N),
    "scatter": (lambda m, i: (m.at[i].set(1.0), m.at[i].add(m), m.at[i].max(m), m.at[i].mul(m)), M, N),
    "segments": (lambda m, i: jax.ops.segment_sum(m, i, 4), M, N),
    "reduce": (lambda m: lax.reduce(m, jnp.float32(1), lambda a, b: a * b + 1, (0,)), M),
    "associative": (lambda m: lax.associative_scan(jnp.maximum, m), M),
    "random": (lambda i: jax.random.normal(jax.random.key(0), (8,)) + i, N),
    "a key": (lambda i: jax.random.uniform(KEY, (8,)) + i, N),
    "permutation": (lambda i: jax.random.permutation(jax.random.key(1), i), N),
    "rbg": (lambda i: jax.random.bits(jax.random.key(1, impl="rbg"), (4,)), N),
    "attention": (lambda m: jax.nn.dot_product_attention(*(m[None, :, None],) * 3), M),
    "ragged": (lambda m, g: lax.ragged_dot(m, m[None], g), M, G),
    "algorithm": (lambda m: jnp.dot(m, m, precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X3), M),
    "precision": (lambda m: jnp.dot(m, m, precision="highest"), M),
    "narrow": (lambda m: (m.astype(jnp.int4).astype(F32), m.astype(jnp.float8_e4m3fn).astype(F32)), M),
    "bfloat16 table": (lambda x: x * np.arange(8).astype(jnp.bfloat16), X),
    "complex": (lambda x: (x * (1 + 2j)).real, X),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
    "einsum": (lambda m: jnp.einsum("ij,jk->ki", m, m), M),
    "scope": (jax.named_scope("a/b")(lambda x: x * 2), X),
    "one twice": (lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x), X),
    "infinite": (lambda x: jnp.where(x > 0, -jnp.inf, jnp.nan), X),
    "barrier": (lax.optimization_barrier, X),
    "identity and a constant": (lambda x: (x, jnp.zeros(3)), X),
    "ldexp": (lambda x: jnp.ldexp(x, 2), X),
    "quantile": (lambda x: jnp.quantile(x, 0.3), X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_read_is_exported_as_the_same_program(name):
    function, *avals = FUNCTIONS[name]
    closed = jaxpr_file.decode(jaxpr_file.encode(jax.make_jaxpr(function)(*avals)))
    with without_locations():
        again, wanted = (exported(one, avals, "cpu") for one in (core.jaxpr_as_fun(closed), function))
    assert str(again.mlir_module()) == str(wanted.mlir_module())
    assert again.serialize() == wanted.serialize()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: jax.debug.callback(print, x) or x, "debug_callback"),
        (lambda x: lax.with_sharding_constraint(x, jax.sharding.SingleDeviceSharding(jax.devices()[0])), "Sharding"),
    ],
)
def test_what_does_more_than_compute_cannot_be_written(function, said):
    with pytest.raises(jaxpr_file.Unwritable, match=said):
        jaxpr_file.encode(jax.make_jaxpr(function)(X))


def edited(function, change, *avals):
    document = json.loads(jaxpr_file.encode(jax.make_jaxpr(function)(*avals)))
    change(document["jaxprs"][document["closed"][document["top"]][0]])
    return json.dumps(document).encode()


def _of_another_primitive(top):
    top["equations"][0][0] = "reduce_sum"


def _another_result(top):
    top["avals"][-1][0] = [4]


def _calls_out(top):
    top["equations"][0][0] = "custom_call"


def _unknown(top):
    top["equations"][0][0] = "of_the_author"


def _not_yet_there(top):
    top["equations"][0][1] = top["equations"][-1][2]


@pytest.mark.parametrize("change", [_of_another_primitive, _another_result, _calls_out, _unknown, _not_yet_there])
def test_equations_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match="no jaxpr"):
        jaxpr_file.decode(edited(lambda x: jnp.sin(x) * 2.0, change, X))


def test_a_scatter_with_a_function_of_its_own_is_refused():
    written = jaxpr_file.encode(jax.make_jaxpr(lambda m, i: m.at[i].apply(jnp.sin))(M, N))
    with pytest.raises(ValueError, match="scatter with a function of its own"):
        jaxpr_file.decode(written)
    added = jaxpr_file.encode(jax.make_jaxpr(lambda m, i: m.at[i].add(m))(M, N))
    with pytest.raises(ValueError, match="scatter-add with a function of its own"):
        jaxpr_file.decode(added.replace(b'[["add"', b'[["max"'))
