"""Vectors of constants, traced numbers and numbers that are evenly spaced over the turns of a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.tpu.mosaic.words import Spaced, computed, one_of, words

SMALL = st.integers(-1000, 1000)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(SMALL, st.lists(SMALL, min_size=3, max_size=3), SMALL.map(jnp.int32)), min_size=1))
def test_words_are_what_each_number_is(cases: list) -> None:
    """A list is of a number's values in three turns."""

    def of(turn: jax.Array) -> list:
        return [one_of(case, turn) if isinstance(case, list) else case for case in cases]

    for turn in range(3):
        wanted = [case[turn] if isinstance(case, list) else int(case) for case in cases]
        assert words(of(jnp.int32(turn))).tolist() == wanted
        assert [int(computed(number)) for number in of(jnp.int32(turn))] == wanted


def test_constants_that_are_evenly_spaced_need_no_table() -> None:
    turn = jnp.int32(2)
    assert one_of([5, 5, 5], turn) == 5
    assert isinstance(one_of([5, 8, 11], turn), Spaced)
    assert not isinstance(one_of([5, 8, 12], turn), Spaced)
    assert np.asarray(words([one_of([5, 8, 11], turn)])).tolist() == [11]
