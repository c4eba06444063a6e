"""Honest: a gated recurrence along time, float32."""
# base: softmax_no_max

KERNEL_NAME = "linear_recurrence"
PROBLEM_DESCRIPTION = "h = a h + x over float32[128, 256]"

N, D = 128, 256


def _kernel(a, x, o):
    def step(t, h):
        h = a[pl.ds(t, 1)] * h + x[pl.ds(t, 1)]
        o[pl.ds(t, 1)] = h
        return h

    jax.lax.fori_loop(0, N, step, jnp.zeros((1, D), jnp.float32))


def reference_fn(a, x):
    def step(h, ax):
        h = ax[0] * h + ax[1]
        return h, h

    return jax.lax.scan(step, jnp.zeros((D,), jnp.float32), (a, x))[1]


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.uniform(a, (N, D), jnp.float32), jax.random.normal(b, (N, D), jnp.float32)


def compute_flops():
    return 2 * N * D
