"""How often honest and wrong arithmetic is refused on mixed inputs, over many secrets, by how often inputs are nudged.

    python -m benchmarks.floors [--secrets N] [--json FILE]

Causal attention of 1024x128 in bf16, in plain XLA, one secret after another. The floor is that of
``ratchet/judge/parity.py``, row-wise the largest over so many nudges. One judge keeps one secret, so that a refusal
of honest arithmetic would stay. Beside it whether random inputs, which are less forgiving, refuse the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_allow_excess_precision=false")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.table import show
from ratchet.judge import instances, parity

SEQ, DIM = 1024, 128
SCALE = DIM**-0.5
NUDGES = (1, 2, 4, 8)


def plain(q: Any, k: Any, v: Any, *, future: int = 0) -> Any:
    """The reference in bf16. A query sees ``future`` keys too many."""
    scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32) * SCALE
    scores = jnp.where(jnp.tri(SEQ, k=future, dtype=bool), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("qk,kd->qd", weights, v, preferred_element_type=jnp.float32).astype(q.dtype)


def folded(q: Any, k: Any, v: Any) -> Any:
    """The scale rounded into q, powers of two, the division last: what fast kernels do."""
    q = (q * (SCALE * np.log2(np.e))).astype(q.dtype)
    scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(jnp.tri(SEQ, dtype=bool), scores, -jnp.inf)
    weights = jnp.exp2(scores - scores.max(axis=1, keepdims=True))
    out = jnp.einsum("qk,kd->qd", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (out / weights.sum(axis=1, keepdims=True)).astype(q.dtype)


def exact(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The reference in float64."""
    q, k, v = (array.astype(np.float64) for array in arrays)
    scores = np.where(np.tri(SEQ, dtype=bool), q @ k.T * SCALE, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


CANDIDATES = {
    "honest: scale folded into q, exp2": jax.jit(folded),
    "wrong: one key of the future": jax.jit(lambda q, k, v: plain(q, k, v, future=1)),
    "wrong: scale 2 % off": jax.jit(lambda q, k, v: plain(q * jnp.bfloat16(1.0234375), k, v)),
}


def rows(secrets: int) -> list[dict[str, Any]]:
    """One row a candidate and number of nudges. Random inputs are nudged once, as the judge does it."""
    native = jax.jit(plain)
    worst: dict[tuple[str, int], list[float]] = {(name, n): [] for name in CANDIDATES for n in NUDGES}
    random: dict[str, list[bool]] = {name: [] for name in CANDIDATES}
    for secret in range(secrets):
        generator = np.random.default_rng(secret)
        drawn = [generator.standard_normal((SEQ, DIM)).astype(jnp.bfloat16) for _ in range(3)]
        for arrays, most in ((drawn, 1), (instances.mixed(drawn, generator), max(NUDGES))):
            wanted, base = exact(arrays), np.asarray(native(*arrays))
            got = {name: np.asarray(run(*arrays)) for name, run in CANDIDATES.items()}
            floor = np.zeros(())
            for count in range(1, most + 1):
                nudged = np.asarray(native(*instances.nudge(arrays, generator)))
                floor = np.maximum(floor, parity.floor_of(wanted, base, nudged))
                for name, output in got.items():
                    error = parity.compare(output, wanted, floor).worst
                    if most == 1:
                        random[name].append(error > 1)
                    elif count in NUDGES:
                        worst[name, count].append(error)
    return [
        {
            "candidate": name,
            "nudges": count,
            "secrets": secrets,
            "refused": sum(error > 1 for error in errors),
            "error / allowance: median": float(np.median(errors)),
            "smallest": min(errors),
            "largest": max(errors),
            "refused on random inputs": sum(random[name]),
        }
        for (name, count), errors in worst.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secrets", type=int, default=150, help="how many (default 150, about two minutes)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    show("refused on mixed inputs (a row's limit is 1)", rows(options.secrets), json_file=options.json)


if __name__ == "__main__":
    main()
