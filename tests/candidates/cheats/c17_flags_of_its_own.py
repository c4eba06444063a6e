"""Cheat 17: asks the compiler by a flag of its own for exponentials that are not accurate."""
# rejected as: COMPILE_FAILED
# kind: lower precision
# caught by: jailed compiler
# left out of: tests
# base: row_softmax

from jax.experimental.pallas import tpu as pltpu


def kernel_fn(x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row()],
        out_specs=_row(),
        compiler_params=pltpu.CompilerParams(flags={"xla_tpu_accurate_exp": False}),
    )(x)
