"""What chips cannot avoid to send each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from ratchet.exam.problem.traffic import link_bytes
from ratchet.values import Mesh

ROWS: tuple[tuple[str, ...], ...] = (("chip",), ())
COLUMNS: tuple[tuple[str, ...], ...] = ((), ("chip",))
WHOLE: tuple[tuple[str, ...], ...] = ((), ())
X = jax.ShapeDtypeStruct((16, 8), jnp.bfloat16)
PARTS = jax.ShapeDtypeStruct((4, 16, 8), jnp.float32)
BYTES = 16 * 8 * 2


def mesh(*inputs: tuple[tuple[str, ...], ...], chips: int = 4) -> Mesh:
    return Mesh(axes=(("chip", chips),), inputs=inputs)


@pytest.mark.parametrize(
    ("reference", "given", "left", "least"),
    [
        (lambda x: x, ROWS, WHOLE, BYTES * 3 // 4),  # all-gather: three quarters come in
        (lambda x: x, WHOLE, ROWS, 0),  # every chip has all of it
        (lambda x: x, ROWS, ROWS, 0),
        (lambda x: x, ROWS, COLUMNS, BYTES * 3 // 16),  # all-to-all: three quarters of a quarter
        (lambda x: x.T, ROWS, ROWS, BYTES * 3 // 16),
        (lambda x: jnp.roll(x, 4, axis=0), ROWS, ROWS, BYTES // 4),  # ppermute
        (lambda x: jnp.roll(x, 1, axis=0), ROWS, ROWS, BYTES // 16),
        (lambda x: jnp.flip(x, axis=0) / 2, ROWS, ROWS, BYTES // 4),
        (lambda x: jnp.concatenate([x, jnp.zeros((16, 8), x.dtype)]), ROWS, WHOLE, BYTES * 3 // 4),
        (lambda x: jnp.concatenate([x, x]), ROWS, WHOLE, BYTES * 3 // 4),  # what is the same counts once
        (lambda x: jnp.broadcast_to(x[:, None], (16, 5, 8)), ROWS, ((), (), ()), BYTES * 3 // 4),
    ],
    ids=lambda one: "" if callable(one) else str(one),
)
def test_what_is_moved(reference, given, left, least) -> None:  # type: ignore[no-untyped-def]
    assert link_bytes(reference, [X], mesh(given), [left]) == least


@pytest.mark.parametrize(
    ("reference", "left", "least"),
    [
        (lambda x: x.sum(0), ROWS, 16 * 8 * 4 * 3 // 4),  # reduce-scatter: three quarters of its addends leave a chip
        (lambda x: x.sum(0), WHOLE, 16 * 8 * 4),  # all-reduce
        (lambda x: x.sum(0) / 4, ROWS, 16 * 8 * 4 * 3 // 4),
        (lambda x: x.sum(0).astype(jnp.bfloat16), ROWS, 16 * 8 * 2 * 3 // 4),  # no more than an answer holds
        (lambda x: x.sum((0, 1)), (("chip",),), 8 * 4 * 3 // 4),
    ],
)
def test_what_is_added(reference, left, least) -> None:  # type: ignore[no-untyped-def]
    assert link_bytes(reference, [PARTS], mesh((("chip",), (), ())), [left]) == least


def test_two_arrays_that_are_added() -> None:
    assert link_bytes(jnp.add, [X, X], mesh(ROWS, COLUMNS), [ROWS]) == BYTES * 3 // 16


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x * x,
        jnp.exp,
        lambda x: x * 0,
        lambda x: x + jnp.roll(x, 1, axis=0),  # sums that follow from each other
        lambda x: jnp.cumsum(x, axis=0),
        lambda x: x.sum(0, keepdims=True) + jnp.zeros_like(x),
        lambda x: (x @ x.T)[:, :8],
    ],
)
def test_what_is_computed_has_no_bound(reference) -> None:  # type: ignore[no-untyped-def]
    assert link_bytes(reference, [X], mesh(ROWS), [COLUMNS]) == 0


def test_an_output_that_may_be_anywhere_counts_nothing() -> None:
    assert link_bytes(lambda x: (x, x), [X], mesh(ROWS), [None, WHOLE]) == BYTES * 3 // 4
    assert link_bytes(lambda x: x, [X], mesh(ROWS), [None]) == 0


def test_integers_may_fit_into_fewer_bits() -> None:
    assert link_bytes(lambda x: x, [jax.ShapeDtypeStruct((16, 8), jnp.int32)], mesh(ROWS), [WHOLE]) == 0


def test_one_chip_or_very_many_have_no_bound() -> None:
    assert link_bytes(lambda x: x, [X], Mesh(), [WHOLE]) == 0
    assert link_bytes(lambda x: x, [X], mesh(ROWS, chips=16), [WHOLE]) == 0
