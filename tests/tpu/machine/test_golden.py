"""The machine on golden dumps of two compiler versions: cycles to the unit, and every kind of refusal."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ratchet.tpu.account.model import Reading
from ratchet.tpu.chips.units import slots
from ratchet.tpu.dump.listing import parse
from ratchet.tpu.dump.utilisation import parse_utilisation
from ratchet.tpu.machine.assertions import meaning
from ratchet.values.omission import UndecidedBranches
from ratchet.values.status import Refusal, Status
from tests.tpu.machine.golden_dumps import COMPILERS, NEWEST, NEWEST_GOLDEN, NEWEST_PROGRAMS, PROGRAMS, model, unpack

SCALARS = np.array([2.5, 3.0, 0.25, 9.0, 1.0, 0.5, 0.0, 0.0], np.float32)  # 2.5 * 3 - 0.25: 7 times, and the branch
NUMBERS = np.array([1 << 29, 0, 0, 0, 0, 0, 0, 0], np.int32)  # with two leading zeros

INPUTS: dict[str, dict[int | str, np.ndarray]] = {
    "scalars": {0: SCALARS, 1: NUMBERS},
    "prefetch": {0: np.array([3, 0, 2, 1], np.int32)},
    "loop": {1: np.array(3, np.int32)},
}

RUNNING = [program for program in PROGRAMS if program not in ("deadlock", "endless")]

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


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", RUNNING)
def test_cycles(compiler: str, program: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, program, tmp_path), INPUTS.get(program))
    assert (timeline.cycles, timeline.grid_steps) == CYCLES[compiler, program]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", RUNNING)
def test_parts_make_the_whole(compiler: str, program: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, program, tmp_path), INPUTS.get(program))
    assert timeline.executed_bundles + timeline.dma_wait_cycles == timeline.cycles
    assert sum(op.cycles for op in timeline.ops) == timeline.cycles
    assert max(span.end_cycles for span in timeline.spans) == timeline.cycles
    assert min(span.start_cycles for span in timeline.spans) == 0
    assert all(span.end_cycles >= span.start_cycles for span in timeline.spans)
    for slot, issues in timeline.slot_issues.items():
        assert issues <= timeline.slot_capacity[slot] * timeline.executed_bundles


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_slots_agree_with_the_compilers_own_count(compiler: str, program: str, tmp_path: Path) -> None:
    check_slots(unpack(compiler, program, tmp_path), compiler)


@pytest.mark.parametrize("program", NEWEST_PROGRAMS)
def test_dumps_of_the_newest_compiler_are_modelled(program: str, tmp_path: Path) -> None:
    folder = unpack(NEWEST, program, tmp_path, golden=NEWEST_GOLDEN)
    check_slots(folder, NEWEST)
    timeline = model(folder, INPUTS.get(program))
    assert (timeline.cycles, timeline.grid_steps) == CYCLES[NEWEST, program]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("vsyncset.done [#allocation2], 0", "vsyncset.notdone [#allocation2], 0"), "a wait for the host to mark"),
        (("vwait.ne.trace [#allocation9], %s24_s7", "vwait.ne.trace [#allocation9], 0"), "a wait for the host to move"),
    ],
)
def test_what_only_the_host_could_end_is_refused(edit: tuple[str, str], said: str, tmp_path: Path) -> None:
    """A flag that the program does not mark done itself, and a full queue of commands."""
    folder = unpack(NEWEST, "manual", tmp_path, golden=NEWEST_GOLDEN)
    edited = 0
    for path in folder.glob("*.txt"):
        text = path.read_text()
        edited += edit[0] in text
        path.write_text(text.replace(*edit))
    assert edited
    with pytest.raises(Refusal, match=said) as refusal:
        model(folder)
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


def check_slots(folder: Path, compiler: str) -> None:
    """What is counted of every listing of a program is what the compiler counted."""
    checked = 0
    for path in folder.glob("*-final_hlo-static-per-bundle-utilization.txt"):
        stated = {column: counts.sum() for column, counts in parse_utilisation(path.read_text(), file="f").items()}
        stem = path.name.rpartition("-final_hlo")[0].rpartition("-")[0]
        (listing,) = folder.glob(f"{stem}-*-packed-bundles-post-ra.txt")
        (outline,) = folder.glob(f"{stem}-*-post-bundle-packing-post-ra.txt")
        parsed = parse(listing.read_text(), outline.read_text(), file=listing.name, compiler=compiler)
        found = [
            s
            for bundle in parsed.bundles
            for i in bundle
            for s in slots(i.opcode, spill=i.form.spill, moves=i.moves) or ()
        ]
        for column in ("VALU", "VPOP", "EUP", "VLOAD", "FILL", "VSTORE", "SPILL", "SALU"):
            assert found.count(column) == stated[column], (path.name, column)
        checked += 1
    assert checked > 1


def test_causal_skips_are_executed(tmp_path: Path) -> None:
    """20 of 32 steps compute: 8 query blocks of 128 against key blocks of 256. Each has 32 bf16 products per unit."""
    timeline = model(unpack(COMPILERS[0], "flash", tmp_path))
    useful = 20 * (128 * 256 * 128 * 2) / (128 * 128 * 4)
    assert timeline.grid_steps == 32
    assert timeline.mxu_busy_cycles == useful


def test_inputs_steer(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "prefetch", tmp_path)
    same = model(folder, {0: np.zeros(4, np.int32)})
    different = model(folder, {0: np.array([3, 0, 2, 1], np.int32)})
    assert same.hbm_read_bytes < different.hbm_read_bytes


def test_floats_steer(tmp_path: Path) -> None:
    """Each of s0 s1 - s2, its bounds and n0 sets the length of a loop; the sum of s4 and s5 takes a branch or not."""
    folder = unpack(COMPILERS[0], "scalars", tmp_path)

    def cycles(*, n0: int = NUMBERS[0], **changed: float) -> int:
        scalars, numbers = SCALARS.copy(), NUMBERS.copy()
        for name, value in changed.items():
            scalars[int(name[1])] = value
        numbers[0] = n0
        return model(folder, {0: scalars, 1: numbers}).cycles

    seven = cycles()
    turn = cycles(s0=3.0) - seven  # 8.75: one turn more
    assert turn > 0
    assert cycles(s3=5.75) == seven - 2 * turn
    assert cycles(s2=100.0) == seven - 8 * turn  # -1 at least
    assert cycles(n0=1) == seven + 29 * turn
    assert cycles(s5=0.0) == seven
    assert cycles(s5=-1.5) < seven


def test_loops_of_the_whole_program(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "loop", tmp_path)
    none, some = (model(folder, {1: np.array(n, np.int32)}) for n in (0, 5))
    assert (none.grid_steps, some.grid_steps) == (0, 20)


def test_what_was_read_for_one_run_serves_another(tmp_path: Path) -> None:
    folder, reading = unpack(COMPILERS[0], "loop", tmp_path), Reading()
    for turns in (5, 0, 5):
        given = {1: np.array(turns, np.int32)}
        assert model(folder, given, reading=reading) == model(folder, given)
    for name in folder.iterdir():
        name.unlink() if name.suffix == ".txt" else None
    assert model(folder, {1: np.array(5, np.int32)}, reading=reading).grid_steps == 20


def test_missing_input_is_said(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="scalar_inputs") as refusal:
        model(unpack(COMPILERS[0], "prefetch", tmp_path))
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


@pytest.mark.parametrize("compiler", COMPILERS)
def test_constants_of_the_program_steer_without_being_given(compiler: str, tmp_path: Path) -> None:
    given = model(unpack(compiler, "prefetch", tmp_path), INPUTS["prefetch"])
    constant = model(unpack(compiler, "constant", tmp_path))
    assert (given.hbm_read_bytes, given.grid_steps) == (constant.hbm_read_bytes, constant.grid_steps)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_branch_on_a_computed_value_is_bounded_and_said(compiler: str, tmp_path: Path) -> None:
    timeline = model(unpack(compiler, "computed", tmp_path))
    (undecided,) = [one for one in timeline.not_modelled if isinstance(one, UndecidedBranches)]
    assert undecided.fast_cycles < undecided.slow_cycles == timeline.cycles


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_loop_of_unknown_length_is_refused(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="depends on") as refusal:
        model(unpack(compiler, "endless", tmp_path))
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


def test_wrong_shape_of_an_input_is_said(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"shape \(5,\).*wants \(4,\)"):
        model(unpack(COMPILERS[0], "prefetch", tmp_path), {0: np.zeros(5, np.int32)})


@pytest.mark.parametrize("compiler", COMPILERS)
def test_bounds_checks_are_honoured(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="BoundsCheck") as refusal:
        model(unpack(compiler, "prefetch", tmp_path), {0: np.array([0, 1, 2, 99], np.int32)})
    assert refusal.value.status is Status.OUT_OF_BOUNDS


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_semaphore_left_over_is_a_hazard(compiler: str, tmp_path: Path) -> None:
    """The same program, taking one granule less from the flag of its copies than they put there."""
    folder = unpack(compiler, "manual", tmp_path)
    (path,) = folder.glob("*manual*-packed-bundles-post-ra.txt")
    text, count = re.subn(r"(vsyncadd %s\w+, )4294966272", r"\g<1>4294966273", path.read_text())
    assert count == 1
    path.write_text(text)
    with pytest.raises(Refusal, match=r"argument 1\) has a nonzero value.*never awaited") as refusal:
        model(folder)
    assert refusal.value.status is Status.MEMORY_HAZARD


def test_an_assertion_never_met_is_not_interpreted() -> None:
    assert meaning("unknown")[0] is Status.SCHEDULE_UNKNOWN


@pytest.mark.parametrize("compiler", COMPILERS)
def test_deadlock_says_who_waits_for_what(compiler: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"programs.py.*waits for #allocation\d+ .*never started") as refusal:
        model(unpack(compiler, "deadlock", tmp_path))
    assert refusal.value.status is Status.DEADLOCK


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sadd.s32", "sfoo.s32"),
        ("vadd.f32", "vfoo.f32"),
        ("dma.hbm_to_vmem", "dma.hbm_to_moon"),
        ("sbr.rel", "sbr.abs"),
        ("size_in_granules=", "size_in_pebbles="),
    ],
)
def test_unknown_instruction_is_named(old: str, new: str, tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    (path,) = folder.glob("*flash*-packed-bundles-post-ra.txt")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(Refusal, match=rf"{path.name}.*{COMPILERS[0]}.*{new.removesuffix('=')}") as refusal:
        model(folder)
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


@pytest.mark.parametrize("suffix", ["packed-bundles-post-ra", "post-bundle-packing-post-ra"])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_truncated_dump_is_a_clear_refusal(suffix: str, part: float, tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    (path,) = folder.glob(f"*flash*-{suffix}.txt")
    text = path.read_text()
    if suffix == "post-bundle-packing-post-ra" and part >= 0.3:
        pytest.skip("only the head of the outline is read")
    path.write_text(text[: int(len(text) * part)])
    with pytest.raises(Refusal, match=r"again|incomplete|cut off"):
        model(folder)


def test_bundles_missing_at_the_end_are_noticed(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    (path,) = folder.glob("*flash*-packed-bundles-post-ra.txt")
    lines = path.read_text().rstrip("\n").split("\n")
    path.write_text("\n".join(lines[:-2]) + "\n")
    with pytest.raises(Refusal, match="incomplete"):
        model(folder)


def test_missing_dump_is_named(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    for path in folder.glob("*flash*"):
        path.unlink()
    with pytest.raises(Refusal, match="neither it nor an identical instruction was dumped"):
        model(folder)


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    folder = unpack(COMPILERS[0], "flash", tmp_path)
    for path in folder.glob("*.txt"):
        path.unlink()
    with pytest.raises(Refusal, match="dump_flags"):
        model(folder)
