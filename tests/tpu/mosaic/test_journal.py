"""Notes that are made together say what notes made one by one would."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.tpu.mosaic import events, in_flight, journal
from ratchet.tpu.mosaic.events import LOG, LOGGED, Did
from ratchet.tpu.mosaic.in_flight import NOWHERE, UNDER_WAY, End
from ratchet.tpu.mosaic.memory import Array, Memory

HERE, BESIDE = (End(buffer=1, box=((start, 0), (8, 128))) for start in (0, 8))
SITES = (5, 6)


def memory() -> Memory:
    zeros = {buffer: jnp.zeros(buffer.shape, jnp.int32) for buffer in (LOG, LOGGED)}
    return {UNDER_WAY: in_flight.empty(jnp.int32(0)), **zeros}


def found(entries: list[journal.Entry]) -> list[list[int]]:
    return [np.asarray(sites).tolist() for sites in journal.write(memory(), entries)]


@pytest.mark.parametrize("between", [0, 40])
def test_a_write_is_seen_by_the_copies_before_it_alone(between: int) -> None:
    """Also where so many notes lie between that they are made in several loops."""
    others = [journal.start(jnp.int32(9), NOWHERE, NOWHERE, None) for _ in range(between)]
    touch = journal.touch(SITES, HERE, None)
    assert [-1, 6] in found([journal.start(jnp.int32(1), NOWHERE, HERE, None), *others, touch])
    assert [5, -1] in found([journal.start(jnp.int32(1), HERE, NOWHERE, None), *others, touch])
    assert found([journal.start(jnp.int32(1), HERE, BESIDE, None), journal.touch(SITES, BESIDE, None)]) == [[-1, 6]]
    assert {*map(tuple, found([*others, touch, journal.start(jnp.int32(1), NOWHERE, HERE, None)]))} == {(-1, -1)}


@pytest.mark.parametrize("when", [True, False])
def test_a_note_is_made_where_its_branch_is_taken(when: bool) -> None:
    start, touch = journal.start(jnp.int32(1), NOWHERE, HERE, None), journal.touch(SITES, HERE, None)
    condition: Array = jnp.bool_(when)
    assert found([start, journal.touch(SITES, HERE, condition)]) == [[-1, 6] if when else [-1, -1]]
    assert found([start, journal.land(jnp.int32(1), condition), touch]) == [[-1, -1] if when else [-1, 6]]
    assert found([journal.start(jnp.int32(1), NOWHERE, HERE, condition), touch]) == [[-1, 6] if when else [-1, -1]]


def test_events_are_logged_in_order() -> None:
    held = memory()
    rows = [events.row(Did.READ, operation, jnp.int32(3), buffer=2) for operation in range(20)]
    assert list(journal.write(held, [journal.event(row, None) for row in rows])) == []
    assert held[LOGGED].reshape(()) == 20
    assert np.asarray(held[LOG])[:20, 1].tolist() == list(range(20))


def test_the_first_of_two_writes_is_reported() -> None:
    start = journal.start(jnp.int32(1), NOWHERE, HERE, None)
    later = journal.touch((7, 8), HERE, None)
    assert found([start, journal.touch(SITES, HERE, None), later]) == [[-1, 6]]
