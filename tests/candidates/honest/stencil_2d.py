"""Honest: a five-point Laplacian with fixed edges, float32."""
# base: softmax_no_max

KERNEL_NAME = "stencil_2d"
PROBLEM_DESCRIPTION = "five-point stencil of float32[128, 256]"

N, D = 128, 256


def _laplacian(x):
    inner = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
    return x + 0.1 * jnp.pad(inner, 1)


def _kernel(x, o):
    v = x[...]
    down, up = jnp.roll(v, -1, 0), jnp.roll(v, 1, 0)
    right, left = jnp.roll(v, -1, 1), jnp.roll(v, 1, 1)
    r = jax.lax.broadcasted_iota(jnp.int32, (N, D), 0)
    c = jax.lax.broadcasted_iota(jnp.int32, (N, D), 1)
    inside = (r > 0) & (r < N - 1) & (c > 0) & (c < D - 1)
    o[...] = v + jnp.where(inside, 0.1 * (down + up + right + left - 4 * v), 0.0)


def reference_fn(x):
    return _laplacian(x)


def compute_flops():
    return 7 * N * D
