"""A value that is rounded to bfloat16 and widened again has lost its low bits, wherever XLA puts both."""

import jax.numpy as jnp
import numpy as np
from jax import export

from ratchet.tpu.mosaic.run import Loaded, Options
from tests.exam.judge.programs import artefact, blocked


def narrowed(x_ref, o_ref):
    narrow = x_ref[...].astype(jnp.bfloat16).astype(jnp.float32)
    o_ref[...] = jnp.exp(narrow - jnp.max(narrow, axis=1, keepdims=True))


def test_a_rounding_between_float32_operations_is_executed():
    made = artefact(blocked(narrowed), ((1024, 128), jnp.float32))
    x = np.random.default_rng(0).normal(size=(1024, 128)).astype(np.float32)
    narrow = np.asarray(jnp.asarray(x).astype(jnp.bfloat16)).astype(np.float64)
    wanted = np.exp(narrow - narrow.max(axis=1, keepdims=True))
    got = Loaded(export.deserialize(bytearray(made.program)), Options()).run([x]).outputs[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
