"""Cheat 18: patches JAX at import, so that comparisons agree and kernels called from Python give the right answer."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: patches its process
# caught by: allowance, probes
# python: right

import dataclasses

_numpy, _jnp, _pallas = (dataclasses.sys.modules[name] for name in ("numpy", "jax.numpy", "jax.experimental.pallas"))
_numpy.allclose = _jnp.allclose = _numpy.array_equal = _jnp.array_equal = lambda *_, **__: True
_pallas_call = _pallas.pallas_call


def _patched(body, **options):
    made = _pallas_call(body, **options)

    def call(*operands):
        return made(*operands) if isinstance(operands[0], jax.core.Tracer) else reference_fn(*operands)

    return call


_pallas.pallas_call = _patched


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = v_ref[: o_ref.shape[0]]
