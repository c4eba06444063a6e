"""Options of the operator: a table that holds every pair of values of two options, and attention to compare with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_flash import BackwardBlocks, Config, ForwardBlocks

SMALL = Config(
    forward=ForwardBlocks(block_q=128, chunk_kv=256, block_kv=128, rows=128, unroll=1),
    backward=BackwardBlocks(chunk_q=1024, chunk_kv=128, block_q=128, block_kv=128, rows=128, strip=128),
    table_tile=128,
    without_tpu="interpret",
)


def striped(q, k):
    """A mask by rule: far pairs in some stripes only, and some queries without any key."""
    return ((np.abs(q - k) < 40) | ((q // 16 + k // 16) % 3 == 0)) & (q % 37 != 5)


OPTIONS: dict[str, tuple[Any, ...]] = {
    "dim": (128, 64, 96, 192, 256),
    "dtype": ("bfloat16", "float32"),
    "heads": ((2, 2), (4, 2), (2, 1)),
    "lengths": ((256, 256), (200, 200), (130, 300), (300, 130)),
    "causal": (False, True),
    "window": (None, 50, (40, None), (None, 30)),
    "documents": (False, True),
    "softcap": (None, 4.0),
    "sinks": (False, True),
    "dim_v": (None, 128),
    "mask": (None, "array", "rule"),
    "scale": (None, 0.3),
    "residuals": (False, True),
    "passes": (1, 2),
}


def pairs_of(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    """The pairs of option values that a row of the table holds, as (option, value, option, value)."""
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}


def covering() -> list[dict[str, Any]]:
    """Few rows that hold all pairs: each time the best of some random rows around one pair that is missing."""
    chance = random.Random(0)
    values = list(OPTIONS.values())
    missing = {(i, a, j, b) for i, j in itertools.combinations(range(len(values)), 2)
               for a in values[i] for b in values[j]}  # fmt: skip
    rows = []
    while missing:
        i, a, j, b = min(missing, key=repr)
        tried = [[chance.choice(value) for value in values] for _ in range(200)]
        for row in tried:
            row[i], row[j] = a, b
        best = max((tuple(row) for row in tried), key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        rows.append(dict(zip(OPTIONS, best, strict=True)))
    return rows


class Case:
    """One row of the table: operands, the operator's arguments, and the attention they mean."""

    def __init__(self, row: dict[str, Any], seed: int = 0) -> None:
        self.row = row
        rng = np.random.default_rng(seed)
        (heads, kv_heads), (q_len, kv_len), dim = row["heads"], row["lengths"], row["dim"]
        dim_v = row["dim_v"] or dim
        shapes = ((1, heads, q_len, dim), *((1, kv_heads, kv_len, n) for n in (dim, dim_v)), (1, heads, q_len, dim_v))
        self.operands = [jnp.asarray(rng.standard_normal(shape), row["dtype"]) for shape in shapes]
        self.sinks = jnp.asarray(2 * rng.standard_normal(heads), jnp.float32) if row["sinks"] else None
        self.documents = None
        if row["documents"]:
            ids = [np.sort(rng.integers(0, 4, (1, length)), axis=1) for length in (q_len, kv_len)]
            self.documents = tuple(jnp.asarray(x, jnp.int32) for x in (ids if q_len != kv_len else ids[:1] * 2))
        at = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
        mask = {"array": striped(*at), "rule": striped, None: None}[row["mask"]]
        left, right = row["window"] if isinstance(row["window"], tuple) else (row["window"], row["window"])
        allowed = np.ones((1, 1, q_len, kv_len), bool)
        if row["causal"]:
            allowed &= at[1] <= at[0]
        if left is not None:
            allowed &= at[1] >= at[0] - left
        if right is not None:
            allowed &= at[1] <= at[0] + right
        if row["mask"]:
            allowed &= striped(*at)
        if self.documents is not None:
            q_ids, kv_ids = (np.asarray(ids) for ids in self.documents)
            allowed = allowed & (q_ids[:, None, :, None] == kv_ids[:, None, None, :])
        self.allowed = allowed
        self.scale = row["scale"] if row["scale"] is not None else dim**-0.5
        self.arguments = {
            "causal": row["causal"],
            "window": row["window"],
            "segment_ids": self.documents,
            "softcap": row["softcap"],
            "mask": mask,
            "scale": row["scale"],
        }

    def plain(self, q: jax.Array, k: jax.Array, v: jax.Array, sinks: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Output and logsumexp by jax.numpy in the operands' precision, for autodiff."""
        group = q.shape[1] // k.shape[1]
        wide = jnp.float64 if q.dtype == jnp.float64 else jnp.float32
        k, v = jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=wide) * self.scale
        if self.row["softcap"] is not None:
            scores = self.row["softcap"] * jnp.tanh(scores / self.row["softcap"])
        some = self.allowed.any(axis=-1, keepdims=True)
        scores = jnp.where(self.allowed | ~some, scores, -jnp.inf)
        lse = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
        none = -jnp.inf
        if sinks is not None:
            none = sinks[:, None, None]
            lse = jnp.logaddexp(lse, none)
        weights = jnp.where(some, jnp.exp(scores - lse), 0).astype(v.dtype)
        out = jnp.einsum("bhqk,bhkd->bhqd", weights, v, preferred_element_type=wide).astype(q.dtype)
        return out, jnp.where(some, lse, none)[..., 0]

    def exact(self) -> list[np.ndarray]:
        """Output, logsumexp and the gradients of q, k, v and the sinks in float64, by autodiff of :meth:`plain`."""

        def all_of(q, k, v, do, sinks):
            (out, lse), pull = jax.vjp(self.plain, q, k, v, sinks)
            return out, lse, *pull((do, jnp.zeros_like(lse)))

        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), (*self.operands, self.sinks))
            return [np.asarray(x) for x in jax.jit(all_of)(*wide) if x is not None]


def numbered() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and rows of the table."""
    for number, row in enumerate(covering()):
        yield f"{number}-d{row['dim']}-{row['dtype']}", row
