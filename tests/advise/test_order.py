"""The order of a grid's dimensions: what follows from it is changed as well, and nothing that cannot be read."""

from __future__ import annotations

import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import PRODUCT, edits, once

CLAIM = '"grid": [TOKENS // ACROSS, TOKENS // ALONG]'


def test_the_map_of_a_block_that_is_written_elsewhere_is_swapped_too():
    text = once(PRODUCT.replace("BlockSpec((SIDE, SIDE), ", "BlockSpec(TILE, "), Edit.SWAP)
    assert "plas.BlockSpec(TILE, lambda j, i, k: (i, k))" in text


def test_what_the_author_says_of_this_grid_is_swapped_and_nothing_of_another():
    mine, other = (f'"grid": [TOKENS // SIDE, TOKENS // TILE[1], {last}]' for last in ("TOKENS // SIDE", "7"))
    swapped = '"grid": [TOKENS // TILE[1], TOKENS // SIDE, TOKENS // SIDE]'
    assert swapped in once(PRODUCT.replace(CLAIM, mine), Edit.SWAP)
    assert other in once(PRODUCT.replace(CLAIM, other), Edit.SWAP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lambda i, j, k: (i, k)", "lambda *at: at[:2]"),
        ("lambda i, j, k: (i, k)", "lambda i, *at: (i, at[0])"),
        ("lambda i, j, k: (i, k)", "lambda i: (i, 0)"),
        ("lambda i, j, k: (i, k)", "lambda i, j, k=0: (i, k)"),
        ("plas.program_id(2) == 0", "plas.program_id(SIDE // 128) == 0"),
        ('dimension_semantics=("parallel", "parallel", "arbitrary")', "**y"),
    ],
)
def test_what_is_written_otherwise_stays(old, new):
    assert old in PRODUCT
    assert edits(PRODUCT.replace(old, new), Edit.SWAP) == []
