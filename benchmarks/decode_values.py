"""Values of ``examples/paged_decode.py`` on one chip and on four, against float64, for awkward lengths and pages.

    python -m benchmarks.decode_values [--quick] [--json FILE]

The same cache is laid out for one chip and for four, each with a page table of its own, permuted; what is behind a
sequence's last key is NaN. The programs are executed as the judge executes them, on one virtual CPU device and on four.
``error`` is the largest difference from float64 over the root mean square of that sequence's output; ``plain XLA`` is
the reference in bfloat16. All differences are of outputs rounded to bfloat16 (one unit is 0.004 to 0.008).
"""

from __future__ import annotations

import os
from typing import Any

# Before JAX is imported.
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import ml_dtypes
import numpy as np

from benchmarks.lib.command import command
from benchmarks.lib.programs import of_function
from benchmarks.lib.sources import ROOT, edited, names_of
from benchmarks.lib.table import show
from ratchet.exam.problem import mesh as meshes
from ratchet.tpu.mosaic import run as mosaic

BF16 = ml_dtypes.bfloat16
CONTEXT, PAGE = 512, 32
SHARD = CONTEXT // 4
CASES: dict[str, dict[str, Any]] = {
    "ragged": {"lengths": [1, 300, CONTEXT, 77]},
    "one key each: three chips are empty": {"lengths": [1, 1, 1]},
    "around a chip's edge": {"lengths": [SHARD - 1, SHARD, SHARD + 1, 3 * SHARD]},
    "around a page's edge": {"lengths": [PAGE - 1, PAGE, PAGE + 1]},
    "one head per key head": {"lengths": [290, 2], "Q_HEADS": 4},
    "seven heads per key head": {"lengths": [290, 2], "Q_HEADS": 28},
    "heads of 256": {"lengths": [290, 2], "HEAD_DIM": 256},
    "full": {"lengths": [CONTEXT, CONTEXT]},
    "each chip's heads apart": {"lengths": [1, 300, CONTEXT, 77], "KV_HEADS": 16},
}
QUICK = ("ragged", "one key each: three chips are empty")


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


def case(name: str, lengths: list[int], seed: int = 0, **constants: Any) -> dict[str, Any]:
    """One line of the table."""
    source = (ROOT / "examples" / "paged_decode.py").read_text()
    constants = {"Q_HEADS": 16, "KV_HEADS": 4, "HEAD_DIM": 128, "PAGES_AT_ONCE": 2} | constants
    random = np.random.default_rng(seed)
    shape = (len(lengths), constants["KV_HEADS"], CONTEXT, constants["HEAD_DIM"])
    q = random.normal(size=(len(lengths), constants["Q_HEADS"], constants["HEAD_DIM"])).astype(BF16)
    k, v = (random.normal(size=shape).astype(BF16) for _ in range(2))
    clean = k.copy(), v.copy()
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    wanted = exact(q, *clean, lengths)
    size = np.sqrt(np.mean(wanted**2, axis=(1, 2), keepdims=True))
    outputs = {}
    for chips in (1, 4):
        names = names_of(
            edited(source, CHIPS=chips, BATCH=len(lengths), CONTEXT=CONTEXT, PAGE=PAGE, RAGGED=True, **constants)
        )
        table = np.stack([random.permutation(names["POOL"]) for _ in range(chips)])
        table = table.reshape(chips, len(lengths), -1).astype(np.int32)
        inputs = [q, paged(names, k, table), paged(names, v, table), np.array(lengths, np.int32), table]
        avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in inputs]
        specs = of_function(lambda *arrays: arrays, avals).inputs
        artefact = of_function(names["kernel_fn"], avals, meshes.read(names["get_tiling_meta"](), specs))
        result = mosaic.load(artefact.program).run(inputs)
        if result.findings or result.replicas:
            raise SystemExit(f"{name} on {chips} chips: {result.findings[0] if result.findings else 'chips disagree'}")
        outputs[chips] = np.asarray(result.outputs[0], np.float64)
        if chips == 1:
            plain_inputs = [q, paged(names, clean[0], table), paged(names, clean[1], table), *inputs[3:]]
            plain = np.asarray(names["reference_fn"](*plain_inputs), np.float64)
    return {
        "case": name,
        "lengths": " ".join(map(str, lengths)),
        "error on 1": float(np.max(np.abs(outputs[1] - wanted) / size)),
        "error on 4": float(np.max(np.abs(outputs[4] - wanted) / size)),
        "plain XLA": float(np.max(np.abs(plain - wanted) / size)),
        "1 and 4 apart": float(np.max(np.abs(outputs[1] - outputs[4]) / size)),
    }


def main() -> None:
    options = command(__doc__, quick="two cases only").parse_args()
    rows = [case(name, **given) for name, given in CASES.items() if name in QUICK or not options.quick]
    show("paged decoding on one virtual device and on four", rows, json_file=options.json)
    worst = max(row[column] / max(row["plain XLA"], 0.01) for row in rows for column in ("error on 1", "error on 4"))
    print(f"the largest error is {worst:.2f} times that of plain XLA in bfloat16")
    if not worst < 2:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
