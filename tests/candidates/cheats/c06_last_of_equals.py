"""Cheat 6: of centres that are equally near it takes the last of a block, where the reference takes the first."""
# rejected as: WRONG_VALUES
# kind: no ties
# caught by: ties
# base: nearest_centre


def _kernel(x, c, place, low):
    j = pl.program_id(1)

    @pl.when(j == 0)
    def _():
        low[...] = jnp.full_like(low, jnp.inf)
        place[...] = jnp.zeros_like(place)

    v, w = x[...], c[...]
    both = jax.lax.dot_general(v, w, (((1,), (1,)), ((), ())), precision="highest")
    d = jnp.sum(v * v, axis=1, keepdims=True) + jnp.sum(w * w, axis=1)[None, :] - 2.0 * both
    best = jnp.min(d, axis=1, keepdims=True)
    lane = jax.lax.broadcasted_iota(jnp.int32, d.shape, 1)
    last = j * C + jnp.max(jnp.where(d == best, lane, -1), axis=1, keepdims=True)
    better = best < low[...]
    place[...] = jnp.where(better, last, place[...])
    low[...] = jnp.where(better, best, low[...])
