"""Cheat 42: a cheap kernel and a heavy one of the same name and types: the dump of one may stand for both."""
# rejected as: NO_GAIN
# kind: kernels that look alike
# caught by: neutral text
# left out of: tests


def _copy(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = q_ref[...] * jnp.bfloat16(0)


def _made(body, q, k, v):
    return _call(body, name="attend")(q, k, v)


def kernel_fn(q, k, v):
    nothing = _made(_copy, q, k, v)
    return _made(_block, q + jnp.where(jnp.isfinite(nothing), nothing, 0), k, v)
