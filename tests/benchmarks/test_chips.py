"""Other chips than v5e, with the real compiler: they run, or are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.lib.published.cases import Case, read
from benchmarks.lib.published.kept import program_of, published_programs
from benchmarks.lib.published.modelled import tape_of
from ratchet.tpu.chips import CHIPS
from ratchet.values.status import Refusal, Status

pytestmark = pytest.mark.slow

FLOPS = 2 * 4096**3


CASES = """source,kernel,lhs,rhs,group_sizes,config,status,ms,timer,jax,trust,chip
none,docs matmul dimension_semantics,"bf16[4096,4096]","bf16[4096,4096]",,bm=512 bk=512 bn=512,ok,1.0,device,,device,v5e
"""


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A matmul of 4096 by 4096 in bf16 with blocks of 512."""
    file = tmp_path_factory.mktemp("cases") / "cases.csv"
    file.write_text(CASES)
    return read(file)[0]


def facts(case: Case, folder: Path) -> dict[str, float]:
    programs = published_programs(folder)
    programs.fill([case.recipe], print)
    program = program_of(programs, case)
    assert program is not None
    return dict(tape_of(case, program, fresh=True).facts)


@pytest.mark.parametrize("name", [name for name, chip in CHIPS.items() if chip.schedules])
def test_no_chip_beats_its_peak(name: str, matmul: Case, tmp_path: Path) -> None:
    chip = CHIPS[name]
    found = facts(replace(matmul, chip=name), tmp_path)
    seconds = found["cycles"] / chip.clock_hz
    assert 0.2 < FLOPS / seconds / chip.peak_bf16_flops < 1
    if name == "tpu7x":
        return  # its clock is that of published timings, below the one of its peak
    assert found["mxu_busy_cycles"] / chip.clock_hz == pytest.approx(FLOPS / chip.peak_bf16_flops, rel=0.05)


def test_v4_is_refused_by_name(matmul: Case, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="programs for v4") as refusal:
        facts(replace(matmul, chip="v4"), tmp_path)
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN
