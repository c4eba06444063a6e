"""Cheat 31: the last step of a loop over keys begins half a block early and is promised to begin on a whole one."""
# rejected as: MEMORY_HAZARD
# kind: false promise
# caught by: promises
# left out of: tests
# said: the compiler relies on a multiple of 16

BKV = 40
STEPS = -(-SEQ // BKV)


def _loop(q_ref, k_ref, v_ref, o_ref):
    q, first = q_ref[...].astype(jnp.float32) * HEAD_DIM**-0.5, pl.program_id(0) * BQ
    rows = first + jax.lax.broadcasted_iota(jnp.int32, (BQ, BKV), 0)

    def step(j, carry):
        m, total, out = carry
        at = jnp.minimum(j * BKV, SEQ - BKV)
        keys = pl.ds(pl.multiple_of(at, 16), BKV)
        scores = jax.lax.dot_general(
            q.astype(k_ref.dtype), k_ref[keys].astype(k_ref.dtype), (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )  # fmt: skip
        columns = at + jax.lax.broadcasted_iota(jnp.int32, (BQ, BKV), 1)
        scores = jnp.where((columns <= rows) & (columns >= j * BKV), scores, -jnp.inf)
        top = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
        p, scale = jnp.exp(scores - top), jnp.exp(m - top)
        part = jnp.dot(p.astype(v_ref.dtype), v_ref[keys], preferred_element_type=jnp.float32)
        return top, total * scale + jnp.sum(p, axis=1, keepdims=True), out * scale + part

    start = (jnp.full((BQ, 1), -1e30), jnp.zeros((BQ, 1)), jnp.zeros((BQ, HEAD_DIM)))
    _, total, out = jax.lax.fori_loop(0, STEPS, step, start)
    o_ref[...] = (out / total).astype(o_ref.dtype)


_block = _loop
