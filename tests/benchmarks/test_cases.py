"""Reading files of published timings."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.lib.published.cases import DEFAULT_FILES, BadCases, Case, parse_array, parse_config, read

Written = Callable[[str], list[Case]]
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


def test_sweeps() -> None:
    sweeps = read(next(file for file in DEFAULT_FILES if file.name == "v5e_device_sweeps.csv"))
    assert Counter(case.kernel.split(",")[0] for case in sweeps if case.status == "ok") == {
        "tpu-kernels matmul": 34,
        "tpu-kernels scale (x*2)": 24,
        "tpu-kernels segment_cumsum v2": 2,
        "tpu-kernels sharded_matmul 2x2 (dp=2": 2,
    }
    streaming = next(case for case in sweeps if "scale" in case.kernel)
    assert (streaming.timer, streaming.config) == ("device", {"bm": "2048", "bn": "512"})
    assert str(streaming.arrays[0]) == "bf16[8192,8192]"
    assert {case.family for case in sweeps} == {"AMLeng/tpu-kernels"}
    sharded = [case for case in sweeps if "sharded" in case.kernel]
    assert {tuple(map(str, case.arrays)) for case in sharded} == {("bf16[8192,8192]",) * 2}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Reads a file with such a text."""

    def made(text: str) -> list[Case]:
        (tmp_path / "more.csv").write_text(text)
        return read(tmp_path / "more.csv")

    return made


def test_residuals_are_another_program(written: Written) -> None:
    head = "chip,q,k,v,mask,soft_cap,precision,residuals,config,ms,ms_min,ms_max,source\n"
    row = 'v6e,"bf16[1,512,1,128]","bf16[1,512,1,128]","bf16[1,512,1,128]",,,,{},block_q=512,1,1,1,x\n'
    with_them, without = written(head + row.format("True") + row.format("False"))
    assert with_them.options["residuals"] is True
    assert "residuals" not in without.options


PRODUCT = (
    "chip,source,kernel,lhs,rhs,group_sizes,options,config,status,ms,timer,jax,trust\n",
    'v5p,"tokamax ({date} f08)",tokamax pallas_mosaic_tpu ragged_dot,"bf16[64,512]","bf16[2,128,512]",32 32,'
    '"{{""dims"": [[1], [{dim}]]}}",tile_m=32 tile_k=128 tile_n=512,ok,{ms},device,,device\n',
)


def test_what_rows_of_grouped_products_do_not_say(written: Written) -> None:
    """The second of two equal ones returns its residuals, a time taken over for other group sizes is doubtful, and
    tiles of a transposed one are named by its own axes."""
    head, row = PRODUCT
    other = row.replace("32 32", "\"{{'num_groups': 2, 'total_size': 64}}\"")

    def products(*rows: tuple[str, str, int, float]) -> list[Case]:
        return written(head + "".join(text.format(date=date, dim=dim, ms=ms) for text, date, dim, ms in rows))

    again = products((row, "2026-03-01", 1, 1), (row, "2026-03-01", 1, 2), (row, "2026-03-02", 1, 1))
    assert [case.options.get("residuals", False) for case in again] == [False, True, False]
    taken = products((row, "2026-03-01", 1, 1.5), (other, "2026-03-02", 1, 1.5), (other, "2026-03-02", 1, 1.6))
    assert [case.doubtful for case in taken] == [False, True, False]
    swapped = products((row, "2026-04-20", 2, 1), (row, "2026-07-21", 2, 1), (row, "2026-07-21", 1, 1))
    tiles = [(case.config["tile_k"], case.config["tile_n"]) for case in swapped]
    assert tiles == [("128", "512"), ("512", "128"), ("128", "512")]


def test_other_shapes_and_configs(written: Written) -> None:
    row = 'a@1,some new kernel,"s8[3,5]","bf16[2,5,7]",1 0 2,"tile_m=8 odd words x=1.5",ok,1.25,device (x),,device\n'
    (case,) = written(HEAD + row)
    assert case.arrays[0].shape == (3, 5)
    assert case.group_sizes == (1, 0, 2)
    assert case.config == {"tile_m": "8", "x": "1.5", "odd words": ""}
    assert case.timer == "device"
    assert case.number == "more.csv:2"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (HEAD + 'a,k,"bf16(3)",,,,ok,1,wall,,wall\n', r"more\.csv:2"),
        (HEAD + 'a,k,"bf16[3]",,,,ok,fast,wall,,wall\n', r"more\.csv:2"),
        ("a,b\n1,2\n", r"kernel, lhs, source.*missing"),
    ],
)
def test_a_row_that_does_not_read_and_a_file_of_something_else_are_named(
    written: Written, text: str, match: str
) -> None:
    with pytest.raises(BadCases, match=match):
        written(text)


def test_small_grammars() -> None:
    assert str(parse_array("bf16[8, 4096]")) == "bf16[8,4096]"
    assert parse_array("s32[]").shape == ()
    assert parse_config("BQ=1024 BKV=512 A+B") == {"BQ": "1024", "BKV": "512", "A+B": ""}
