"""Errors that Pallas and Mosaic really give are answered with what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from ratchet.tpu.exporting import exported, for_tpu, in_one_line, status_of
from ratchet.values.status import Status
from ratchet.view.verdict_json import hint

TABLE = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)


def _store_a_scalar(x, o):
    o[0, 0] = jnp.sum(x[...])


def _capture(x, o):
    o[...] = x[...] + jnp.asarray(TABLE)


def _three_passes(x, o):
    o[...] = jnp.dot(jnp.dot(x[...], x[...].T, precision="high"), x[...])


def _narrow_sum(x, o):
    b = x[...].astype(jnp.bfloat16)
    o[...] = jax.lax.dot_general(b, b, (((0,), (0,)), ((), ())))[:64].astype(jnp.float32)


def _ask(x, o):
    if x[0, 0] > 0:
        o[...] = x[...]


def _sorted(x, o):
    o[...] = jnp.sort(x[...], 1)


@pytest.mark.parametrize(
    ("kernel", "width", "words"),
    [
        (_store_a_scalar, 256, "pltpu.SMEM"),
        (_capture, 256, "operand"),
        (_three_passes, 256, "HIGHEST"),
        (_narrow_sum, 256, "preferred_element_type"),
        (_ask, 256, "pl.when"),
        (_sorted, 256, "bitonic"),
        (_sorted, 100, "multiples of 8 and 128"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_error_of_lowering_has_a_hint(kernel, width, words):
    spec = pl.BlockSpec((64, width), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    call = pl.pallas_call(kernel, out_shape=shape, grid=(4,), in_specs=[spec], out_specs=spec)
    with pytest.raises(Exception, match=r"\w") as caught, for_tpu():
        exported(call, [shape])
    assert words in hint(status_of(caught.value), in_one_line(caught.value))


def test_an_error_that_nobody_knows_has_none():
    assert hint(Status.COMPILE_FAILED, "the moon is in the wrong phase") == ""


def test_only_errors_of_lowering_have_hints():
    assert hint(Status.WRONG_VALUES, "captures constants") == ""


def test_an_overflow_is_answered_with_the_commands_that_explain_it():
    said = hint(Status.VMEM_OVERFLOW, "the kernel needs 48.00MiB of VMEM, the limit is 16.00MiB")
    assert "ratchet explain FILE --vmem" in said
    assert "ratchet fit FILE" in said
