"""The room's first use: causal flash attention, scratch accumulators, a 2-D grid and blocks that are skipped."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.tpu.mosaic.twin import close, loaded

BQ, BKV, D = 128, 256, 128


def _body(q, k, v, o, m, norm, acc):
    i, j = pl.program_id(0), pl.program_id(1)

    @pl.when(j == 0)
    def _():
        m[...] = jnp.full_like(m, -jnp.inf)
        norm[...] = jnp.zeros_like(norm)
        acc[...] = jnp.zeros_like(acc)

    @pl.when(j * BKV < (i + 1) * BQ)
    def _():
        s = jax.lax.dot_general(q[...], k[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        rows = i * BQ + jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)
        columns = j * BKV + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
        s = jnp.where(columns <= rows, s * D**-0.5, -1e30)
        new = jnp.maximum(m[...], s.max(-1, keepdims=True))
        p, a = jnp.exp(s - new), jnp.exp(m[...] - new)
        norm[...] = norm[...] * a + p.sum(-1, keepdims=True)
        acc[...] = acc[...] * a + jnp.dot(p.astype(v.dtype), v[...], preferred_element_type=jnp.float32)
        m[...] = new

    @pl.when(j == pl.num_programs(1) - 1)
    def _():
        o[...] = (acc[...] / norm[...]).astype(o.dtype)


def flash(length: int, interpret: bool = False):
    return pl.pallas_call(
        _body,
        grid=(length // BQ, length // BKV),
        in_specs=[
            pl.BlockSpec((BQ, D), lambda i, j: (i, 0)),
            pl.BlockSpec((BKV, D), lambda i, j: (j, 0)),
            pl.BlockSpec((BKV, D), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((BQ, D), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((length, D), jnp.bfloat16),
        scratch_shapes=[pltpu.VMEM((BQ, 1), jnp.float32)] * 2 + [pltpu.VMEM((BQ, D), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )


@functools.cache
def _inputs(length: int) -> tuple[np.ndarray, ...]:
    keys = jax.random.split(jax.random.key(0), 3)
    return tuple(np.asarray(jax.random.normal(key, (length, D), jnp.bfloat16)) for key in keys)


def test_values_are_those_of_interpret_mode_and_nothing_is_found() -> None:
    program = loaded(lambda *a: flash(1024)(*a) * 2, *_inputs(1024))
    result = program.check(_inputs(1024))
    close(result.outputs, flash(1024, interpret=True)(*_inputs(1024)) * 2, 1e-2)
    assert result.findings == ()
    assert program.module_version > 0
    assert "tpu.matmul" in program.covered


@pytest.mark.slow
def test_eight_thousand_steps_take_seconds() -> None:
    result = loaded(flash(16384), *_inputs(16384)).run(_inputs(16384))
    assert np.isfinite(result.outputs[0].astype(np.float32)).all()
    assert result.seconds < 40
