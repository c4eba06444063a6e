"""Non-causal flash attention of a published series on one head, written from its row: block sizes and scratch."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, bq: int, bkv: int, flat: bool) -> jax.Array:
    """Online softmax over key blocks; row statistics in (bq, 1) or, ``flat``, in (bq,) scratch."""
    length, width = q.shape
    scale = width**-0.5
    row = (bq,) if flat else (bq, 1)

    def body(*refs: Any) -> None:
        q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref = refs
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _() -> None:
            m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        s = scale * jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        old = m_ref[...]
        top = jnp.maximum(old, jnp.max(s, axis=1, keepdims=not flat))
        column = top[:, None] if flat else top
        p = jnp.exp(s - column)
        rescale = jnp.exp(old - top)
        l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=not flat)
        m_ref[...] = top
        acc_ref[...] = (rescale[:, None] if flat else rescale) * acc_ref[...] + jnp.dot(
            p.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32
        )

        @pl.when(step == pl.num_programs(1) - 1)
        def _() -> None:
            total = l_ref[...][:, None] if flat else l_ref[...]
            o_ref[...] = (acc_ref[...] / total).astype(o_ref.dtype)

    queries = pl.BlockSpec((bq, width), lambda i, j: (i, 0))
    keys = pl.BlockSpec((bkv, width), lambda i, j: (j, 0))
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(length, bq), pl.cdiv(length, bkv)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        scratch_shapes=[
            pltpu.VMEM(row, jnp.float32),
            pltpu.VMEM(row, jnp.float32),
            pltpu.VMEM((bq, width), jnp.float32),
        ],
    )(q, k, v)


def build(case: Case) -> Built:
    """The kernel of a row. Raises NotBuilt."""
    words = " ".join(key for key, value in case.config.items() if not value)
    try:
        bq, bkv = int(case.config["BQ"]), int(case.config["BKV"])
    except KeyError as error:
        raise NotBuilt(f"flash attention without {error}") from None
    operand = aval(case.arrays[0])
    return Built(
        function=functools.partial(attention, bq=bq, bkv=bkv, flat="1D m,l" in words or "compact" in words),
        avals=(operand, operand, operand),
    )
