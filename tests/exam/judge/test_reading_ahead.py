"""The schedule machine reads listings while a compiler writes them, and is asked about the program afterwards."""

import json
import os
import shutil
import signal
import threading
import time

import pytest

from ratchet.exam.judge import schedule, schedule_worker
from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import LARGE
from ratchet.values import Footprint, Mesh, Program
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

COMPILER = COMPILERS[0]
KERNEL = "1-_flash.1-01-packed-bundles-post-ra.txt"


@pytest.fixture
def golden(tmp_path):
    return unpack(COMPILER, "flash", tmp_path / "golden")


def written(golden, dumps):
    """What a compiler writes, with a listing of its kernel that is large for its blank lines."""
    for path in sorted(golden.glob("*.txt")):
        text = path.read_text()
        large = " " * LARGE + "\n" if path.name == KERNEL else ""
        (dumps / path.name).write_text(text + large)


def compiled(golden, dumps, folder):
    """The program that it leaves."""
    schedule_folder = folder / "schedule"
    schedule_folder.mkdir(parents=True)
    for path in dumps.iterdir():
        shutil.move(path, schedule_folder / path.name)
    shutil.copy(golden / "optimized.hlo.pb", folder)
    return Program(
        chip=V5E.name,
        compiler=COMPILER,
        dump_dir=folder,
        footprint=Footprint(
            vmem_bytes=0,
            vmem_limit_bytes=0,
            vmem_buffers=(),
            hbm_bytes=0,
            hbm_limit_bytes=0,
            spill_stores=0,
            spill_loads=0,
        ),
        copies=(),
        kernels=(),
        seconds=0.0,
    )


def asked(child, program):
    return schedule.step(child, program, V5E, Mesh(), {})[0]


def within(seconds, happens):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_machine_reads_ahead_until_it_is_told_that_it_is_enough(golden, tmp_path):
    dumps, request = tmp_path / "dumps", tmp_path / "request"
    dumps.mkdir()
    request.mkdir()
    (request / schedule.REQUEST).write_text(json.dumps({schedule.AHEAD: str(dumps), "compiler": COMPILER}))
    worker = threading.Thread(target=schedule_worker.handle, args=(request,))
    worker.start()
    try:
        written(golden, dumps)
        within(60, lambda: KERNEL in schedule_worker._AHEAD._read)
        assert worker.is_alive()
    finally:
        (request / schedule.ENOUGH).touch()
        worker.join()
    program = compiled(golden, dumps, tmp_path / "program")
    early = schedule_worker._AHEAD._read[KERNEL][1]
    reading = schedule_worker._reading(program, V5E.name)
    timeline, _ = schedule_worker.latency.step(program, V5E, Mesh(), {}, reading=reading)
    assert timeline == model(golden)
    assert reading.programs._dumps.load("_flash.1") is early


def test_a_child_that_read_ahead_models_what_it_would_have_modelled(golden, tmp_path):
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with schedule.start(tmp_path / "machine") as child:
        with schedule.reading_ahead(child, dumps):
            written(golden, dumps)
        assert asked(child, compiled(golden, dumps, tmp_path / "program")) == model(golden)
        with schedule.reading_ahead(child, tmp_path / "none"):
            pass
        assert child.alive


def test_what_fails_meanwhile_is_said_and_the_child_is_asked_no_longer(golden, tmp_path):
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with schedule.start(tmp_path / "machine") as child:
        with pytest.raises(ValueError, match="no such kernel"), schedule.reading_ahead(child, dumps):
            raise ValueError("no such kernel")
        written(golden, dumps)
        assert asked(child, compiled(golden, dumps, tmp_path / "program")) == model(golden)


def test_a_child_that_dies_meanwhile_is_waited_for_no_longer(tmp_path):
    with schedule.start(tmp_path / "machine") as child:
        with schedule.reading_ahead(child, tmp_path):
            child._await_walls()
            os.killpg(child._process.pid, signal.SIGKILL)
        assert not child.alive
