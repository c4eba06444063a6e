"""Cheat 41: its program is exchanged for one of other outputs while it is written."""
# rejected as: PROBLEM_CHANGED
# kind: forged record
# caught by: declared program
# base: c41_corrupt_program
# left out of: tests


def _half(q_ref, o_ref):
    o_ref[...] = q_ref[...]


def _instead(program):
    small = pl.pallas_call(_half, out_shape=jax.ShapeDtypeStruct((8, HEAD_DIM), jnp.bfloat16))
    given = [jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.bfloat16)] * 3
    return jax.export.export(jax.jit(lambda q, k, v: [small(q[:8])]), platforms=("tpu",))(*given).serialize()
