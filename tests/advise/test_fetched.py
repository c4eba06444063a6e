"""Operands copied in pieces by the kernel: what is written, where it is silent, the same values."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import HEAD, edits, held, once
from tests.advise.test_staggered import BLOCKS, LOOP, LOSS, PARTED, STAGES, STRIPS, TRIANGLE, last
from tests.advise.values import executed, values

JOINED = last(STAGES, Edit.TURNS)


def test_copies_start_in_the_first_step_and_each_turn_waits_for_its_piece():
    text = once(LOOP, Edit.FETCH)
    assert "def _mix(one, two_hbm, three_hbm, out, top, total, mixed, two, three, arrived, there_2):" in text
    assert "tpu.make_async_copy(two_hbm.at[part_2, :WIDTH], two.at[part_2, :WIDTH], arrived.at[0, piece])," in text
    assert "        @plas.loop(0, TOKENS // ALONG)\n        def _start(piece):" in text
    assert "        def _see(masked):\n            _await(there + 1)\n" in text
    assert text.count("plas.BlockSpec(memory_space=plas.ANY)") == 1, "both have the same blocks"
    assert "tpu.SemaphoreType.DMA((2, TOKENS // ALONG)), tpu.SMEM((1,), np.int32)]" in text


def test_of_tiles_in_stages_the_last_one_is_waited_for():
    assert "        _await(turns[-1] + 1)\n        _staggered([" in once(JOINED, Edit.FETCH)


def test_a_loop_is_parted_and_its_tiles_are_joined_after_that_too():
    text = once(STRIPS, Edit.FETCH)
    for edit in (Edit.PART, Edit.TRIANGLE, Edit.STAGGER):
        text = once(text, edit)
    assert "        _await(turns[-1] + 1)\n        def _tile(block, there, row):" in last(text, Edit.TURNS)


def test_a_block_is_cut_in_strips_behind_its_wait():
    text = once(once(LOOP, Edit.FETCH), Edit.STRIPS)
    assert (
        "            _await(there + 1)\n            for row in range(0, ACROSS, STRIP):\n                seen = "
        in text
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lambda i: (0, 0))\n    return", "lambda i: (i, 0))\n    return"),
        ("three[plas.ds", "three[...] + three[plas.ds"),
        ("multiple_of(there * ALONG, ALONG)", "multiple_of(there * 128, 128)"),
        ("            part = np", "            part = two[0:1, :]\n            part = np"),
        ("    return plas.pallas", "    print(walked)\n    return plas.pallas"),
        ("there * ALONG, ALONG), ALONG), :]", "there * ALONG, ALONG), 2 * ALONG), :]"),
        ("there * ALONG, ALONG), ALONG), :]", "there * ALONG, ALONG), here), :]"),
        ("            seen = 0.125", "            there = there + 1\n            seen = 0.125"),
        ("            seen = 0.125", "            one = [there for there in one]\n            seen = 0.125"),
        ("def kernel_fn(a, b, c):", "def kernel_fn(a, b, c, WIDTH):"),
        ("(a, b, c)\n", "(a, b * c, b * c)\n"),
        ("(a, b, c)\n", "(*(a, b, c))\n"),
        ("        out_shape=", "        input_output_aliases={1: 0},\n        out_shape="),
    ],
)
def test_what_is_read_otherwise_is_not_fetched(old, new):
    assert old in LOOP
    assert edits(LOOP, Edit.FETCH)
    assert edits(LOOP.replace(old, new, 1), Edit.FETCH) == []


def test_scratch_that_has_a_name_is_not_added_to():
    start = LOOP.index("[\n            tpu.VMEM")
    assert edits(held(LOOP, LOOP[start : LOOP.index("],\n", start) + 1]), Edit.FETCH) == []


ALONE = (
    HEAD
    + """TOKENS, WIDTH, SIDE = 512, 128, 128


def _read(x, out):
    @plas.loop(0, TOKENS // SIDE)
    def _turn(at):
        print(x[plas.ds(plas.multiple_of(at * SIDE, SIDE), SIDE), :])


def kernel_fn(x):
    shape = jax.ShapeDtypeStruct((8, WIDTH), x.dtype)
    return plas.pallas_call(
        _read,
        out_shape=shape,
        grid=(4,),
        in_specs=[plas.BlockSpec((TOKENS, WIDTH), lambda i: (0, 0))],
        out_specs=plas.BlockSpec((8, WIDTH), lambda i: (0, 0)),
    )(x)
"""
)


@pytest.mark.parametrize(
    "changes",
    [
        [("grid=(4,)", "grid=()"), ("lambda i:", "lambda:")],
        [("_read(x, out)", "_read(x)"), ("plas.BlockSpec((8, WIDTH), lambda i: (0, 0))", "()")],
        [("(x, out)", "(piece, out)"), ("print(x", "print(piece")],
    ],
)
def test_a_kernel_without_steps_without_outputs_or_with_names_of_ours_stays(changes):
    assert len(edits(ALONE, Edit.FETCH)) == 1
    text = ALONE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert edits(text, Edit.FETCH) == []


def test_a_block_narrower_than_its_array_is_copied_alone_and_the_last_step_waits_for_the_rest():
    text = once(LOOP, Edit.FETCH)
    assert "two_hbm.at[part_2, :WIDTH]" in text
    last = "    @plas.when(plas.program_id(0) == plas.num_programs(0) - 1)\n    def _drain():\n"
    assert f"{last}        _await(TOKENS // ALONG)\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("text", [LOOP, PARTED, TRIANGLE, STAGES, JOINED])
def test_fetched_pieces_are_attended_as_before(text):
    np.testing.assert_allclose(values(once(text, Edit.FETCH)), values(BLOCKS), atol=0.03)


@pytest.mark.slow
def test_no_piece_is_read_before_it_is_there():
    small = LOSS.replace("ROWS, WIDTH, WORDS = 2048, 1024, 8192", "ROWS, WIDTH, WORDS = 256, 256, 1280")
    assert edits(once(small, Edit.RESIDENT), Edit.FETCH) == [], "its pieces are columns"
    found = executed(once(JOINED, Edit.FETCH))
    assert found.findings == ()
