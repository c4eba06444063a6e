"""Kernels on the tiles of the SparseCores: what streams take, how tiles share HBM, and what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.account.band import band
from ratchet.tpu.chips import TPU7X, V6E, Chip
from ratchet.tpu.dump.tiles import parse
from ratchet.tpu.machine.tiles import Work, work
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.tpu.machine.golden_dumps import model, unpack

WORDS = 0x4000
READ = "[tilespmem:s1], [sflag:$0x1] = stream.linear.gather [hbm4b:s2+s1], $0x4000, $0x38"
WRITE = "[hbm4b:s2+s1] = stream.linear.scatter [tilespmem:s1], [sflag:$0x2], $0x4000, $0x38"
ROWS = "[tilespmem:s1], [sflag:$0x1] = stream.indirect.gather [hbm4b:s2+s3], $0x80, s4, s3, $0xb8"
WAIT = "_ = swait.ge [sflag:$0x1], $0x4000"
LOOP = [
    ".L1:", READ, WAIT, "[sflag:$0x1] = ssyncadd.s32 $0xFFFFC000; s1 = sadd.s32 $0x1, s1; _ = sdelay $0x3",
    "p0 = slt.u32 s1, $0x4", ".T1:", "(pc) = sbr.rel @p0 .L1-.T1, $1", "_ = snop",
]  # fmt: skip
START, END = ["s1 = simm.s32 $0x0; s3 = simm.s32 $0x80"], ["_ = shalt"]
SEQUENCER = ["[simem:s1], [sflag:s2] = dma.local [hbm:s3], $0x10", "_ = shalt"]


def text(*bundles: str, sequencer: list[str] = SEQUENCER) -> str:
    def section(name: str, label: str, lines: list[str]) -> str:
        body, number = f"{name}\n{label}:\n", 0
        for line in lines:
            if line.endswith(":"):
                body += f"{line}\n"
                continue
            body += f"0x{number:x}: {{  {line.replace('; ', ';' + chr(10))}  }}\n"
            number += 1
        return body

    return section("scs", "entry", sequencer) + section("tec", "execute0_lowered", [*START, *bundles, *END])


def done(*bundles: str, chip: Chip = V6E, sequencer: list[str] = SEQUENCER) -> list[Work]:
    return work(parse(text(*bundles, sequencer=sequencer), file="f", compiler="c"), chip, "k")


def stream_s(chip: Chip, streams: int = 1) -> float:
    """Of all tiles, so many streams of :data:`WORDS` each: their engines, or HBM."""
    sparse = chip.sparse_cores
    engine = streams * WORDS * 4 / (sparse.granule_bytes * sparse.granules_per_s)
    tiles = sparse.cores * sparse.tiles
    return max(engine, tiles * streams * WORDS * 4 / (sparse.stream_hbm_share * chip.hbm_bytes_per_s))


@pytest.mark.parametrize("chip", [V6E, TPU7X], ids=lambda chip: chip.name)
@pytest.mark.parametrize("read", [READ, ROWS])
def test_a_stream_takes_its_bytes_and_the_latency(chip: Chip, read: str) -> None:
    works = done(read, WAIT, chip=chip)
    seconds = stream_s(chip) + chip.sparse_cores.stream_latency_s
    assert max(one.seconds for one in works) == pytest.approx(seconds, rel=0.01)
    assert [one.read_bytes + one.written_bytes for one in works] == [
        chip.sparse_cores.tiles * WORDS * 4
    ] * chip.sparse_cores.cores


def test_a_write_passes_beside_what_is_not_waited_for_until_a_fence() -> None:
    latency = V6E.sparse_cores.stream_latency_s
    alone = max(one.seconds for one in done(READ, WAIT, WRITE))
    fenced = max(one.seconds for one in done(READ, WAIT, WRITE, "_ = sfence.stream.hbm"))
    assert alone == pytest.approx(stream_s(V6E) + latency, rel=0.01)
    assert alone + stream_s(V6E) < fenced < 2 * alone


def test_loops_and_predicates_are_executed() -> None:
    once, four = (max(one.seconds for one in done(*lines)) for lines in ((READ, WAIT), LOOP))
    assert once + 3 * stream_s(V6E) < four < 4.01 * once
    never = WRITE.replace("scatter", "scatter @p1")
    works = done("p1 = sgt.s32 $0xFFFFFFFF, $0x0", READ, WAIT, never)
    assert works[0].read_bytes + works[0].written_bytes == V6E.sparse_cores.tiles * WORDS * 4


@pytest.mark.parametrize(
    ("instruction", "result"),
    [
        ("sshra.s32 s5, $0x20", "$0xFFFFFFFF"), ("sshra.s32 s5, $0x4", "$0xF8000000"), ("sshll.u32 s5, $0x40", "$0x0"),
        ("sshll.u32 s6, $0x4", "$0x30"), ("sshrl.u32 s5, $0x40", "$0x0"), ("sshrl.u32 s5, $0x1F", "$0x1"),
    ],
)  # fmt: skip
def test_shifts_are_those_of_the_scalar_unit(instruction: str, result: str) -> None:
    """However far: by the amount alone, of which nothing is dropped."""
    made = ["s5 = simm.s32 $0x80000000; s6 = simm.s32 $0x3", f"s7 = {instruction}", f"p0 = seq.s32 s7, {result}"]
    works = done(*made, READ.replace("gather ", "gather @p0 "), WAIT.replace("ge ", "ge @p0 "))
    assert works[0].read_bytes == V6E.sparse_cores.tiles * WORDS * 4


@pytest.mark.parametrize(("mask", "lanes"), [("$0xff", 8), ("$0xffff", 8), ("$0x3", 2)])
def test_a_gather_by_a_vector_moves_a_row_for_each_lane(mask: str, lanes: int) -> None:
    rows = "[tilespmem:s1], [sflag:$0x1] = stream.indirect_vreg.gather [hbm4b:s2+s1], s3, v0, vm0, $0xb8"
    works = done(f"vm0 = vmmov {mask}", rows, f"_ = swait.ge [sflag:$0x1], ${lanes * 0x80:#x}")
    assert works[0].read_bytes == V6E.sparse_cores.tiles * lanes * 0x80 * 4


def test_what_comes_first_streams_first() -> None:
    """The first tile of each core stalls, and then streams little: the others do not wait for that."""
    lines = [
        "s5 = stileid.u32; s6 = simm.s32 $0x4000", "p0 = sne.s32 s5, $0x0", ".T1:", "(pc) = sbr.rel @p0 .L1-.T1, $0",
        "_ = sdelay $0x600", "s6 = simm.s32 $0x10", ".L1:", *(one.replace("$0x4000", "s6") for one in (READ, WAIT)),
    ]  # fmt: skip
    share = 1 - 1 / V6E.sparse_cores.tiles
    seconds = stream_s(V6E) * share + V6E.sparse_cores.stream_latency_s
    assert max(one.seconds for one in done(*lines)) == pytest.approx(seconds, rel=0.01)


def test_what_the_last_bundle_waits_for_counts() -> None:
    once = max(one.seconds for one in done(READ, WAIT))
    assert max(one.seconds for one in done(READ, f"{WAIT}; _ = shalt")) == pytest.approx(once, rel=0.01)


def test_tiles_meet_at_a_barrier() -> None:
    one = [READ.replace("gather ", "gather @p0 "), WAIT.replace("ge ", "ge @p0 ")]
    again = [line.replace("sflag:$0x1", "sflag:$0x5") for line in (READ, WAIT)]
    meet = "[bflag:$0x0] = sbarrier.arrive $0xFFFF"
    seconds = max(one.seconds for one in done("s5 = stileid.u32", "p0 = seq.s32 s5, $0x3", *one, meet, *again))
    assert seconds > 2 * V6E.sparse_cores.stream_latency_s + stream_s(V6E)


@pytest.mark.parametrize(
    ("bundles", "message"),
    [
        ([READ.replace("tilespmem", "spmem"), WAIT], "stream between spmem and hbm4b, which nobody timed"),
        ([READ.replace("linear", "strided")], "execute stream.strided.gather"),
        (["s5 = spop v2sf"], "execute spop"),
        (["p0 = seq.s32 s9, $0x0", ".T1:", "(pc) = sbr.rel @p0 .T1-.T1, $0"], "depends on values"),
        (["s9 = rddreg [dreg:$0x1]", READ.replace("$0x4000", "s9")], "depends on values"),
        ([READ, WAIT.replace("$0x4000", "$0x4001")], "waits for ever for flag 1"),
        ([READ, WAIT, "_ = sdelay $0x10000"], "bound by their own instructions"),
        ([READ.replace("linear", "indirect_vreg").replace("$0x38", "vm0, $0x38")], "does not read|computed"),
        ([".L1:", ".T1:", "(pc) = sbr.rel .L1-.T1, $0"], "more than 4096 bundles"),
        ([READ, WAIT, "_ = shalt", "execute1_lowered:", READ], "execute execute0_lowered, execute1_lowered; timed was"),
        ([READ, WAIT, "_ = sdelay @p0 $0x10"], "stall by a predicate"),
        ([READ, WAIT, "_ = sdelay s1"], "stall by a predicate or a register"),
        (["s5 = stileid.u32", "p0 = seq.s32 s5, $0x3", ".T1:", "(pc) = sbr.rel @p0 .L1-.T1, $0",
          "[bflag:$0x0] = sbarrier.arrive $0xFFFF", ".L1:", READ, WAIT], "deadlock at a barrier"),
        ([READ, "s1 = sadd.s32 $0x1"], "bundle 0x2 of its tiles does not read"),
        ([READ, "$0x1 = simm.s32 $0x1"], "bundle 0x2 of its tiles does not read"),
        ([".L1:", "(pc) = sbr.rel .L1-.T1, $-1"], "bundle 0x1 of its tiles does not read"),
        ([READ, "s32 = simm.s32 $0x1"], "an operand 's32' of its tiles does not read"),
    ],
)  # fmt: skip
def test_what_nobody_timed_is_refused(bundles: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.tpu.machine.tiles.MOST_BUNDLES", 1 << 12)
    with refused(Status.NOT_MODELLED, message):
        done(*bundles)


@given(
    st.integers(0, len(text(*LOOP))), st.integers(0, 12), st.text(max_size=8) | st.sampled_from(["s5", "$0x1", ", "])
)
def test_a_damaged_program_is_executed_or_refused(start: int, length: int, put: str) -> None:
    whole = text(*LOOP)
    with contextlib.suppress(Refusal), pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratchet.tpu.machine.tiles.MOST_BUNDLES", 1 << 12)
        assert work(parse(whole[:start] + put + whole[start + length :], file="f", compiler="c"), V6E, "k")


def test_work_of_the_sequencer_is_refused() -> None:
    with refused(Status.NOT_MODELLED, "its sequencer copies"):
        done(READ, WAIT, sequencer=["[hbm:s1], [sflag:s2] = dma.local [hbm:s3], $0x10"])
    done(READ, WAIT, sequencer=["[smem:s1], [sflag:s2] = dma.local [hbm:s3], $0x10"])
    with refused(Status.NOT_MODELLED, "its sequencer copies"):
        done(READ, WAIT, sequencer=["[smem:s1], [sflag:s2] = dma.local [hbm:s3], $0x40"])
    with refused(Status.NOT_MODELLED, "its sequencer copies"):
        done(READ, WAIT, sequencer=["[smem:s1] = dma.local"])
    with refused(Status.NOT_MODELLED, "no program for the tiles"):
        work(parse(text().partition("tec\n")[0], file="f", compiler="c"), V6E, "k")


# A change here is a change of the model, and needs a reason in the commit.
CYCLES = {"libtpu-0.0.42.1": 58_348, "libtpu-0.0.50.1": 63_734}


@pytest.mark.parametrize("compiler", CYCLES)
def test_a_gather_as_either_compiler_has_it(compiler: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, "rows", tmp_path), chip=TPU7X)
    assert timeline.cycles == CYCLES[compiler]
    assert Unmodelled.STREAMS in timeline.not_modelled
    said = band(timeline)
    assert said.high_ms > 1.35 * timeline.latency_ms, "few were timed"


def test_a_gather_without_its_program_is_not_modelled(tmp_path: Path) -> None:
    folder = unpack("libtpu-0.0.42.1", "rows", tmp_path)
    next(folder.glob("*call-start*_bundles.txt")).unlink()
    with refused(Status.NOT_MODELLED, "the SparseCores"):
        model(folder, chip=TPU7X)
