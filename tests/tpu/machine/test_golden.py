"""The machine on golden dumps of three compiler versions: cycles to the unit, and every kind of refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ratchet.tpu.chips import V5E
from ratchet.tpu.chips.units import slots
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.latency import Reading
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.programs import read
from ratchet.tpu.machine.run import run
from ratchet.values.omission import UndecidedBranches
from ratchet.values.status import Refusal, Status
from tests.refusals import refused
from tests.tpu.machine.golden_dumps import ARCHIVES, COMPILERS, NUMBERS, SCALARS, counted, edit, model, modelled, unpack
from tests.tpu.machine.programs import PROGRAMS

COMPILER = COMPILERS[0]

# (cycles, grid steps): a change here is a change of the model, and needs a reason in the commit.
CYCLES = {
    ("libtpu-0.0.42.1", "computed"): (2455, 1),
    ("libtpu-0.0.42.1", "constant"): (3075, 4),
    ("libtpu-0.0.42.1", "flash"): (32024, 32),
    ("libtpu-0.0.42.1", "large"): (902, 1),
    ("libtpu-0.0.42.1", "loop"): (4873, 12),
    ("libtpu-0.0.42.1", "manual"): (2682, 1),
    ("libtpu-0.0.42.1", "odd"): (878, 1),
    ("libtpu-0.0.42.1", "prefetch"): (3068, 4),
    ("libtpu-0.0.42.1", "scalars"): (2499, 1),
    ("libtpu-0.0.42.1", "whole"): (4552, 8),
    ("libtpu-0.0.51", "computed"): (2461, 1),
    ("libtpu-0.0.51", "constant"): (3080, 4),
    ("libtpu-0.0.51", "flash"): (32226, 32),
    ("libtpu-0.0.51", "large"): (908, 1),
    ("libtpu-0.0.51", "loop"): (4896, 12),
    ("libtpu-0.0.51", "manual"): (2688, 1),
    ("libtpu-0.0.51", "odd"): (884, 1),
    ("libtpu-0.0.51", "prefetch"): (3074, 4),
    ("libtpu-0.0.51", "scalars"): (2513, 1),
    ("libtpu-0.0.51", "whole"): (4592, 8),
    ("libtpu-0.0.52", "flash"): (30791, 32),
    ("libtpu-0.0.52", "loop"): (5020, 12),
    ("libtpu-0.0.52", "manual"): (2811, 1),
    ("libtpu-0.0.52", "prefetch"): (3195, 4),
}


@pytest.mark.parametrize(("compiler", "program"), CYCLES)
def test_cycles(compiler: str, program: str) -> None:
    timeline = modelled(compiler, program)
    assert (timeline.cycles, timeline.grid_steps) == CYCLES[compiler, program]
    assert timeline.executed_bundles + timeline.dma_wait_cycles == timeline.cycles
    assert sum(op.cycles for op in timeline.ops) == timeline.cycles
    assert max(span.end_cycles for span in timeline.spans) == timeline.cycles
    assert min(span.start_cycles for span in timeline.spans) == 0
    for slot, issues in timeline.slot_issues.items():
        assert issues <= timeline.slot_capacity[slot] * timeline.executed_bundles


@pytest.mark.parametrize(("compiler", "program"), [key for key in ARCHIVES if key[1] in PROGRAMS])
def test_slots_agree_with_the_compilers_own_count(compiler: str, program: str, tmp_path: Path) -> None:
    listings = list(counted(unpack(compiler, program, tmp_path)))
    assert len(listings) > 1
    for listing, stated in listings:
        each = [slots(i.opcode, spill=i.form.spill, moves=i.moves) or () for bundle in listing.bundles for i in bundle]
        found = [slot for taken in each for slot in taken]
        for column in ("VALU", "VPOP", "EUP", "VLOAD", "FILL", "VSTORE", "SPILL", "SALU"):
            assert found.count(column) == stated[column].sum(), (listing.file, column)


def test_causal_skips_are_executed() -> None:
    """20 of 32 steps compute: 8 query blocks of 128 against key blocks of 256. Each has 32 bf16 products per unit."""
    assert modelled(COMPILER, "flash").mxu_busy_cycles == 20 * (128 * 256 * 128 * 2) / (128 * 128 * 4)


def test_inputs_steer(tmp_path: Path) -> None:
    same = model(unpack(COMPILER, "prefetch", tmp_path), {0: np.zeros(4, np.int32)})
    assert same.hbm_read_bytes < modelled(COMPILER, "prefetch").hbm_read_bytes


def test_floats_steer(tmp_path: Path) -> None:
    """Each of s0 s1 - s2, its bounds and n0 sets the length of a loop; the sum of s4 and s5 takes a branch or not."""
    folder = unpack(COMPILER, "scalars", tmp_path)

    def cycles(*, n0: int = NUMBERS[0], **changed: float) -> int:
        scalars, numbers = SCALARS.copy(), NUMBERS.copy()
        for name, value in changed.items():
            scalars[int(name[1])] = value
        numbers[0] = n0
        return model(folder, {0: scalars, 1: numbers}).cycles

    seven = cycles()
    more = cycles(s0=3.0) - seven  # 8.75: once more
    assert more > 0
    assert cycles(s3=5.75) == seven - 2 * more
    assert cycles(s2=100.0) == seven - 8 * more  # -1 at least
    assert cycles(n0=1) == seven + 29 * more
    assert cycles(s5=0.0) == seven
    assert cycles(s5=-1.5) < seven


def test_what_was_read_for_one_run_serves_another(tmp_path: Path) -> None:
    folder, reading = unpack(COMPILER, "loop", tmp_path), Reading()
    for times in (5, 0, 5):
        given = {1: np.array(times, np.int32)}
        timeline = model(folder, given, reading=reading)
        assert timeline == model(folder, given)
        assert timeline.grid_steps == 4 * times
    for name in folder.iterdir():
        name.unlink() if name.suffix == ".txt" else None
    assert model(folder, {1: np.array(5, np.int32)}, reading=reading).grid_steps == 20


@pytest.mark.parametrize("compiler", COMPILERS)
def test_constants_of_the_program_steer_without_being_given(compiler: str) -> None:
    given, constant = modelled(compiler, "prefetch"), modelled(compiler, "constant")
    assert (given.hbm_read_bytes, given.grid_steps) == (constant.hbm_read_bytes, constant.grid_steps)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_branch_on_a_computed_value_is_bounded_and_said(compiler: str) -> None:
    timeline = modelled(compiler, "computed")
    (undecided,) = [one for one in timeline.not_modelled if isinstance(one, UndecidedBranches)]
    assert undecided.fast_cycles < undecided.slow_cycles == timeline.cycles
    assert timeline.control is None


def executions(compiler: str, program: str, folder: Path, inputs: dict[int | str, np.ndarray]) -> dict[str, int]:
    """Of the author's own copies, waits, loops and branches, by kind, over all source lines."""
    folder = unpack(compiler, program, folder)
    programs = read(folder, hlo=load_hlo(folder), chip=V5E, compiler=compiler)
    found: dict[str, int] = {}
    for (source, kind), times in run(programs, [inputs]).slowest.executions().items():
        assert source.file == "programs.py"
        found[kind] = found.get(kind, 0) + times
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
def test_copies_and_waits_by_hand(compiler: str, tmp_path: Path) -> None:
    """Four blocks are copied in. Each is copied out again, by a ``sync_copy`` that the compiler gives no line."""
    found = executions(compiler, "manual", tmp_path, {})
    assert (found["copy"], found["wait"]) == (4, 4)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("taken", "times"), [((3, 0, 2, 1), 2), ((0, 0, 0, 0), 0), ((2, 2, 2, 2), 4)])
def test_branches_of_the_author(compiler: str, taken: tuple[int, ...], times: int, tmp_path: Path) -> None:
    """In each of four steps one branch, over the body where ``which`` is at most 1."""
    found = executions(compiler, "prefetch", tmp_path, {0: np.array(taken, np.int32)})
    assert (found["branch"], found["branch"] - found["branch taken"]) == (4, times)


# --- refusals ---


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("program", "inputs", "status", "said"),
    [
        ("prefetch", None, "SCHEDULE_UNKNOWN", "scalar_inputs"),
        ("prefetch", np.zeros(5, np.int32), "USAGE", r"shape \(5,\).*wants \(4,\)"),
        ("prefetch", np.array([0, 1, 2, 99], np.int32), "OUT_OF_BOUNDS", "BoundsCheck"),
        ("endless", None, "SCHEDULE_UNKNOWN", "depends on"),  # a loop of unknown length
        ("deadlock", None, "DEADLOCK", r"programs.py.*waits for #allocation\d+ .*never started"),
    ],
)
def test_what_the_program_or_its_inputs_do_not_allow(
    compiler: str, program: str, inputs: np.ndarray | None, status: str, said: str, tmp_path: Path
) -> None:
    with refused(Status[status], said):
        model(unpack(compiler, program, tmp_path), None if inputs is None else {0: inputs})


@pytest.mark.parametrize(
    ("program", "old", "new", "status", "said"),
    [
        ("flash", "sadd.s32", "sfoo.s32", "SCHEDULE_UNKNOWN", "sfoo.s32"),
        ("flash", "vadd.f32", "vfoo.f32", "SCHEDULE_UNKNOWN", "vfoo.f32"),
        ("flash", "dma.hbm_to_vmem", "dma.hbm_to_moon", "SCHEDULE_UNKNOWN", "dma.hbm_to_moon"),
        ("flash", "sbr.rel", "sbr.abs", "SCHEDULE_UNKNOWN", "sbr.abs"),
        ("flash", "size_in_granules=", "size_in_pebbles=", "SCHEDULE_UNKNOWN", "size_in_pebbles"),
        # An assertion of the compiler's, turned round, of a kind that is not known here.
        (
            "flash",
            r"shalt.err \(!(%p\w+)\) /\* BoundsCheck",
            r"shalt.err (\1) /* Unheard",
            "SCHEDULE_UNKNOWN",
            "Unheard.*an assertion that is not known here",
        ),
        # One granule less is taken from the flag of the program's copies than they put there.
        (
            "manual",
            r"vsyncadd (%s\w+), 4294966272",
            r"vsyncadd \1, 4294966273",
            "MEMORY_HAZARD",
            r"argument 1\) has a nonzero value.*never awaited",
        ),
        # A flag that the program does not mark done itself, and a full queue of commands: only the host could end it.
        ("manual", r"vsyncset.done \[#allocation2\]", "vsyncset.notdone [#allocation2]", "", "host to mark"),
        ("manual", r"(vwait.ne.trace \[#allocation9\], )%s24_s7", r"\g<1>0", "", "host to move"),
    ],
)
def test_a_program_of_unknown_meaning_or_with_a_fault(
    program: str, old: str, new: str, status: str, said: str, tmp_path: Path
) -> None:
    compiler = COMPILER if status else "libtpu-0.0.52"
    folder = unpack(compiler, program, tmp_path)
    edit(folder, old, new)
    with refused(Status[status or "SCHEDULE_UNKNOWN"], rf"{compiler}.*{said}"):
        model(folder)


LISTING, OUTLINE = "packed-bundles-post-ra", "post-bundle-packing-post-ra"


@pytest.mark.parametrize(
    ("suffix", "part"),
    [*((LISTING, part) for part in (0.0, 0.001, 0.3, 0.9, 0.999)), *((OUTLINE, part) for part in (0.0, 0.001))],
)
def test_truncated_dump_is_a_clear_refusal(suffix: str, part: float, tmp_path: Path) -> None:
    """Of the outline only the head is read."""
    folder = unpack(COMPILER, "flash", tmp_path)
    (path,) = folder.glob(f"*flash*-{suffix}.txt")
    text = path.read_text()
    path.write_text(text[: int(len(text) * part)])
    with pytest.raises(Refusal, match=r"again|incomplete|cut off"):
        model(folder)


@pytest.mark.parametrize("error", [TypeError, KeyError, NameError, IndexError])
def test_a_fault_of_the_machine_itself_is_no_refusal(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: object) -> int:
        raise error("a bug")

    monkeypatch.setattr(Machine, "wait", wait)
    with pytest.raises(error, match="a bug"):
        model(unpack(COMPILER, "manual", tmp_path))
