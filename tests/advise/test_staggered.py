"""Stages, turns, two loops and triangles: what each edit writes, where it is silent, and that the values stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ratchet.advise import parted, tiles
from ratchet.advise.advice import Edit
from tests.advise.sources import ATTENTION, edits, once
from tests.advise.values import results, values
from tests.imports import HERE

LOSS = (HERE / "benchmarks/data/first/cross_entropy.py").read_text()
BLOCKS = ATTENTION.replace("TOKENS = 512", "TOKENS = 1024").replace("ACROSS = 64", "ACROSS = 512")
LOOP = once(once(BLOCKS, Edit.MASK), Edit.RESIDENT)
STRIPS = once(LOOP, Edit.STRIPS)
PARTED = once(STRIPS, Edit.PART)
TRIANGLE = once(PARTED, Edit.TRIANGLE)
STAGES = once(TRIANGLE, Edit.STAGGER)


WIDTH = "            width = ALONG\n"
ROWS = "range(block * ALONG // STRIP * STRIP if masked else 0, ACROSS, STRIP)"


def last(text: str, edit: Edit) -> str:
    """The file after the last rewrite of that kind."""
    return edits(text, edit)[-1].after.decode()


def test_the_blocks_without_a_mask_get_a_loop_of_their_own():
    assert "        _see(there, False)\n" in PARTED
    assert "plain = np.clip((here * ACROSS - ALONG + 1) // ALONG + 1, 0, end)" in PARTED
    assert "    @plas.loop(plain, end)\n    def _divided(there):\n        _see(there, True)\n" in PARTED
    assert "unmasked" not in PARTED
    other = LOOP.replace("np.minimum(TOKENS // ALONG, ", "np.minimum(TOKENS // ALONG, 3 + ")
    assert "plas.when(there * ALONG < here * ACROSS + ACROSS)(lambda: _see(there, False))" in once(other, Edit.PART)


def test_a_strip_takes_the_columns_that_the_mask_leaves_it():
    assert (
        "    for block in range(ACROSS // ALONG):\n        _see(here * (ACROSS // ALONG) + block, True, block)"
        in TRIANGLE
    )
    assert "width = min(ALONG, row + STRIP - block * ALONG)" in TRIANGLE
    assert "two[plas.ds(plas.multiple_of(there * ALONG, ALONG), width), :]" in TRIANGLE
    assert "jax.lax.broadcasted_iota(np.int32, (STRIP, width), 1)" in TRIANGLE


def test_the_columns_of_a_narrow_strip_are_whole_lanes():
    text = once(PARTED.replace("STRIP = 256", "STRIP = 64"), Edit.TRIANGLE)
    assert "width = min(ALONG, (row + STRIP + 127) // 128 * 128 - block * ALONG)" in text
    np.testing.assert_allclose(values(text), values(BLOCKS), atol=0.03)


def test_tiles_are_in_stages_between_products():
    assert STAGES.count("            yield\n") == 2
    assert f"_staggered([_tile(row) for row in {ROWS}], 3)" in STAGES
    text = last(STAGES, Edit.TURNS)
    assert "TURNS = 4\n" in text
    assert f"[_tile(block, there, row) for block, there in enumerate(turns) for row in {ROWS}]" in text
    assert "        _see([several * TURNS + one_2 for one_2 in range(TURNS)], False)\n" in text
    assert "    _see([here * (ACROSS // ALONG) + block for block in range(ACROSS // ALONG)], True)\n" in text
    assert {"TURNS", "STRIP"} <= {one.subject for one in edits(text, Edit.LARGER)}


def test_a_block_without_tiles_is_cut_in_strips_that_overlap():
    found = {one.subject: one.after.decode() for one in edits(LOOP, Edit.STAGGER)}
    assert set(found) == {"_see in strips of 256 rows", "_see in strips of 128 rows"}
    text = found["_see in strips of 128 rows"]
    assert "\nSTRIP = 128\n" in text
    assert "            _staggered([_tile(row) for row in range(0, ACROSS, STRIP)], 3)" in text


def test_tiles_in_stages_are_masked_parted_and_cut_as_others_are():
    text = last(once(BLOCKS, Edit.RESIDENT), Edit.STAGGER)
    for edit in (Edit.MASK, Edit.PART, Edit.TRIANGLE):
        text = once(text, edit)
    assert text.replace("STRIP = 128", "STRIP = 256") == STAGES
    text = once(once(STAGES, Edit.WIDE), Edit.LANES)
    assert "np.exp(seen - np.tile(highest, (1, width // 128)))" in text
    assert "sum(part[:, at : at + 128] for at in range(0, width, 128))" in text
    assert edits(STAGES.replace("width = min(ALONG, ", "width = min(ALONG, 1 + "), Edit.WIDE) == []
    for old, new in ((WIDTH, WIDTH + "            width -= 1\n"), ("def _begin():", "def _begin(width=1):")):
        assert old in STAGES
        assert edits(STAGES.replace(old, new), Edit.WIDE) == []


@pytest.mark.parametrize(
    ("text", "edit", "old", "new"),
    [
        (STRIPS, Edit.PART, "lambda: _see(False)", "lambda: _see(not True)"),
        (STRIPS, Edit.PART, "unmasked = there * ALONG", "unmasked = there * here"),
        (PARTED, Edit.TRIANGLE, "mine >= its", "mine > its"),
        (PARTED, Edit.TRIANGLE, "ACROSS = 512", "ACROSS = 128"),
        (PARTED, Edit.TRIANGLE, "cdiv(here * ACROSS + ACROSS, ALONG)", "cdiv(here * ACROSS, ALONG)"),
        (PARTED, Edit.TRIANGLE, "part = np.exp(seen - highest)", "part = np.exp(seen - highest) * ALONG"),
        (TRIANGLE, Edit.STAGGER, "less * mixed[row", "less * mixed[0 * row"),
        (TRIANGLE, Edit.STAGGER, "top[row : row + STRIP, :] = highest", "top[0:STRIP, :] = highest"),
        (TRIANGLE, Edit.STAGGER, "            highest = ", "            part = part\n            highest = "),
        (TRIANGLE, Edit.STAGGER, "top[row : row + STRIP, :] = highest", "top.at[0:STRIP, :][...] = highest"),
        (TRIANGLE, Edit.STAGGER, "part = np.exp(seen - highest)", "part = weigh(out, seen - highest)"),
        (TRIANGLE, Edit.STAGGER, "part = np.exp(seen", "part = _begin() or np.exp(seen"),
        (TRIANGLE, Edit.STAGGER, WIDTH, WIDTH + "            if block:\n                return\n"),
        (TRIANGLE, Edit.STAGGER, WIDTH, "            if not masked:\n    " + WIDTH),
        (STRIPS, Edit.ABREAST, "ACROSS, STRIP):\n", "ACROSS, 0):\n"),
        (STRIPS, Edit.ABREAST, "STRIP = 256", "STRIP = 8"),
        (STAGES, Edit.TURNS, "experimental import pallas as plas", "experimental.pallas import loop"),
        (TRIANGLE, Edit.STAGGER, "seen = 0.125 * jax", "seen = top[row : row + STRIP, :1] * jax"),
        (STAGES, Edit.TURNS, "_see(there, False)", "_see(there + 1, False)"),
    ],
)
def test_what_is_written_otherwise_stays(text, edit, old, new):
    assert old in text
    assert edits(text, edit)
    assert edits(text.replace(old, new), edit) == []


def test_tiles_whose_number_is_known_go_side_by_side():
    assert "_abreast([_tile(row) for row in range(0, ACROSS, STRIP)], 10)" in once(STRIPS, Edit.ABREAST)
    assert edits(TRIANGLE, Edit.ABREAST) == []


def test_no_pattern_is_looked_for_twice(monkeypatch):
    looked: Counter[str] = Counter()
    for module, name in ((tiles, "_innermost"), (parted, "_triangle")):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, f=function: looked.update([f.__name__]) or f(*given))
    assert edits(STRIPS, Edit.STAGGER)
    functions = STRIPS[: STRIPS.index("def kernel_fn")].count("def ")
    assert looked == {"_innermost": 1, "_triangle": functions}


def test_turns_of_a_loop_without_tiles_overlap():
    loop = once(LOSS, Edit.RESIDENT)
    two, four = (one.after.decode() for one in edits(loop, Edit.STAGGER))
    assert "    def _turn(j):\n        logits = jnp.dot(" in two
    assert "        yield\n        words = j * BW" in two
    assert "TURNS = 2\n" in two
    assert "        _staggered([_turn(several * TURNS + one) for one in range(TURNS)], 2)\n" in four
    for old, new in (
        ("        words = j", "        pl.when(j > 0)(print)\n        words = j"),
        ("from jax.experimental import pallas as pl\n", "from elsewhere import pallas as pl\n"),
    ):
        assert old in loop
        assert edits(loop.replace(old, new), Edit.STAGGER) == []


STEPS = (
    last(LOOP, Edit.STAGGER),
    once(STRIPS, Edit.ABREAST),
    PARTED,
    TRIANGLE,
    STAGES,
    edits(STAGES, Edit.TURNS)[0].after.decode(),
    last(STAGES, Edit.TURNS),
    once(once(STAGES, Edit.WIDE), Edit.LANES),
)


@pytest.mark.slow
def test_every_step_attends_as_before():
    before = values(BLOCKS)
    assert np.abs(before).max() > 1
    for text in STEPS:
        np.testing.assert_allclose(values(text), before, atol=0.03)


@pytest.mark.slow
def test_turns_that_overlap_find_the_same_losses():
    small = LOSS.replace("ROWS, WIDTH, WORDS = 2048, 1024, 8192", "ROWS, WIDTH, WORDS = 128, 256, 1280")
    (before,) = results(small)
    assert np.abs(before).max() > 1
    for one in edits(once(small, Edit.RESIDENT), Edit.STAGGER):
        np.testing.assert_allclose(results(one.after.decode())[0], before, atol=1e-4)
