"""``paged_attention`` and ``latent_attention``: decoding and chunked prefill against a cache in pages."""

from __future__ import annotations

import dataclasses
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
_LOG2E = 1.4426950408889634
_SMALL = 256 << 10
"""Bytes of 256 keys below which a block has 512: what is done for every block takes as long."""
_NARROW = 1024
_LATENT = PagedBlocks(keys=512, tasks=4, depth=2)
WithoutTpu = Literal["error", "fallback"]


def paged_attention(  # noqa: PLR0913 - a public operator: every option is a keyword with a default
    q: jax.Array,
    k_pages: jax.Array,
    v_pages: jax.Array | None,
    lengths: jax.Array,
    page_indices: jax.Array,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
    sinks: jax.Array | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    blocks: PagedBlocks | PrefillBlocks | None = None,
    without_tpu: WithoutTpu = "error",
) -> jax.Array:
    """Attention of the last queries of sequences against keys in pages; the order of operands is that of jax's kernel.

    Args:
        q: bfloat16[batch, heads, dim], one query a sequence; or [batch, heads, chunk, dim], those of its last ``chunk``
            places, each of which attends the keys up to its own: chunked prefill. Before the first key are zeros.
        k_pages, v_pages: [key heads, pages, page, dim] of bfloat16, int8 or float8, dim a multiple of 128; key heads
            divide the heads, and each serves as many consecutive heads. For a dim of 64 k_pages are
            [key heads, pages, page, 128], keys and then values, and v_pages None: HBM has rows of 128.
        lengths: int32[batch], how many keys a sequence has, at most what its pages hold, those of its chunk among
            them; one with 0 gives zeros.
        page_indices: int32[batch, pages of a sequence], clamped to the pool; entries behind a length are not read.
        scale: of the scores; 1 / sqrt(dim) by default.
        softcap: scores become ``softcap * tanh(score / softcap)`` before the softmax.
        window: a query attends only the last so many keys.
        sinks: float32[heads], a score of each head that the softmax sees beside the others and that has no value.
        k_scale, v_scale: what the caches' elements are to be multiplied with.
        blocks: how the work is cut; PrefillBlocks for chunks.
        without_tpu: on another platform JAX's own error, or plain XLA with the sequences gathered.

    Returns:
        bfloat16, of the shape of q.

    Raises:
        ValueError: for operands that are not as above; all findings at once.
    """
    dim = q.shape[-1]
    findings = _findings(q, k_pages, lengths, page_indices, (3, 4))
    if v_pages is not None and (k_pages.shape != v_pages.shape or k_pages.dtype != v_pages.dtype):
        findings.append(f"k_pages are {_named(k_pages)} and v_pages {_named(v_pages)}, wanted the same")
    if blocks is not None and isinstance(blocks, PrefillBlocks) != (q.ndim == 4):
        findings.append(f"blocks are {type(blocks).__name__}, wanted PagedBlocks for one query, PrefillBlocks for more")
    columns = dim if v_pages is not None else 2 * dim
    if k_pages.ndim == 4 and q.ndim in (3, 4) and (k_pages.shape[-1] != columns or columns % _LANES):
        wanted = "the same, a multiple of 128" if v_pages is not None else "twice as many without v_pages, 128 or more"
        findings.append(f"pages have dim {k_pages.shape[-1]} and q {dim}, wanted {wanted}")
    for name, value in (("softcap", softcap), ("window", window)):
        if value is not None and not value > 0:
            findings.append(f"{name} is {value}, wanted a positive number")
    if sinks is not None and (sinks.shape != q.shape[1:2] or sinks.dtype != jnp.float32):
        findings.append(f"sinks are {_named(sinks)}, wanted float32[{q.shape[1]}]")
    _refuse("paged_attention", findings)
    kernel: Callable[..., Any] = paged_decode if q.ndim == 3 else paged_prefill
    settings: dict[str, Any] = {
        "scale": (dim**-0.5 if scale is None else scale) * k_scale,
        "softcap": softcap,
        "window": window,
        "v_scale": v_scale,
        "values": None if v_pages is not None else slice(dim, 2 * dim),
    }
    blocks = blocks or (_blocks(k_pages, v_pages) if q.ndim == 3 else _prefill_blocks(window))

    def on_tpu(q: Any, k: Any, v: Any, lengths: Any, table: Any, sinks: Any) -> Any:
        # The kernels have scores in the base of exp2.
        sinks = None if sinks is None else sinks * _LOG2E
        return kernel(q, k, v, lengths, table, sinks=sinks, blocks=blocks, **settings)

    def plain(q: Any, k: Any, v: Any, lengths: Any, table: Any, sinks: Any) -> Any:
        return _plain(q, k, v, lengths, table, sinks=sinks, **settings)

    operands = (q, k_pages, v_pages, lengths, page_indices, sinks)
    return by_platform(on_tpu, _elsewhere(plain, without_tpu), *operands)


def _blocks(k_pages: Any, v_pages: Any) -> PagedBlocks:
    """For decoding from a cache."""
    usual = PagedBlocks()
    a_key = len(k_pages) * k_pages.shape[-1] * k_pages.dtype.itemsize * (1 if v_pages is None else 2)
    return dataclasses.replace(usual, keys=2 * usual.keys) if usual.keys * a_key < _SMALL else usual


def _prefill_blocks(window: int | None) -> PrefillBlocks:
    """For chunks: of a narrow window, large blocks would hold mostly pairs that do not attend."""
    return PrefillBlocks() if window is None or window > _NARROW else PrefillBlocks(rows=1024, keys=512)


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
    odd = q.shape[-1] % _LANES or value_dim % _LANES
    if not findings and (pages.shape[-1] != q.shape[-1] or odd or not 0 < value_dim <= q.shape[-1]):
        findings.append(f"pages have dim {pages.shape[-1]}, q {q.shape[-1]}, values {value_dim}, wanted one "
                        f"dim and part of it, multiples of {_LANES}")  # fmt: skip
    _refuse("latent_attention", findings)

    def kernel(q: Any, pages: Any, lengths: Any, table: Any) -> jax.Array:
        out: jax.Array = paged_decode(
            q, pages[None], None, lengths, table, scale=scale, values=slice(0, value_dim), blocks=blocks or _LATENT
        )
        return out

    def plain(q: Any, pages: Any, lengths: Any, table: Any) -> jax.Array:
        return _plain(q, pages[None], None, lengths, table, scale=scale, values=slice(0, value_dim))

    return by_platform(kernel, _elsewhere(plain, without_tpu), q, pages, lengths, page_indices)


def _elsewhere(plain: Callable[..., Any], without_tpu: WithoutTpu) -> Callable[..., Any] | None:
    if without_tpu == "error":
        return None
    if jax.default_backend() != "tpu":
        warnings.warn(f"no TPU here ({jax.default_backend()}): decoding runs in plain XLA", stacklevel=3)
    return plain


def _plain(  # noqa: PLR0913 - the kernel's operands
    q: jax.Array, k: jax.Array, v: jax.Array | None, lengths: jax.Array, table: jax.Array,
    *, scale: float, softcap: float | None = None, window: int | None = None, v_scale: float = 1.0,
    values: slice | None = None, sinks: jax.Array | None = None,
) -> jax.Array:  # fmt: skip
    """The same in plain XLA: sequences gathered from their pages."""
    keys, found = (
        jnp.moveaxis(pool[:, table], 0, 1).reshape(len(q), pool.shape[0], -1, pool.shape[-1]).astype(q.dtype)
        for pool in (k[..., : q.shape[-1]], k[..., values] if v is None else v)
    )
    queries = q if q.ndim == 4 else q[:, :, None]
    place, length = jnp.arange(keys.shape[2]), lengths[:, None, None, None]
    own = length - queries.shape[2] + jnp.arange(queries.shape[2])[:, None]
    attended = (place <= own) & (place > (-1 if window is None else own - window))
    found = jnp.where(place[:, None] < length, found, jnp.zeros_like(found))  # what lies behind may be anything
    out, _ = dense.forward(queries, keys, found, sinks, attended, scale=scale, softcap=softcap)
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
    if table.size > TABLE_ENTRIES:
        found.append(f"{table.size} indices, at most {TABLE_ENTRIES} fit in scalar memory")
    return found
