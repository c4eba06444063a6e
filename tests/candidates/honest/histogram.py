"""Honest: how many elements fall between equal edges, int32."""
# base: silu_f32

KERNEL_NAME = "histogram"
PROBLEM_DESCRIPTION = "histogram of float32[256, 128] in 16 bins"

N, D, BINS, B = 256, 128, 16, 64
EACH = 3


def _kernel(x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o[...] = jnp.zeros_like(o)

    place = jnp.clip(jnp.floor((x[...] + 4.0) * (BINS / 8.0)), 0, BINS - 1).astype(jnp.int32)
    for b in range(BINS):
        o[b : b + 1] += jnp.sum((place == b).astype(jnp.int32), axis=0, keepdims=True)


def reference_fn(x):
    place = jnp.clip(jnp.floor((x + 4.0) / 8.0 * BINS), 0, BINS - 1).astype(jnp.int32)
    return jnp.sum(place[None] == jnp.arange(BINS, dtype=jnp.int32)[:, None, None], axis=1, dtype=jnp.int32)
