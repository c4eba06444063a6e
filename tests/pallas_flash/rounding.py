"""How far roundings can move each element of attention and its gradients: by some units of the terms it is a sum of.

An element whose terms cancel is small, and what is left of it is a rounding of its terms: dq of a query with one key is
0, as the difference of two equal sums. So an element is judged against its terms. They are computed in float64 from
the operands alone: no allowance is a draw of the arithmetic of some host.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tests.pallas_flash.cases import Case


def allowance(case: Case, ulps: float) -> list[np.ndarray]:
    """What output, logsumexp and the gradients of q, k, v and sinks may be off: float64, each of its output's shape.

    That is ``ulps`` times the eps of the operands' dtype, times the terms of each element to first order.
    """
    unit = ulps * float(jnp.finfo(case.operands[0].dtype).eps)
    return [unit * size for size in _terms(case)]


def _terms(case: Case) -> list[np.ndarray]:
    """The sizes. Names ending in ``_size`` are what one eps in every step of computing a value may change."""
    q, k, v, do = (np.asarray(x, np.float64) for x in case.operands)
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    # In float32 every partial sum is rounded, in an order that is the host's: the sum of magnitudes bounds them all.
    # In bfloat16 sums are float32, and the roundings of their terms are what counts. Those are independent.
    power = 1 if case.operands[0].dtype == jnp.float32 else 2

    def size(spec: str, *factors: np.ndarray) -> np.ndarray:
        return np.einsum(spec, *(np.abs(x) ** power for x in factors), optimize=True) ** (1 / power)

    def of_key_heads(weights: np.ndarray, other: np.ndarray) -> np.ndarray:
        whole = size("bhqk,bhqd->bhkd", weights, other) ** power
        return whole.reshape(whole.shape[0], -1, group, *whole.shape[2:]).sum(axis=2) ** (1 / power)

    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * case.scale
    slope, bend = np.ones_like(scores), np.zeros_like(scores)
    if softcap := case.row["softcap"]:
        capped = np.tanh(scores / softcap)
        scores, slope, bend = softcap * capped, 1 - capped**2, 2 * np.abs(capped) / softcap
    score_size = slope * size("bhqd,bhkd->bhqk", q * case.scale, k) + np.abs(scores)

    some = case.allowed.any(axis=-1, keepdims=True)
    total = np.where(case.allowed | ~some, np.exp(scores), 0).sum(axis=-1, keepdims=True)
    sink = np.zeros(0) if case.sinks is None else np.asarray(case.sinks, np.float64)[:, None, None]
    if sink.size:
        some, total = np.ones_like(some), total * some + np.exp(sink)
    lse = np.where(some, np.log(total), 0)
    p = np.where(case.allowed, np.exp(scores - lse), 0)
    row_size = size("bhqk,bhqk->bhq", p, score_size)[..., None]
    lse_size = np.abs(lse) + row_size + 1
    p_size = p * (1 + score_size + row_size)
    out = np.einsum("bhqk,bhkd->bhqd", p, v)
    out_size = size("bhqk,bhkd->bhqd", p_size, v) + np.abs(out)

    # ds = p (dp - di): where the two are equal, what they were rounded by is left.
    gap = np.abs(np.einsum("bhqd,bhkd->bhqk", do, v) - np.sum(do * out, axis=-1, keepdims=True))
    di_size = size("bhqd,bhqd->bhq", out_size, do)
    gap_size = size("bhqd,bhkd->bhqk", do, v) + di_size[..., None]
    ds_size = case.scale * (slope * (p_size * gap + p * gap_size) + bend * score_size * p * gap)
    dq_size = size("bhqk,bhkd->bhqd", ds_size, k)
    found = [out_size, lse_size[..., 0], dq_size, of_key_heads(ds_size, q), of_key_heads(p_size, do)]
    if sink.size:
        at_sink, di = np.exp(sink - lse)[..., 0], np.sum(do * out, axis=-1)
        found.append(size("bhq,bhq->h", at_sink * lse_size[..., 0], di) + size("bhq,bhq->h", at_sink, di_size))
    return found
