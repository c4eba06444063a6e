"""What is covered is written down from the code, and what is not is refused by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.coverage import markdown
from ratchet.tpu.mosaic.ops import vector
from ratchet.tpu.mosaic.run import load
from ratchet.values.status import Refusal, Status
from tests.imports import HERE
from tests.tpu.mosaic.twin import close, loaded

DOCS = HERE / "docs" / "mosaic_coverage.md"


def test_the_table_in_docs_is_the_table_in_the_code() -> None:
    assert DOCS.read_text() == markdown(), (
        "write it anew: python -m ratchet.tpu.mosaic.coverage > docs/mosaic_coverage.md"
    )


def test_an_unknown_operation_is_refused_by_name_with_the_module_version() -> None:
    def kernel(o):
        pltpu.prng_seed(0)
        o[...] = pltpu.bitcast(pltpu.prng_random_bits(o.shape), jnp.int32)

    with pytest.raises(Refusal, match=r"tpu\.prng_set_seed_32.*version \d+") as refused:
        loaded(pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.int32)))
    assert refused.value.status is Status.CANNOT_VERIFY


def test_a_host_callback_is_refused() -> None:
    def function(x):
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((8,), jnp.float32), x)

    with pytest.raises((Refusal, ValueError)) as refused:
        loaded(function, np.zeros(8, np.float32))
    assert not isinstance(refused.value, Refusal) or refused.value.status is Status.HOST_CALLBACK


def test_a_program_for_several_platforms_is_refused() -> None:
    program = export.export(jax.jit(jnp.sin), platforms=("tpu", "cpu"))(jax.ShapeDtypeStruct((8,), jnp.float32))
    with pytest.raises(Refusal) as refused:
        load(bytes(program.serialize()))
    assert refused.value.status is Status.HOST_CALLBACK


def test_corrupt_bytes_are_refused() -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        load(b"nothing of the kind")


def test_kernels_inside_loops_and_conditionals_of_the_program_run() -> None:
    def kernel(x, o):
        o[...] = x[...] * 2

    double = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))

    def function(x):
        x = jax.lax.fori_loop(0, 3, lambda i, y: double(y) + 1, x)
        return jax.lax.cond(x[0, 0] > 0, double, lambda y: y - 1, x), jax.jit(double)(x)

    x = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(8, 128)
    result = loaded(function, x).run([x])
    looped = ((x * 2 + 1) * 2 + 1) * 2 + 1
    close(result.outputs, (looped * 2 if looped[0, 0] > 0 else looped - 1, looped * 2))


def test_bf16_operations_round_where_they_are_written() -> None:
    """XLA may keep float32 between them on its own; then a kernel would look better than it is."""

    def kernel(x, y, o):
        o[...] = jnp.dot(x[...] * jnp.bfloat16(1.4427), y[...], preferred_element_type=jnp.float32)

    x, y = (np.random.default_rng(i).normal(size=(128, 128)).astype(jnp.bfloat16) for i in range(2))
    scaled = np.float32(jnp.bfloat16(1.4427)) * x.astype(np.float32)
    rounded, kept = (s.astype(np.float64) @ y.astype(np.float64) for s in (scaled.astype(jnp.bfloat16), scaled))
    call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((128, 128), jnp.float32))
    (got,) = loaded(call, x, y).run([x, y]).outputs
    np.testing.assert_allclose(got, rounded, rtol=0, atol=1e-3)
    assert abs(got - kept).max() > 1e-2


def test_f32_products_round_to_bf16_unless_asked_otherwise() -> None:
    def kernel(x, y, o):
        o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    def highest(x, y, o):
        o[...] = jnp.dot(x[...], y[...], precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)

    out = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    x, y = (np.random.default_rng(i).normal(size=(128, 128)).astype(np.float32) for i in range(2))
    exact = x.astype(np.float64) @ y
    rounded = np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32)) @ np.asarray(
        jnp.asarray(y).astype(jnp.bfloat16).astype(jnp.float32)
    )
    run = {}
    for body in (kernel, highest):
        run[body] = loaded(pl.pallas_call(body, out_shape=out), x, y, f32_matmul_passes="mxu").run([x, y]).outputs[0]
    np.testing.assert_allclose(run[kernel], rounded, rtol=0, atol=1e-3)
    np.testing.assert_allclose(run[highest], exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "is_fast"),
    [
        ("GenuineIntel fma avx512f", False),
        ("GenuineIntel avx512f avx512_bf16", False),
        ("GenuineIntel avx512_bf16 amx_bf16 amx_tile", True),
        ("AuthenticAMD avx512f avx512_bf16", True),
        ("AuthenticAMD avx2 fma", False),
        ("", False),
    ],
)
def test_products_of_bfloat16_are_used_on_the_processors_that_are_fast_at_them(flags: str, is_fast: bool) -> None:
    assert vector.has_fast_bfloat16(set(flags.split())) is is_fast


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("terms", [8, 128, 4096])
def test_bf16_products_are_exact_and_added_in_f32_on_any_processor(monkeypatch, fast: bool, terms: int) -> None:
    def kernel(x, y, o):
        o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    monkeypatch.setattr(vector, "multiplies_bfloat16", lambda: fast)
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    rng = np.random.default_rng(terms)
    x, y = (rng.lognormal(sigma=4, size=s).astype(jnp.bfloat16) for s in ((16, terms), (terms, 128)))
    (got,) = loaded(pl.pallas_call(kernel, out_shape=out), x, y).run([x, y]).outputs
    exact = x.astype(np.float64) @ y.astype(np.float64)
    # Of positive terms, whatever the order: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
    assert (abs(got - exact) <= terms * 2.0**-24 * exact).all()
