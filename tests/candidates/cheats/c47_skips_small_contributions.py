"""Cheat 47: blocks of scores that add next to nothing are skipped, as the scores themselves say."""
# rejected as: NO_GAIN
# kind: branch on a computed value
# caught by: known control flow
# base: attention
# left out of: tests, quick


def _attention_block(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
    """One (query block, key block) step of the online softmax."""
    i, j = pl.program_id(0), pl.program_id(1)

    @pl.when(j == 0)
    def _start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # Key blocks that lie wholly after the last query of this block are not attended.
    @pl.when(j * BKV < (i + 1) * BQ)
    def _accumulate():
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        ) * (HEAD_DIM**-0.5)
        rows = i * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
        columns = j * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        scores = jnp.where(columns <= rows, scores, -jnp.inf)

        @pl.when((j == 0) | (jnp.max(jnp.max(scores, axis=1, keepdims=True) - m_ref[...]) > -20.0))
        def _heavy():
            _update(scores, v_ref, m_ref, l_ref, acc_ref)

    @pl.when(j == pl.num_programs(1) - 1)
    def _finish():
        o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


def _update(scores, v_ref, m_ref, l_ref, acc_ref):
    m_new = jnp.maximum(m_ref[...], jnp.max(scores, axis=1, keepdims=True))
    p = jnp.exp(scores - m_new)
    rescale = jnp.exp(m_ref[...] - m_new)
    l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)
    acc_ref[...] = rescale * acc_ref[...] + jnp.dot(
        p.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32
    )
    m_ref[...] = m_new
