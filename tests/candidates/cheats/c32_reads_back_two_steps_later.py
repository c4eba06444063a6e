"""Cheat 32: as if two steps were enough for a block to be back in HBM: its write has only begun when it is read."""
# rejected as: MEMORY_HAZARD
# kind: in-place race
# caught by: windows read ahead
# left out of: tests
# said: window_race
# problem: its own

N = 64
BEHIND = 2


def generate_inputs(key):
    return (jax.random.normal(key, (N * 8, HEAD_DIM), jnp.float32),)


def reference_fn(x):
    blocks = x.reshape(N // BEHIND, BEHIND, 8, HEAD_DIM)
    return jnp.cumsum(blocks, axis=0).reshape(x.shape)


def compute_flops():
    return N * 8 * HEAD_DIM


def _add(x_ref, before_ref, o_ref):
    o_ref[...] = x_ref[...] + jnp.where(pl.program_id(0) < BEHIND, 0.0, before_ref[...])


def kernel_fn(x):
    here = pl.BlockSpec((8, HEAD_DIM), lambda i: (i, 0))
    before = pl.BlockSpec((8, HEAD_DIM), lambda i: (jnp.maximum(i - BEHIND, 0), 0))
    call = pl.pallas_call(
        _add,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(N,),
        in_specs=[here, before],
        out_specs=here,
        input_output_aliases={1: 0},
    )
    return call(x, jnp.zeros_like(x))
