"""Random small kernels give the values of Pallas's interpret mode; ``python -m benchmarks.fuzz`` tries many more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lib.fuzzing.kernels import ROWS, TOLERANCE, WAYS, Recipe, arguments, build, names_for
from tests.tpu.mosaic.twin import close, loaded


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


def _agree(examples: int) -> int:
    """Compare that many random kernels; how many were."""
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
    return done


def test_random_kernels_agree_with_interpret_mode(capsys: pytest.CaptureFixture[str]) -> None:
    done = _agree(8)
    with capsys.disabled():
        print(f"\n{done} random kernels equal to interpret mode")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_random_kernels_agree_with_interpret_mode(capsys: pytest.CaptureFixture[str]) -> None:
    done = _agree(300)
    with capsys.disabled():
        print(f"\n{done} random kernels equal to interpret mode")
