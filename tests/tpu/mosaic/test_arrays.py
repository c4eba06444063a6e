"""Vectors of constants, traced numbers and numbers that are evenly spaced over the turns of a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.tpu.mosaic.arrays import Spaced, computed, one_of, vector_of

SMALL = st.integers(-1000, 1000)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(SMALL, st.lists(SMALL, min_size=3, max_size=3), SMALL.map(jnp.int32)), min_size=1))
def test_a_vector_is_what_each_number_is(cases: list) -> None:
    """A list is of a number's values in three turns."""

    def of(which: jax.Array) -> list:
        return [one_of(case, which) if isinstance(case, list) else case for case in cases]

    for which in range(3):
        wanted = [case[which] if isinstance(case, list) else int(case) for case in cases]
        assert vector_of(of(jnp.int32(which))).tolist() == wanted
        assert [int(computed(number)) for number in of(jnp.int32(which))] == wanted


def test_constants_that_are_evenly_spaced_need_no_table() -> None:
    which = jnp.int32(2)
    assert one_of([5, 5, 5], which) == 5
    assert isinstance(one_of([5, 8, 11], which), Spaced)
    assert not isinstance(one_of([5, 8, 12], which), Spaced)
    assert np.asarray(vector_of([one_of([5, 8, 11], which)])).tolist() == [11]
