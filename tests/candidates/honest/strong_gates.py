"""Honest: a gated sum over time in chunks, whose gates are nearly shut for some turns and open for others, float32."""
# base: decayed_sums

KERNEL_NAME = "strong_gates"
PROBLEM_DESCRIPTION = "h = exp(-softplus(g)) h + x along 1024 turns of 128 channels, g around 2, float32"

T, D, L = 1024, 128, 64


def _kernel(g, x, o, state):
    @pl.when(pl.program_id(0) == 0)
    def _():
        state[...] = jnp.zeros_like(state)

    row, column = (jax.lax.broadcasted_iota(jnp.int32, (L, L), axis) for axis in (0, 1))
    logs = jnp.dot((column <= row).astype(jnp.float32), -jax.nn.softplus(g[...]), precision="highest")
    total, turn = jnp.exp(logs) * state[...], jax.lax.broadcasted_iota(jnp.int32, (L, D), 0)
    for k in range(L):
        kept = jnp.exp(jnp.minimum(logs - logs[k : k + 1], 0.0))
        total += jnp.where(turn >= k, kept * x[k : k + 1], 0.0)
    o[...] = total
    state[...] = total[L - 1 :]


def kernel_fn(g, x):
    spec = pl.BlockSpec((L, D), lambda i: (i, 0))
    scratch = [pltpu.VMEM((1, D), jnp.float32)]
    return pl.pallas_call(
        _kernel, out_shape=x, grid=(T // L,), in_specs=[spec, spec], out_specs=spec, scratch_shapes=scratch
    )(g, x)


def reference_fn(g, x):
    def turn(h, now):
        h = jnp.exp(-jax.nn.softplus(now[0])) * h + now[1]
        return h, h

    return jax.lax.scan(turn, jnp.zeros((D,)), (g, x))[1]


def generate_inputs(key):
    gates, x = jax.random.split(key)
    return 2 + 2 * jax.random.normal(gates, (T, D)), jax.random.normal(x, (T, D))


def compute_flops():
    return 2 * T * D
