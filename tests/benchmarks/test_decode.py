"""What the decoding benchmark says of a timeline, and the tables it steers with; no compiler is asked."""

import dataclasses

import numpy as np
import pytest

from benchmarks.lib.decoding import SHAPES, Shape, best, row, table_of
from benchmarks.lib.sources import edited
from ratchet.tpu.chips import V5E
from ratchet.values import OpCost
from ratchet.values.status import Refusal, Status
from tests.view.timelines import timeline


@pytest.mark.parametrize("chips", [1, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_page_of_a_chip_is_used_once(shape, chips):
    table = table_of(shape, chips)
    assert table.shape == (chips, shape.batch, shape.context // chips // shape.page)
    for own in table:
        assert sorted(own.flat) == list(range(own.size))
    if table[0].size > 8:
        assert (table[0].flat != np.arange(table[0].size)).any(), "permuted"


def test_a_row_by_hand():
    chip = dataclasses.replace(timeline(), cycles=150_000, launch_cycles=3000)
    ops = [(OpCost(name="k", opcode="custom-call", executions=1, cycles=n),) for n in (147_000, 144_000)]
    chips = (dataclasses.replace(chip, ops=ops[0]), dataclasses.replace(chip, ops=ops[1], launch_cycles=6000))
    shape = Shape(name="x", batch=2, q_heads=8, kv_heads=2, context=1000)
    found = row(shape, "program", dataclasses.replace(chip, chips=chips))
    floor = 2 * 2 * 1000 * 128 * 2 * 2 / 2 / (V5E.constants.hbm_efficiency * 819e9) * 1e6
    assert found["us"] == pytest.approx(100)
    assert found["floor us"] == pytest.approx(floor)
    assert found["x floor"] == pytest.approx(100 / floor)
    assert found["kernel x floor"] == pytest.approx(96 / floor), "of the chip that came last"
    assert found["launch us"] == pytest.approx(4)
    assert found["tokens/s"] == pytest.approx(20_000)


def test_the_best_block_of_a_peer_is_taken_and_those_that_fail_are_named():
    def peer(shape, pages, workers):
        if pages == 4:
            raise Refusal(Status.VMEM_OVERFLOW, "too large")
        return dataclasses.replace(timeline(), cycles=100 * abs(pages - 2) + 50)

    found, words = best(peer, Shape(name="x", context=1024), (64, 128, 192, 256), None)
    assert found.cycles == 50
    assert words == "128 of 64, 128 keys; 256: VMEM_OVERFLOW", "192 keys do not divide the context"
    with pytest.raises(Refusal, match="too large"):
        best(peer, Shape(name="x", context=1024), (256,), None)


def test_a_constant_that_is_not_there_is_an_error():
    assert edited("A = 1\nB = A\n", A=2) == "A = 2\nB = A\n"
    with pytest.raises(ValueError, match="0 lines set C"):
        edited("A = 1\n", C=2)
