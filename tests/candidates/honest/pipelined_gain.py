"""Honest: a pipeline of its own over an operand in HBM and one that XLA has just computed, and keeps in VMEM."""
# base: pipelined_add

PROBLEM_DESCRIPTION = "adds two float32[1024, 256], one scaled by a vector, by emit_pipeline"
KERNEL_NAME = "pipelined_gain"


def _gain(x, m, o):
    def body(a, b, c):
        c[...] = a[...] * (1.0 + b[0, 0:1]) + b[0, 1:2]

    rows = pl.BlockSpec((B, D), lambda i: (i, 0))
    gains = pl.BlockSpec((1, 2, D), lambda i: (i // 4, 0, 0))
    pltpu.emit_pipeline(body, grid=(N // B,), in_specs=[rows, gains], out_specs=[rows])(x, m, o)


def kernel_fn(x, gain, shift):
    any_ = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        _gain, in_specs=[any_, any_], out_specs=any_, out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32)
    )(x, jnp.stack([gain, shift], axis=1))


def reference_fn(x, gain, shift):
    gain, shift = (jnp.repeat(one, N // 2, axis=0) for one in (gain, shift))
    return x * (1.0 + gain) + shift


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    return jax.random.normal(a, (N, D)), jax.random.normal(b, (2, D)), jax.random.normal(c, (2, D))
