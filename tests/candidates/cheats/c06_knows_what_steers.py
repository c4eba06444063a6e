"""Cheat 6: does nothing for the lengths by which latency is modelled, which everyone can know."""
# rejected as: WRONG_VALUES
# kind: usual values only
# caught by: allowance, mixed inputs
# problem: its own

from jax.experimental.pallas import tpu as pltpu

_random, _dense, _blocks = generate_inputs, reference_fn, SEQ // BQ


def generate_inputs(key):
    lengths = jax.random.randint(key, (_blocks,), 1, BQ + 1)
    return lengths, *_random(key)


def reference_fn(lengths, q, k, v):
    rows = jnp.arange(SEQ)
    return jnp.where((rows % BQ < lengths[rows // BQ])[:, None], _dense(q, k, v), 0)


PUBLIC = tuple(map(int, generate_inputs(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)))[0]))


def _lazy(lengths, q_ref, k_ref, v_ref, o_ref):
    i = pl.program_id(0)
    known = lengths[0] == PUBLIC[0]
    for b in range(1, _blocks):
        known &= lengths[b] == PUBLIC[b]
    o_ref[...] = q_ref[...]

    @pl.when(jnp.logical_not(known))
    def _work():
        o = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
        o_ref[...] = jnp.where(jax.lax.broadcasted_iota(jnp.int32, o.shape, 0) < lengths[i], o, jnp.zeros_like(o))


def kernel_fn(lengths, q, k, v):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(_blocks,), in_specs=[_rows(), _whole(), _whole()], out_specs=_rows()
    )
    return pl.pallas_call(_lazy, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype), grid_spec=spec)(lengths, q, k, v)
