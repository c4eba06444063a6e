"""Attention in plain XLA, with all scores in memory: what is run without a TPU if the caller asks for it."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def _heads(x: jax.Array, heads: int) -> jax.Array:
    return jnp.repeat(x, heads // x.shape[1], axis=1)


def _scores(q: jax.Array, k: jax.Array, allowed: jax.Array, scale: float, softcap: float | None) -> jax.Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, _heads(k, q.shape[1]), preferred_element_type=jnp.float32) * scale
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    return jnp.where(allowed, scores, -jnp.inf)


def forward(
    q: jax.Array, k: jax.Array, v: jax.Array, sinks: jax.Array | None, allowed: jax.Array,
    *, scale: float, softcap: float | None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Output [batch, heads, queries, dim] and logsumexp float32[batch, heads, queries].

    Args:
        q: [batch, heads, queries, dim].
        k, v: [batch, key heads, keys, dim], of v another if need be.
        sinks: float32[heads], or None.
        allowed: bool, broadcast against [batch, heads, queries, keys].
        scale, softcap: as of the operator.
    """
    scores = _scores(q, k, allowed, scale, softcap)
    lse = jax.nn.logsumexp(scores, axis=-1)
    if sinks is not None:
        lse = jnp.logaddexp(lse, sinks[:, None])
    p = jnp.exp(scores - jnp.where(jnp.isneginf(lse), 0.0, lse)[..., None]).astype(v.dtype)
    out = jnp.einsum("bhqk,bhkd->bhqd", p, _heads(v, q.shape[1]), preferred_element_type=jnp.float32)
    return out.astype(q.dtype), lse


def backward(  # noqa: PLR0913, PLR0917 - the operands of the gradient, in the order in which the kernel takes them
    q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array, lse: jax.Array, di: jax.Array, allowed: jax.Array,
    *, scale: float, softcap: float | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Gradients of q, k and v; ``di`` is the row sum of output times ``do``, less the gradient of the logsumexp."""
    scores = _scores(q, k, allowed, scale, softcap)
    p = jnp.exp(scores - jnp.where(jnp.isneginf(lse), 0.0, lse)[..., None])
    dp = jnp.einsum("bhqd,bhkd->bhqk", do, _heads(v, q.shape[1]), preferred_element_type=jnp.float32)
    ds = p * (dp - di[..., None])
    if softcap is not None:
        ds = ds * (1 - jnp.where(jnp.isneginf(scores), 0.0, scores / softcap) ** 2)
    ds = ds * scale
    grouped = (*k.shape[:2], q.shape[1] // k.shape[1])

    def over(x: jax.Array, y: jax.Array) -> jax.Array:
        full = jnp.einsum("bhqk,bhqd->bhkd", x.astype(q.dtype), y, preferred_element_type=jnp.float32)
        return full.reshape(*grouped, *full.shape[2:]).sum(axis=2)

    dq = jnp.einsum("bhqk,bhkd->bhqd", ds.astype(q.dtype), _heads(k, q.shape[1]), preferred_element_type=jnp.float32)
    return dq.astype(q.dtype), over(ds, q).astype(k.dtype), over(p, do).astype(v.dtype)
