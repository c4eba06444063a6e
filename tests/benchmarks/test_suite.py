"""The suite's arithmetic, plots and report, and that of decoding; no compiler is asked."""

import dataclasses
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.lib import decoding, paged_peers
from benchmarks.lib.plots import Point, plot_crossover, plot_programs, plot_roofline
from benchmarks.suite import report
from benchmarks.suite.models import MODELS, PRICES, decode_row, prefill_row
from benchmarks.suite.tables import crossover, crossover_rows
from ratchet.tpu.chips import V5E
from ratchet.values import OpCost
from ratchet.values.status import Refusal, Status
from tests.view.timelines import timeline

CONTEXTS = (512, 1024, 2048, 4096)


@pytest.mark.parametrize("threshold", [0, 513, 768, 1024, 1025, 1500, 4096, 5000])
def test_the_crossover_is_found_to_the_step(threshold):
    asked = []

    def slower(context):
        asked.append(context)
        return context < threshold

    found = crossover(slower, CONTEXTS)
    assert found == (max(512, -(-threshold // 256) * 256) if threshold <= 4096 else None)
    assert all(context % 256 == 0 for context in asked)


def test_latencies_are_asked_for_once_and_the_crossing_gets_a_row():
    asked = []

    def us(context, chips):
        asked.append((context, chips))
        return 10 + context / 100 if chips == 1 else 20 + context / 400

    rows = crossover_rows("decode", "m", us, CONTEXTS)
    assert len(asked) == len(set(asked))
    assert [row["context"] for row in rows] == [512, 1024, 1536, 2048, 4096]
    assert {row["four win from"] for row in rows} == {1536}
    assert rows[-1]["times as fast"] == pytest.approx((10 + 40.96) / (20 + 10.24))


def test_every_model_can_be_shared_out_and_every_price_has_a_source():
    for model in MODELS:
        assert model.q_heads % model.kv_heads == 0
        assert model.kv_heads % 4 == 0, "prefill shares out the heads"
        assert model.context % (4 * 64) == 0
    assert sum(model.long for model in MODELS) == 1
    assert all(price["source"] and price["date"] and price["dollars_per_chip_hour"] > 0 for price in PRICES)


def test_prefill_by_hand():
    model, price = MODELS[0], PRICES[0]
    row = prefill_row(model, "x", 1.0, chips=4)
    assert row["tokens/s"] == pytest.approx(model.context / (1e-3 * model.layers))
    pairs = model.context * (model.context + 1) / 2
    assert row["MFU %"] == pytest.approx(100 * 4 * pairs * model.q_heads * model.head_dim / 4 / 197e12 / 1e-3)
    dollars = 4 * price["dollars_per_chip_hour"]
    assert row[f"Mtokens/$ {price['what']}"] == pytest.approx(row["tokens/s"] * 3600 / dollars / 1e6)
    assert prefill_row(model, "x", None, settings="more than HBM holds")["tokens/s"] is None


def test_decoding_by_hand():
    model = MODELS[0]
    shape = model.token(8192, 8, 4)
    assert shape.cache_bytes == 8 * 8192 * 8 * 128 * 2 * 2
    row = decode_row(model, shape, {"program": "x", "chips": 4, "us": 200.0, "x floor": 1.0})
    assert row["tokens/s"] == pytest.approx(8 / (200e-6 * 32))
    assert row["% of HBM bandwidth"] == pytest.approx(100 * shape.cache_bytes / 4 / 819e9 / 200e-6)


def test_plots_are_the_same_for_the_same_rows(tmp_path):
    rows = [{"model": "m", "context": c, "times as fast": c / 1000, "four win from": 1024} for c in CONTEXTS]
    bars = [{"model": "m", "program": "p", "chips": n, "tokens/s": value} for n, value in ((1, 5.0), (4, None))]
    points = [Point(name="a kernel", latency_ms=0.5, flops_per_byte=64.0, flops_per_s=30e12)]
    for plot in (
        lambda path: plot_crossover(rows, path),
        lambda path: plot_programs(bars, "tokens/s", path),
        lambda path: plot_roofline(points, V5E, path),
    ):
        for name in "ab":
            plot(tmp_path / name)
        assert b"</svg>" in (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert points[0].roof(V5E) == 64.0 * 819e9
    assert Point(name="", latency_ms=1, flops_per_byte=1e4, flops_per_s=1).roof(V5E) == 197e12


# --- decoding ---


def test_bytes_of_a_cache_are_those_that_attend():
    shape = decoding.Shape(name="x", batch=16, kv_heads=2, context=8192, ragged=True)
    assert shape.lengths.min() >= 128
    assert shape.lengths.max() <= 8192
    assert shape.cache_bytes == shape.lengths.sum() * 2 * 128 * 2 * 2
    narrow = dataclasses.replace(shape, window=64, dtype="int8")
    assert narrow.cache_bytes == 16 * 64 * 2 * 128 * 2


@pytest.mark.parametrize("chips", [1, 4])
@pytest.mark.parametrize("shape", decoding.SERVING, ids=lambda shape: shape.name)
def test_every_page_of_a_chip_is_used_once(shape, chips):
    table = decoding.table_of(shape, chips)
    assert table.shape == (chips, shape.batch, shape.context // chips // shape.page)
    for own in table:
        assert sorted(own.flat) == list(range(own.size))
    if table[0].size > 8:
        assert (table[0].flat != np.arange(table[0].size)).any(), "permuted"


def test_a_row_by_hand():
    chip = dataclasses.replace(timeline(), cycles=150_000, launch_cycles=3000)
    ops = [(OpCost(name="k", opcode="custom-call", executions=1, cycles=n),) for n in (147_000, 144_000)]
    chips = (dataclasses.replace(chip, ops=ops[0]), dataclasses.replace(chip, ops=ops[1], launch_cycles=6000))
    shape = decoding.Shape(name="x", batch=2, q_heads=8, kv_heads=2, context=1000)
    found = decoding.row(shape, "program", dataclasses.replace(chip, chips=chips))
    floor = 2 * 2 * 1000 * 128 * 2 * 2 / 2 / (V5E.constants.hbm_efficiency * 819e9) * 1e6
    assert found["us"] == pytest.approx(100)
    assert found["floor us"] == pytest.approx(floor)
    assert found["x floor"] == pytest.approx(100 / floor)
    assert found["kernel x floor"] == pytest.approx(96 / floor), "of the chip that came last"
    assert found["launch us"] == pytest.approx(4)
    assert found["tokens/s"] == pytest.approx(20_000)


def test_the_best_blocks_of_a_peer_are_taken_and_those_that_fail_are_named():
    def peer(shape, blocks, workers):
        if blocks.keys == 256:
            raise Refusal(Status.VMEM_OVERFLOW, "too large")
        return dataclasses.replace(timeline(), cycles=abs(blocks.keys - 512) + 50 * blocks.sequences)

    tried = [paged_peers.Blocks(keys=keys, sequences=many) for many in (1, 4) for keys in (256, 512, 1024)]
    found, words = paged_peers.best(peer, None, tried, None)
    assert found.cycles == 50
    assert words == "512 of 512, 1024, 4 x 512, 4 x 1024; 256: VMEM_OVERFLOW; 4 x 256: VMEM_OVERFLOW"
    with pytest.raises(Refusal, match="too large"):
        paged_peers.best(peer, None, tried[:1], None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"context": 1024}, ["128", "256", "512", "1024"]),
        ({"context": 1024, "page": 256}, ["256", "512", "1024"]),
        ({"context": 2048, "chunk": 512}, ["128 x 512", "128 x 1024", "128 x 2048", "512 x 512", "512 x 1024"]),
        ({"context": 512, "value_dim": 512}, ["256", "512", "4 x 256", "4 x 512"]),
    ],
)
def test_blocks_are_whole_pages_and_divide_the_context(given, said):
    assert [str(one) for one in paged_peers.blocks_of(decoding.Shape(name="x", **given))] == said


def test_peers_are_what_there_is_a_clone_of(tmp_path):
    shape = decoding.Shape(name="x", context=1024)
    assert list(paged_peers.offered(shape, tmp_path)) == ["jax ragged_paged_attention", "jax paged_attention"]
    assert list(paged_peers.offered(dataclasses.replace(shape, value_dim=512), tmp_path)) == []


# --- the report says what the suite's data says, and names commands that exist ---

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]*\.py)")

TABLES = {"t": [{"a": 1, "b": 2.34567}, {"a": 3, "b": None, "c": "x"}]}


def prose_numbers(document: str) -> Iterator[str]:
    """Numbers of the running text that are no mere counts: with a decimal point, or above 128."""
    text = re.sub(r"<!-- table.*?<!-- end -->|```.*?```|`[^`]*`|\([^)\s]*\)", " ", document, flags=re.DOTALL)
    for number in _NUMBER.findall(text):
        plain = number.rstrip(",.").replace(",", "")
        if "." in plain or int(plain) > 128:
            yield plain


def table_numbers(document: str) -> set[str]:
    """What its tables say, as written there."""
    return {cell.strip() for table in report._BLOCK.finditer(document) for cell in re.split(r"[|\n]", table[0])}


def test_tables_are_put_between_their_marks():
    document = "before\n<!-- table: t: a, b -->\nold\n<!-- end -->\nafter\n<!-- table: t[a=3]: c -->\n<!-- end -->\n"
    made = report.rendered(document, TABLES)
    assert "| 1 | 2.346 |\n| 3 |  |\n<!-- end -->\nafter" in made
    assert "| c |\n| --- |\n| x |" in made
    assert "old" not in made
    assert report.rendered(made, TABLES) == made
    with pytest.raises(KeyError, match="no row has 'd'"):
        report.rendered("<!-- table: t: a, d -->\n<!-- end -->", TABLES)


def test_history_tells_what_was_kept_and_what_it_took():
    columns = ("kernel", "decision", "median_ms", "vmem_bytes", "note")
    rows = [
        ("kernel.py", "baseline", "4", "1048576", "baseline"),
        ("kernel.py", "reverted", "", "", "experiment: a"),
        ("kernel.py", "kept", "1", "2097152", "experiment: b\\n\\nwhy"),
        ("kernel.py", "baseline", "1", "2097152", "again"),
        ("other.py", "kept", "1", "1", "experiment: c"),
    ]
    ledger = "\n".join("\t".join(row) for row in (columns, *rows)) + "\n"
    first, second = report.history(ledger)
    assert (first["us"], first["times faster"]) == (4000.0, None)
    assert tuple(second.values()) == ("kernel.py", "b", 1000.0, 4.0, 2.0, 1)


def test_the_report_has_the_tables_of_the_data_beside_it():
    tables = json.loads((report.FIGURES / "suite.json").read_text())
    document = report.REPORT.read_text()
    assert report.rendered(document, tables) == document, "write it anew: python -m benchmarks.suite --report --only"
    assert "<!-- table: " in document


def test_every_number_of_the_running_text_stands_in_a_table():
    document = report.REPORT.read_text()
    known = {cell.replace(",", "") for cell in table_numbers(document)}
    assert [number for number in prose_numbers(document) if number not in known] == []


def test_every_figure_is_in_the_report():
    shown = set(re.findall(r"figures/([\w-]+\.svg)", report.REPORT.read_text()))
    figures = {path.name for path in report.FIGURES.glob("*.svg")}
    assert figures - {"modelled_vs_measured.svg", "trajectory.svg"} == shown
