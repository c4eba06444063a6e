"""Cheat 1: takes the first block's weights from scratch memory for all later ones."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: kept answers
# caught by: allowance, probes
# left out of: tests

from jax.experimental.pallas import tpu as pltpu


def _kept(q_ref, k_ref, v_ref, o_ref, kept_ref):
    @pl.when(pl.program_id(0) < 2)
    def _():
        kept_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)

    o_ref[...] = kept_ref[...]


def kernel_fn(q, k, v):
    return _call(_kept, scratch_shapes=[pltpu.VMEM((BQ, HEAD_DIM), q.dtype)])(q, k, v)
