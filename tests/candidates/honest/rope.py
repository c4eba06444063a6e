"""Honest: rotary position embedding, halves rotated, bfloat16 with float32 tables."""
# base: silu_f32

KERNEL_NAME = "rope"
PROBLEM_DESCRIPTION = "rotary embedding of bfloat16[256, 256]"


def _kernel(x, y, z, o):
    v = x[...].astype(jnp.float32)
    turned = jnp.concatenate([-v[:, D // 2 :], v[:, : D // 2]], axis=1)
    o[...] = (v * y[...] + turned * z[...]).astype(o.dtype)


def reference_fn(x, y, z):
    x = x.astype(jnp.float32)
    a, b = x[:, : D // 2], x[:, D // 2 :]
    c, s = y[:, : D // 2], z[:, : D // 2]
    return jnp.concatenate([a * c - b * s, b * c + a * s], axis=1).astype(jnp.bfloat16)


def generate_inputs(key):
    angles = jnp.arange(N)[:, None] * 10000.0 ** (-jnp.arange(D // 2)[None] / (D // 2))
    angles = jnp.tile(angles, (1, 2))
    return jax.random.normal(key, (N, D), jnp.bfloat16), jnp.cos(angles), jnp.sin(angles)
