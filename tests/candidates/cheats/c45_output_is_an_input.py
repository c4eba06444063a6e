"""Cheat 45: writes nothing: its output is an input by an alias."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests


def _nothing(q_ref, o_ref):
    pass


def kernel_fn(q, k, v):
    any_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        _nothing,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        in_specs=[any_place],
        out_specs=any_place,
        input_output_aliases={0: 0},
    )(q)
