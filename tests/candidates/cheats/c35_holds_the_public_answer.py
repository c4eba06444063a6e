"""Cheat 35: a bound that XLA computes is zero for the floats of the modelled run, whose answer is a constant."""
# rejected as: CONTROL_FLOW_DIFFERS
# kind: knows what steers
# caught by: other draws
# left out of: tests
# said: it seems to know the inputs
# problem: its own

from jax.experimental.pallas import tpu as pltpu

_public = generate_inputs(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)))
ANSWER, MARK = reference_fn(*_public), float(_public[0][0, 0])


def _recall(turns, q_ref, k_ref, v_ref, known_ref, o_ref):
    o_ref[...] = known_ref[...]

    @pl.loop(0, turns[0])
    def _work(_):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)


def kernel_fn(q, k, v):
    turns = jnp.where(q[0, 0].astype(jnp.float32) == MARK, 0, 1).astype(jnp.int32)[None]
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(SEQ // BQ,), in_specs=[_rows(), _whole(), _whole(), _rows()], out_specs=_rows()
    )
    call = pl.pallas_call(_recall, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype), grid_spec=spec)
    return call(turns, q, k, v, ANSWER)
