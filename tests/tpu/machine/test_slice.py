"""Four chips together, on golden dumps of two compiler versions: cycles, bytes, semaphores, deadlocks and refusals."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.latency import Reading
from ratchet.tpu.machine.links import Interleaving, Links
from ratchet.tpu.machine.programs import read
from ratchet.tpu.machine.slice import ChipOfSlice, Shared
from ratchet.tpu.machine.words import NotExecutable
from ratchet.values.loss import LinkWaits, WaitCause
from ratchet.values.omission import OpenSemaphore
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.tpu.machine.golden_dumps import COMPILERS, edit, model, modelled, unpack

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


@pytest.mark.parametrize(("compiler", "program"), CYCLES)
def test_cycles(compiler: str, program: str) -> None:
    timeline = modelled(compiler, program)
    assert timeline.cycles == CYCLES[compiler, program]
    assert timeline.cycles == max(chip.cycles for chip in timeline.chips)
    assert [chip.chip_index for chip in timeline.chips] == [0, 1, 2, 3]
    for chip in timeline.chips:
        assert chip.executed_bundles + chip.dma_wait_cycles == chip.cycles
        assert sum(op.cycles for op in chip.ops) == chip.cycles
        assert 0 < chip.launch_cycles < chip.cycles
        assert 0 < chip.ici_wait_cycles <= chip.dma_wait_cycles
        assert max(span.end_cycles for span in chip.spans) == chip.cycles
        assert {span.lane for span in chip.spans} >= {"ICI out", "ICI in", "ICI wait"}


def test_runs_are_the_same_each_time_and_what_was_read_for_one_serves_another(tmp_path: Path) -> None:
    folder, reading = unpack(COMPILERS[0], "all_gather", tmp_path), Reading()
    first, second = (model(folder, reading=reading) for _ in range(2))
    assert first == second == model(folder)


ELSEWHERE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
from tests.tpu.machine.golden_dumps import modelled
for compiler, program in zip(sys.argv[2::2], sys.argv[3::2]):
    print(modelled(compiler, program).cycles)
"""


def test_cycles_depend_on_no_number_of_cpus_and_on_no_order_of_sets() -> None:
    def cycles(cpus: int, seed: int) -> str:
        asked = [sys.executable, "-c", ELSEWHERE, str(cpus), *(name for one in CYCLES for name in one)]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment, timeout=120)
        return done.stdout

    first, *others = (cycles(cpus, seed) for cpus, seed in ((1, 1), (2, 2), (64, (1 << 32) - 1)))
    assert len(first.split()) == len(CYCLES)
    assert others == [first] * 2


@pytest.mark.parametrize(("compiler", "program"), CYCLES)
def test_semaphores_and_bytes_balance(compiler: str, program: str) -> None:
    timeline = modelled(compiler, program)
    assert not [one for chip in timeline.chips for one in chip.not_modelled if isinstance(one, OpenSemaphore)]
    for chip in timeline.chips:
        lanes = {lane: [s for s in chip.spans if s.lane == lane] for lane in ("ICI out", "ICI in")}
        sent, arrived = (sum(int(s.attributes["bytes"]) for s in spans) for spans in lanes.values())
        assert sent == chip.ici_bytes
        assert arrived == sent, "in these programs, and in the launch too"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("program", "shards"), [("ring", 3), ("all_gather", 3), ("psum", 3), ("permute", 1), ("barrier", 0)]
)
def test_what_each_chip_sends(compiler: str, program: str, shards: int) -> None:
    """A gather takes (n - 1) shards from each chip; so does this small sum, which gathers first and adds then."""
    sent = [chip.ici_bytes for chip in modelled(compiler, program).chips[1:]]
    assert sent == [shards * SHARD_BYTES + LAUNCH_BYTES] * 3


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_ring_of_neighbours_loads_one_direction(compiler: str) -> None:
    timeline = modelled(compiler, "ring")
    carried = {(use.source_chip, use.target_chip): use.bytes for use in timeline.links}
    forth = [(0, 1), (1, 3), (3, 2), (2, 0)]
    assert all(carried[link] >= 3 * SHARD_BYTES for link in forth)
    assert all(size < SHARD_BYTES for link, size in carried.items() if link not in forth)
    (waits,) = [loss for loss in timeline.blame.losses if isinstance(loss, LinkWaits)]
    assert waits.wait_cycles == timeline.ici_wait_cycles
    assert waits.cause is WaitCause.LATENCY


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("stuck", "chip 3 for a signal that is never sent; chips 0, 1 and 2 reached the end.*slice_programs.py:"),
        (
            "broken_ring",
            "chip 2 for chip 3; chip 3 for a copy of its own that it never starts.*to reach 1024; it is at 0",
        ),
    ],
)
def test_a_deadlock_says_who_waits_for_whom(compiler: str, program: str, said: str, tmp_path: Path) -> None:
    with refused(Status.DEADLOCK, said):
        model(unpack(compiler, program, tmp_path))


def test_routing_tables_are_missed(tmp_path: Path) -> None:
    with refused(Status.SCHEDULE_UNKNOWN, r"a constant of the compiler's.*give constants"):
        model(unpack(COMPILERS[0], "psum", tmp_path), constants=b"")


@pytest.mark.parametrize("ids", [(0, 0, 1, 2), (0, 1), (4, 5, 6, 7)])
def test_a_mesh_that_does_not_fill_the_slice_is_refused(ids: tuple[int, ...], tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "permute", tmp_path)
    hlo = dataclasses.replace(load_hlo(folder), device_ids=ids)
    with refused(Status.USAGE, "use all of them"):
        model(folder, hlo=hlo, scalar_inputs=())


def test_inputs_of_each_chip_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="3 sets of inputs"):
        model(unpack(COMPILERS[0], "psum", tmp_path), scalar_inputs=[{0: np.zeros(1)}] * 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("vsyncadd.remote", "vsyncadd.distant", "vsyncadd.distant"),
        ("smov 16430", "smov 46", "of unknown meaning"),
        ("sor.u32 134234112", "sor.u32 402669568", "of unknown meaning"),
        ("sor.u32 32776", "sor.u32 49160", "core 1 of a chip with 1"),
    ],
)
def test_unknown_ways_to_name_a_chip_are_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "ring", tmp_path)
    edit(folder, old, new)
    with refused(Status.SCHEDULE_UNKNOWN, said):
        model(folder)


# --- one chip of a slice, apart from any program ---

OWN_CORE = 2 << 26
TO_CHIP_1 = 1 | 1 << 14
GRANULES = 65536
FLAG, SOURCE_FLAG = 0x1E7, 0x30


@pytest.fixture
def chips(tmp_path: Path) -> list[ChipOfSlice]:
    folder = unpack(COMPILERS[0], "ring", tmp_path)
    programs = read(folder, hlo=load_hlo(folder), chip=V5E, compiler=COMPILERS[0])
    order = Interleaving(4, lambda one, other: 0.0, lambda: RuntimeError("deadlock"))
    shared = Shared(links=Links(V5E.ici(4), V5E.clock_hz), order=order)
    shared.chips.extend(ChipOfSlice(shared, number, programs, [{}] * 4) for number in range(4))
    return shared.chips


def copy(chip: ChipOfSlice, overrides: int, flag: int) -> None:
    chip.general_dma(0, "hbm", 1 << 20, "vmem", 1 << 10, GRANULES, flag, SOURCE_FLAG, overrides, 0)


def test_a_copy_that_names_its_own_core_stays_and_signals_both_ends(chips: list[ChipOfSlice]) -> None:
    here, other, *_ = chips
    copy(here, OWN_CORE, FLAG)
    assert here.engine.final_value(FLAG) == here.engine.final_value(SOURCE_FLAG) == GRANULES
    assert here.engine.read_granules == GRANULES
    assert not other.engine.final_value(FLAG)


@pytest.mark.parametrize(
    ("overrides", "flag"), [(OWN_CORE, FLAG | 2 << 13), (3 << 26, FLAG), (1 << 20, FLAG), (TO_CHIP_1, FLAG)]
)
def test_another_form_of_address_is_refused(chips: list[ChipOfSlice], overrides: int, flag: int) -> None:
    with pytest.raises(NotExecutable, match="of unknown meaning"):
        copy(chips[0], overrides, flag)
