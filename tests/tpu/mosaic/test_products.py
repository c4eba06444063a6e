"""Products that XLA computes around a kernel round float32 operands as the TPU's passes do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

from ratchet.values.status import Refusal, Status
from tests.tpu.mosaic.twin import loaded

X, W = (np.random.default_rng(seed).normal(size=(128, 128)).astype(np.float32) for seed in (0, 1))
EXACT = X.astype(np.float64) @ W.astype(np.float64)


def product(precision: Any, *, convolution: bool = False, dtype: Any = jnp.float32) -> Any:
    """A product of XLA's, then a kernel that copies."""

    def kernel(x, o):
        o[...] = x[...]

    def function(x, w):
        x, w = x.astype(dtype), w.astype(dtype)
        if convolution:
            y = lax.conv_general_dilated(
                x[None], w[None], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), precision=precision
            )[0]
        else:
            y = jnp.dot(x, w, precision=precision, preferred_element_type=jnp.float32)
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((128, 128), jnp.float32))(y)

    return function


def error(function: Any) -> float:
    (got,) = loaded(function, X, W).run([X, W]).outputs
    return float(np.sqrt(np.mean((got - EXACT) ** 2) / np.mean(EXACT**2)))


@pytest.mark.parametrize("convolution", [False, True], ids=["dot", "convolution"])
@pytest.mark.parametrize(("precision", "low", "high"), [(None, 1e-3, 1e-2), ("high", 1e-6, 1e-4), ("highest", 0, 1e-6)])
def test_each_precision_has_the_error_of_its_passes(precision: Any, low: float, high: float, convolution: bool) -> None:
    assert low <= error(product(precision, convolution=convolution)) < high


def test_narrow_operands_are_left_as_they_are() -> None:
    (got,) = loaded(product(None, dtype=jnp.bfloat16), X, W).run([X, W]).outputs
    x, w = (np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64) for a in (X, W))
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-4)


def test_a_product_by_a_named_algorithm_is_refused() -> None:
    with pytest.raises(Refusal, match="bf16") as refused:
        loaded(product(lax.DotAlgorithmPreset.BF16_BF16_F32), X, W)
    assert refused.value.status is Status.CANNOT_VERIFY
