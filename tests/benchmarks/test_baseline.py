"""The search for the largest sequence and the roofline plot; neither needs the compiler."""

import pytest

from baseline_mha import STEP, attention, largest
from benchmarks.lib.plots import Point, plot_roofline
from ratchet.tpu.chips import V5E


def test_the_largest_that_fits_is_found_to_the_step():
    asked = []

    def fit(sequence):
        asked.append(sequence)
        return sequence * 10 if sequence <= 22 * STEP + 5 else 0

    assert largest(fit) == (22 * STEP, 220 * STEP)
    assert len(asked) < 10
    assert largest(lambda _: 0) == (0, 0)


def test_the_baseline_is_attention():
    import numpy as np

    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 64, 32)).astype(np.float32)
    for causal in (False, True):
        scores = np.einsum("hqd,hkd->hqk", q, k).astype(np.float64) / np.sqrt(32)
        if causal:
            scores[:, ~np.tri(64, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v)
        np.testing.assert_allclose(attention(q, k, v, causal=causal), wanted, atol=1e-5)


@pytest.mark.slow
def test_the_plot_is_the_same_for_the_same_points(tmp_path):
    points = [Point(name="a kernel", latency_ms=0.5, flops_per_byte=64.0, flops_per_s=30e12)]
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        plot_roofline(points, V5E, path)
    assert first.read_bytes() == second.read_bytes()
    assert b"</svg>" in first.read_bytes()
    assert points[0].roof(V5E) == 64.0 * 819e9
    assert Point(name="", latency_ms=1, flops_per_byte=1e4, flops_per_s=1).roof(V5E) == 197e12
