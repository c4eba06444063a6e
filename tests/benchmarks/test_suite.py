"""The suite's arithmetic; no compiler is asked."""

import pytest

from benchmarks.suite import MODELS, PRICES, crossover, plot_crossover

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


def test_a_crossover_outside_is_told():
    assert crossover(lambda _: True, CONTEXTS) is None
    assert crossover(lambda _: False, CONTEXTS) == 512


def test_every_model_can_be_shared_out_and_every_price_has_a_source():
    for model in MODELS:
        assert model["q_heads"] % model["kv_heads"] == 0
        assert model["context"] % (4 * 64) == 0
    assert all(price["source"] and price["date"] and price["dollars_per_chip_hour"] > 0 for price in PRICES)


def test_the_plot_is_the_same_for_the_same_rows(tmp_path):
    rows = [{"model": "m", "context": c, "times as fast": c / 1000, "four win from": 1024} for c in CONTEXTS]
    plot_crossover(rows, tmp_path / "a.svg")
    plot_crossover(rows, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
