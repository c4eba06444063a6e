"""Honest: two hops in a loop on each chip, and one beside it; the kernel is in a function that is called twice."""
# base: ppermute

PROBLEM_DESCRIPTION = "float32[256, 256] by rows over four chips, moved on by three chips and doubled at each hop"


@jax.jit
def _hop(x):
    return _shard(x) * 2.0


def kernel_fn(x):
    def hops(x):
        return _hop(jax.lax.fori_loop(0, 2, lambda i, x: _hop(x), x))

    return jax.shard_map(hops, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)


def reference_fn(x):
    return jnp.roll(8.0 * x, 3 * N, axis=0)
