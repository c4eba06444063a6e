"""Instructions as columns."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.dump.columns import Columns, flat, numbered, ranges
from tests.tpu.account.test_blame import instruction


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_ranges_one_after_another(pairs: list[tuple[int, int]]) -> None:
    starts, sizes = np.array(pairs, np.int64).reshape(-1, 2).T
    assert ranges(starts, sizes).tolist() == list(chain.from_iterable(range(a, a + n) for a, n in pairs))


@given(st.lists(st.text(max_size=1)))
def test_numbers_stand_for_items(items: list[str]) -> None:
    numbers, distinct = numbered(items)
    assert [distinct[number] for number in numbers] == items
    assert distinct == list(dict.fromkeys(items))


def test_a_value_is_its_last_maker() -> None:
    bundles = [
        (instruction("vadd.f32", 3, "v1_v1"), instruction("vadd.f32", 3, "v2_v2", "%v1_v1")),
        (),
        (instruction("vsub.f32", 4, "v1_v1", "%v2_v2"),),
    ]
    columns = Columns(flat(bundles))
    assert columns.first.tolist() == [0, 2, 2, 3]
    assert columns.bundle.tolist() == [0, 0, 2]
    assert [columns.opcodes[number] for number in columns.opcode] == ["vadd.f32", "vadd.f32", "vsub.f32"]
    assert columns.makes.tolist() == [2, 1, 2]
    assert columns.reads.tolist() == [2, 1]
    assert columns.reader.tolist() == [1, 2]
    assert list(columns.of_bundle(0)) == [0, 1]
    assert columns.maker("v1") == bundles[2][0]
    assert columns.maker("v7") is None
    assert columns.bundles == bundles
    assert columns.bundles[-1:] == [bundles[2]]
    assert columns.bundles != bundles[:2]


def test_a_listing_may_be_empty() -> None:
    columns = Columns(flat([(), ()]))
    assert columns.first.tolist() == [0, 0, 0]
    assert len(columns) == len(columns.reads) == 0
