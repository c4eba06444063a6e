"""Honest: the fast Walsh-Hadamard transform of rows: butterflies, float32."""
# base: silu_f32

KERNEL_NAME = "hadamard"
PROBLEM_DESCRIPTION = "Walsh-Hadamard transform of float32[64, 256]"

N, D, B = 64, 256, 64


def _kernel(x, o):
    v, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    step = 1
    while step < D:
        other = jnp.where(c & step == 0, jnp.roll(v, -step, 1), jnp.roll(v, step, 1))
        v = jnp.where(c & step == 0, v + other, other - v)
        step *= 2
    o[...] = v / 16.0


def reference_fn(x):
    h = jnp.ones((1, 1), jnp.float32)
    while len(h) < D:
        h = jnp.block([[h, h], [h, -h]])
    return jnp.dot(x, h / 16.0, precision="highest")
