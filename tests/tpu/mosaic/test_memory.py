"""References into buffers: what they reach, and what a bitcast between widths does."""

from itertools import product

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from ratchet.tpu.mosaic.arrays import add, bitcast_array, decode, encode, known, put, take
from ratchet.tpu.mosaic.memory import Buffer, Slice, Squeeze, Whole, bitcast, put_where, reshape, reshaped_box
from ratchet.values.status import Refusal, Status

F32, BF16, I8 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int8)


def buffer(shape, dtype=F32):
    return Buffer(name="b", shape=shape, dtype=dtype, space="vmem")


def filled(shape, dtype=F32):
    """A reference to all of a buffer of ascending numbers, and the memory that holds it."""
    own = buffer(shape, dtype)
    return Whole(own), {own: encode(jnp.arange(np.prod(shape)).reshape(shape).astype(dtype))}


def numbers(array):
    return np.asarray(array, np.float32).tolist()


def test_slices_of_slices_and_squeezes():
    whole, memory = filled((4, 4, 4))
    inner = Slice(Slice(whole, (1, 0, 1), (3, 4, 3)), (1, 2, 0), (1, 2, 2))
    flat = Squeeze(inner, (1, 2))
    assert flat.shape == (2, 2)
    assert numbers(flat.load_all(memory)) == [[41, 42], [45, 46]]
    assert numbers(flat.load(memory, (1, 1), (1, 1))) == [[46]]
    assert flat.box((1, 0), (1, 2)) == ([2, 3, 1], [1, 1, 2])
    flat.store(memory, (1, 0), jnp.float32([[-1, -2]]))
    after = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    after[2, 3, 1:3] = -1, -2
    assert numbers(whole.load_all(memory)) == after.tolist()
    flat.store_all(memory, jnp.zeros((2, 2)))
    after[2, 2:4, 1:3] = 0
    assert numbers(whole.load_all(memory)) == after.tolist()
    assert (flat.buffer, flat.dtype) == (whole.buffer, F32)


def test_a_change_of_indices_reaches_every_slice():
    whole = Whole(buffer((8, 4)))
    changed = Squeeze(Slice(Slice(whole, (1, 0), (4, 4)), (2, 1), (1, 2)), (1,)).map_indices(lambda i: i * 2)
    assert changed.box((0,), (2,)) == ([6, 2], [1, 2])
    through = reshape(Slice(whole, (1, 0), (2, 4)), (8,)).map_indices(lambda i: i + 1)
    assert through.box((0,), (8,)) == ([2, 1], (2, 4))
    assert whole.map_indices(lambda i: i + 1) is whole


def test_a_reshape_reads_and_writes_in_row_major_order():
    whole, memory = filled((2, 6))
    seen = reshape(whole, (4, 3))
    assert numbers(seen.load(memory, (1, 1), (2, 2))) == [[4, 5], [7, 8]]
    seen.store(memory, (3, 0), jnp.float32([[-1, -2, -3]]))
    assert numbers(whole.load_all(memory)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, -1, -2, -3]]
    seen.store_all(memory, jnp.ones((4, 3)))
    assert numbers(whole.load_all(memory)) == [[1] * 6] * 2
    with pytest.raises(Refusal, match=r"memref reshape from \(2, 6\) to \(4, 4\) changes the size") as caught:
        reshape(whole, (4, 4))
    assert caught.value.status is Status.CANNOT_VERIFY


@pytest.mark.parametrize(
    ("shape", "starts", "sizes", "box"),
    [
        ((2, 12), (1, 5), (1, 2), ((1, 1, 0), (1, 1, 4))),
        ((2, 3, 4), (1, 2, 3), (1, 1, 1), ((1, 2, 3), (1, 1, 1))),
        ((2, 3, 2, 2), (1, 2, 1, 0), (1, 1, 1, 1), ((1, 2, 2), (1, 1, 1))),
        ((24,), (5,), (2,), ((0, 0, 0), (1, 3, 4))),
        ((24,), (11,), (2,), ((0, 0, 0), (2, 3, 4))),
        ((6, 4), (2, 1), (2, 2), ((0, 0, 1), (2, 3, 2))),
        ((2, 3, 4, 1), (0, 1, 0, 0), (2, 0, 4, 1), ((0, 1, 0), (2, 0, 4))),
    ],
)
def test_behind_a_reshape_a_box_holds_at_least_what_is_reached(shape, starts, sizes, box):
    assert reshape(Whole(buffer((2, 3, 4))), shape).box(starts, sizes) == box


SHAPES = ((24,), (2, 12), (6, 4), (2, 3, 4), (4, 3, 2), (1, 24), (24, 1), (2, 2, 6), (3, 8), (1, 8, 3))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("into", SHAPES)
def test_no_box_of_a_reshaped_array_lacks_an_element(shape, into):
    """Every box, as numbers and as traced ones; two that share no row of a merged dimension stay apart."""
    elements = np.arange(24).reshape(into)
    traced = jax.jit(lambda starts, sizes: reshaped_box(list(starts), list(sizes), shape, into))
    for number, cut in enumerate(
        product(*([(a, n) for n in range(1, d + 1) for a in range(d - n + 1)] for d in shape))
    ):
        starts, sizes = zip(*cut, strict=True)
        reached = np.arange(24).reshape(shape)[tuple(slice(a, a + n) for a, n in cut)]
        first, many = reshaped_box(starts, sizes, shape, into)
        held = elements[tuple(slice(a, a + n) for a, n in zip(first, many, strict=True))]
        assert set(reached.ravel()) <= set(held.ravel())
        if len(into) == 1 and reached.size == np.ptp(reached) + 1:
            assert held.size == reached.size
        if number % 50 == 0:
            assert [numbers(end) for end in traced(starts, sizes)] == [list(first), list(many)]


def test_a_bitcast_splits_rows_and_joins_them():
    """Element ``r * packing + j`` of the narrow array is the j-th least significant part of row ``r``."""
    wide = jnp.int32([[0x04030201, 0x08070605], [0x0C0B0A09, 0x100F0E0D]])
    narrow = bitcast_array(wide, I8)
    assert numbers(narrow) == [[1, 5], [2, 6], [3, 7], [4, 8], [9, 13], [10, 14], [11, 15], [12, 16]]
    assert numbers(bitcast_array(narrow, np.dtype(np.int32))) == numbers(wide)
    assert bitcast_array(jnp.zeros((3, 4, 8), jnp.int16), I8).shape == (3, 8, 8)
    assert numbers(bitcast_array(jnp.float32([[1.0]]), np.dtype(np.int32))) == [[0x3F800000]]


def test_a_reference_through_a_bitcast():
    whole, memory = filled((2, 2), np.dtype(np.int32))
    seen = bitcast(whole, (8, 2), I8)
    assert (seen.shape, seen.dtype) == ((8, 2), I8)
    assert numbers(seen.load(memory, (4, 0), (2, 2))) == [[2, 3], [0, 0]]
    seen.store(memory, (5, 0), jnp.int8([[1, 0]]))
    assert numbers(whole.load_all(memory)) == [[0, 1], [2 + 256, 3]]
    with pytest.raises(Refusal, match="a DMA into a bitcast reference") as caught:
        seen.with_dtype(F32)
    assert caught.value.status is Status.CANNOT_VERIFY


def test_a_reference_into_a_buffer_of_another_dtype():
    whole = Whole(buffer((2, 4), BF16))
    refs = [whole, Slice(whole, (1, 0), (1, 4)), Squeeze(Slice(whole, (1, 0), (1, 4)), (1,)), reshape(whole, (8,))]
    for ref in refs:
        other = ref.with_dtype(F32)
        assert (other.dtype, other.shape, other.buffer, ref.dtype) == (F32, ref.shape, whole.buffer, BF16)
        assert other.box((0,) * len(ref.shape), ref.shape) == ref.box((0,) * len(ref.shape), ref.shape)


def test_narrow_floats_are_kept_as_integers():
    values = jnp.bfloat16([1.5, -2])
    kept = encode(values)
    assert kept.dtype == np.uint16
    assert numbers(decode(kept, BF16)) == [1.5, -2]
    for array in (jnp.float32([1.5]), jnp.int8([3]), np.bool_([True])):
        assert encode(array) is array
        assert decode(array, np.dtype(array.dtype)) is array


def test_what_is_stored_on_a_condition():
    whole, memory = filled((2,))
    put_where(memory, whole, jnp.bool_(False), jnp.float32([7, 8]))
    assert numbers(whole.load_all(memory)) == [0, 1]
    put_where(memory, whole, jnp.bool_(True), jnp.float32([7, 8]))
    assert numbers(whole.load_all(memory)) == [7, 8]


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
