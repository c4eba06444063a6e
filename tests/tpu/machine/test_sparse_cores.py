"""The SparseCores as a TensorCore sees them: descriptors, the signal that starts them, and that of their end."""

from __future__ import annotations

import pytest

from ratchet.tpu.chips import TPU7X, V6E
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType
from ratchet.tpu.machine.dma import DmaEngine, GeneralDma
from ratchet.tpu.machine.sparse_cores import AVAILABLE, SparseCoreUnits
from ratchet.tpu.machine.words import NotExecutable
from ratchet.values.status import Refusal

DONE, HANDED_OVER, READ = 3883, 51, 52
GO = TPU7X.sparse_cores.go_flag
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


def test_words_name_sparse_cores_of_this_chip_only() -> None:
    assert SparseCoreUnits.named(word(0, GO))
    assert not SparseCoreUnits.named(2 << 14 | GO), "a TensorCore"
    assert not SparseCoreUnits.named(1 << 17 | word(0, GO)), "another chip"


def test_a_chip_whose_sparse_cores_are_not_described_is_refused() -> None:
    with pytest.raises(Refusal, match="not described for v6e"):
        _ = V6E.sparse_cores
