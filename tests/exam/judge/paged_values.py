"""Values of ``examples/paged_decode.py`` on one chip and on four, beside float64: awkward lengths, pages and heads.

    python -m tests.exam.judge.paged_values [CASE …]

A process of its own, with four virtual devices. The same cache is laid out for one chip and for four, each with a page
table of its own, permuted; what is behind a sequence's last key is NaN. It ends with 1 if the largest error, over the
root mean square of its sequence's output, is twice that of plain XLA in bfloat16.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# Before JAX is imported.
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import ml_dtypes
import numpy as np

from benchmarks.lib.programs import of_function
from benchmarks.lib.sources import ROOT, edited, names_of
from ratchet.exam.problem import mesh as meshes
from ratchet.tpu.mosaic import run as mosaic

CONTEXT, PAGE = 512, 32
SHARD = CONTEXT // 4
CASES: dict[str, dict[str, Any]] = {
    "ragged": {"lengths": [1, 300, CONTEXT, 77]},
    "three chips are empty": {"lengths": [1, 1, 1]},
    "around a chip's edge": {"lengths": [SHARD - 1, SHARD, SHARD + 1, 3 * SHARD]},
    "around a page's edge": {"lengths": [PAGE - 1, PAGE, PAGE + 1]},
    "one head per key head": {"lengths": [290, 2], "Q_HEADS": 4},
    "seven heads per key head": {"lengths": [290, 2], "Q_HEADS": 28},
    "heads of 256": {"lengths": [290, 2], "HEAD_DIM": 256},
    "full": {"lengths": [CONTEXT, CONTEXT]},
    "each chip's heads apart": {"lengths": [1, 300, CONTEXT, 77], "KV_HEADS": 16},
}


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: list[int]) -> np.ndarray:
    """float64 attention of every sequence to its own keys: q [B, H, D], k and v [B, KV, CONTEXT, D]."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    out = np.empty(q.shape)
    group = q.shape[1] // k.shape[1]
    for b, length in enumerate(lengths):
        for h in range(q.shape[1]):
            keys, values = k[b, h // group, :length], v[b, h // group, :length]
            scores = keys @ q[b, h] / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[b, h] = weights @ values / weights.sum()
    return out


def paged(names: dict[str, Any], cache: np.ndarray, table: np.ndarray) -> np.ndarray:
    """A dense cache [B, KV, CONTEXT, D] as the pool of all chips, by their page tables."""
    chips, pages, pool = names["CHIPS"], names["PAGES"], names["POOL"]
    made = np.full((cache.shape[1], chips * pool, PAGE, cache.shape[3]), np.nan, cache.dtype)
    for chip in range(chips):
        for b in range(len(cache)):
            for n in range(pages):
                start = (chip * pages + n) * PAGE
                made[:, chip * pool + table[chip, b, n]] = cache[b, :, start : start + PAGE]
    return made


def errors(lengths: list[int], **constants: Any) -> tuple[float, float]:
    """The largest error, of the program on one chip and on four, and that of plain XLA."""
    source = (ROOT / "examples" / "paged_decode.py").read_text()
    known = {"Q_HEADS": 16, "KV_HEADS": 4, "HEAD_DIM": 128, "PAGES_AT_ONCE": 2} | constants
    random = np.random.default_rng(0)
    shape = (len(lengths), known["KV_HEADS"], CONTEXT, known["HEAD_DIM"])
    q = random.normal(size=(len(lengths), known["Q_HEADS"], known["HEAD_DIM"])).astype(ml_dtypes.bfloat16)
    k, v = (random.normal(size=shape).astype(ml_dtypes.bfloat16) for _ in range(2))
    clean = k.copy(), v.copy()
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    wanted = exact(q, *clean, lengths)
    size = np.sqrt(np.mean(wanted**2, axis=(1, 2), keepdims=True))
    made, plain = [], np.zeros(())
    for chips in (1, 4):
        names = names_of(
            edited(source, CHIPS=chips, BATCH=len(lengths), CONTEXT=CONTEXT, PAGE=PAGE, RAGGED=True, **known)
        )
        table = np.stack([random.permutation(names["POOL"]) for _ in range(chips)])
        table = table.reshape(chips, len(lengths), -1).astype(np.int32)
        inputs = [q, paged(names, k, table), paged(names, v, table), np.array(lengths, np.int32), table]
        avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in inputs]
        specs = of_function(lambda *arrays: arrays, avals).inputs
        artefact = of_function(names["kernel_fn"], avals, meshes.read(names["get_tiling_meta"](), specs))
        result = mosaic.load(artefact.program).run(inputs)
        assert not result.findings, result.findings[0]
        assert not result.replicas, "chips disagree"
        made.append(np.asarray(result.outputs[0], np.float64))
        if chips == 1:
            whole = [paged(names, one, table) for one in clean]
            plain = np.asarray(names["reference_fn"](q, *whole, *inputs[3:]), np.float64)
    *ours, xla = (float(np.max(np.abs(one - wanted) / size)) for one in (*made, plain))
    return max(ours), xla


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        error, xla = errors(**CASES[name])
        print(f"{name}: {error:.4f}, plain XLA {xla:.4f}", flush=True)
        if not error < 2 * max(xla, 0.01):
            sys.exit(1)
