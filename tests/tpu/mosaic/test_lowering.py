"""The program around the kernels: where kernels may be called, what is refused, and how XLA's own products round."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from ratchet.tpu import library
from ratchet.tpu.mosaic.run import load
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.tpu.mosaic.kernels import Kernel, close, loaded

X, W = (np.random.default_rng(seed).normal(size=(128, 128)).astype(np.float32) for seed in (0, 1))
EXACT = X.astype(np.float64) @ W.astype(np.float64)


def test_an_unknown_operation_is_refused_by_name_with_the_module_version() -> None:
    def rounding(x, bits, o):
        o[...] = pltpu.stochastic_round(x[...], bits[...], target_dtype=jnp.bfloat16)

    with refused(Status.CANNOT_VERIFY, "which of the bits it takes is not documented"):
        loaded(pl.pallas_call(rounding, out_shape=jax.ShapeDtypeStruct(X.shape, jnp.bfloat16)), X, X.astype(np.uint32))


def test_a_host_callback_is_refused() -> None:
    def function(x):
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((8,), jnp.float32), x)

    with pytest.raises((Refusal, ValueError)) as refused:
        loaded(function, np.zeros(8, np.float32))
    assert not isinstance(refused.value, Refusal) or refused.value.status is Status.HOST_CALLBACK


def test_a_program_for_several_platforms_and_corrupt_bytes_are_refused() -> None:
    program = export.export(jax.jit(jnp.sin), platforms=("tpu", "cpu"))(jax.ShapeDtypeStruct((8,), jnp.float32))
    with refused(Status.HOST_CALLBACK):
        load(bytes(program.serialize()))
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


def test_a_function_that_a_sharded_computation_calls_may_have_a_kernel() -> None:
    """As functions that their author jitted do: each call has a kernel of its own."""

    def kernel(x, o):
        o[...] = x[...] * 2

    @jax.jit
    def double(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((2, 128), jnp.float32))(x)

    def function(x):
        def local(x):
            return double(double(x))

        return jax.shard_map(local, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)

    x = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    program = load(library.export(function, x, mesh={"chip": 4}, specs=(P("chip"),)))
    assert [kernel.name for kernel in program.program.kernels] == ["kernel"] * 2


def product(precision: Any, *, convolution: bool = False, dtype: Any = jnp.float32) -> Kernel:
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


@pytest.mark.parametrize("convolution", [False, True], ids=["dot", "convolution"])
@pytest.mark.parametrize(("precision", "low", "high"), [(None, 1e-3, 1e-2), ("high", 1e-6, 1e-4), ("highest", 0, 1e-6)])
def test_each_precision_has_the_error_of_its_passes(precision: Any, low: float, high: float, convolution: bool) -> None:
    (got,) = loaded(product(precision, convolution=convolution), X, W).run([X, W]).outputs
    assert low <= float(np.sqrt(np.mean((got - EXACT) ** 2) / np.mean(EXACT**2))) < high


def test_narrow_operands_are_left_as_they_are() -> None:
    (got,) = loaded(product(None, dtype=jnp.bfloat16), X, W).run([X, W]).outputs
    x, w = (np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64) for a in (X, W))
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-4)


def test_a_product_by_a_named_algorithm_is_refused() -> None:
    with refused(Status.CANNOT_VERIFY, "bf16"):
        loaded(product(lax.DotAlgorithmPreset.BF16_BF16_F32), X, W)
