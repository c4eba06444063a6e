"""Cheat 13: declares its steps parallel, and takes from each the row that the one before left."""
# rejected as: MEMORY_HAZARD
# kind: order of parallel steps
# caught by: step order

from jax.experimental.pallas import tpu as pltpu


def _chain(q_ref, k_ref, v_ref, o_ref, first_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        first_ref[...] = jnp.zeros_like(first_ref)

    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
    o_ref[...] += (first_ref[...] * 0.001).astype(o_ref.dtype)
    first_ref[...] = jnp.full_like(first_ref, pl.program_id(0).astype(jnp.float32))


def kernel_fn(q, k, v):
    return _call(
        _chain,
        scratch_shapes=[pltpu.VMEM((BQ, HEAD_DIM), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(q, k, v)
