"""The SparseCores as a TensorCore sees them: descriptors, the signal that starts them, and that of their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.tpu.chips import TPU7X, V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType
from ratchet.tpu.machine.dma import DmaEngine, GeneralDma
from ratchet.tpu.machine.elsewhere import handed
from ratchet.tpu.machine.sparse_cores import KNOWN, SparseCoreUnits
from ratchet.tpu.machine.words import NotExecutable
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.tpu.machine.golden_dumps import ARCHIVES, edit, model, unpack

DONE, HANDED_OVER, READ = 3883, 51, 52
GO, AVAILABLE, HEAD = KNOWN["tpu7x"][0]
UNIT = 4
ROWS = 4096


def op(name: str, opcode: str, target: str = "", *types: ArrayType) -> HloOp:
    return HloOp(
        name=name, opcode=opcode, types=types, is_tuple=False, operands=(), computation="main", is_root=False,
        target=target,
    )  # fmt: skip


def units() -> tuple[SparseCoreUnits, DmaEngine]:
    """Two SparseCores, for a program with one operation of theirs."""
    array = ArrayType(dtype="f32", shape=(ROWS, 128), minor_to_major=(1, 0), tiles=((8, 128),), space=0)
    prepare = op("prepare_start_copy-start", "custom-call", "PrepareAsyncCallStart")
    ops = [prepare, op("copy-start", "async-start", "", array)]
    engine = DmaEngine(TPU7X, TPU7X.constants, lambda *_: RuntimeError("deadlock"))
    hlo = HloModule(ops={o.name: o for o in ops}, entry="main")
    return SparseCoreUnits(TPU7X, hlo, engine, {0: DONE, 1: DONE + 1}), engine


def descriptor(core: int, now: int = 0) -> GeneralDma:
    flag = HANDED_OVER << 16 | UNIT + core << 13 | AVAILABLE
    return GeneralDma(now, "smem", 0, "hbm", 1 << 20, 16, flag, 1 << 16 | READ, 0, 0x20D)


def word(core: int, flag: int) -> int:
    return UNIT + core << 14 | flag


def test_an_operation_takes_its_bytes_and_the_start() -> None:
    sparse, engine = units()
    for core in (0, 1):
        sparse.hand_over(descriptor(core), "")
    assert engine.final_value(HANDED_OVER) == engine.final_value(READ) == 2
    sparse.signal(1000, word(0, GO), 1)
    sparse.signal(1500, word(1, GO), 1)
    cores = TPU7X.sparse_cores
    seconds = cores.start_s + ROWS * 512 / cores.bytes_per_s
    for core, begin in ((0, 1000), (1, 1500)):
        assert engine.reached(DONE + core, 1) == pytest.approx(begin + seconds * TPU7X.clock_hz, abs=1)


def test_start_up_moves_no_bytes_and_programs_run_one_after_another() -> None:
    sparse, engine = units()
    for _ in range(2):
        sparse.signal(0, word(0, AVAILABLE), 1)
        sparse.signal(0, word(0, GO), 1)
    start = TPU7X.sparse_cores.start_s * TPU7X.clock_hz
    assert engine.reached(DONE, 1) == pytest.approx(start, abs=1)
    assert engine.reached(DONE, 2) == pytest.approx(2 * start, abs=2)


def test_signals_of_unknown_meaning_are_errors() -> None:
    sparse, _ = units()
    with pytest.raises(NotExecutable, match="started without a descriptor"):
        sparse.signal(0, word(0, GO), 1)
    with pytest.raises(NotExecutable, match="flag 5 of SparseCore 0"):
        sparse.signal(0, word(0, 5), 1)
    with pytest.raises(NotExecutable, match="set to 3"):
        sparse.reset(word(0, GO), 3)
    with pytest.raises(NotExecutable, match="flag 5 of a SparseCore set to 0"):
        sparse.reset(word(0, 5), 0)


def test_a_program_has_the_flags_of_one_compiler() -> None:
    newer = KNOWN["tpu7x"][1]
    for known, other in (KNOWN["tpu7x"], KNOWN["tpu7x"][::-1]):
        sparse, _ = units()
        for flag in known:
            sparse.reset(word(0, flag), 0)
        sparse.signal(0, word(0, known.available), 1)
        sparse.signal(0, word(0, known.go), 1)
        with pytest.raises(NotExecutable, match=f"a signal of 1 to flag {other.go}"):
            sparse.signal(0, word(0, other.go), 1)
    sparse, _ = units()
    sparse.reset(word(0, newer.head), 0)
    with pytest.raises(NotExecutable, match="of unknown meaning"):
        sparse.reset(word(0, HEAD), 0)


def test_words_name_sparse_cores_of_this_chip_only() -> None:
    assert SparseCoreUnits.named(word(0, GO))
    assert not SparseCoreUnits.named(2 << 14 | GO), "a TensorCore"
    assert not SparseCoreUnits.named(1 << 17 | word(0, GO)), "another chip"


def test_a_chip_whose_sparse_cores_are_not_described_is_refused() -> None:
    with pytest.raises(Refusal, match="not described for v5e"):
        _ = V5E.sparse_cores


CYCLES = {"libtpu-0.0.42.1": 124_774, "libtpu-0.0.50.1": 124_865}


@pytest.mark.parametrize("compiler", CYCLES)
def test_a_result_that_sparse_cores_transpose(compiler: str, tmp_path: Path) -> None:
    """The kernel, and 64 MiB at their bandwidth; a start each for start-up, copy and end. By either protocol."""
    folder = unpack(compiler, "swap", tmp_path)
    hlo = load_hlo(folder)
    assert len(handed(hlo, hlo.ops.values())) == 1, "what it calls in turn is no operation of its own"
    timeline = model(folder, chip=TPU7X)
    assert timeline.cycles == CYCLES[compiler]
    cores = TPU7X.sparse_cores
    waited = 3 * cores.start_s + (64 << 20) / cores.bytes_per_s
    kernel = next(op.cycles for op in timeline.ops if op.opcode == "custom-call")
    assert timeline.cycles - kernel == pytest.approx(waited * TPU7X.clock_hz, rel=0.03)


def test_golden_dumps_of_sparse_cores_are_of_both_protocols() -> None:
    assert sorted(compiler for compiler, program in ARCHIVES if program == "swap") == sorted(CYCLES)


def test_a_third_protocol_is_refused(tmp_path: Path) -> None:
    folder = unpack("libtpu-0.0.50.1", "swap", tmp_path)
    edit(folder, r"7052\b", "7055")
    with refused(Status.SCHEDULE_UNKNOWN, "flag 7055 of a SparseCore set to 0, of unknown meaning"):
        model(folder, chip=TPU7X)
