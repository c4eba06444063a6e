"""Random kernels of blocks: the value executor against Pallas's interpret mode.

A kernel is a random chain of operations on a block, over a random grid, dtype and ragged shape. Blocks come by the
pipeline, in a prefetched order, or by copies of the kernel's own with a semaphore, the next one in flight while one is
used. Integers have to be equal; floats may differ by what another order of additions makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.fuzz.rounds import Round
from benchmarks.lib.programs import largest_error
from ratchet.values.status import Refusal
from tests.tpu.mosaic.kernels import loaded

AREA = "block programs"
ROWS = 16
"""Of a block of 128 columns."""

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
    "narrowed": lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
}
INT_STEPS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda x: (x << 2) ^ (x >> 1),
    "modulo": lambda x: jax.lax.rem(x, jnp.int32(7)),
    "divide": lambda x: jax.lax.div(x, jnp.int32(3)),
    "sum_columns": lambda x: x + x.sum(1, keepdims=True),
    "mask": lambda x: x & 0xFF,
    "logical": lambda x: jax.lax.shift_right_logical(x, jnp.int32(3)),
    "to_float": lambda x: (x & 0xFFFF).astype(jnp.float32).astype(jnp.int32),
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
STEPS = {**ANY_STEPS, **FLOAT_STEPS, **INT_STEPS}
TOLERANCE = {"int32": 0.0, "float32": 1e-5, "bfloat16": 1e-2}
"""Of the largest magnitude."""
WAYS = ("pipeline", "order", "copies")
"""How a block comes: by the pipeline, by the pipeline in a prefetched order, or by the kernel's own copies."""


@dataclass(frozen=True)
class Recipe:
    """A kernel in words, so that a failing example can be read."""

    dtype: str
    rows: int
    blocks: int
    steps: tuple[str, ...]
    predicated: bool
    way: str = "pipeline"


def names_for(dtype: str) -> list[str]:
    """The operations that a dtype has."""
    return [*ANY_STEPS, *(INT_STEPS if dtype == "int32" else FLOAT_STEPS)]


def drawn(generator: np.random.Generator) -> Recipe:
    """A random kernel."""
    dtype, way = str(generator.choice(list(TOLERANCE))), str(generator.choice(WAYS))
    blocks, ragged = int(generator.integers(1, 4)), int(generator.choice([0, 0, 1, 5])) if way == "pipeline" else 0
    chain = generator.choice(names_for(dtype), int(generator.integers(1, 5)))
    return Recipe(
        dtype=dtype, rows=blocks * ROWS - ragged, blocks=blocks, steps=tuple(map(str, chain)),
        predicated=bool(generator.integers(0, 2)), way=way,
    )  # fmt: skip


def build(recipe: Recipe, interpret: bool = False) -> Callable[..., Any]:
    """The kernel: of ``x`` alone for ``pipeline``, of an order of blocks and ``x`` otherwise."""
    out = jax.ShapeDtypeStruct((recipe.rows, 128), recipe.dtype)
    if recipe.way == "pipeline":
        block = pl.BlockSpec((ROWS, 128), lambda i: (i, 0))
        return pl.pallas_call(
            lambda x, o: _compute(recipe, pl.program_id(0) * ROWS, x, o),
            grid=(recipe.blocks,), in_specs=[block], out_specs=block, out_shape=out, interpret=interpret,
        )  # fmt: skip
    ordered = recipe.way == "order"
    whole = pl.BlockSpec(memory_space=pl.ANY)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(recipe.blocks,),
        in_specs=[pl.BlockSpec((ROWS, 128), lambda i, order: (order[i], 0)) if ordered else whole],
        out_specs=pl.BlockSpec((ROWS, 128), lambda i, order: (i, 0)),
        scratch_shapes=[] if ordered else [pltpu.VMEM((2, ROWS, 128), recipe.dtype), pltpu.SemaphoreType.DMA((2,))],
    )

    def body(order: Any, x: Any, o: Any, *scratch: Any) -> None:
        if ordered:
            _compute(recipe, order[pl.program_id(0)] * ROWS, x, o)
        else:
            _copied(recipe, order, x, o, scratch)

    return pl.pallas_call(body, grid_spec=spec, out_shape=out, interpret=interpret)


def _copied(recipe: Recipe, order: Any, x: Any, o: Any, scratch: tuple[Any, ...]) -> None:
    """Copies one block ahead, by turns into two places."""
    held, done = scratch
    step = pl.program_id(0)

    def copy(number: Any) -> Any:
        rows = pl.ds(order[number] * ROWS, ROWS)
        return pltpu.make_async_copy(x.at[rows, :], held.at[number % 2], done.at[number % 2])

    @pl.when(step == 0)
    def _() -> None:
        copy(0).start()

    @pl.when(step + 1 < recipe.blocks)
    def _() -> None:
        copy(step + 1).start()

    copy(step).wait()
    _compute(recipe, order[step] * ROWS, held.at[step % 2], o)


def _compute(recipe: Recipe, first: Any, x: Any, o: Any) -> None:
    wide = jnp.int32 if recipe.dtype == "int32" else jnp.float32
    # What is past a ragged edge is undefined, so rows there must not reach the others.
    row = first + jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    value = jnp.where(row < recipe.rows, x[...].astype(wide), jnp.zeros((), wide))
    for step in recipe.steps:
        value = STEPS[step](value)
    o[...] = value.astype(o.dtype)
    if recipe.predicated:

        @pl.when(pl.program_id(0) % 2 == 1)
        def _() -> None:
            o[pl.ds(8, 8), :] = x[pl.ds(0, 8), :]


def arguments(recipe: Recipe, generator: np.random.Generator) -> list[np.ndarray]:
    """Random operands."""
    shape = (recipe.rows, 128)
    values = generator.integers(-50, 50, shape) if recipe.dtype == "int32" else generator.normal(size=shape)
    x = values.astype(jnp.dtype(recipe.dtype))
    return [x] if recipe.way == "pipeline" else [generator.permutation(recipe.blocks).astype(np.int32), x]


def blocks(seed: int) -> Round:
    """One random kernel."""
    generator = np.random.default_rng(seed)
    recipe = drawn(generator)
    operands = arguments(recipe, generator)
    try:
        result = loaded(build(recipe), *operands).check(operands)
        apart = largest_error(result.outputs[:1], [np.asarray(build(recipe, interpret=True)(*operands))])
        wrong = [f"finding: {finding.message}" for finding in result.findings]
        if apart > TOLERANCE[recipe.dtype]:
            wrong.append(f"executor and interpret mode are {apart:.3g} apart")
    except Refusal as refusal:
        wrong = [f"refused: {refusal.status.name}: {refusal.message}"]
    steps = len(recipe.steps) * recipe.blocks
    return Round(
        area=AREA,
        seed=seed,
        steps=steps,
        outcomes={} if wrong else {"equal": steps},
        differences=tuple(f"{recipe}: {what}" for what in wrong),
    )
