"""Cheat 44: a grid of a thousand million steps that do nothing."""
# rejected as: TIMEOUT, CANNOT_VERIFY, SCHEDULE_UNKNOWN, LOWERING_FAILED, COMPILE_FAILED, WRONG_VALUES
# kind: astronomic grid
# caught by: known operations, limits, known control flow, one program, memory limits, allowance
# left out of: tests, quick


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i % (SEQ // BQ), 0))

    def body(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], (pl.program_id(0) % (SEQ // BQ)) * BQ)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(1 << 30,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
    )(q, k, v)
