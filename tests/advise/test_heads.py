"""Heads grouped in a step, pages of a table, tiles side by side: what is written, and the values."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import edits, held, once
from tests.advise.values import results
from tests.imports import HERE

PAGED = (HERE / "benchmarks/data/first/paged_decode.py").read_text()
HEADS = once(PAGED, Edit.GROUP)
ABREAST = once(HEADS, Edit.ABREAST)
PAGES = edits(ABREAST, Edit.PAGES)[0].after.decode()


def test_a_dimension_that_blocks_take_one_of_becomes_a_loop_in_each_step():
    assert "grid=(BATCH, PAGES)," in HEADS
    assert "pl.BlockSpec((KV_HEADS, 1, PAGE, HEAD_DIM), lambda b, p, table: (0, table[b, p], 0, 0))" in HEADS
    assert "    page = pl.program_id(1)\n" in HEADS
    assert (
        "        for head in range(KV_HEADS):\n            m_ref[head] = jnp.full_like(m_ref[head], -jnp.inf)" in HEADS
    )
    assert (
        "    for head in range(KV_HEADS):\n        scores = jax.lax.dot_general(\n            q_ref[0, head]" in HEADS
    )
    assert "pltpu.VMEM((KV_HEADS, GROUP, 1), jnp.float32)" in HEADS
    assert '"grid": [BATCH, PAGES]' in HEADS


def test_pages_are_read_several_at_a_time():
    assert "grid=(BATCH, PAGES // 2)," in PAGES
    assert "lambda b, p, table: (0, table[b, p * 2], 0, 0)), pl.BlockSpec(" in PAGES
    assert "lambda b, p, table: (0, table[b, p * 2 + 1], 0, 0))" in PAGES
    assert (
        "    for number, k_ref, v_ref in ((0, k_ref, v_ref), (1, k_ref_1, v_ref_1)):\n        def _tile(head):" in PAGES
    )
    assert "k, k, v, v)\n" in PAGES
    assert "@pl.when(page == PAGES // 2 - 1)" in PAGES
    assert [one.factor for one in edits(ABREAST, Edit.PAGES)] == [2, 4, 8]
    assert edits(PAGES, Edit.PAGES) == []


def test_tiles_that_do_not_meet_go_side_by_side():
    assert ABREAST.count("yield\n") == 6
    assert "_abreast([_tile(head) for head in range(KV_HEADS)], 7)" in ABREAST


@pytest.mark.parametrize(
    ("text", "edit", "old", "new"),
    [
        (PAGED, Edit.GROUP, "q_ref[0, 0]", "q_ref[...][0, 0]"),
        (PAGED, Edit.GROUP, "page = pl.program_id(2)", "page = pl.program_id(2) + 0 * pl.program_id(1)"),
        (PAGED, Edit.GROUP, "page == 0", "jnp.logical_and(page == 0, pl.program_id(0) == 0)"),
        (PAGED, Edit.GROUP, "(h, table[b, p], 0, 0)", "(h * 1, table[b, p], 0, 0)"),
        (PAGED, Edit.GROUP, "= 8, 32, 8, 128", "= 8, 320, 80, 128"),
        (HEADS, Edit.ABREAST, "acc_ref[head] = rescale * acc_ref[head]", "acc_ref[head] = rescale * acc_ref[0]"),
        (HEADS, Edit.PAGES, "pl.program_id(1)", "pl.program_id(0)"),
        (HEADS, Edit.PAGES, "table[b, p]", "p"),
        (HEADS, Edit.PAGES, "    m_new = jnp", "    last = pl.num_programs(1)\n        m_new = jnp"),
        (HEADS, Edit.PAGES, ")(table, q", ")(*(table,), q"),
        (HEADS, Edit.PAGES, "lambda b, p, table: (b, 0, 0, 0)", "lambda *at: (at[0], 0, 0, at[1])"),
        (HEADS, Edit.PAGES, "lambda b, p, table: (b, 0, 0, 0)", "of_query"),
        (HEADS, Edit.PAGES, "        scores = jax", "        mine = (lambda page: page)(0)\n        scores = jax"),
    ],
)
def test_what_is_written_otherwise_stays(text, edit, old, new):
    assert old in text
    assert edits(text, edit)
    assert edits(text.replace(old, new), edit) == []


def test_pages_of_an_index_map_that_has_a_name_stay():
    index = "lambda b, p, table: (0, table[b, p], 0, 0)"
    assert edits(held(HEADS, index), Edit.PAGES) == []


@pytest.mark.slow
def test_grouped_heads_and_pages_attend_as_before():
    small = "BATCH, Q_HEADS, KV_HEADS, HEAD_DIM = 8, 32, 8, 128\nCONTEXT, PAGE = 2048, 64"
    assert small in PAGED
    other = "BATCH, Q_HEADS, KV_HEADS, HEAD_DIM = 2, 8, 4, 128\nCONTEXT, PAGE = 256, 32"
    (before,) = results(PAGED.replace(small, other))
    assert np.abs(before).max() > 0.3
    steps = [HEADS, ABREAST, *(one.after.decode() for one in edits(ABREAST, Edit.PAGES))]
    steps += [one.after.decode() for one in edits(HEADS, Edit.PAGES)]
    for text in steps:
        np.testing.assert_array_equal(results(text.replace(small, other))[0], before)
