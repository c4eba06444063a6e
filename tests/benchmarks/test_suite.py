"""The suite's arithmetic and plots; no compiler is asked."""

import pytest

from benchmarks import suite
from benchmarks.lib import prefill
from benchmarks.lib.crossover import crossover, crossover_rows
from benchmarks.lib.models import MODELS, PRICES
from benchmarks.lib.plots import plot_crossover, plot_programs

CONTEXTS = (512, 1024, 2048, 4096)


@pytest.mark.parametrize("threshold", [513, 768, 1024, 1025, 1500, 4096])
def test_the_crossover_is_found_to_the_step(threshold):
    asked = []

    def slower(context):
        asked.append(context)
        return context < threshold

    found = crossover(slower, CONTEXTS)
    assert found == -(-threshold // 256) * 256
    assert all(context % 256 == 0 for context in asked)


def test_a_crossover_outside_is_reported():
    assert crossover(lambda _: True, CONTEXTS) is None
    assert crossover(lambda _: False, CONTEXTS) == 512


def test_latencies_are_asked_for_once_and_the_crossing_gets_a_row():
    asked = []

    def us(context, chips):
        asked.append((context, chips))
        return 10 + context / 100 if chips == 1 else 20 + context / 400

    rows = crossover_rows({"model": "m"}, us, CONTEXTS)
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
    model = MODELS[0]
    row = prefill.row(model, "x", 4, 1.0, None, "")
    assert row["tokens/s"] == pytest.approx(model.context / (1e-3 * model.layers))
    pairs = model.context * (model.context + 1) / 2
    assert row["MFU %"] == pytest.approx(100 * 4 * pairs * model.q_heads * model.head_dim / 4 / 197e12 / 1e-3)
    price = PRICES[0]["dollars_per_chip_hour"]
    per_dollar = row[f"Mtokens/$ {PRICES[0]['what']}"]
    assert per_dollar == pytest.approx(row["tokens/s"] * 3600 / (4 * price) / 1e6)
    assert prefill.row(model, "x", 1, None, None, "more than HBM holds")["tokens/s"] is None


def test_decoding_by_hand():
    model = MODELS[0]
    shape = suite.shape_of(model, 8192, 8, 4)
    assert shape.cache_bytes == 8 * 8192 * 8 * 128 * 2 * 2
    one = {"program": "x", "chips": 4, "us": 200.0, "x floor": 1.0}
    row = suite.per_model(model, shape, one)
    assert row["tokens/s"] == pytest.approx(8 / (200e-6 * 32))
    assert row["% of HBM bandwidth"] == pytest.approx(100 * shape.cache_bytes / 4 / 819e9 / 200e-6)


def test_plots_are_the_same_for_the_same_rows(tmp_path):
    rows = [{"model": "m", "context": c, "times as fast": c / 1000, "four win from": 1024} for c in CONTEXTS]
    bars = [{"model": "m", "program": "p", "chips": n, "tokens/s": value} for n, value in ((1, 5.0), (4, None))]
    for name in "ab":
        plot_crossover(rows, tmp_path / f"{name}.svg")
        plot_programs(bars, "tokens/s", tmp_path / f"bars-{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "bars-a.svg").read_bytes() == (tmp_path / "bars-b.svg").read_bytes()
