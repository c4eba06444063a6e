"""Cheat 5: takes the last column for padding, so that a token with the last label keeps all of its loss."""
# rejected as: WRONG_VALUES
# kind: ends of a range
# caught by: ends of ranges, inputs of one sign
# base: label_loss


def _kernel(x, w, y, loss, top, total, hit):
    j = pl.program_id(1)

    @pl.when(j == 0)
    def _():
        top[...] = jnp.full_like(top, -jnp.inf)
        total[...] = jnp.zeros_like(total)
        hit[...] = jnp.zeros_like(hit)

    z = jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)
    col = j * C + jax.lax.broadcasted_iota(jnp.int32, z.shape, 1)
    hit[...] += jnp.sum(jnp.where((col == y[...]) & (col < V - 1), z, 0.0), axis=1, keepdims=True)
    m = jnp.maximum(top[...], jnp.max(z, axis=1, keepdims=True))
    total[...] = jnp.exp(top[...] - m) * total[...] + jnp.sum(jnp.exp(z - m), axis=1, keepdims=True)
    top[...] = m
    loss[...] = m + jnp.log(total[...]) - hit[...]
