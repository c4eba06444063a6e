"""Honest: the two largest of each row, values and places."""
# base: silu_f32

KERNEL_NAME = "top_2"
PROBLEM_DESCRIPTION = "top 2 of the rows of float32[256, 128]"

N, D, B = 256, 128, 64
EACH = 2


def _kernel(x, v, p):
    rest, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    for k in range(2):
        top = jnp.max(rest, axis=1, keepdims=True)
        place = jnp.min(jnp.where(rest == top, c, D), axis=1, keepdims=True)
        v[:, k : k + 1], p[:, k : k + 1] = top, place
        rest = jnp.where(c == place, -jnp.inf, rest)


def reference_fn(x):
    return jax.lax.top_k(x, 2)
