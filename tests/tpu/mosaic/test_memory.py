"""References into buffers: what they reach."""

from itertools import product

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl

from ratchet.tpu.mosaic.arrays import encode
from ratchet.tpu.mosaic.memory import Buffer, Slice, Squeeze, Whole, bitcast, put_where, reshape, reshaped_box
from ratchet.values.status import Status
from tests.refusals import refused
from tests.tpu.mosaic.kernels import X, kernel_call, loaded, numbers

F32, BF16, I8 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int8)


def buffer(shape, dtype=F32):
    return Buffer(name="b", shape=shape, dtype=dtype, space="vmem")


def filled(shape, dtype=F32):
    """A reference to all of a buffer of ascending numbers, and the memory that holds it."""
    own = buffer(shape, dtype)
    return Whole(own), {own: encode(jnp.arange(np.prod(shape)).reshape(shape).astype(dtype))}


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
    with refused(Status.CANNOT_VERIFY, r"memref reshape from \(2, 6\) to \(4, 4\) changes the size"):
        reshape(whole, (4, 4))


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


def test_a_reference_through_a_bitcast():
    whole, memory = filled((2, 2), np.dtype(np.int32))
    seen = bitcast(whole, (8, 2), I8)
    assert (seen.shape, seen.dtype) == ((8, 2), I8)
    assert numbers(seen.load(memory, (4, 0), (2, 2))) == [[2, 3], [0, 0]]
    seen.store(memory, (5, 0), jnp.int8([[1, 0]]))
    assert numbers(whole.load_all(memory)) == [[0, 1], [2 + 256, 3]]
    assert (whole.box((0, 0), (1, 2)), seen.box((3, 0), (2, 1))) == (((0, 0), (1, 2)), ((0, 0), (2, 1)))
    assert bitcast(Whole(buffer((8, 2), I8)), (2, 2), np.dtype(np.int32)).box((1, 0), (1, 2)) == ((4, 0), (4, 2))
    with refused(Status.CANNOT_VERIFY, "a DMA into a bitcast reference"):
        seen.with_dtype(F32)


def test_a_reference_into_a_buffer_of_another_dtype():
    whole = Whole(buffer((2, 4), BF16))
    refs = [whole, Slice(whole, (1, 0), (1, 4)), Squeeze(Slice(whole, (1, 0), (1, 4)), (1,)), reshape(whole, (8,))]
    for ref in refs:
        other = ref.with_dtype(F32)
        assert (other.dtype, other.shape, other.buffer, ref.dtype) == (F32, ref.shape, whole.buffer, BF16)
        assert other.box((0,) * len(ref.shape), ref.shape) == ref.box((0,) * len(ref.shape), ref.shape)


def test_what_is_stored_on_a_condition():
    whole, memory = filled((2,))
    put_where(memory, whole, jnp.bool_(False), jnp.float32([7, 8]))
    assert numbers(whole.load_all(memory)) == [0, 1]
    put_where(memory, whole, jnp.bool_(True), jnp.float32([7, 8]))
    assert numbers(whole.load_all(memory)) == [7, 8]


def test_a_load_without_a_stride_repeats_one_row():
    def kernel(x, o):
        o[...] = x[pl.ds(3, 64, stride=0), :]

    result = loaded(kernel_call(kernel), X).check([X])
    assert not result.findings
    assert (result.outputs[0] == X[3]).all()
