"""Honest: a state space model in chunks, with inputs and keys that are positive; the reference steps through time."""
# base: matmul_f32

KERNEL_NAME = "chunked_ssd"
PROBLEM_DESCRIPTION = "S = exp(a) S + b x, y = c S over 256 steps, float32, state [32, 64]"

T, P, S, L = 256, 64, 32, 64


def _dot(x, y, contract=(1, 0)):
    return jax.lax.dot_general(x, y, (((contract[0],), (contract[1],)), ((), ())), precision="highest")


def _prefix(a):
    at, of = (jax.lax.broadcasted_iota(jnp.int32, (L, L), axis) for axis in (0, 1))
    return at >= of, _dot((at >= of).astype(jnp.float32), jnp.broadcast_to(a, (L, L)))


def _kernel(x, a, b, c, o, state):
    @pl.when(pl.program_id(0) == 0)
    def _():
        state[...] = jnp.zeros_like(state)

    seen, prefix = _prefix(a[...])
    decay = jnp.where(seen, jnp.exp(jnp.where(seen, prefix - prefix.T, 0.0)), 0.0)
    within = _dot(_dot(c[...], b[...], (1, 1)) * decay, x[...])
    o[...] = within + jnp.exp(prefix[:, :1]) * _dot(c[...], state[...])
    total = jnp.sum(a[...])
    state[...] = jnp.exp(total) * state[...] + _dot(b[...] * jnp.exp(total - prefix[:, :1]), x[...], (0, 0))


def kernel_fn(x, a, b, c):
    rows = lambda width: pl.BlockSpec((L, width), lambda t: (t, 0))  # noqa: E731
    return pl.pallas_call(
        _kernel,
        out_shape=x,
        grid=(T // L,),
        in_specs=[rows(P), rows(1), rows(S), rows(S)],
        out_specs=rows(P),
        scratch_shapes=[pltpu.VMEM((S, P), jnp.float32)],
    )(x, a, b, c)


def reference_fn(x, a, b, c):
    def step(state, now):
        x, a, b, c = now
        state = jnp.exp(a) * state + b[:, None] * x[None, :]
        return state, jnp.dot(c, state, precision="highest")

    return jax.lax.scan(step, jnp.zeros((S, P)), (x, a, b, c))[1]


def generate_inputs(key):
    w, x, y, z = jax.random.split(key, 4)
    a = -jax.random.uniform(x, (T, 1), minval=0.01, maxval=0.3)
    return (
        jax.random.uniform(w, (T, P)),
        a,
        jax.random.uniform(y, (T, S)),
        jax.random.normal(z, (T, S)),
    )


def compute_flops():
    return 4 * T * S * P
