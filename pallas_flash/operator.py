"""``attention``: the public operator, differentiable, over kernels that know no platform but the TPU."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_flash import config as cut
from pallas_flash import dense, tuned
from pallas_flash.kernels.flash_backward import LOG2E, NO_KEYS, BackwardBlocks, flash_backward
from pallas_flash.kernels.flash_backward import Pattern as BackwardPattern
from pallas_flash.kernels.flash_forward import ForwardBlocks, Pattern, flash_forward
from pallas_flash.tables import Lazy, Mask, allowed, suited_tile, tiles_of, with_documents
from pallas_flash.target import by_platform, target

HEAD_DIMS = (64, 96, 128, 192, 256)
DTYPES = ("bfloat16", "float32")
Ids = tuple[jax.Array, jax.Array] | None
Sinks = jax.Array | None
"""float32[heads]."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is known while tracing."""

    pattern: Pattern
    forward: ForwardBlocks
    backward: BackwardBlocks
    parts: int
    """Of each key head's heads, in one backward pass; 0 for two passes."""
    scale: float
    softcap: float | None
    mask: Mask | None
    tile: int | None
    """Queries and keys per tile of the table, or None without one."""
    lse: bool
    without_tpu: str


def attention(  # noqa: PLR0913 - a public operator: every option is a keyword with a default
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    segment_ids: jax.Array | tuple[jax.Array, jax.Array] | None = None,
    softcap: float | None = None,
    mask: np.ndarray | Lazy | None = None,
    sinks: jax.Array | None = None,
    scale: float | None = None,
    return_residuals: bool = False,
    config: cut.Config | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """softmax(scale q k^T) v over the pairs that attend; a query that attends none gives zeros.

    Works under ``jax.jit``, ``jax.grad`` (of the logsumexp, too), ``jax.vmap`` and, over batch and heads,
    ``jax.shard_map``. No array of queries x keys is ever in HBM.

    Args:
        q: [batch, heads, queries, dim], bfloat16 or float32; dim is 64, 96, 128, 192 or 256. Any lengths.
        k, v: [batch, key heads, keys, dim]; key heads divide the heads, and each serves as many consecutive heads. The
            dim of v, and of the output, may be another of these.
        causal: a query attends the keys up to its own position; both are counted from 0.
        window: keys from ``query - left`` to ``query + right``; one number is both, None no bound.
        segment_ids: int[batch, length], or one for queries and one for keys: pairs attend whose ids are equal.
        softcap: scores become ``softcap * tanh(score / softcap)`` before the softmax.
        mask: bool[queries, keys] as a numpy array, or a rule: (query positions [n, 1], key positions [1, m]) ->
            bool [n, m], called with numpy arrays while tracing. True where a pair attends. Same for all heads.
        sinks: float[heads]: a score of each head, as it is, that the softmax sees beside those of the keys and that has
            no value (the attention sinks of GPT-OSS). Differentiable.
        scale: of the scores; 1 / sqrt(dim) by default.
        return_residuals: also return the logsumexp of each query's scores, float32[batch, heads, queries], natural,
            a sink included, -inf where there is none and a query attends no key. Scores come from scaled queries in
            q's dtype: in bfloat16 the logsumexp of very large scores is off by up to 2^-9 of their size.
        config: blocks, and what to do without a TPU.

    Returns:
        [batch, heads, queries, dim of v] of q's dtype, and with ``return_residuals`` the logsumexp.

    Raises:
        TypeError, ValueError: for operands that are not as above; all findings at once.
    """
    findings = _findings(q, k, v, segment_ids, softcap, sinks)
    if findings:
        raise ValueError(f"attention: {'; '.join(findings)}")
    config = config or cut.Config()
    batch, heads, q_len, dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    left, right = window if isinstance(window, tuple) else (window, window)
    right = min(right, 0) if causal and right is not None else 0 if causal else right
    pattern = Pattern(left=left, right=right, q_len=q_len, kv_len=kv_len)
    shape = cut.Shape(
        batch=batch, heads=heads, kv_heads=kv_heads, q_len=q_len, kv_len=kv_len, dim=dim, dim_v=v.shape[3],
        itemsize=q.dtype.itemsize, left=left, right=right, target=target(),
        tables=mask is not None or segment_ids is not None,
    )  # fmt: skip
    listed = None if mask is None else Mask.of(mask, q_len, kv_len)
    wanted = config.table_tile or (suited_tile(pattern, listed, cut.TABLE_TILES) if listed else cut.TABLE_TILE)
    tile = cut.table_tile(wanted, shape) if shape.tables else None
    backward, parts = cut.fit_backward(config.backward or tuned.lookup(shape).backward, shape, tile)
    plan = Plan(
        pattern=pattern,
        forward=cut.fit_forward(config.forward or tuned.lookup(shape).forward, shape, tile),
        backward=backward,
        parts=parts,
        scale=float(scale if scale is not None else dim**-0.5),
        softcap=None if softcap is None else float(softcap),
        mask=listed,
        tile=tile,
        lse=return_residuals,
        without_tpu=config.without_tpu,
    )
    if config.without_tpu == "fallback" and jax.default_backend() != "tpu":
        warnings.warn(
            f"no TPU here ({jax.default_backend()}): pallas_flash.attention runs in plain XLA, with all "
            f"{q_len} x {kv_len} scores of {batch * heads} heads in memory",
            stacklevel=2,
        )
    ids = None
    if segment_ids is not None:
        pair = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
        ids = (pair[0].astype(jnp.int32), pair[1].astype(jnp.int32))
    return _attend(plan, q, k, v, None if sinks is None else sinks.astype(jnp.float32), ids)


def _findings(q: Any, k: Any, v: Any, segment_ids: Any, softcap: float | None, sinks: Any) -> list[str]:
    findings = []
    if not (q.ndim == k.ndim == v.ndim == 4):
        return [f"q, k, v have {q.ndim}, {k.ndim}, {v.ndim} dimensions, wanted [batch, heads, length, dim] each"]
    if k.shape[:3] != v.shape[:3]:
        findings.append(f"k is {list(k.shape)} and v is {list(v.shape)}, wanted the same batch, heads and length")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        findings.append(f"q is {list(q.shape)} and k is {list(k.shape)}, wanted the same batch and dim")
    if q.shape[1] % k.shape[1]:
        findings.append(f"{q.shape[1]} heads on {k.shape[1]} key heads, wanted a multiple")
    findings += [
        f"dim is {dim}, wanted one of {', '.join(map(str, HEAD_DIMS))}"
        for dim in dict.fromkeys((q.shape[3], v.shape[3]))
        if dim not in HEAD_DIMS
    ]
    if not (q.dtype == k.dtype == v.dtype and q.dtype.name in DTYPES):
        findings.append(f"dtypes are {q.dtype}, {k.dtype}, {v.dtype}, wanted one of {', '.join(DTYPES)} for all")
    if softcap is not None and not softcap > 0:
        findings.append(f"softcap is {softcap}, wanted a positive number")
    if sinks is not None and sinks.shape != q.shape[1:2]:
        findings.append(f"sinks are {list(sinks.shape)}, wanted [{q.shape[1]}], one of each head")
    return findings + _findings_of_ids(q, k, segment_ids)


def _findings_of_ids(q: Any, k: Any, segment_ids: Any) -> list[str]:
    if segment_ids is None:
        return []
    pair = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
    return [
        f"segment_ids of the {name} are {list(ids.shape)}, wanted [batch, {name}]"
        for ids, operand, name in zip(pair, (q, k), ("queries", "keys"), strict=True)
        if ids.shape != (operand.shape[0], operand.shape[2])
    ]


def _padded(x: jax.Array, axis: int, multiple: int, value: float = 0) -> jax.Array:
    extra = -x.shape[axis] % multiple
    if not extra:
        return x
    return jnp.pad(x, [(0, extra if n == axis else 0) for n in range(x.ndim)], constant_values=value)


def _ids(ids: Ids, q_multiple: int, kv_multiple: int) -> Ids:
    """Padded with ids that equal none of the other side's."""
    return None if ids is None else (_padded(ids[0], 1, q_multiple, -1), _padded(ids[1], 1, kv_multiple, -2))


def _tables(
    plan: Plan, ids: Ids, q_multiple: int, kv_multiple: int, *, transposed: bool
) -> tuple[Any, Any, Any] | None:
    """The kernels' tables for lengths of whole blocks and chunks."""
    if plan.tile is None:
        return None
    tiles = tiles_of(plan.pattern, plan.mask, plan.tile)
    grid = -(-plan.pattern.q_len // plan.tile), -(-plan.pattern.kv_len // plan.tile)
    q_len, kv_len = cut.round_up(plan.pattern.q_len, q_multiple), cut.round_up(plan.pattern.kv_len, kv_multiple)
    extra = ((0, q_len // plan.tile - grid[0]), (0, kv_len // plan.tile - grid[1]))
    states, tile_of = (np.pad(x.reshape(grid), extra).ravel() for x in (tiles.states, tiles.tile_of))
    if ids is not None:
        padded = type(tiles)(states=states, tile_of=tile_of, mask=tiles.mask)
        all_states = with_documents(padded, *ids, plan.tile)
    else:
        all_states = jnp.asarray(states[None])
    mask = tiles.mask if tiles.mask is None or not transposed else np.ascontiguousarray(tiles.mask.transpose(0, 2, 1))
    return all_states, jnp.asarray(tile_of), None if mask is None else jnp.asarray(mask)


def _dense_allowed(plan: Plan, ids: Ids) -> jax.Array:
    q, k = np.arange(plan.pattern.q_len)[:, None], np.arange(plan.pattern.kv_len)[None, :]
    attends = jnp.asarray(allowed(plan.pattern, plan.mask, q, k))[None, None]
    return attends if ids is None else attends & (ids[0][:, None, :, None] == ids[1][:, None, None, :])


def _by_platform(plan: Plan, kernel: Callable[..., Any], plain: Callable[..., Any], *operands: Any) -> Any:
    """The kernel on a TPU, and elsewhere what the caller asked for."""
    asked = {"error": None, "interpret": functools.partial(kernel, interpret=True), "fallback": plain}
    return by_platform(functools.partial(kernel, interpret=False), asked[plan.without_tpu], *operands)


def _forward(  # noqa: PLR0917 - the operands in the order in which they are saved
    plan: Plan, q: jax.Array, k: jax.Array, v: jax.Array, sinks: Sinks, ids: Ids, lse: bool
) -> tuple[jax.Array, Any]:
    blocks = plan.forward

    def kernel(
        q: jax.Array, k: jax.Array, v: jax.Array, sinks: Sinks, ids: Ids, interpret: bool
    ) -> tuple[jax.Array, ...]:
        ids = _ids(ids, blocks.block_q, blocks.chunk_kv)
        tables = _tables(plan, ids, blocks.block_q, blocks.chunk_kv, transposed=False)
        result = flash_forward(
            q, k, v, pattern=plan.pattern, blocks=blocks, scale=plan.scale, softcap=plan.softcap, ids=ids,
            tables=tables, sinks=None if sinks is None else sinks * LOG2E, lse=lse, interpret=interpret,
        )  # fmt: skip
        return (result[0], result[1][:, :, 0]) if lse else (result,)

    def plain(q: jax.Array, k: jax.Array, v: jax.Array, sinks: Sinks, ids: Ids) -> tuple[jax.Array, ...]:
        result = dense.forward(q, k, v, sinks, _dense_allowed(plan, ids), scale=plan.scale, softcap=plan.softcap)
        return result if lse else result[:1]

    out = _by_platform(plan, kernel, plain, q, k, v, sinks, ids)
    return out[0], out[1] if lse else None


def _sum_of_parts(x: jax.Array, parts: int) -> jax.Array:
    """[batch, key heads * parts, keys, dim] -> [batch, key heads, keys, dim]."""
    return x.reshape(x.shape[0], -1, parts, *x.shape[2:]).sum(axis=2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(plan: Plan, q: jax.Array, k: jax.Array, v: jax.Array, sinks: Sinks, ids: Ids) -> Any:
    out, lse = _forward(plan, q, k, v, sinks, ids, plan.lse)
    return (out, lse) if plan.lse else out


def _attend_forward(plan: Plan, q: jax.Array, k: jax.Array, v: jax.Array, sinks: Sinks, ids: Ids) -> tuple[Any, Any]:
    out, lse = _forward(plan, q, k, v, sinks, ids, True)
    return ((out, lse) if plan.lse else out), (q, k, v, sinks, ids, out, lse)


def _attend_backward(plan: Plan, saved: Any, cotangent: Any) -> tuple[Any, ...]:
    q, k, v, sinks, ids, out, lse = saved
    do, dlse = cotangent if plan.lse else (cotangent, None)
    di = jnp.sum(out.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
    if dlse is not None:
        di = di - jnp.where(jnp.isneginf(lse), 0.0, dlse)
    pattern = BackwardPattern(
        left=plan.pattern.left, right=plan.pattern.right, q_len=plan.pattern.q_len, kv_len=plan.pattern.kv_len
    )

    def kernel(*operands: Any, interpret: bool) -> tuple[jax.Array, ...]:
        q, k, v, do, lse, di, ids = operands
        blocks = plan.backward
        base2 = jnp.where(jnp.isneginf(lse), NO_KEYS, lse * LOG2E)
        ids = _ids(ids, blocks.chunk_q, blocks.chunk_kv)
        di, base2 = _padded(di, 2, blocks.chunk_q), _padded(base2, 2, blocks.chunk_q, NO_KEYS)
        tables = _tables(plan, ids, blocks.chunk_q, blocks.chunk_kv, transposed=True)
        several = plan.parts > 1
        if several:
            k, v = (jnp.repeat(x, plan.parts, axis=1) for x in (k, v))
        results: tuple[jax.Array, ...] = ()
        for gradients in ("all",) if plan.parts else ("q", "kv"):
            results += flash_backward(
                q, k, v, do, base2, di, pattern=pattern, blocks=blocks, scale=plan.scale, softcap=plan.softcap,
                ids=ids, tables=tables, gradients=gradients, kv_dtype=jnp.float32 if several else None,
                interpret=interpret,
            )  # fmt: skip
        dq, dk, dv = results
        if several:
            dk, dv = (_sum_of_parts(x, plan.parts).astype(k.dtype) for x in (dk, dv))
        return dq, dk, dv

    def plain(*operands: Any) -> tuple[jax.Array, ...]:
        *arrays, ids = operands
        return dense.backward(*arrays, _dense_allowed(plan, ids), scale=plan.scale, softcap=plan.softcap)

    # A sink takes weight from the keys of all its head's queries.
    dsinks = None if sinks is None else -jnp.sum(jnp.exp(sinks[:, None] - lse) * di, axis=(0, 2))
    return *_by_platform(plan, kernel, plain, q, k, v, do, lse, di, ids), dsinks, None


_attend.defvjp(_attend_forward, _attend_backward)
