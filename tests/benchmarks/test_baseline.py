"""The search for the largest sequence, and plain attention; neither needs the compiler."""

import numpy as np

from baseline_mha import STEP, attention, largest


def test_the_largest_that_fits_is_found_to_the_step():
    asked = []

    def fit(sequence):
        asked.append(sequence)
        return sequence * 10 if sequence <= 22 * STEP + 5 else 0

    assert largest(fit) == (22 * STEP, 220 * STEP)
    assert len(asked) < 10
    assert largest(lambda _: 0) == (0, 0)


def test_the_baseline_is_attention():
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 64, 32)).astype(np.float32)
    for causal in (False, True):
        scores = np.einsum("hqd,hkd->hqk", q, k).astype(np.float64) / np.sqrt(32)
        if causal:
            scores[:, ~np.tri(64, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = np.einsum("hqk,hkd->hqd", weights / weights.sum(-1, keepdims=True), v)
        np.testing.assert_allclose(attention(q, k, v, causal=causal), wanted, atol=1e-5)
