"""The table of copies under way: a copy takes a column until it is waited for, and any that is free."""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

from ratchet.tpu.mosaic.in_flight import NOWHERE, SLOTS, End, empty, landed, lost, numbers, started, touched, words_of
from ratchet.tpu.mosaic.memory import Array
from ratchet.tpu.mosaic.words import words

LONG, SHORT = jnp.int32(1), jnp.int32(2)


@jax.jit
def begun(table: Array, semaphore: Array) -> Array:
    return started(table, words(words_of(semaphore, NOWHERE, NOWHERE)), jnp.bool_(True))


def test_one_that_lasts_keeps_no_other_from_its_place() -> None:
    def turn(_: int, table: Array) -> Array:
        return landed(begun(table, SHORT), SHORT, jnp.bool_(True))

    table = lax.fori_loop(0, 2 * SLOTS, turn, begun(empty(jnp.int32(0)), LONG))
    assert not lost(table)
    table = lax.fori_loop(0, SLOTS - 1, lambda _, table: begun(table, SHORT), table)
    assert not lost(table)
    assert lost(begun(table, SHORT))


def test_copies_overlap_where_they_share_an_element() -> None:
    """Those without elements share none, also inside of another."""
    boxes = [(start, size) for start in (0, 2, 4) for size in (0, 2, 3, 6)]

    def end(start: Array, size: Array) -> End:
        return End(buffer=1, box=((0, start), (8, size)))

    @jax.jit
    def both(start: Array, size: Array, other: Array, extent: Array) -> Array:
        copy = words(words_of(SHORT, NOWHERE, end(start, size)))
        table = started(empty(jnp.int32(0)), copy, jnp.bool_(True))
        return touched(table, words(numbers(end(other, extent))))

    for (start, size), (other, extent) in itertools.product(boxes, boxes):
        shared = set(range(start, start + size)) & set(range(other, other + extent))
        found = both(*map(jnp.int32, (start, size, other, extent))).tolist()
        assert found == [False, bool(shared)], (start, size, other, extent)
