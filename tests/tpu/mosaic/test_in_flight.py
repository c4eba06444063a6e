"""The table of copies in flight, and the log of events: what is noted in a loop is what is noted one by one."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ratchet.tpu.mosaic import events, in_flight
from ratchet.tpu.mosaic.arrays import Array
from ratchet.tpu.mosaic.events import LOG, LOGGED, Did
from ratchet.tpu.mosaic.in_flight import IN_FLIGHT, NOWHERE, SLOTS, End, Note, empty, land, lost, start, write
from ratchet.tpu.mosaic.memory import Memory

LONG, SHORT = jnp.int32(1), jnp.int32(2)
HERE, BESIDE = (End(buffer=1, box=((row, 0), (8, 128))) for row in (0, 8))
SITES = (5, 6)


def memory() -> Memory:
    zeros = {buffer: jnp.zeros(buffer.shape, jnp.int32) for buffer in (LOG, LOGGED)}
    return {IN_FLIGHT: empty(), **zeros}


def found(notes: list[Note]) -> list[list[int]]:
    """The sites that are reported, the same in a loop and one by one."""
    one_by_one, in_loops = (
        [np.asarray(sites).tolist() for sites in in_flight.apply(memory(), notes, together=together)]
        for together in (False, True)
    )
    reported = [sites for sites in one_by_one if sites != [-1, -1]]
    assert reported[:1] == [sites for sites in in_loops if sites != [-1, -1]][:1]
    return reported


@jax.jit
def after(table: Array, *notes: Array) -> Array:
    """The table after copies begin (a positive semaphore) or are waited for."""
    held = {IN_FLIGHT: table}
    for semaphore in notes:
        begins, ends = start(semaphore, NOWHERE, NOWHERE, semaphore > 0), land(-semaphore, semaphore < 0)
        assert not list(in_flight.apply(held, [begins, ends]))
    return held[IN_FLIGHT]


def test_one_that_lasts_keeps_no_other_from_its_place() -> None:
    table = lax.fori_loop(0, 2 * SLOTS, lambda _, table: after(table, SHORT, -SHORT), after(empty(), LONG))
    assert not lost(table)
    table = lax.fori_loop(0, SLOTS - 1, lambda _, table: after(table, SHORT), table)
    assert not lost(table)
    assert lost(after(table, SHORT))


def test_copies_overlap_where_they_share_an_element() -> None:
    """Those without elements share none, also inside of another."""
    boxes = [(first, size) for first in (0, 2, 4) for size in (0, 2, 3, 6)]

    def end(first: Array, size: Array) -> End:
        return End(buffer=1, box=((0, first), (8, size)))

    @jax.jit
    def both(first: Array, size: Array, other: Array, extent: Array) -> Array:
        copy, touch = start(SHORT, NOWHERE, end(first, size), None), write(SITES, end(other, extent), None)
        (sites,) = in_flight.apply({IN_FLIGHT: empty()}, [copy, touch])
        return sites

    for (first, size), (other, extent) in itertools.product(boxes, boxes):
        shared = set(range(first, first + size)) & set(range(other, other + extent))
        sites = both(*map(jnp.int32, (first, size, other, extent))).tolist()
        assert sites == [-1, SITES[1] if shared else -1], (first, size, other, extent)


@pytest.mark.parametrize("between", [0, 40])
def test_a_write_is_seen_by_the_copies_before_it_alone(between: int) -> None:
    """Also where so many notes lie between that they are made in several loops."""
    others = [start(jnp.int32(9), NOWHERE, NOWHERE, None) for _ in range(between)]
    touch = write(SITES, HERE, None)
    assert found([start(LONG, NOWHERE, HERE, None), *others, touch]) == [[-1, 6]]
    assert found([start(LONG, HERE, NOWHERE, None), *others, touch]) == [[5, -1]]
    assert found([start(LONG, HERE, BESIDE, None), write(SITES, BESIDE, None)]) == [[-1, 6]]
    assert found([*others, touch, start(LONG, NOWHERE, HERE, None)]) == []


def test_the_first_of_two_writes_is_reported() -> None:
    assert found([start(LONG, NOWHERE, HERE, None), write(SITES, HERE, None), write((7, 8), HERE, None)])[0] == [-1, 6]


@pytest.mark.parametrize("when", [True, False])
def test_a_note_is_made_where_its_branch_is_taken(when: bool) -> None:
    begins, touch, condition = start(LONG, NOWHERE, HERE, None), write(SITES, HERE, None), jnp.bool_(when)
    assert bool(found([begins, write(SITES, HERE, condition)])) is when
    assert bool(found([begins, land(LONG, condition), touch])) is not when
    assert bool(found([start(LONG, NOWHERE, HERE, condition), touch])) is when


@pytest.mark.parametrize("together", [True, False])
def test_events_are_logged_in_order(together: bool) -> None:
    held = memory()
    rows = [events.row(Did.READ, operation, jnp.int32(3), buffer=2) for operation in range(20)]
    assert list(in_flight.apply(held, [in_flight.event(row, None) for row in rows], together=together)) == []
    assert held[LOGGED].reshape(()) == 20
    assert np.asarray(held[LOG])[:20, 1].tolist() == list(range(20))
