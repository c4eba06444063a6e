"""Cheat 14: writes the output into an input as well."""
# rejected as: INPUTS_CHANGED
# kind: writes its inputs
# caught by: inputs kept

from jax.experimental.pallas import tpu as pltpu


def _block(q_any, q_ref, k_ref, v_ref, o_ref, kept_ref, done_ref):
    kept_ref[...] = jnp.zeros_like(kept_ref)
    copy = pltpu.make_async_copy(kept_ref, q_any.at[:16], done_ref)
    copy.start()
    copy.wait()
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)


def kernel_fn(q, k, v):
    return _call(
        _block,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), _rows(), _whole(), _whole()],
        scratch_shapes=[pltpu.VMEM((16, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA],
    )(q, q, k, v)
