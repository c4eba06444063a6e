"""Products, roundings and packed words are computed as they are written, whatever the processor here likes best."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.ops import vector
from tests.tpu.mosaic.kernels import Kernel, loaded

SQUARE = jax.ShapeDtypeStruct((128, 128), jnp.float32)
X, Y = (np.random.default_rng(seed).normal(size=(128, 128)).astype(np.float32) for seed in range(2))


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(jnp.bfloat16).astype(np.float64)


def dot(*, scale: float = 1, out: Any = SQUARE, **options: Any) -> Kernel:
    """The product of two arrays, the first times a number in its own dtype."""

    def kernel(x, y, o):
        factor = x.dtype.type(scale)
        o[...] = jnp.dot(x[...] * factor, y[...], preferred_element_type=jnp.float32, **options)

    return pl.pallas_call(kernel, out_shape=out)


def run(call: Kernel, *arrays: Any, **options: Any) -> np.ndarray:
    (got,) = loaded(call, *arrays, **options).run(arrays).outputs
    return got


def test_bf16_operations_round_where_they_are_written() -> None:
    """XLA may keep float32 between them on its own; then a kernel would look better than it is."""
    x, y = X.astype(jnp.bfloat16), Y.astype(jnp.bfloat16)
    scaled = np.float32(jnp.bfloat16(1.4427)) * x.astype(np.float32)
    got = run(dot(scale=1.4427), x, y)
    np.testing.assert_allclose(got, rounded(scaled) @ rounded(y), rtol=0, atol=1e-3)
    assert abs(got - scaled.astype(np.float64) @ rounded(y)).max() > 1e-2


def test_a_rounding_between_float32_operations_is_executed() -> None:
    """A value that is rounded to bfloat16 and widened again has lost its low bits, wherever XLA puts both."""

    def kernel(x, o):
        narrow = x[...].astype(jnp.bfloat16).astype(jnp.float32)
        o[...] = jnp.exp(narrow - jnp.max(narrow, axis=1, keepdims=True))

    wanted = np.exp(rounded(X) - rounded(X).max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(pl.pallas_call(kernel, out_shape=SQUARE), X), wanted, rtol=1e-5)


def test_f32_products_round_to_bf16_unless_asked_otherwise() -> None:
    got = run(dot(), X, Y, f32_matmul_passes="mxu")
    np.testing.assert_allclose(got, rounded(X) @ rounded(Y), rtol=0, atol=1e-3)
    got = run(dot(precision=jax.lax.Precision.HIGHEST), X, Y, f32_matmul_passes="mxu")
    np.testing.assert_allclose(got, X.astype(np.float64) @ Y, rtol=0, atol=1e-4)


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
    monkeypatch.setattr(vector, "multiplies_bfloat16", lambda: fast)
    rng = np.random.default_rng(terms)
    x, y = (rng.lognormal(sigma=4, size=s).astype(jnp.bfloat16) for s in ((16, terms), (terms, 128)))
    got = run(dot(out=jax.ShapeDtypeStruct((16, 128), jnp.float32)), x, y)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    # Of positive terms, whatever the order: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
    assert (abs(got - exact) <= terms * 2.0**-24 * exact).all()


def test_nibbles_of_words_are_signed_and_come_back() -> None:
    def kernel(words: Any, packed: Any, unpacked: Any) -> None:
        for n in range(8):
            unpacked[n] = pltpu.unpack_elementwise(words[...], index=n, packed_dtype=jnp.int4, unpacked_dtype=jnp.int32)
        each = [unpacked[n] for n in range(8)]
        packed[...] = pltpu.pack_elementwise(each, packed_dtype=jnp.int4).astype(jnp.uint32)

    words = np.random.default_rng(0).integers(0, 1 << 32, (8, 128), dtype=np.uint32)
    out = [jax.ShapeDtypeStruct((8, 128), jnp.uint32), jax.ShapeDtypeStruct((8, 8, 128), jnp.int32)]
    packed, unpacked = loaded(pl.pallas_call(kernel, out_shape=out), words).check([words]).outputs
    nibbles = np.stack([words >> 4 * n & 15 for n in range(8)]).astype(np.int32)
    np.testing.assert_array_equal(unpacked, np.where(nibbles > 7, nibbles - 16, nibbles))
    np.testing.assert_array_equal(packed, words)


@pytest.mark.parametrize(("wide", "packed", "count"), [
    (jnp.float32, jnp.bfloat16, 2), (jnp.int32, jnp.int16, 2), (jnp.int32, jnp.int8, 4),
])  # fmt: skip
def test_of_packed_vectors_the_first_is_lowest_and_comes_back(wide: Any, packed: Any, count: int) -> None:
    def kernel(*refs: Any) -> None:
        *inputs, words, unpacked = refs
        words[...] = pltpu.pack_elementwise([ref[...] for ref in inputs], packed_dtype=packed).astype(jnp.uint32)
        for n, ref in enumerate(inputs):
            unpacked[n] = pltpu.unpack_elementwise(words[...], index=n, packed_dtype=packed, unpacked_dtype=ref.dtype)

    out = [jax.ShapeDtypeStruct((8, 128), jnp.uint32), jax.ShapeDtypeStruct((count, 8, 128), wide)]
    random = np.random.default_rng(0)
    vectors = [(random.normal(size=(8, 128)) * 1e4).astype(wide) for _ in range(count)]
    result = loaded(pl.pallas_call(kernel, out_shape=out), *vectors).check(vectors)
    narrow = np.stack([v.astype(packed) for v in vectors])
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs[0], np.stack(list(narrow), axis=-1).view(np.uint32)[..., 0])
    np.testing.assert_array_equal(result.outputs[1], narrow.astype(wide))
