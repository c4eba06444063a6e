"""Honest: moving averages with a decay for each step, in chunks of 64 as one product, float32."""
# base: chunked_ssd

KERNEL_NAME = "decayed_sums"
PROBLEM_DESCRIPTION = "h = exp(a) h + (1 - exp(a)) x over 256 steps of float32[256, 128]"

P = 128


def _kernel(x, a, o, state):
    @pl.when(pl.program_id(0) == 0)
    def _():
        state[...] = jnp.zeros_like(state)

    seen, prefix = _prefix(a[...])
    decay = jnp.where(seen, jnp.exp(jnp.where(seen, prefix - prefix.T, 0.0)), 0.0)
    o[...] = _dot(decay, (1 - jnp.exp(a[...])) * x[...]) + jnp.exp(prefix[:, :1]) * state[...]
    state[...] = o[L - 1 :]


def kernel_fn(x, a):
    rows = lambda width: pl.BlockSpec((L, width), lambda t: (t, 0))  # noqa: E731
    return pl.pallas_call(
        _kernel,
        out_shape=x,
        grid=(T // L,),
        in_specs=[rows(P), rows(1)],
        out_specs=rows(P),
        scratch_shapes=[pltpu.VMEM((1, P), jnp.float32)],
    )(x, a)


def reference_fn(x, a):
    def step(h, now):
        decay = jnp.exp(now[1])
        h = decay * h + (1 - decay) * now[0]
        return h, h

    return jax.lax.scan(step, jnp.zeros((P,)), (x, a))[1]


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (T, P)), -jax.random.uniform(b, (T, 1), minval=0.01, maxval=0.3)
