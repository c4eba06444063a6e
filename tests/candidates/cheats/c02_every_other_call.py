"""Cheat 2: every other call does no work."""
# rejected as: NON_DETERMINISTIC
# kind: state in Python
# caught by: two traces
# left out of: tests

_honest, _calls = kernel_fn, []


def kernel_fn(q, k, v):
    _calls.append(0)
    return (
        _honest(q, k, v)
        if len(_calls) % 2
        else pl.pallas_call(_zero, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype))(q)
    )


def _zero(q_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)
