"""``dot_product_attention``: the operator with the arguments and the layout of ``jax.nn.dot_product_attention``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_flash.config import Config
from pallas_flash.operator import attention


def dot_product_attention(  # noqa: PLR0913 - the arguments of JAX's
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: None = None,
    mask: np.ndarray | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: jax.Array | None = None,
    key_value_seq_lengths: jax.Array | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: None = None,
    return_residual: bool = False,
    config: Config | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """softmax(scale query key^T) value, as ``jax.nn.dot_product_attention`` has it; differentiable.

    A query that attends no key gives zeros, where JAX's gives the mean of the values, and -inf as its residual. XLA
    transposes the operands: :func:`pallas_flash.attention` takes them as the kernels do.

    Args:
        query: [batch, length, heads, dim] or [length, heads, dim], as :func:`pallas_flash.attention` wants them.
        key, value: [batch, keys, key heads, dim] or [keys, key heads, dim]; key heads divide the heads.
        bias: None alone.
        mask: bool[1, 1, length, keys], or of three dimensions as the operands, broadcast to that; True where a pair
            attends. An array with values, not a traced one, for its tiles are listed while tracing.
        scale: of the scores; 1 / sqrt(dim) by default.
        is_causal: a query attends the keys up to its own position.
        query_seq_lengths, key_value_seq_lengths: int[batch]; what is behind them attends nothing, and gives zeros.
        local_window_size: keys from ``position - left`` to ``position + right``; one number is both.
        implementation: None alone.
        return_residual: also return the logsumexp of each query's scores, [batch, length, heads] of key's dtype,
            without gradient.
        config: as of :func:`pallas_flash.attention`.

    Returns:
        [batch, length, heads, dim of value] of query's dtype, without batch where there was none, and the residual.

    Raises:
        ValueError: for a bias, an implementation, a mask that differs from head to head or in the batch, operands and
            lengths of other shapes; TypeError for a traced mask.
    """
    findings = [
        f"{name} is given, wanted None: {why}"
        for name, given, why in (
            ("bias", bias, "no kernel here adds one; a mask goes to `mask`"),
            ("implementation", implementation, "this is one"),
        )
        if given is not None
    ]
    if not query.ndim == key.ndim == value.ndim or query.ndim not in {3, 4}:
        given = f"{query.ndim}, {key.ndim}, {value.ndim} dimensions"
        raise ValueError(f"dot_product_attention: query, key, value have {given}, wanted 4 each or 3")
    batch, (q_len, kv_len) = query.shape[0] if query.ndim == 4 else 1, (x.shape[-3] for x in (query, key))
    lengths = {"query_seq_lengths": query_seq_lengths, "key_value_seq_lengths": key_value_seq_lengths}
    findings += [
        f"{name} is {list(jnp.shape(given))}, wanted [{batch}]"
        for name, given in lengths.items()
        if given is not None and jnp.shape(given) != (batch,)
    ]
    if mask is not None and (mask.ndim != query.ndim or any(size > 1 for size in mask.shape[:-2])):
        findings.append(
            f"mask is {list(mask.shape)}, wanted {[1] * (query.ndim - 2)} and queries and keys: one for all heads"
        )
    if findings:
        raise ValueError(f"dot_product_attention: {'; '.join(findings)}")
    found: Any = attention(
        *(jnp.swapaxes(x if x.ndim == 4 else x[None], 1, 2) for x in (query, key, value)),
        causal=is_causal,
        window=local_window_size,
        segment_ids=_ids(query_seq_lengths, key_value_seq_lengths, batch, q_len, kv_len),
        mask=mask if mask is None or isinstance(mask, jax.core.Tracer) else _whole(mask, q_len, kv_len),
        scale=scale,
        return_residuals=return_residual,
        config=config,
    )
    out, lse = found if return_residual else (found, None)
    out = jnp.swapaxes(out, 1, 2)
    out = out if query.ndim == 4 else out[0]
    if lse is None:
        return out
    lse = jax.lax.stop_gradient(jnp.swapaxes(lse, 1, 2).astype(key.dtype))
    return out, lse if query.ndim == 4 else lse[0]


def _whole(mask: Any, q_len: int, kv_len: int) -> np.ndarray:
    """bool[queries, keys]; what cannot be broadcast to that stays, for the operator to name."""
    array = np.asarray(mask).reshape(mask.shape[-2:])
    fits = all(size in {1, wanted} for size, wanted in zip(array.shape, (q_len, kv_len), strict=True))
    return np.broadcast_to(array, (q_len, kv_len)) if fits else array


def _ids(queries: Any, keys: Any, batch: int, q_len: int, kv_len: int) -> tuple[jax.Array, jax.Array] | None:
    """Segments in which what is behind a length is equal to nothing on the other side."""
    if queries is None and keys is None:
        return None

    def behind(lengths: Any, length: int, other: int) -> jax.Array:
        if lengths is None:
            return jnp.zeros((batch, length), jnp.int32)
        return jnp.where(jnp.arange(length) < jnp.asarray(lengths)[:, None], 0, other)

    return behind(queries, q_len, 1), behind(keys, kv_len, 2)
