"""Values are those of Pallas's interpret mode: of flash attention, of random small kernels, and of kernels written
elsewhere. ``python -m benchmarks.fuzz`` tries many more random ones, ``python -m benchmarks.verify`` shows the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.fuzz.kernels import ROWS, TOLERANCE, WAYS, Recipe, arguments, build, names_for
from tests.imports import HERE
from tests.tpu.mosaic.kernels import close, kernel_call, loaded, vmem

# --- causal flash attention: scratch accumulators, a grid of two dimensions, blocks that are skipped ---

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
    queries, keys = pl.BlockSpec((BQ, D), lambda i, j: (i, 0)), pl.BlockSpec((BKV, D), lambda i, j: (j, 0))
    return kernel_call(
        _body,
        jax.ShapeDtypeStruct((length, D), jnp.bfloat16),
        grid=(length // BQ, length // BKV),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        scratch_shapes=[vmem(BQ, 1), vmem(BQ, 1), vmem(BQ, D)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )


def _inputs(length: int) -> tuple[np.ndarray, ...]:
    keys = jax.random.split(jax.random.key(0), 3)
    return tuple(np.asarray(jax.random.normal(key, (length, D), jnp.bfloat16)) for key in keys)


def test_values_of_flash_attention_and_nothing_is_found() -> None:
    inputs = _inputs(1024)
    program = loaded(lambda *a: flash(1024)(*a) * 2, *inputs)
    result = program.check(inputs)
    close(result.outputs, flash(1024, interpret=True)(*inputs) * 2, 1e-2)
    assert result.findings == ()
    assert program.program.module_version > 0
    assert "tpu.matmul" in program.program.covered


@pytest.mark.slow
def test_eight_thousand_steps_take_seconds() -> None:
    inputs = _inputs(16384)
    result = loaded(flash(16384), *inputs).run(inputs)
    assert np.isfinite(result.outputs[0].astype(np.float32)).all()
    assert result.seconds < 40


# --- random kernels -------------------------------------------------------------------------------


@st.composite
def recipes(draw: Any) -> Recipe:
    dtype, way = draw(st.sampled_from([*TOLERANCE])), draw(st.sampled_from(WAYS))
    blocks = draw(st.integers(1, 3))
    ragged = draw(st.sampled_from([0, 0, 1, 5])) if way == "pipeline" else 0
    return Recipe(
        dtype=dtype,
        rows=blocks * ROWS - ragged,
        blocks=blocks,
        steps=tuple(draw(st.lists(st.sampled_from(names_for(dtype)), min_size=1, max_size=4))),
        predicated=draw(st.booleans()),
        way=way,
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_random_kernels_agree_with_interpret_mode(examples: int, capsys: pytest.CaptureFixture[str]) -> None:
    done = 0

    @given(recipes(), st.integers(0, 2**16))
    @settings(max_examples=examples)
    def compare(recipe: Recipe, seed: int) -> None:
        nonlocal done
        operands = arguments(recipe, np.random.default_rng(seed))
        result = loaded(build(recipe), *operands).run(operands)
        close(result.outputs, build(recipe, interpret=True)(*operands), TOLERANCE[recipe.dtype])
        assert result.findings == ()
        done += 1

    compare()
    with capsys.disabled():
        print(f"\n{done} random kernels equal to interpret mode")


# --- kernels written elsewhere --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("names", [
    ("fp8", "int4", "uint4", "element_windows", "squeezed"),
    ("all_gather", "flash", "splash", "splash_backward", "paged", "ragged_paged", "gmm", "tgmm", "matmul",
     "emit_pipeline"),
], ids=["types-and-windows", "kernels"])  # fmt: skip
def test_other_kernels_agree_with_interpret_mode(names: tuple[str, ...]) -> None:
    # A process of its own: the number of virtual devices is decided before JAX is imported.
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "benchmarks.verify", "--only", *names]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(names)} of {len(names)} equal" in done.stdout
