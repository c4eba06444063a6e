"""Cheat 27: claims a kibibyte of VMEM, states a cost of nothing, and needs far more than there is."""
# rejected as: VMEM_OVERFLOW
# kind: false claims of memory
# caught by: memory limits

from jax.experimental.pallas import tpu as pltpu


def get_tiling_meta():
    return {
        "grid": [1],
        "buffers": [{"name": "all", "size_bytes": 1024, "double_buffered": False}],
        "inputs": [{"name": "all", "size_bytes": 0, "re_reads": 1}],
        "outputs": [],
        "vreg_estimate_bytes": 0,
    }


def _keep(q_ref, k_ref, v_ref, o_ref, kept_ref):
    kept_ref[pl.program_id(0)] = q_ref[...].astype(jnp.float32)
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ) + kept_ref[0].astype(o_ref.dtype)


def kernel_fn(q, k, v):
    return _call(
        _keep,
        scratch_shapes=[pltpu.VMEM((400, BQ, HEAD_DIM), jnp.float32)],
        cost_estimate=pl.CostEstimate(flops=1, transcendentals=0, bytes_accessed=1),
    )(q, k, v)
