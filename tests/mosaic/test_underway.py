"""The table of copies under way: a copy takes a row until it is waited for, and any row that is free."""

import jax
import jax.numpy as jnp
from jax import lax

from ratchet.mosaic.memory import Array
from ratchet.mosaic.underway import NOWHERE, SLOTS, empty, landed, lost, started

LONG, SHORT = jnp.int32(1), jnp.int32(2)


@jax.jit
def begun(table: Array, semaphore: Array) -> Array:
    return started(table, semaphore, NOWHERE, NOWHERE, None)


def test_one_that_lasts_keeps_no_other_from_its_row() -> None:
    def turn(_: int, table: Array) -> Array:
        return landed(begun(table, SHORT), SHORT, jnp.bool_(True))

    table = lax.fori_loop(0, 2 * SLOTS, turn, begun(empty(jnp.int32(0)), LONG))
    assert not lost(table)
    table = lax.fori_loop(0, SLOTS - 1, lambda _, table: begun(table, SHORT), table)
    assert not lost(table)
    assert lost(begun(table, SHORT))
