"""The rule for shapes that were not tuned, and the table's form."""

import dataclasses

import jax
import pytest

from pallas_flash import tuned
from pallas_flash.config import Shape, fit_backward, fit_forward
from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks
from pallas_flash.target import Target, target
from ratchet.tpu.chips import CHIPS


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
    monkeypatch.setattr(tuned, "table", lambda: {"v5e": {"entries": ENTRIES}})
    seq, dim, causal = asked
    assert tuned.nearest("forward", chip="v5e", seq=seq, dim=dim, causal=causal) == entry("forward", *picked)


def test_a_chip_has_entries_of_its_own_and_those_of_the_v5e_where_it_has_none(monkeypatch):
    own = entry("forward", 512, 128, True)
    monkeypatch.setattr(tuned, "table", lambda: {"v5e": {"entries": ENTRIES}, "v6e": {"entries": [own]}})
    asked = {"seq": 16384, "dim": 128, "causal": True}
    home = {direction: entry(direction, **asked) for direction in ("forward", "backward")}
    assert tuned.nearest("forward", chip="v6e", **asked) == own
    assert tuned.nearest("backward", chip="v6e", **asked) == home["backward"]
    assert tuned.nearest("forward", chip="v5p", **asked) == home["forward"]


@pytest.mark.parametrize("chip", tuned.table())
def test_every_entry_of_the_table_holds_blocks_best_first(chip):
    table = tuned.table()[chip]
    assert chip in CHIPS
    assert table.keys() == {"evaluator", "compiler", "entries"}
    for one in table["entries"]:
        made = {"forward": ForwardBlocks, "backward": BackwardBlocks}[one["direction"]]
        times = [blocks["kernel_ms"] for blocks in one["best"]]
        assert times == sorted(times) != []
        assert all(made(**blocks["blocks"]) for blocks in one["best"])


@pytest.mark.parametrize("chip", CHIPS)
def test_the_lookup_answers_for_both_passes(chip):
    shape = Shape(
        batch=1, heads=1, kv_heads=1, q_len=16384, kv_len=16384, dim=128, dim_v=128, itemsize=2,
        left=None, right=0, tables=False, target=Target(chip=chip),
    )  # fmt: skip
    found = tuned.lookup(shape)
    assert isinstance(found.forward, ForwardBlocks)
    assert isinstance(found.backward, BackwardBlocks)


def shape_on(chip):
    vmem = CHIPS[chip].vmem_bytes
    return Shape(
        batch=1, heads=8, kv_heads=1, q_len=32768, kv_len=32768, dim=128, dim_v=128, itemsize=2,
        left=None, right=0, tables=False, target=Target(chip=chip, vmem_bytes=vmem),
    )  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_a_program_that_is_lowered_for_a_chip_knows_it(chip):
    device = jax.sharding.AbstractDevice(device_kind=chip.device_kind, num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("chip",), abstract_device=device)):
        assert target() == Target(chip=chip.name, vmem_bytes=chip.vmem_bytes)


def test_without_a_tpu_it_is_as_on_a_v5e():
    assert target() == Target(chip="v5e", vmem_bytes=CHIPS["v5e"].vmem_bytes)


def test_no_kernel_asks_for_more_vmem_than_its_chip_has():
    """On a v5e as before blocks were cut to the chip."""
    for chip in CHIPS.values():
        shape = shape_on(chip.name)
        blocks = tuned.lookup(shape)
        forward, (backward, _) = fit_forward(blocks.forward, shape, None), fit_backward(blocks.backward, shape, None)
        assert forward.vmem_limit_bytes < backward.vmem_limit_bytes < chip.vmem_bytes
        assert 4 * forward.chunk_kv * shape.lanes * shape.itemsize <= chip.vmem_bytes // 2
    home = fit_forward(tuned.lookup(shape_on("v5e")).forward, shape_on("v5e"), None)
    assert home.vmem_limit_bytes == ForwardBlocks().vmem_limit_bytes
    assert dataclasses.replace(home, vmem_limit_bytes=0) == dataclasses.replace(
        fit_forward(tuned.lookup(shape_on("v5e")).forward, shape_on("v6e"), None), vmem_limit_bytes=0
    )
