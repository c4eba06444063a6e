"""Random small kernels give the values of Pallas's interpret mode.

A kernel is a random chain of steps on a block: element-wise operations, reductions, products, slices, conditionals
and loops, over a random grid, dtype and ragged shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl

from tests.mosaic.twin import close, loaded

FLOAT_STEPS: dict[str, Callable[[Any], Any]] = {
    "tanh": jnp.tanh,
    "exp": lambda x: jnp.exp(-jnp.abs(x)),
    "scale": lambda x: x * jnp.asarray(1.5, x.dtype),
    "clip": lambda x: jnp.clip(x, -1, 1),
    "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x) + 1),
    "softmax": lambda x: jnp.exp(x - x.max(-1, keepdims=True)) / 4,
    "sum_rows": lambda x: x - x.sum(0, keepdims=True) / 8,
    "norm": lambda x: x / (1 + jnp.abs(x).max(1, keepdims=True)),
    "product": lambda x: jnp.dot(x, x.T, preferred_element_type=jnp.float32).astype(x.dtype) @ x / 64,
}
INT_STEPS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda x: (x << 2) ^ (x >> 1),
    "modulo": lambda x: jax.lax.rem(x, jnp.int32(7)),
    "divide": lambda x: jax.lax.div(x, jnp.int32(3)),
    "sum_columns": lambda x: x + x.sum(1, keepdims=True),
    "mask": lambda x: x & 0xFF,
}
ANY_STEPS: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: jnp.where(x > 0, x, -x),
    "iota": lambda x: x + jax.lax.broadcasted_iota(jnp.int32, x.shape, 1).astype(x.dtype),
    "halves": lambda x: jnp.concatenate([x[:, 64:], x[:, :64]], 1),
    "maximum": lambda x: jnp.maximum(x, x.max(0, keepdims=True) - 1),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x * i.astype(x.dtype), x),
    "cond": lambda x: jax.lax.cond(pl.program_id(0) > 0, lambda: x + x, lambda: x - 1),
    "while": lambda x: jax.lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + 1), (jnp.int32(0), x))[1],
}


@dataclass(frozen=True)
class Recipe:
    """A kernel in words, so that a failing example can be read."""

    dtype: str
    rows: int
    blocks: int
    steps: tuple[str, ...]
    predicated: bool


@st.composite
def recipes(draw: Any) -> Recipe:
    dtype = draw(st.sampled_from(["float32", "bfloat16", "int32"]))
    names = [*ANY_STEPS, *(INT_STEPS if dtype == "int32" else FLOAT_STEPS)]
    blocks = draw(st.integers(1, 3))
    ragged = draw(st.sampled_from([0, 0, 1, 5]))
    return Recipe(
        dtype=dtype,
        rows=blocks * 16 - ragged,
        blocks=blocks,
        steps=tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))),
        predicated=draw(st.booleans()),
    )


def build(recipe: Recipe, interpret: bool = False) -> Callable[..., Any]:
    table = {**ANY_STEPS, **FLOAT_STEPS, **INT_STEPS}
    wide = jnp.int32 if recipe.dtype == "int32" else jnp.float32

    def kernel(x: Any, o: Any) -> None:
        # What is past a ragged edge is undefined, so rows there must not reach the others.
        row = pl.program_id(0) * 16 + jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
        value = jnp.where(row < recipe.rows, x[...].astype(wide), jnp.zeros((), wide))
        for step in recipe.steps:
            value = table[step](value)
        o[...] = value.astype(o.dtype)
        if recipe.predicated:

            @pl.when(pl.program_id(0) % 2 == 1)
            def _() -> None:
                o[pl.ds(8, 8), :] = x[pl.ds(0, 8), :]

    block = pl.BlockSpec((16, 128), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(recipe.blocks,),
        in_specs=[block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct((recipe.rows, 128), recipe.dtype),
        interpret=interpret,
    )


def _agree(examples: int) -> int:
    """Compare that many random kernels; how many were."""
    done = 0

    @given(recipes(), st.integers(0, 2**16))
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    def compare(recipe: Recipe, seed: int) -> None:
        nonlocal done
        rng = np.random.default_rng(seed)
        shape = (recipe.rows, 128)
        values = rng.integers(-50, 50, shape) if recipe.dtype == "int32" else rng.normal(size=shape)
        x = values.astype(jnp.dtype(recipe.dtype))
        result = loaded(build(recipe), x).run([x])
        tolerance = {"int32": 0.0, "float32": 1e-5, "bfloat16": 1e-2}[recipe.dtype]
        close(result.outputs, build(recipe, interpret=True)(x), tolerance)
        assert result.findings == ()
        done += 1

    compare()
    return done


def test_random_kernels_agree_with_interpret_mode(capsys: pytest.CaptureFixture[str]) -> None:
    done = _agree(15)
    with capsys.disabled():
        print(f"\n{done} random kernels equal to interpret mode")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_random_kernels_agree_with_interpret_mode(capsys: pytest.CaptureFixture[str]) -> None:
    done = _agree(300)
    with capsys.disabled():
        print(f"\n{done} random kernels equal to interpret mode")
