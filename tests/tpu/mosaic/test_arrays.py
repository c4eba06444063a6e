"""Arrays as the executor keeps them: their bits, slices at constant or traced indices, and vectors of numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mosaic.arrays import (
    add,
    bitcast_array,
    decode,
    encode,
    kept_as,
    known,
    one_of,
    put,
    take,
    vector_of,
)
from tests.tpu.mosaic.kernels import ANY, DMA, kernel_call, loaded, numbers, rows

BF16, I8 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.int8)
NARROW = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2]
ROWS, COLUMNS, BLOCK = 256, 128, 32


def test_a_bitcast_splits_rows_and_joins_them():
    """Element ``r * packing + j`` of the narrow array is the j-th least significant part of row ``r``."""
    wide = jnp.int32([[0x04030201, 0x08070605], [0x0C0B0A09, 0x100F0E0D]])
    narrow = bitcast_array(wide, I8)
    assert numbers(narrow) == [[1, 5], [2, 6], [3, 7], [4, 8], [9, 13], [10, 14], [11, 15], [12, 16]]
    assert numbers(bitcast_array(narrow, np.dtype(np.int32))) == numbers(wide)
    assert bitcast_array(jnp.zeros((3, 4, 8), jnp.int16), I8).shape == (3, 8, 8)
    assert numbers(bitcast_array(jnp.float32([[1.0]]), np.dtype(np.int32))) == [[0x3F800000]]


def test_narrow_floats_are_kept_as_integers():
    values = jnp.bfloat16([1.5, -2])
    kept = encode(values)
    assert kept.dtype == np.uint16
    assert numbers(decode(kept, BF16)) == [1.5, -2]
    for array in (jnp.float32([1.5]), jnp.int8([3]), np.bool_([True])):
        assert encode(array) is array
        assert decode(array, np.dtype(array.dtype)) is array


def test_indices_stay_constant_where_they_can():
    traced = jnp.int32(5)
    assert [known(i) for i in (3, np.int32(3), traced)] == [True, True, False]
    assert (add(2, np.int32(3)), add(0, 4), add(4, 0)) == (5, 4, 4)
    assert add(0, traced) is traced
    assert add(np.int32(0), traced) is traced
    assert add(traced, 0) is traced
    sums = jax.jit(lambda t: (add(t, 1), add(1, t), add(t, t)))(5)
    assert [int(one) for one in sums] == [6, 6, 10]


@pytest.mark.parametrize("index", [int, jnp.int32])
@pytest.mark.parametrize(("start", "wanted"), [(0, [0, 1]), (1, [1, 2]), (3, [3, 4]), (4, [3, 4]), (9, [3, 4])])
def test_a_slice_past_the_end_is_the_last_whether_its_start_is_known_or_not(index, start, wanted):
    array = lax.iota(jnp.int32, 5)
    assert numbers(take(array, (index(start),), (2,))) == wanted


def test_what_is_read_and_written_whole_is_the_array_itself():
    array, other = jnp.zeros((2, 2)), jnp.ones((2, 2))
    assert take(array, (0, 0), (2, 2)) is array
    assert take(array, (-1, 5), [2, 2]) is array
    assert put(array, (0, 0), other) is other
    assert numbers(put(array, (1, 0), jnp.ones((1, 2)))) == [[0, 0], [1, 1]]
    assert numbers(take(lax.iota(jnp.int32, 3), (-1,), (2,))) == [0, 1], "below the beginning it is the first"


SMALL = st.integers(-1000, 1000)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(SMALL, st.lists(SMALL, min_size=3, max_size=3), SMALL.map(jnp.int32)), min_size=1))
def test_a_vector_is_what_each_number_is(cases: list) -> None:
    """A list is of a number's values in three iterations."""

    def of(which: jax.Array) -> list:
        return [one_of(case, which) if isinstance(case, list) else case for case in cases]

    for which in range(3):
        wanted = [case[which] if isinstance(case, list) else int(case) for case in cases]
        assert vector_of(of(jnp.int32(which))).tolist() == wanted
    assert one_of([5, 5, 5], jnp.int32(2)) == 5


# --- from the inputs of a program to its outputs ---


def _copied(dtype: Any) -> Any:
    """A kernel that copies block after block of an array by DMA."""

    def kernel(x: Any, o: Any, semaphore: Any) -> None:
        copy = pltpu.make_async_copy(x.at[pl.ds(pl.program_id(0) * BLOCK, BLOCK)], o, semaphore)
        copy.start()
        copy.wait()

    out = jax.ShapeDtypeStruct((ROWS, COLUMNS), dtype)
    return kernel_call(kernel, out, grid=(ROWS // BLOCK,), in_specs=[ANY], out_specs=rows(BLOCK), scratch_shapes=[DMA])


@pytest.mark.parametrize("dtype", [*NARROW, jnp.float32, jnp.int8])
def test_every_bit_of_what_is_copied_arrives_nans_too(dtype: Any) -> None:
    words = np.arange(ROWS * COLUMNS * np.dtype(dtype).itemsize, dtype=np.uint32).astype(np.uint8)
    x = words.view(dtype).reshape(ROWS, COLUMNS)
    result = loaded(_copied(dtype), x).check([x])
    assert result.findings == ()
    (output,) = result.outputs
    assert output.dtype == x.dtype
    assert output.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", NARROW)
def test_no_execution_converts_a_whole_input(dtype: Any) -> None:
    """XLA would copy all of a cache in HBM for it, each time."""
    x = np.zeros((ROWS, COLUMNS), dtype)
    program = loaded(_copied(dtype), x)
    (held,) = program.place([x])
    assert held.dtype == kept_as(x.dtype) != x.dtype
    whole = f"[{ROWS},{COLUMNS}]"
    code = program.with_options(**program.first).compiled.as_text()
    made = [line for line in code.splitlines() if "bitcast-convert(" in line]
    assert not [line for line in made if whole in line.split("=")[1]]


@pytest.mark.parametrize("start", [0, np.int32(0)], ids=["known", "computed"])
def test_a_slice_larger_than_its_array_is_as_large_as_asked_for(start: int) -> None:
    array = jnp.arange(6, dtype=jnp.int32).reshape(2, 3)
    place = (start, jnp.asarray(0) if isinstance(start, np.int32) else 0)
    assert np.array_equal(take(array, place, (2, 5)), np.pad(array, [(0, 0), (0, 2)]))
    value = jnp.full((1, 5), 9, jnp.int32)
    assert np.array_equal(put(array, place, value), [[9, 9, 9], [3, 4, 5]])
