"""Operations beside a kernel, the order of its grid: what is written, where not, the same values."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import PRODUCT, edits, once
from tests.advise.values import results

TWO = """

def two(key):
    one, other = jax.random.split(key)
    shape = (TOKENS, WIDTH)
    return jax.random.normal(one, shape, np.bfloat16), jax.random.normal(other, shape, np.bfloat16)


def reference_fn"""
SMALL = (
    PRODUCT.replace("TOKENS = 1024", "TOKENS = 512")
    .replace("return (jax.random.normal(key, (TOKENS, WIDTH), np.bfloat16),) * 3", "return two(key)")
    .replace("\n\ndef reference_fn", TWO)
)
PLAIN = once(SMALL, Edit.NARROW)
TRANSPOSED = PLAIN.replace(")(x, y)", ")(x, y.T)")
SCALED = SMALL.replace(")(x, y)", ")((x * 0.5).astype(np.float32) + 1.0, y)")
CAST = (
    SMALL.replace("TOKENS), x.dtype)", "TOKENS), np.float32)")
    .replace("return plas", "made = plas")
    .replace(")(x, y)", ")(x, y).astype(np.bfloat16)\n    return made")
)


BEGINS = """    here = plas.program_id(0) + plas.program_id(1)
    begins = here == 0

    @plas.when(begins)"""
HANDED = """    def starts(place):
        return np.logical_not(place > 0)

    place = plas.program_id(1)
    begins = starts(place)

    @plas.when(begins)"""
ALIASED = "        input_output_aliases={{{}: 0}},\n        scratch_shapes"


def test_a_transposed_operand_is_taken_as_it_is():
    text = once(TRANSPOSED, Edit.TRANSPOSE)
    assert "sums[...] += jax.lax.dot_general(" in text
    assert "left[...], right[...], (((1,), (1,)), ((), ())), preferred" in text
    assert "plas.BlockSpec((TILE[1], SIDE), lambda i, j, k: (j, k))" in text
    assert ")(x, y)\n" in text
    both = once(text.replace(")(x, y)", ")(x.T, y)"), Edit.TRANSPOSE)
    assert "(((0,), (1,)), ((), ()))" in both
    for one in ("np.transpose(y)", "np.swapaxes(y, 1, 0)"):
        assert once(TRANSPOSED.replace("y.T", one), Edit.TRANSPOSE) == text


def test_an_elementwise_operand_is_made_of_each_block():
    text = once(SCALED, Edit.FUSE)
    assert "((left[...] * 0.5).astype(np.float32) + 1.0).astype(np.float32), right" in text
    assert ")(x, y)\n" in text


def test_a_result_is_cast_where_it_is_stored():
    text = once(CAST, Edit.FUSE)
    assert "(TOKENS, TOKENS), np.bfloat16)" in text
    assert "out[...] = sums[...].astype(out.dtype)\n" in text
    wide = CAST.replace("sums[...].astype(out.dtype)", "sums[...]")
    assert "out[...] = (sums[...]).astype(out.dtype)\n" in once(wide, Edit.FUSE)
    assert ")(x, y)\n    return made" in text


def test_neighbouring_dimensions_are_swapped():
    (text,) = (one.after.decode() for one in edits(PRODUCT, Edit.SWAP))
    assert "grid=(TOKENS // TILE[1], TOKENS // SIDE, TOKENS // SIDE)" in text
    assert "plas.BlockSpec((SIDE, SIDE), lambda j, i, k: (i, k))" in text
    assert "plas.program_id(2) == 0" in text
    weighed = PRODUCT.replace("+= np.dot", "+= np.where(plas.program_id(1) > 0, 1, 2) * np.dot")
    assert len(edits(weighed, Edit.SWAP)) == 1, "what is left in scratch is cleared before it is read"


@pytest.mark.parametrize(
    ("text", "edit", "old", "new"),
    [
        (TRANSPOSED, Edit.TRANSPOSE, "right[...]", "right[0:SIDE, :]"),
        (TRANSPOSED, Edit.TRANSPOSE, "left[...]", "right[...]"),
        (TRANSPOSED, Edit.TRANSPOSE, "y.T", "transpose(y)"),
        (TRANSPOSED, Edit.TRANSPOSE, "y.T", "y.transpose(x)"),
        (
            TRANSPOSED,
            Edit.TRANSPOSE,
            "        scratch_shapes",
            ALIASED.format(1),
        ),
        (TRANSPOSED, Edit.TRANSPOSE, "import jax\n", "import jax as j\n"),
        (SCALED, Edit.FUSE, "x * 0.5", "x * y"),
        (SCALED, Edit.FUSE, "astype(np.float32) + 1.0, y", "astype(y.dtype) + 1.0, y"),
        (SCALED, Edit.FUSE, "left[...]", "left.at[...]"),
        (SCALED, Edit.FUSE, "        scratch_shapes", ALIASED.format(0)),
        (CAST, Edit.FUSE, "sums[...].astype", "2 * sums[...].astype"),
        (CAST, Edit.FUSE, "sums[...].astype", "(2 * sums[...].astype(out.dtype)).astype"),
        (CAST, Edit.FUSE, "out[...] = ", "out[...] = sums[...] = "),
        (CAST, Edit.FUSE, "out[...] = ", "out[...] = 0 * out[...] + "),
        (CAST, Edit.FUSE, "TOKENS), np.float32)", "TOKENS), np.float16)"),
        (PRODUCT, Edit.SWAP, "plas.program_id(2) == 0", "plas.program_id(1) == 0"),
        (PRODUCT, Edit.SWAP, "lambda i, j, k: (i, j)", "lambda i, j, k: (i, 0)"),
        (PRODUCT, Edit.SWAP, "= np.zeros_like(sums)", "= np.where(plas.program_id(1) > 0, sums[...], 0)"),
        (PRODUCT, Edit.SWAP, "    @plas.when(plas.program_id(2) == 0)", BEGINS),
        (PRODUCT, Edit.SWAP, "    @plas.when(plas.program_id(2) == 0)", HANDED),
    ],
)
def test_what_is_written_otherwise_stays(text, edit, old, new):
    assert old in text
    assert edits(text, edit)
    assert edits(text.replace(old, new), edit) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "edit"), [(TRANSPOSED, Edit.TRANSPOSE), (SCALED, Edit.FUSE), (CAST, Edit.FUSE), (SMALL, Edit.SWAP)]
)
def test_the_values_are_the_same(text, edit):
    (before,), (after,) = results(text), results(once(text, edit))
    assert np.abs(before).max() > 10
    np.testing.assert_array_equal(after, before)
