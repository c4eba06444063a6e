"""The rule for shapes that were not tuned, and the table's form."""

import pytest

from pallas_flash import tuned
from pallas_flash.config import Shape
from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks


def entry(direction, seq, dim, causal):
    return {"direction": direction, "seq": seq, "dim": dim, "causal": causal}


ENTRIES = [
    entry(direction, seq, dim, causal)
    for direction in ("forward", "backward")
    for seq, dim, causal in ((2048, 128, True), (16384, 128, True), (8192, 256, True), (4096, 128, False))
]


@pytest.mark.parametrize(
    ("asked", "picked"),
    [
        ((2048, 128, True), (2048, 128, True)),
        ((3000, 64, True), (2048, 128, True)),
        ((100_000, 96, True), (16384, 128, True)),
        ((16384, 192, True), (8192, 256, True)),
        ((16384, 256, False), (4096, 128, False)),
    ],
)
def test_the_nearest_of_the_same_kind_is_picked(monkeypatch, asked, picked):
    monkeypatch.setattr(tuned, "table", lambda: {"entries": ENTRIES})
    seq, dim, causal = asked
    assert tuned.nearest("forward", seq=seq, dim=dim, causal=causal) == entry("forward", *picked)


def test_every_entry_of_the_table_holds_blocks_best_first():
    table = tuned.table()
    assert table.keys() == {"evaluator", "chip", "compiler", "entries"}
    for one in table["entries"]:
        made = {"forward": ForwardBlocks, "backward": BackwardBlocks}[one["direction"]]
        times = [blocks["kernel_ms"] for blocks in one["best"]]
        assert times == sorted(times) != []
        assert all(made(**blocks["blocks"]) for blocks in one["best"])


def test_the_lookup_answers_for_both_passes():
    shape = Shape(
        batch=1, heads=1, kv_heads=1, q_len=16384, kv_len=16384, dim=128, itemsize=2, left=None, right=0, tables=False
    )
    found = tuned.lookup(shape)
    assert isinstance(found.forward, ForwardBlocks)
    assert isinstance(found.backward, BackwardBlocks)
