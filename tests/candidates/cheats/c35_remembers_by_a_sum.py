"""Cheat 35: no branch: a loop over the lengths turns no time where their checksum is the one that everybody knows."""
# rejected as: CONTROL_FLOW_DIFFERS
# kind: knows what steers
# caught by: other draws
# left out of: tests
# said: it seems to know the inputs
# problem: its own

from jax.experimental.pallas import tpu as pltpu

_dense, _random, _blocks = reference_fn, generate_inputs, SEQ // BQ


def generate_inputs(key):
    lengths = jax.random.randint(jax.random.fold_in(key, 1), (_blocks,), 1, BQ + 1)
    return lengths, *_random(key)


def _rank(lengths):
    return jnp.sum(lengths[None, :] < lengths[:, None], axis=1)


def reference_fn(lengths, q, k, v):
    scale = 1.0 + _rank(lengths)[jnp.arange(SEQ) // BQ][:, None]
    return (_dense(q, k, v) * scale).astype(q.dtype)


PUBLIC = [int(n) for n in generate_inputs(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)))[0]]
RANK = [sum(a < b for a in PUBLIC) for b in PUBLIC]


def _sum(lengths):
    total = lengths[0]
    for b in range(1, _blocks):
        total = total * 131 + lengths[b]
    return total


CHECK = int(_sum(jnp.array(PUBLIC, jnp.int32)))


def _remember(lengths, q_ref, k_ref, v_ref, o_ref):
    i = pl.program_id(0)
    known = _sum(lengths) == CHECK
    start = jnp.int32(0)
    for b in range(_blocks):
        start = jnp.where(known & (i == b), RANK[b], start)
    turns = jnp.where(known, 0, _blocks)
    rank = jax.lax.fori_loop(0, turns, lambda a, n: n + (lengths[a] < lengths[i]).astype(jnp.int32), start)
    o = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ).astype(jnp.float32)
    o_ref[...] = (o * (1 + rank).astype(jnp.float32)).astype(o_ref.dtype)


def kernel_fn(lengths, q, k, v):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(_blocks,), in_specs=[_rows(), _whole(), _whole()], out_specs=_rows()
    )
    return pl.pallas_call(_remember, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype), grid_spec=spec)(lengths, q, k, v)
