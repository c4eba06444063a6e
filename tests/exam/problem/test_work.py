"""The work that a reference cannot avoid, and what chips have to send each other for it."""

import jax
import jax.numpy as jnp
import pytest

from ratchet.exam.problem.link_work import link_bytes
from ratchet.exam.problem.work import work_of
from ratchet.values import Mesh


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("dtype", "precision", "kind"),
    [
        (jnp.bfloat16, None, "bf16"),
        (jnp.int8, None, "int8"),
        (jnp.float32, None, "f32x1"),
        (jnp.float32, "high", "f32x3"),
        (jnp.float32, "highest", "f32x6"),
        (jnp.float8_e4m3fn, None, "f8"),
    ],
)
def test_a_product_counts_by_its_dtype_and_passes(dtype, precision, kind):
    out = jnp.int32 if dtype == jnp.int8 else jnp.float32

    def product(a, b):
        return jnp.matmul(a, b, precision=precision, preferred_element_type=out)

    found = work_of(product, spec(8, 16, dtype=dtype), spec(16, 4, dtype=dtype))
    assert found.products == {kind: 2 * 8 * 16 * 4}
    size = jnp.dtype(dtype).itemsize
    assert found.input_bytes == (8 * 16 * size, 16 * 4 * size)
    assert found.output_bytes == (8 * 4 * 4,)


def test_a_gather_touches_what_it_takes():
    found = work_of(lambda table, ids: table[ids], spec(1000, 16), spec(8, dtype=jnp.int32))
    assert found.input_bytes == (8 * 16 * 4, 8 * 4)
    assert found.output_bytes == (8 * 16 * 4,)
    everything = work_of(lambda table, ids: table[ids] + table.sum(), spec(1000, 16), spec(8, dtype=jnp.int32))
    assert everything.input_bytes[0] == 1000 * 16 * 4


def test_a_converted_table_is_still_taken_from_and_never_more_than_once():
    found = work_of(
        lambda table, ids: table.astype(jnp.float32)[ids], spec(100, 16, dtype=jnp.int8), spec(8, dtype=jnp.int32)
    )
    assert found.input_bytes[0] == 8 * 16
    often = work_of(lambda table, ids: table[ids], spec(10, 16), spec(80, dtype=jnp.int32))
    assert often.input_bytes[0] == 10 * 16 * 4


def test_an_update_in_place_is_the_update():
    found = work_of(
        lambda cache, new, at: jax.lax.dynamic_update_slice(cache, new, (at, 0)),
        spec(1024, 64),
        spec(1, 64),
        spec(dtype=jnp.int32),
    )
    assert found.input_bytes[:2] == (0, 64 * 4)
    assert found.output_bytes == (64 * 4,)


def test_rows_that_a_mask_replaces_are_touched_and_what_is_kept_is_not():
    """A cache that is written at positions: the ways that a reference says so."""

    def write(cache, row, position):
        here = (jnp.arange(256)[None, :] == position[:, None])[:, :, None]
        return jnp.where(here, row[:, None], cache)

    def twice(cache, row, position):
        return write(write(cache, row, position), 2 * row, position + 1)

    def read_too(cache, row, position):
        return write(cache, row, position) + cache.sum()

    given = [jax.ShapeDtypeStruct(shape, kind) for shape, kind in (((8, 256, 128), "float32"), ((8, 128), "float32"))]
    given.append(jax.ShapeDtypeStruct((8,), "int32"))
    row = 8 * 128 * 4
    assert work_of(write, *given).input_bytes == (0, row, 32)
    assert work_of(write, *given).output_bytes == (row,)
    assert work_of(twice, *given).output_bytes == (2 * row,)
    for reads in (read_too, lambda cache, row, position: jnp.where(cache > 0, row[:, None], cache)):
        assert work_of(reads, *given).input_bytes[0] == 256 * row
    assert (
        work_of(lambda x, y, mask: jnp.where(mask[:, None, None] > 0, x, y), *[given[0]] * 2, given[2]).input_bytes[0]
        > row
    )


def test_a_loop_counts_by_its_length():
    def function(x, w):
        return jax.lax.scan(lambda c, row: (c, row @ w), 0.0, x)[1]

    found = work_of(function, spec(5, 2, 8), spec(8, 4))
    assert found.products == {"f32x1": 5 * 2 * 2 * 8 * 4}
    assert found.input_bytes == (5 * 2 * 8 * 4, 8 * 4 * 4)


def test_a_convolution_counts_its_window():
    def convolve(x, w):
        return jax.lax.conv_general_dilated(x, w, (1,), "VALID")

    found = work_of(convolve, spec(1, 3, 10, dtype=jnp.bfloat16), spec(7, 3, 5, dtype=jnp.bfloat16))
    assert found.products == {"bf16": 2 * (7 * 6) * (3 * 5)}


def test_of_two_branches_the_cheaper_counts():
    def function(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: (x @ w) @ w, lambda: x @ w)

    assert work_of(function, spec(4, 8), spec(8, 8)).products == {"f32x1": 2 * 4 * 8 * 8}


# --- between chips ---

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
