"""What clocks know of the order of two accesses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.mosaic.cores.races import Access, Clocks

ALL = (slice(None),)
kinds = st.sampled_from(list(Access))


def accesses(clocks: Clocks, core: int, kind: Access, array: np.ndarray, at: slice = slice(None)) -> bool:
    """Whether an access conflicts with one before it."""
    return clocks.access(core, kind, array, (at,), in_flight=False) is not None


@given(kinds, kinds)
def test_two_cores_conflict_unless_both_read_or_both_add(first, second):
    clocks, array = Clocks(cores=2), np.zeros(4)
    assert not accesses(clocks, 0, first, array)
    assert accesses(clocks, 1, second, array) is not (first == second != Access.WRITE)


def test_cores_may_write_the_same_to_one_place_in_any_order():
    clocks, array = Clocks(cores=2), np.zeros(4)
    same = np.array([True, True, True, False])
    for at, conflicts in ((slice(0, 3), False), (slice(0, 4), True)):
        clocks.access(0, Access.WRITE, array, (at,), in_flight=False)
        found = clocks.access(1, Access.WRITE, array, (at,), in_flight=False, same=same[at])
        assert (found is not None) is conflicts
    assert accesses(clocks, 0, Access.READ, array), "what another core writes is no less unordered to a reader"


@given(kinds, kinds)
def test_who_waits_for_another_comes_after_all_that_it_did(first, second):
    clocks, array = Clocks(cores=3), np.zeros(4)
    assert not accesses(clocks, 0, first, array)
    clocks.leave(0, "done")
    clocks.take(1, "done")
    clocks.leave(1, "done, too")
    clocks.take(2, "done, too")
    assert not accesses(clocks, 2, second, array), "it knows of the first one by the second"


def test_what_is_done_after_a_signal_is_not_known_to_who_waited_for_it():
    clocks, array = Clocks(cores=2), np.zeros(4)
    clocks.leave(0, "begun")
    assert not accesses(clocks, 0, Access.WRITE, array)
    clocks.take(1, "begun")
    assert accesses(clocks, 1, Access.READ, array)


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_accesses_conflict_where_they_overlap(a, b, c, d):
    clocks, array = Clocks(cores=2), np.zeros(8)
    first, second = slice(min(a, b), max(a, b)), slice(min(c, d), max(c, d))
    assert not accesses(clocks, 0, Access.WRITE, array, first)
    both = set(range(*first.indices(8))) & set(range(*second.indices(8)))
    assert accesses(clocks, 1, Access.WRITE, array, second) is bool(both)


def test_a_copy_conflicts_with_its_own_core_until_it_is_waited_for():
    clocks, array = Clocks(cores=2), np.zeros(4)
    assert clocks.access(0, Access.WRITE, array, ALL, in_flight=True) is None
    found = clocks.access(0, Access.READ, array, ALL, in_flight=False)
    assert found is not None
    assert (found.core, found.in_flight) == (0, True)
    clocks.landed(0, 0, Access.WRITE, array, ALL)
    assert not accesses(clocks, 0, Access.READ, array)
