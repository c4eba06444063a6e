"""Values are those of Pallas's interpret mode: of random small kernels, and of what few kernels use.

Those of flash attention, and of kernels that JAX brings along, are those of references. ``python -m benchmarks.fuzz``
tries many more random ones, ``python -m benchmarks.coverage`` other public kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl

from benchmarks.coverage import one
from benchmarks.fuzz.kernels import ROWS, TOLERANCE, WAYS, Recipe, arguments, build, names_for
from tests.kernels import ATTENTION, edited
from tests.tpu.mosaic.kernels import close, loaded

# --- causal flash attention: scratch accumulators, a grid of two dimensions, blocks that are skipped ---


def attention(*edits: tuple[str, str]) -> dict[str, Any]:
    """What its kernel file defines."""
    names: dict[str, Any] = {}
    exec(edited(ATTENTION, *edits), names)
    return names


def inputs_of(names: dict[str, Any]) -> list[np.ndarray]:
    return list(map(np.asarray, names["generate_inputs"](jax.random.key(0))))


def test_values_of_flash_attention_and_nothing_is_found() -> None:
    names = attention()
    inputs = inputs_of(names)
    program = loaded(lambda *a: names["kernel_fn"](*a) * 2, *inputs)
    result = program.check(inputs)
    close(result.outputs, names["reference_fn"](*inputs) * 2, 1e-2)
    assert result.findings == ()
    assert program.program.module_version > 0
    assert "tpu.matmul" in program.program.covered


@pytest.mark.slow
def test_eight_thousand_steps_take_seconds() -> None:
    names = attention(("SEQ = 1024", "SEQ = 16384"))
    inputs = inputs_of(names)
    result = loaded(names["kernel_fn"], *inputs).run(inputs)
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


# --- what few kernels use, and those that JAX brings along ------------------------------------------


def normal(shape: tuple[int, ...], dtype: Any = jnp.bfloat16) -> np.ndarray:
    return np.asarray(jax.random.normal(jax.random.key(sum(shape)), shape, jnp.float32).astype(dtype))


def agrees(build: Callable[[bool], Callable[..., Any]], *arrays: np.ndarray) -> None:
    result = loaded(build(False), *arrays).run(arrays)
    close(result.outputs, build(True)(*arrays))
    assert result.findings == ()


@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        (jnp.float8_e4m3fn, jnp.float8_e5m2),
        (jnp.bfloat16, jnp.int4),
        (jnp.bfloat16, jnp.uint4),
        (jnp.float4_e2m1fn, jnp.int4),
    ],
)
def test_narrow_types_are_widened(activations: Any, weights: Any) -> None:
    def kernel(x: Any, w: Any, scale: Any, o: Any) -> None:
        product = jnp.dot(x[...].astype(jnp.bfloat16), w[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        o[...] = product * scale[...]

    def build(interpret: bool) -> Callable[..., Any]:
        shapes = ((128, 256), lambda j: (0, 0)), ((256, 128), lambda j: (0, j)), ((1, 128), lambda j: (0, j))
        return pl.pallas_call(
            kernel, grid=(2,), in_specs=[pl.BlockSpec(*one) for one in shapes],
            out_specs=pl.BlockSpec((128, 128), lambda j: (0, j)),
            out_shape=jax.ShapeDtypeStruct((128, 256), jnp.float32), interpret=interpret,
        )  # fmt: skip

    integers = np.random.default_rng(0).integers(0, 16, (256, 256)) - (8 if weights == jnp.int4 else 0)
    columns = normal((256, 256), weights) if weights == jnp.float8_e5m2 else integers.astype(weights)
    agrees(build, normal((128, 256), activations), columns, normal((1, 256), jnp.float32))


def test_windows_may_overlap() -> None:
    """The sum of three neighbouring rows: windows of 24 rows, 8 apart."""

    def kernel(x: Any, o: Any) -> None:
        o[...] = x[0:8] + x[8:16] + x[16:24]

    def build(interpret: bool) -> Callable[..., Any]:
        return pl.pallas_call(
            kernel, grid=(14,), in_specs=[pl.BlockSpec((pl.Element(24), pl.Element(128)), lambda i: (i * 8, 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
            out_shape=jax.ShapeDtypeStruct((112, 128), jnp.float32), interpret=interpret,
        )  # fmt: skip

    agrees(build, normal((128, 128), jnp.float32))


def test_heads_may_be_squeezed_out_of_blocks_and_an_output_visited_again() -> None:
    def kernel(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        o[...] += x[...].astype(jnp.float32)

    def build(interpret: bool) -> Callable[..., Any]:
        return pl.pallas_call(
            kernel, grid=(3, 4), in_specs=[pl.BlockSpec((None, None, 32, 128), lambda h, j: (h, j, 0, 0))],
            out_specs=pl.BlockSpec((None, 32, 128), lambda h, j: (h, 0, 0)),
            out_shape=jax.ShapeDtypeStruct((3, 32, 128), jnp.float32), interpret=interpret,
        )  # fmt: skip

    agrees(build, normal((3, 4, 32, 128)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "flash attention, causal",
        "splash attention, window",
        "splash attention, backward",
        "paged attention",
        "ragged paged attention",
        "grouped matmul",
        "grouped matmul, of weights",
        "matmul",
    ],
)
def test_kernels_that_jax_brings_along_have_the_values_of_their_references(name: str, tmp_path: Path) -> None:
    made = one.outcome(f"jax/{name}", tmp_path)
    assert (made.values, made.compared_with) == ("right", "reference"), made.reasons
