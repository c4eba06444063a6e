"""Reading files of published timings."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.lib.published.cases import DEFAULT_FILES, BadCases, parse_array, parse_config, read
from benchmarks.lib.published.work import grouped_steps, step_flops, work

HEAD = "source,kernel,lhs,rhs,group_sizes,config,status,ms,timer,jax,trust\n"


def test_the_files_of_the_repository() -> None:
    files = {file.name: read(file) for file in DEFAULT_FILES}
    matmuls, attention = files["v5e_published_latency.csv"], files["v5p_published_attention.csv"]
    assert len(matmuls) == 183
    assert sum(case.status == "vmem_oom" for case in matmuls) == 29
    assert sum(case.doubtful for case in matmuls) == 4
    assert sum(case.timer == "device" for case in matmuls) == 8
    assert len(attention) == 12
    assert {case.chip for case in attention} == {"v5p"}
    assert attention[0].options["mask"] == {"is_causal": True}
    assert all(work(case) and step_flops(case) for case in (*matmuls, *attention))


def test_sweeps() -> None:
    sweeps = read(next(file for file in DEFAULT_FILES if file.name == "v5e_device_sweeps.csv"))
    assert Counter(case.kernel.split(",")[0] for case in sweeps if case.status == "ok") == {
        "tpu-kernels matmul": 34,
        "tpu-kernels scale (x*2)": 24,
        "tpu-kernels segment_cumsum v2": 2,
        "tpu-kernels sharded_matmul 2x2 (dp=2": 2,
    }
    streaming = next(case for case in sweeps if "scale" in case.kernel)
    assert (streaming.timer, streaming.config, str(streaming.arrays[0])) == (
        "device",
        {"bm": "2048", "bn": "512"},
        "bf16[8192,8192]",
    )
    known = work(streaming)
    assert known is not None
    assert known.compulsory_bytes == 2 * 2 * 8192 * 8192
    assert {case.family for case in sweeps} == {"AMLeng/tpu-kernels"}
    sharded = [case for case in sweeps if "sharded" in case.kernel]
    assert {tuple(map(str, case.arrays)) for case in sharded} == {("bf16[8192,8192]",) * 2}


def test_residuals_are_another_program(tmp_path: Path) -> None:
    file = tmp_path / "attention.csv"
    head = "chip,q,k,v,mask,soft_cap,precision,residuals,config,ms,ms_min,ms_max,source\n"
    row = 'v6e,"bf16[1,512,1,128]","bf16[1,512,1,128]","bf16[1,512,1,128]",,,,{},block_q=512,1,1,1,x\n'
    file.write_text(head + row.format("True") + row.format("False"))
    with_them, without = read(file)
    assert with_them.options["residuals"] is True
    assert "residuals" not in without.options


PRODUCT = (
    "chip,source,kernel,lhs,rhs,group_sizes,options,config,status,ms,timer,jax,trust\n",
    'v5p,"tokamax ({date} f08)",tokamax pallas_mosaic_tpu ragged_dot,"bf16[64,512]","bf16[2,128,512]",32 32,'
    '"{{""dims"": [[1], [{dim}]]}}",tile_m=32 tile_k=128 tile_n=512,ok,{ms},device,,device\n',
)


def test_the_second_of_two_equal_products_returns_its_residuals(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    head, row = PRODUCT
    times = [("2026-03-01", 1), ("2026-03-01", 2), ("2026-03-02", 1)]
    file.write_text(head + "".join(row.format(date=date, dim=1, ms=ms) for date, ms in times))
    assert [case.options.get("residuals", False) for case in read(file)] == [False, True, False]


def test_a_time_taken_over_for_other_group_sizes_is_doubtful(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    head, row = PRODUCT
    other = row.replace("32 32", "\"{{'num_groups': 2, 'total_size': 64}}\"")
    lines = [
        row.format(date="2026-03-01", dim=1, ms=1.5),
        *(other.format(date="2026-03-02", dim=1, ms=ms) for ms in (1.5, 1.6)),
    ]
    file.write_text(head + "".join(lines))
    assert [case.doubtful for case in read(file)] == [False, True, False]


def test_tiles_of_a_transposed_product_are_named_by_its_own_axes(tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    head, row = PRODUCT
    asked = [("2026-04-20", 2), ("2026-07-21", 2), ("2026-07-21", 1)]
    file.write_text(head + "".join(row.format(date=date, dim=dim, ms=1) for date, dim in asked))
    tiles = [(case.config["tile_k"], case.config["tile_n"]) for case in read(file)]
    assert tiles == [("128", "512"), ("512", "128"), ("128", "512")]


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
