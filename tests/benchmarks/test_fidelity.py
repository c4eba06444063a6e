"""The fidelity benchmark on small cases, and programs of every chip, with the real compiler."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fidelity import examine
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.published.cases import read
from benchmarks.lib.published.programs import outcomes, published_programs
from benchmarks.lib.published.tape import record
from ratchet.tpu.chips import CHIPS
from ratchet.values.status import Status

HEAD = "source,kernel,lhs,rhs,group_sizes,config,status,ms,timer,jax,trust\n"
ROWS = (
    'jax-ml/jax x,docs matmul,"bf16[1024,1024]","bf16[1024,1024]",,bm=512 bk=512 bn=512,ok,0.125,wall-clock,,wall',
    'jax-ml/jax x,docs matmul,"bf16[1024,1024]","bf16[1024,1024]",,bm=256 bk=256 bn=256,ok,0.140,wall-clock,,wall',
    'a@1,andamento matmul,"bf16[4096,4096]","bf16[4096,4096]",,bm=128 bk=2048 bn=2048,vmem_oom,,wall-clock,,wall',
    'a@1,nobody knows it,"bf16[8,8]",,,,ok,1,wall-clock,,wall',
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> ProgramCache:
    return published_programs(tmp_path_factory.mktemp("fidelity"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cases") / "few.csv"
    file.write_text(HEAD + "\n".join(ROWS) + "\n")
    return file


def test_report_of_a_first_run_and_a_second_compiles_nothing(programs: ProgramCache, file: Path) -> None:
    report = examine(read(file), programs, lambda text: None)
    rows = report["other rows"]
    assert [row["row"] for row in rows] == ["few.csv:2", "few.csv:3"]
    assert all(0 < row["modelled ms"] < 1 for row in rows)
    assert report["VMEM overflows"] == [{"published": 1, "reproduced": 1, "invented": 0, "wrong rows": ""}]
    assert [note["what"] for note in report["not built, failed or refused"]] == ["not built"]
    assert not report["calibration rows, cross-validated"]
    said: list[str] = []
    assert examine(read(file), published_programs(programs.folder), said.append) == report
    assert not said


def test_a_tape_replays_to_the_cycle(programs: ProgramCache, file: Path) -> None:
    case = read(file)[0]
    programs.fill([case.recipe], lambda text: None)
    (one,) = outcomes(programs, [case])
    assert one.program is not None
    assert one.timed is not None
    chip, known = CHIPS[case.chip], {"hlo": one.program.hlo, "scalar_inputs": one.program.scalar_inputs()}
    timeline, tape = record(one.program.folder / "schedule", chip=chip, compiler="test", **known)
    assert one.timed.tape.facts == tape.facts
    for run in (tape, one.timed.tape):
        assert run.cycles(chip, chip.constants) == timeline.cycles


def test_programs_on_several_chips_have_a_table_of_their_own(tmp_path: Path, programs: ProgramCache) -> None:
    file = tmp_path / "slice.csv"
    file.write_text(
        "chip,source,op,impl,shape,config,status,ms,timer,note\n"
        + "".join(
            f'v5e,a@1,"sharded_matmul 2x2 (dp=2,tp=2)","{how}","bf16[{n},{n}]@bf16[{n},{n}]",,ok,1,device,\n'
            for how, n in (("ring, ppermute", 512), ("naive psum f32", 512), ("psum_scatter", 512), ("by magic", 8))
        )
    )
    report = examine(read(file), programs, lambda text: None)
    rows = report["programs on several chips"]
    assert [(row["row"], row["chips"], row["links fitted on it"]) for row in rows] == [
        (f"slice.csv:{line}", 4, "no") for line in (2, 3, 4)
    ]
    assert all(0 < row["modelled ms"] < 1 for row in rows)
    assert len({row["modelled ms"] for row in rows}) == 3
    (note,) = report["not built, failed or refused"]
    assert (note["row"], note["what"]) == ("slice.csv:5", "not built")


FLOPS = 2 * 4096**3
MATMUL = f"""{HEAD.strip()},chip
none,docs matmul dimension_semantics,"bf16[4096,4096]","bf16[4096,4096]",,bm=512 bk=512 bn=512,ok,1.0,device,,device,v5e
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_no_chip_beats_its_peak_and_v4_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(MATMUL)
    case = replace(read(tmp_path / "cases.csv")[0], chip=name)
    programs = published_programs(tmp_path)
    programs.fill([case.recipe], print)
    (one,) = outcomes(programs, [case])
    if name == "v4":
        assert one.refusal is not None
        assert one.refusal.status is Status.SCHEDULE_UNKNOWN
        assert "programs for v4" in one.refusal.message
        return
    assert one.timed is not None
    chip, facts = CHIPS[name], one.timed.tape.facts
    seconds = facts["cycles"] / chip.clock_hz
    assert 0.2 < FLOPS / seconds / chip.peak_bf16_flops < 1
    if name != "tpu7x":  # its clock is that of published timings, below the one of its peak
        assert facts["mxu_busy_cycles"] / chip.clock_hz == pytest.approx(FLOPS / chip.peak_bf16_flops, rel=0.05)
