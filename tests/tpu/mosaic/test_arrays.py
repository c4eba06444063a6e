"""Vectors of constants and of traced numbers, which may be another one in each iteration of a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.tpu.mosaic.arrays import one_of, vector_of

SMALL = st.integers(-1000, 1000)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(SMALL, st.lists(SMALL, min_size=3, max_size=3), SMALL.map(jnp.int32)), min_size=1))
def test_a_vector_is_what_each_number_is(cases: list) -> None:
    """A list is of a number's values in three iterations."""

    def of(which: jax.Array) -> list:
        return [one_of(case, which) if isinstance(case, list) else case for case in cases]

    for which in range(3):
        wanted = [case[which] if isinstance(case, list) else int(case) for case in cases]
        assert vector_of(of(jnp.int32(which))).tolist() == wanted
    assert one_of([5, 5, 5], jnp.int32(2)) == 5
