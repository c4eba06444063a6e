"""Cheat 35: counts a table from the lengths, except for those that everybody knows: it has their table already."""
# rejected as: CONTROL_FLOW_DIFFERS
# kind: knows what steers
# caught by: other draws
# left out of: tests
# said: it seems to know the inputs
# problem: its own
# base: c35_remembers_by_a_sum


def _remember(lengths, q_ref, k_ref, v_ref, o_ref, rank):
    i = pl.program_id(0)
    known = lengths[0] == PUBLIC[0]
    for b in range(1, _blocks):
        known &= lengths[b] == PUBLIC[b]

    @pl.when((i == 0) & known)
    def _recall():
        for b in range(_blocks):
            rank[b] = RANK[b]

    @pl.when((i == 0) & jnp.logical_not(known))
    def _count():
        @pl.loop(0, _blocks)
        def _(b):
            rank[b] = jax.lax.fori_loop(0, _blocks, lambda a, n: n + (lengths[a] < lengths[b]).astype(jnp.int32), 0)

    o = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ).astype(jnp.float32)
    o_ref[...] = (o * (1 + rank[i]).astype(jnp.float32)).astype(o_ref.dtype)


def kernel_fn(lengths, q, k, v):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(_blocks,), in_specs=[_rows(), _whole(), _whole()], out_specs=_rows(),
        scratch_shapes=[pltpu.SMEM((_blocks,), jnp.int32)],
    )  # fmt: skip
    return pl.pallas_call(_remember, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype), grid_spec=spec)(lengths, q, k, v)
