"""The work that a reference cannot avoid."""

import jax
import jax.numpy as jnp
import pytest

from ratchet.exam.problem.work import work_of


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
