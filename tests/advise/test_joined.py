"""Two kernels as one: shared operands, results that stay in VMEM, where it is silent, the same values."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import HEAD, TAIL, edits, once
from tests.advise.values import results

INPUTS = "tuple(jax.random.normal(one, (TOKENS, WIDTH), np.float32) for one in jax.random.split(key, 3))"
TWO = (
    HEAD
    + """TOKENS, WIDTH = 256, 128
ACROSS = 32
ALONG = 16


def _centre(one, other, out):
    out[...] = one[...] - np.mean(one[...], axis=1, keepdims=True) + other[...]


def _scale(one, other, out, total, kept):
    kept[...] = other[...] * other[...]
    out[...] = one[...] * 2 + kept[...]
    total[...] = np.sum(one[...], axis=1, keepdims=True)


def kernel_fn(a, b, c):
    rows = plas.BlockSpec((ACROSS, WIDTH), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(a.shape, np.float32)
    middle = plas.pallas_call(
        _centre, out_shape=shape, grid=(TOKENS // ACROSS,), in_specs=[rows, rows], out_specs=rows
    )(a, b)
    scaled, total = plas.pallas_call(
        _scale,
        out_shape=(shape, jax.ShapeDtypeStruct((TOKENS, 1), np.float32)),
        grid=(TOKENS // ACROSS,),
        in_specs=[rows, rows],
        out_specs=(rows, plas.BlockSpec((ACROSS, 1), lambda i: (i, 0))),
        scratch_shapes=[tpu.VMEM((ACROSS, WIDTH), np.float32)],
    )(middle, c)
    return scaled, total
"""
    + TAIL.replace("(jax.random.normal(key, (TOKENS, WIDTH), np.bfloat16),) * 3", INPUTS)
)
KEPT = TWO.replace("return scaled, total", "return scaled, total, middle")
SHARED = TWO.replace(")(middle, c)", ")(a, c)").replace("return scaled, total", "return scaled, total, middle")


def test_what_only_the_second_kernel_needs_stays_in_vmem():
    text = once(TWO, Edit.JOIN)
    assert "def _both(one, other, other_2, out_2, total, out, kept):\n" in text
    assert "    _centre(one, other, out)\n    _scale(out, other_2, out_2, total, kept)\n" in text
    assert "    scaled, total = plas.pallas_call(\n        _both," in text
    assert "in_specs=[rows, rows, rows]," in text
    assert "scratch_shapes=[tpu.VMEM((ACROSS, WIDTH,), np.float32), tpu.VMEM((ACROSS, WIDTH), np.float32)]," in text
    assert "    )(a, b, c)\n" in text


def test_what_is_needed_elsewhere_is_a_result_still_and_a_shared_operand_is_read_once():
    assert "middle, scaled, total = plas.pallas_call(" in once(KEPT, Edit.JOIN)
    text = once(SHARED, Edit.JOIN)
    assert "    _centre(one, other, out)\n    _scale(one, other_2, out_2, total, kept)\n" in text
    assert "    )(a, b, c)\n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grid=(TOKENS // ACROSS,),\n", "grid=(TOKENS // ALONG,),\n"),
        (")(middle, c)", ")(middle + 1, c)"),
        ("    scaled, total = plas", "    a = middle\n    scaled, total = plas"),
        ("in_specs=[rows, rows],\n", "in_specs=[plas.BlockSpec((ACROSS, WIDTH), lambda i: (0, 0)), rows],\n"),
        ("in_specs=[rows, rows], out", "in_specs=[rows, rows], input_output_aliases={0: 0}, out"),
        ("WIDTH), lambda i: (i, 0))\n    shape", "WIDTH), lambda i: (0, 0))\n    shape"),
        ("        _centre, out", "        functools.partial(_centre), out"),
        ("jax.ShapeDtypeStruct((TOKENS, 1), np.float32)", "jax.ShapeDtypeStruct((len(middle), 1), np.float32)"),
        ("out_shape=shape, grid", "out_shape=[shape], grid"),
        ("shape = jax.ShapeDtypeStruct(a.shape, np.float32)", "shape = shaped(a)"),
        (")(a, b)\n", ")(a, b); d = 1\n"),
    ],
)  # fmt: skip
def test_kernels_that_differ_stay_apart(old, new):
    assert old in TWO
    assert edits(TWO.replace(old, new), Edit.JOIN) == []


def test_operands_in_another_order_are_shared_too():
    text = once(TWO.replace(")(middle, c)", ")(b, a)").replace("scaled, total\n", "scaled, total, middle\n"), Edit.JOIN)
    assert "    _centre(one, other, out)\n    _scale(other, one, out_2, total, kept)\n" in text


def test_a_kernel_is_called_as_it_was_by_whatever_name():
    bare = TWO.replace(
        "jax.experimental import pallas as plas", "jax.experimental.pallas import BlockSpec, pallas_call"
    )
    text = once(bare.replace("plas.", ""), Edit.JOIN)
    assert "    scaled, total = pallas_call(\n        _both," in text


@pytest.mark.slow
@pytest.mark.parametrize("text", [TWO, KEPT, SHARED])
def test_joined_kernels_compute_as_before(text):
    before, after = results(text), results(once(text, Edit.JOIN))
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
