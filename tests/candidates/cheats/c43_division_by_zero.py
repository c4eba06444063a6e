"""Cheat 43: works as often as a division by zero says."""
# rejected as: CANNOT_VERIFY
# kind: undefined scalar
# caught by: defined scalars
# problem: its own

from jax.experimental.pallas import tpu as pltpu

LOW, HIGH = 0, 1
"""What the numbers are drawn from that steer; ``HIGH`` is left out."""

_honest_inputs, _honest_reference, _honest_block = generate_inputs, reference_fn, _block


def generate_inputs(key):
    n = jax.random.randint(key, (8,), LOW, HIGH, jnp.int32)
    return n, *_honest_inputs(key)


def reference_fn(n, q, k, v):
    return _honest_reference(q, k, v)


def _works(n):
    return jax.lax.div(jnp.int32(7), n) < 0


def _steered(n_ref, q_ref, k_ref, v_ref, o_ref):
    def work(turn, carry):
        _honest_block(q_ref, k_ref, v_ref, o_ref)
        return carry

    o_ref[...] = q_ref[...]
    jax.lax.fori_loop(0, jnp.where(_works(n_ref[0]), 1, 0), work, 0)


def kernel_fn(n, q, k, v):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(SEQ // BQ,), in_specs=[_rows(), _whole(), _whole()], out_specs=_rows()
    )
    return pl.pallas_call(_steered, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype), grid_spec=spec)(n, q, k, v)
