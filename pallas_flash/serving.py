"""``paged_attention`` and ``latent_attention``: decoding and chunked prefill against a cache in pages."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from pallas_flash import dense
from pallas_flash.config import TABLE_ENTRIES
from pallas_flash.kernels.paged_decode import PagedBlocks, paged_decode
from pallas_flash.kernels.paged_prefill import PrefillBlocks, paged_prefill
from pallas_flash.target import by_platform

ROWS_OF = {"bfloat16": 16, "int8": 32, "float8_e4m3fn": 32, "float8_e5m2": 32}
"""Keys of a page are a multiple of so many, by the dtype of the cache: what a tile of VMEM holds."""
_LANES = 128
_LATENT = PagedBlocks(keys=512, tasks=4, depth=2)
WithoutTpu = Literal["error", "fallback"]


def paged_attention(  # noqa: PLR0913 - a public operator: every option is a keyword with a default
    q: jax.Array,
    k_pages: jax.Array,
    v_pages: jax.Array,
    lengths: jax.Array,
    page_indices: jax.Array,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    blocks: PagedBlocks | PrefillBlocks | None = None,
    without_tpu: WithoutTpu = "error",
) -> jax.Array:
    """Attention of the last queries of sequences against keys in pages; the order of operands is that of jax's kernel.

    Args:
        q: bfloat16[batch, heads, dim], one query a sequence; or [batch, heads, chunk, dim], those of its last ``chunk``
            places, each of which attends the keys up to its own: chunked prefill. Before the first key are zeros. dim
            is a multiple of 128.
        k_pages, v_pages: [key heads, pages, page, dim] of bfloat16, int8 or float8; key heads divide the heads, and
            each serves as many consecutive heads.
        lengths: int32[batch], how many keys a sequence has, at most what its pages hold, those of its chunk among
            them; one with 0 gives zeros.
        page_indices: int32[batch, pages of a sequence], clamped to the pool; entries behind a length are not read.
        scale: of the scores; 1 / sqrt(dim) by default.
        softcap: scores become ``softcap * tanh(score / softcap)`` before the softmax.
        window: a query attends only the last so many keys.
        k_scale, v_scale: what the caches' elements are to be multiplied with.
        blocks: how the work is cut; PrefillBlocks for chunks.
        without_tpu: on another platform JAX's own error, or plain XLA with the sequences gathered.

    Returns:
        bfloat16, of the shape of q.

    Raises:
        ValueError: for operands that are not as above; all findings at once.
    """
    findings = _findings(q, k_pages, lengths, page_indices, (3, 4))
    if k_pages.shape != v_pages.shape or k_pages.dtype != v_pages.dtype:
        findings.append(f"k_pages are {_named(k_pages)} and v_pages {_named(v_pages)}, wanted the same")
    if blocks is not None and isinstance(blocks, PrefillBlocks) != (q.ndim == 4):
        findings.append(f"blocks are {type(blocks).__name__}, wanted PagedBlocks for one query, PrefillBlocks for more")
    if k_pages.ndim == 4 and q.ndim in (3, 4) and k_pages.shape[-1] != q.shape[-1]:
        findings.append(f"pages have dim {k_pages.shape[-1]} and q {q.shape[-1]}, wanted the same")
    for name, value in (("softcap", softcap), ("window", window)):
        if value is not None and not value > 0:
            findings.append(f"{name} is {value}, wanted a positive number")
    _refuse("paged_attention", findings)
    settings: dict[str, Any] = {
        "scale": (q.shape[-1] ** -0.5 if scale is None else scale) * k_scale,
        "softcap": softcap, "window": window, "v_scale": v_scale,
    }  # fmt: skip
    kernel: Callable[..., Any] = paged_decode if q.ndim == 3 else paged_prefill
    kernel = functools.partial(kernel, **settings, blocks=blocks or (PagedBlocks() if q.ndim == 3 else PrefillBlocks()))
    plain = functools.partial(_plain, **settings)
    return by_platform(kernel, _elsewhere(plain, without_tpu), q, k_pages, v_pages, lengths, page_indices)


def latent_attention(  # noqa: PLR0913 - as above
    q: jax.Array,
    pages: jax.Array,
    lengths: jax.Array,
    page_indices: jax.Array,
    *,
    value_dim: int,
    scale: float,
    blocks: PagedBlocks | None = None,
    without_tpu: WithoutTpu = "error",
) -> jax.Array:
    """Decoding of DeepSeek's latent attention: all heads share one cache, whose first columns are the values, too.

    Args:
        q: bfloat16[batch, heads, dim]: queries taken to the latents' space, then their rotated part; zeros where the
            cache is padded. dim is a multiple of 128.
        pages: bfloat16[pages, page, dim]: latents, then rotated keys.
        lengths, page_indices, blocks, without_tpu: as of ``paged_attention``.
        value_dim: how many columns the latents have, a multiple of 128.
        scale: of the scores.

    Returns:
        bfloat16[batch, heads, value_dim], weighted latents.

    Raises:
        ValueError: as ``paged_attention``.
    """
    findings = _findings(q, pages[None], lengths, page_indices)
    if not findings and (pages.shape[-1] != q.shape[-1] or value_dim % _LANES or not 0 < value_dim <= q.shape[-1]):
        findings.append(f"pages have dim {pages.shape[-1]}, q {q.shape[-1]}, values {value_dim}, wanted one dim and a "
                        f"multiple of {_LANES} of it")  # fmt: skip
    _refuse("latent_attention", findings)

    def kernel(q: Any, pages: Any, lengths: Any, table: Any) -> jax.Array:
        out: jax.Array = paged_decode(
            q, pages[None], None, lengths, table, scale=scale, v_dim=value_dim, blocks=blocks or _LATENT
        )
        return out

    def plain(q: Any, pages: Any, lengths: Any, table: Any) -> jax.Array:
        values = pages[None, ..., :value_dim]
        return _plain(q, pages[None], values, lengths, table, scale=scale, softcap=None, window=None, v_scale=1.0)

    return by_platform(kernel, _elsewhere(plain, without_tpu), q, pages, lengths, page_indices)


def _elsewhere(plain: Callable[..., Any], without_tpu: WithoutTpu) -> Callable[..., Any] | None:
    if without_tpu == "error":
        return None
    if jax.default_backend() != "tpu":
        warnings.warn(f"no TPU here ({jax.default_backend()}): decoding runs in plain XLA", stacklevel=3)
    return plain


def _plain(  # noqa: PLR0913 - the kernel's operands
    q: jax.Array, k: jax.Array, v: jax.Array, lengths: jax.Array, table: jax.Array,
    *, scale: float, softcap: float | None, window: int | None, v_scale: float,
) -> jax.Array:  # fmt: skip
    """The same in plain XLA: sequences gathered from their pages."""
    keys, values = (
        jnp.moveaxis(pool[:, table], 0, 1).reshape(len(q), pool.shape[0], -1, pool.shape[-1]).astype(q.dtype)
        for pool in (k, v)
    )
    queries = q if q.ndim == 4 else q[:, :, None]
    place, length = jnp.arange(keys.shape[2]), lengths[:, None, None, None]
    own = length - queries.shape[2] + jnp.arange(queries.shape[2])[:, None]
    attended = (place <= own) & (place > (-1 if window is None else own - window))
    values = jnp.where(place[:, None] < length, values, jnp.zeros_like(values))  # what lies behind may be anything
    out, _ = dense.forward(queries, keys, values, None, attended, scale=scale, softcap=softcap)
    return (out.astype(jnp.float32) * v_scale).astype(q.dtype).reshape(q.shape[:-1] + out.shape[-1:])


def _named(array: Any) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _refuse(name: str, findings: list[str]) -> None:
    if findings:
        raise ValueError(f"{name}: {'; '.join(findings)}")


def _findings(q: Any, pages: Any, lengths: Any, table: Any, ndims: tuple[int, ...] = (3,)) -> list[str]:
    if q.ndim not in ndims or pages.ndim != 4 or lengths.ndim != 1 or table.ndim != 2:
        given, more = ", ".join(map(_named, (q, pages, lengths, table))), "chunk, " if 4 in ndims else ""
        return [f"got {given}, wanted q[batch, heads, {more}dim], pages, lengths[batch], indices[batch, pages]"]
    found = []
    if not len(q) == len(lengths) == len(table):
        found.append(f"q has {len(q)} sequences, lengths {len(lengths)}, indices {len(table)}, wanted the same")
    if lengths.dtype != jnp.int32 or table.dtype != jnp.int32:
        found.append(f"lengths are {lengths.dtype} and indices {table.dtype}, wanted int32")
    if q.shape[1] % pages.shape[0]:
        found.append(f"{q.shape[1]} heads on {pages.shape[0]} key heads, wanted a multiple")
    if q.dtype != jnp.bfloat16 or pages.dtype.name not in ROWS_OF:
        found.append(f"q is {q.dtype} and pages {pages.dtype}, wanted bfloat16 and one of {', '.join(ROWS_OF)}")
    elif pages.shape[2] % ROWS_OF[pages.dtype.name]:
        rows = ROWS_OF[pages.dtype.name]
        found.append(f"pages hold {pages.shape[2]} keys, wanted a multiple of {rows} in {pages.dtype}")
    if q.shape[-1] % _LANES:
        found.append(f"dim is {q.shape[-1]}, wanted a multiple of {_LANES}")
    if table.size > TABLE_ENTRIES:
        found.append(f"{table.size} indices, at most {TABLE_ENTRIES} fit in scalar memory")
    return found
