"""Decoding and chunks of queries from pages: compiled values and plain XLA's, against float64; what is refused."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_flash import PagedBlocks, PrefillBlocks, latent_attention, paged_attention
from ratchet.tpu import library


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A cache, and what is asked of it."""

    lengths: tuple[int, ...]
    heads: int = 8
    kv_heads: int = 2
    dim: int = 128
    page: int = 16
    pages: int = 6
    dtype: Any = jnp.bfloat16
    halves: bool = False
    """Keys and values are halves of the columns of one cache."""
    rows: int = 64
    """Keys of a block."""
    together: int = 1
    """Blocks of a turn."""
    chunk: int = 0
    """Queries of each sequence, at its last places; 0 for one without a dimension of its own."""
    options: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> tuple[jnp.ndarray, ...]:
        """Operands; behind the last key of a sequence its pages hold NaN, or the largest number."""
        random = np.random.default_rng(0)
        pool = len(self.lengths) * self.pages
        table = random.permutation(pool).reshape(len(self.lengths), self.pages).astype(np.int32)
        caches = []
        for _ in range(2):
            if jnp.issubdtype(self.dtype, jnp.integer):
                cache = np.array(random.integers(-8, 8, (self.kv_heads, pool, self.page, self.dim)), self.dtype)
            else:
                cache = np.array(random.standard_normal((self.kv_heads, pool, self.page, self.dim)), self.dtype)
            for length, own in zip(self.lengths, table, strict=True):
                behind = cache[:, own].reshape(self.kv_heads, -1, self.dim)
                behind[:, length:] = np.nan if self.dtype == jnp.bfloat16 else 7
                cache[:, own] = behind.reshape(cache[:, own].shape)
            caches.append(cache)
        chunk = (self.chunk,) if self.chunk else ()
        q = random.standard_normal((len(self.lengths), self.heads, *chunk, self.dim))
        operands = (np.array(q, jnp.bfloat16), *caches, np.array(self.lengths, np.int32), table)
        return tuple(map(jnp.asarray, operands))

    def operands(self) -> tuple[jnp.ndarray | None, ...]:
        """Those of ``paged_attention``."""
        q, k, v, *rest = self.arrays()
        return (q, jnp.concatenate([k, v], axis=-1), None, *rest) if self.halves else (q, k, v, *rest)

    def wanted(self, value_dim: int | None = None) -> np.ndarray:
        """In float64, sequence by sequence; of latents where the values' width is given."""
        q, k, v, _, table = (np.asarray(one).astype(np.float64) for one in self.arrays())
        k, v = k * self.options.get("k_scale", 1.0), v * self.options.get("v_scale", 1.0)
        if value_dim is not None:
            v = k[..., :value_dim]
        q = q if self.chunk else q[:, :, None]
        out = np.zeros((*q.shape[:3], v.shape[-1]))
        for b, length in enumerate(self.lengths):
            own = table[b].astype(int)
            for head, at in itertools.product(range(self.heads), range(max(0, q.shape[2] - length), q.shape[2])):
                key, seen = head // (self.heads // self.kv_heads), length - q.shape[2] + at + 1
                keys, values = (one[key, own].reshape(-1, one.shape[-1])[:seen] for one in (k, v))
                scores = keys @ q[b, head, at] * self.dim**-0.5
                if cap := self.options.get("softcap"):
                    scores = cap * np.tanh(scores / cap)
                if window := self.options.get("window"):
                    scores[: max(0, seen - window)] = -np.inf
                sink = self.options["sinks"][head] if "sinks" in self.options else -np.inf
                top = max(scores.max(), sink)
                weights = np.exp(scores - top)
                out[b, head, at] = weights / (weights.sum() + np.exp(sink - top)) @ values
        return out if self.chunk else out[:, :, 0]


SINKS = jnp.linspace(-1, 2, 8)
CASES = {
    "ragged, one empty": Shape(lengths=(1, 0, 91)),
    "soft cap, all pages": Shape(lengths=(96, 17, 64), options={"softcap": 5.0}),
    "window, a query head for each key head": Shape(
        lengths=(255, 100, 3), heads=4, kv_heads=4, page=32, pages=8, rows=256, options={"window": 70}
    ),
    "int8, wide heads": Shape(
        lengths=(128, 33), heads=16, dim=256, page=32, pages=4, dtype=jnp.int8,
        options={"k_scale": 0.25, "v_scale": 0.5},
    ),
    "turns of blocks of several sequences": Shape(
        lengths=(40, 0, 129, 1, 64, 65), kv_heads=1, page=16, pages=9, rows=32, together=3
    ),
    "float8": Shape(lengths=(128, 33), heads=16, page=32, pages=4, dtype=jnp.float8_e4m3fn),
    "halves of a cache, sinks": Shape(
        lengths=(40, 0, 91), dim=64, halves=True, rows=32, options={"sinks": SINKS, "window": 50}
    ),
    "a chunk, ragged": Shape(lengths=(300, 0, 40, 256), pages=20, chunk=130, rows=128),
    "a chunk of a few, soft cap": Shape(lengths=(91, 2), chunk=5, options={"softcap": 5.0}),
    "a chunk, window": Shape(
        lengths=(400, 129), kv_heads=4, page=32, pages=16, chunk=200, rows=128, options={"window": 70}
    ),
    "a chunk, pages that lanes do not divide": Shape(lengths=(470, 100), page=48, pages=10, chunk=48, rows=96),
    "a chunk, halves of a cache, sinks": Shape(
        lengths=(200, 2), dim=64, halves=True, page=32, pages=8, chunk=48, options={"sinks": SINKS, "softcap": 5.0}
    ),
    "a chunk, int8": Shape(
        lengths=(250, 33), page=32, pages=8, chunk=32, dtype=jnp.int8, options={"k_scale": 0.25, "v_scale": 0.5}
    ),
}  # fmt: skip
SLOW = [pytest.param(name, marks=pytest.mark.slow) if at else name for at, name in enumerate(CASES)]


@pytest.mark.parametrize("name", SLOW)
def test_the_compiled_kernel_decodes_as_float64_does(name: str) -> None:
    shape = CASES[name]
    whole = PagedBlocks(keys=shape.rows, tasks=shape.together * shape.kv_heads)
    blocks = PrefillBlocks(rows=shape.heads // shape.kv_heads * 64, keys=shape.rows) if shape.chunk else whole

    def decode(*operands: Any) -> Any:
        return paged_attention(*operands, **shape.options, blocks=blocks)

    result = library.execute(decode, *shape.operands())
    assert not result.findings
    np.testing.assert_allclose(np.asarray(result.outputs[0]).astype(float), shape.wanted(), atol=8e-3, rtol=8e-3)


@pytest.mark.parametrize("name", CASES)
def test_without_a_tpu_it_is_the_same_if_that_is_asked_for(name: str) -> None:
    shape = CASES[name]
    with pytest.warns(UserWarning, match="no TPU here"):
        out = paged_attention(*shape.operands(), **shape.options, without_tpu="fallback")
    np.testing.assert_allclose(np.asarray(out).astype(float), shape.wanted(), atol=8e-3, rtol=8e-3)


LATENT = Shape(lengths=(90, 33), heads=16, kv_heads=1, dim=256)


@pytest.mark.slow
def test_latents_are_keys_and_values() -> None:
    q, pages, _, lengths, table = LATENT.arrays()

    def decode(q: Any, pages: Any, lengths: Any, table: Any) -> Any:
        return latent_attention(
            q, pages, lengths, table, value_dim=128, scale=256**-0.5, blocks=PagedBlocks(keys=64, tasks=2)
        )

    result = library.execute(decode, q, pages[0], lengths, table)
    assert not result.findings
    np.testing.assert_allclose(np.asarray(result.outputs[0]).astype(float), LATENT.wanted(128), atol=8e-3, rtol=8e-3)


def test_latents_in_plain_xla() -> None:
    q, pages, _, lengths, table = LATENT.arrays()
    with pytest.warns(UserWarning, match="no TPU here"):
        out = latent_attention(
            q, pages[0], lengths, table, value_dim=128, scale=256**-0.5, without_tpu="fallback"
        )  # fmt: skip
    np.testing.assert_allclose(np.asarray(out).astype(float), LATENT.wanted(128), atol=8e-3, rtol=8e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"q": (3, 8)}, r"got bfloat16\[3,8\]"),
        ({"q": (3, 8, 5, 256)}, "pages have dim 128 and q 256"),
        ({"q": (3, 8, 5, 128), "blocks": PagedBlocks()}, "blocks are PagedBlocks, wanted .* PrefillBlocks for more"),
        ({"q": (3, 9, 128)}, "9 heads on 2 key heads"),
        ({"q": (3, 8, 96), "k_pages": (2, 18, 16, 96), "v_pages": (2, 18, 16, 96)}, "the same, a multiple of 128"),
        ({"q": (3, 8, 96), "v_pages": None}, "pages have dim 128 and q 96, wanted twice as many without v_pages"),
        ({"sinks": jnp.zeros((2,))}, r"sinks are float32\[2\], wanted float32\[8\]"),
        ({"k_pages": (2, 18, 16, 256)}, r"v_pages bfloat16\[2,18,16,128\], wanted the same; pages have dim 256"),
        ({"k_pages": (2, 18, 8, 128), "v_pages": (2, 18, 8, 128)}, "pages hold 8 keys, wanted a multiple of 16"),
        ({"lengths": (2,)}, "q has 3 sequences, lengths 2"),
        ({"page_indices": (3, 1 << 17)}, "393216 indices, at most 131072"),
        ({"softcap": -1.0, "window": 0}, "softcap is -1.0, wanted a positive number; window is 0"),
    ],
)
def test_what_is_no_cache_is_refused(changes: dict[str, Any], said: str) -> None:
    shapes = {"q": (3, 8, 128), "k_pages": (2, 18, 16, 128), "v_pages": (2, 18, 16, 128), "lengths": (3,),
              "page_indices": (3, 6)}  # fmt: skip
    given = {name: changes.get(name, shape) for name, shape in shapes.items()}
    arrays = {name: shape and jnp.zeros(shape, jnp.int32 if name in ("lengths", "page_indices") else jnp.bfloat16)
              for name, shape in given.items()}  # fmt: skip
    with pytest.raises(ValueError, match=said):
        paged_attention(**arrays, **{name: value for name, value in changes.items() if name not in shapes})


def test_dtypes_are_said_at_once() -> None:
    q = jnp.zeros((3, 8, 128), jnp.float32)
    pages, lengths = jnp.zeros((2, 18, 16, 128), jnp.float16), jnp.zeros((3,), jnp.int16)
    with pytest.raises(ValueError, match=r"lengths are int16 and .*; q is float32 and pages float16"):
        paged_attention(q, pages, pages, lengths, jnp.zeros((3, 6), jnp.int32))
