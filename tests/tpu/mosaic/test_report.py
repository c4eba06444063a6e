"""Digests of what a kernel reads, and the place where two executions part."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from ratchet.tpu.mosaic.ops import RULE_MODULES
from ratchet.tpu.mosaic.report import CELLS, digest, first_difference, reads

assert RULE_MODULES, "they fill the table of rules, which says what reads"


def op(name, *operands, results=()):
    return SimpleNamespace(name=name, operands=operands, results=results)


LOAD, UNUSED, SUM, DMA = (
    op("tpu.shuffled_load", "ref", results=("a",)),
    op("vector.load", "ref", results=("b",)),
    op("arith.addf", "a", results=("c",)),
    op("tpu.enqueue_dma", "ref"),
)
KERNEL = SimpleNamespace(operations=lambda: [LOAD, UNUSED, SUM, DMA])


def test_reads_are_loads_that_somebody_uses_and_copies_and_then_the_outputs():
    assert reads(KERNEL, 2) == [LOAD, DMA, 0, 1]
    assert reads(KERNEL, 0) == [LOAD, DMA]


@pytest.mark.parametrize(
    ("at", "place"), [((0,), (LOAD, 0)), ((3,), (1, 0)), ((5, 6), (DMA, 1)), ((8,), None), ((), None)]
)
def test_the_first_read_that_differs(at, place):
    """Of two steps with four reads each, and the cell that all later reads share."""
    one, other = np.zeros(9, np.int32), np.zeros(9, np.int32)
    other[list(at)] = 1
    assert first_difference(KERNEL, 2, one, other) == place


def test_a_mebibyte_of_digests_is_kept():
    assert CELLS * 4 == 1 << 20


def test_a_digest_changes_with_any_bit_and_any_place():
    base = np.zeros(64, np.int32)
    made = {int(digest(base))}
    for place in (0, 1, 63):
        for bit in (0, 31):
            changed = base.copy()
            changed[place] = np.int32(np.uint32(1 << bit).view(np.int32))
            made.add(int(digest(changed)))
    assert len(made) == 1 + 3 * 2
    swapped, plain = np.int32([1, 2]), np.int32([2, 1])
    assert int(digest(swapped)) != int(digest(plain))
    assert int(digest(np.float32([0.0]))) != int(digest(np.float32([-0.0])))
    assert int(digest(np.int8([1, 2]))) == int(digest(np.int32([1, 2])))


def test_no_two_words_have_one_digest():
    words = (np.arange(1 << 18, dtype=np.uint32) * np.uint32(40503 * 65536 + 1)).view(np.int32)
    assert np.unique(jax.vmap(digest)(words[:, None])).size == np.unique(words).size == 1 << 18
