"""Four chips together, on golden dumps of two compiler versions: cycles, bytes, semaphores, deadlocks and refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ratchet.tpu.account.model import Reading
from ratchet.tpu.account.model import model as model_program
from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import Timeline
from ratchet.values.loss import LinkWaits, WaitCause
from ratchet.values.omission import OpenSemaphore
from ratchet.values.status import Refusal, Status
from tests.tpu.machine.golden_dumps import unpack

GOLDEN = Path(__file__).parent / "golden_slice"
COMPILERS = sorted(path.name for path in GOLDEN.iterdir())
SHARD_BYTES = 64 * 128 * 4
LAUNCH_BYTES = 512
"""What each chip sends to chip 0, and chip 0 to each, before the program."""

# Cycles of the slowest chip: a change here is a change of the model, and needs a reason in the commit.
CYCLES = {
    ("libtpu-0.0.42.1", "all_gather"): 21630,
    ("libtpu-0.0.42.1", "all_to_all"): 23114,
    ("libtpu-0.0.42.1", "barrier"): 15313,
    ("libtpu-0.0.42.1", "permute"): 15964,
    ("libtpu-0.0.42.1", "psum"): 18899,
    ("libtpu-0.0.42.1", "ring"): 22540,
    ("libtpu-0.0.42.1", "scatter"): 20677,
    ("libtpu-0.0.51", "all_gather"): 21606,
    ("libtpu-0.0.51", "all_to_all"): 23087,
    ("libtpu-0.0.51", "barrier"): 15294,
    ("libtpu-0.0.51", "permute"): 15940,
    ("libtpu-0.0.51", "psum"): 18870,
    ("libtpu-0.0.51", "ring"): 22521,
    ("libtpu-0.0.51", "scatter"): 20663,
}
RUNNING = ("all_gather", "all_to_all", "barrier", "permute", "psum", "ring", "scatter")


def model(folder: Path, **changes: object) -> Timeline:
    """The timeline of an unpacked program."""
    arguments: dict[str, object] = {
        "hlo": load_hlo(folder),
        "chip": V5E,
        "compiler": folder.parent.name,
        "constants": (folder / "constants.bin").read_bytes(),
    }
    return model_program(folder, **(arguments | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", RUNNING)
def test_cycles(compiler: str, program: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, program, tmp_path, golden=GOLDEN))
    assert timeline.cycles == CYCLES[compiler, program]


def test_what_was_read_for_one_run_of_a_slice_serves_another(tmp_path: Path) -> None:
    folder, reading = unpack(COMPILERS[0], RUNNING[0], tmp_path, golden=GOLDEN), Reading()
    first, second = (model(folder, reading=reading) for _ in range(2))
    assert first == second == model(folder)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", RUNNING)
def test_parts_make_the_whole(compiler: str, program: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, program, tmp_path, golden=GOLDEN))
    assert [chip.chip_index for chip in timeline.chips] == [0, 1, 2, 3]
    assert timeline.cycles == max(chip.cycles for chip in timeline.chips)
    for chip in timeline.chips:
        assert chip.executed_bundles + chip.dma_wait_cycles == chip.cycles
        assert sum(op.cycles for op in chip.ops) == chip.cycles
        assert 0 < chip.launch_cycles < chip.cycles
        assert 0 < chip.ici_wait_cycles <= chip.dma_wait_cycles
        assert max(span.end_cycles for span in chip.spans) == chip.cycles
        assert {span.lane for span in chip.spans} >= {"ICI out", "ICI in", "ICI wait"}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", RUNNING)
def test_semaphores_and_bytes_balance(compiler: str, program: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, program, tmp_path, golden=GOLDEN))
    assert not [one for chip in timeline.chips for one in chip.not_modelled if isinstance(one, OpenSemaphore)]
    for chip in timeline.chips:
        lanes = {lane: [s for s in chip.spans if s.lane == lane] for lane in ("ICI out", "ICI in")}
        sent, arrived = (sum(int(s.attributes["bytes"]) for s in spans) for spans in lanes.values())
        assert sent == chip.ici_bytes
        # Every chip gets as much as it sends in these programs, except for the launch: chip 0 sends to three.
        launch = 3 * LAUNCH_BYTES if chip.chip_index == 0 else LAUNCH_BYTES
        assert arrived - sent == (LAUNCH_BYTES if chip.chip_index else 3 * LAUNCH_BYTES) - launch


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("program", "shards"), [("ring", 3), ("all_gather", 3), ("psum", 3), ("permute", 1), ("barrier", 0)]
)
def test_what_each_chip_sends(compiler: str, program: str, shards: int, tmp_path: Path) -> None:
    """A gather takes (n - 1) shards from each chip; so does this small sum, which gathers first and adds then."""
    timeline = model(unpack(compiler, program, tmp_path, golden=GOLDEN))
    assert [chip.ici_bytes for chip in timeline.chips[1:]] == [shards * SHARD_BYTES + LAUNCH_BYTES] * 3


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_ring_of_neighbours_loads_one_direction(compiler: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, "ring", tmp_path, golden=GOLDEN))
    carried = {(use.source_chip, use.target_chip): use.bytes for use in timeline.links}
    forth = [(0, 1), (1, 3), (3, 2), (2, 0)]
    assert all(carried[link] >= 3 * SHARD_BYTES for link in forth)
    assert all(size < SHARD_BYTES for link, size in carried.items() if link not in forth)
    (waits,) = [loss for loss in timeline.blame.losses if isinstance(loss, LinkWaits)]
    assert waits.wait_cycles == timeline.ici_wait_cycles
    assert waits.cause is WaitCause.LATENCY


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_semaphore_nobody_signals(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        model(unpack(compiler, "stuck", tmp_path, golden=GOLDEN))
    assert refusal.value.status is Status.DEADLOCK
    assert "chip 3 for a signal that no chip ever sends; chips 0, 1 and 2 reached the end" in refusal.value.message
    assert "slice_programs.py:" in refusal.value.message


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_copy_that_one_chip_does_not_send(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(
        Refusal, match="chip 2 for chip 3; chip 3 for a copy of its own that it never starts"
    ) as refusal:
        model(unpack(compiler, "broken_ring", tmp_path, golden=GOLDEN))
    assert refusal.value.status is Status.DEADLOCK
    assert "to reach 1024; it is at 0" in refusal.value.message


def test_runs_are_the_same_each_time(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "psum", tmp_path, golden=GOLDEN)
    assert model(folder) == model(folder)


def test_routing_tables_are_missed(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"a constant of the compiler's.*give constants") as refusal:
        model(unpack(COMPILERS[0], "psum", tmp_path, golden=GOLDEN), constants=b"")
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


@pytest.mark.parametrize("ids", [(0, 0, 1, 2), (0, 1), (4, 5, 6, 7)])
def test_a_mesh_that_does_not_fill_the_slice_is_refused(ids: tuple[int, ...], tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "permute", tmp_path, golden=GOLDEN)
    with pytest.raises(Refusal, match="use them all, each once") as refusal:
        model(folder, hlo=dataclasses.replace(load_hlo(folder), device_ids=ids))
    assert refusal.value.status is Status.USAGE


def test_inputs_of_each_chip_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="3 sets of inputs"):
        model(unpack(COMPILERS[0], "psum", tmp_path, golden=GOLDEN), scalar_inputs=[{0: np.zeros(1)}] * 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("vsyncadd.remote", "vsyncadd.distant", "vsyncadd.distant"),
        ("smov 16430", "smov 46", "of unknown meaning"),
        ("sor.u32 134234112", "sor.u32 402669568", "of unknown meaning"),
        ("sor.u32 32776", "sor.u32 49160", "core 1 of a chip with one core"),
    ],
)
def test_unknown_ways_to_name_a_chip_are_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "ring", tmp_path, golden=GOLDEN)
    found = 0
    for path in folder.glob("*-packed-bundles-post-ra.txt"):
        text = path.read_text()
        found += old in text
        path.write_text(text.replace(old, new))
    assert found
    with pytest.raises(Refusal, match=said) as refusal:
        model(folder)
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN
