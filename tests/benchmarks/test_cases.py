"""Reading files of published timings."""

from pathlib import Path

import pytest

from benchmarks.lib.published.cases import DEFAULT_FILES, BadCases, parse_array, parse_config, read
from benchmarks.lib.published.work import grouped_steps, step_flops, work

HEAD = "source,kernel,lhs,rhs,group_sizes,config,status,ms,timer,jax,trust\n"


def test_the_files_of_the_repository() -> None:
    matmuls, attention = (read(file) for file in DEFAULT_FILES)
    assert len(matmuls) == 183
    assert sum(case.status == "vmem_oom" for case in matmuls) == 29
    assert sum(case.doubtful for case in matmuls) == 4
    assert sum(case.timer == "device" for case in matmuls) == 8
    assert len(attention) == 12
    assert {case.chip for case in attention} == {"v5p"}
    assert attention[0].options["mask"] == {"is_causal": True}
    assert all(work(case) and step_flops(case) for case in (*matmuls, *attention))


def test_other_shapes_and_configs(tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text(
        HEAD
        + 'a@1,some new kernel,"s8[3,5]","bf16[2,5,7]",1 0 2,"tile_m=8 odd words x=1.5",ok,1.25,device (x),,device\n'
    )
    (case,) = read(file)
    assert case.arrays[0].shape == (3, 5)
    assert case.group_sizes == (1, 0, 2)
    assert case.config == {"tile_m": "8", "x": "1.5", "odd words": ""}
    assert case.timer == "device"
    assert case.number == "more.csv:2"
    assert step_flops(case) is None


@pytest.mark.parametrize("line", ['a,k,"bf16(3)",,,,ok,1,wall,,wall', 'a,k,"bf16[3]",,,,ok,fast,wall,,wall'])
def test_a_row_that_does_not_read_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(HEAD + line + "\n")
    with pytest.raises(BadCases, match=r"bad\.csv:2"):
        read(file)


def test_a_file_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(BadCases, match=r"kernel, lhs, source.*missing"):
        read(file)


def test_small_grammars() -> None:
    assert str(parse_array("bf16[8, 4096]")) == "bf16[8,4096]"
    assert parse_array("s32[]").shape == ()
    assert parse_config("BQ=1024 BKV=512 A+B") == {"BQ": "1024", "BKV": "512", "A+B": ""}


def test_steps_of_a_grouped_matmul(tmp_path: Path) -> None:
    file = tmp_path / "grouped.csv"
    config = "tile_m=4 tile_k=8 tile_n=16 bufs=2"
    rows = [
        f'a@1,tokamax gmm,"bf16[12,8]","bf16[3,8,32]",3 0 9,{config},ok,1,device,,device',
        f'a@1,tokamax tgmm,"bf16[12,8]","bf16[12,32]",3 0 9,{config},ok,1,device,,device',
    ]
    file.write_text(HEAD + "\n".join(rows) + "\n")
    # Two column tiles; rows 0-2 touch one row tile, rows 3-11 three; only the transposed one visits the empty group.
    assert [grouped_steps(case) for case in read(file)] == [2 * 4, 2 * 5]
    assert [step_flops(case) for case in read(file)] == [2 * 4 * 8 * 16, 2 * 4 * 8 * 16]
