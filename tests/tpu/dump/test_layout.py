"""Sizes of arrays and of their elements, and values as the compiler lays them out."""

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ratchet.tpu.dump.layout import ArrayType, byte_of, lay_out, rearranged
from tests.hlo_texts import array_types

NAMES = {
    "pred": "bool", "s8": "int8", "u8": "uint8", "s16": "int16", "u16": "uint16", "bf16": "bfloat16", "f16": "float16",
    "s32": "int32", "u32": "uint32", "f32": "float32", "s64": "int64", "u64": "uint64", "f64": "float64",
    "c64": "complex64", "c128": "complex128", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e4m3": "float8_e4m3", "f8e3m4": "float8_e3m4",
    "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
BITS = {
    **{name: 8 * jnp.dtype(dtype).itemsize for name, dtype in NAMES.items()},
    "s2": ml_dtypes.iinfo(ml_dtypes.int2).bits,
    "u2": ml_dtypes.iinfo(ml_dtypes.uint2).bits,
    "s4": ml_dtypes.iinfo(ml_dtypes.int4).bits,
    "u4": ml_dtypes.iinfo(ml_dtypes.uint4).bits,
    "f4e2m1fn": ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).bits,
    "token": 32,  # what is not known counts as a word
}


def plain(dtype: str, *shape: int) -> ArrayType:
    order = tuple(range(len(shape)))[::-1]
    return ArrayType(dtype=dtype, shape=shape, minor_to_major=order, tiles=(), space=0)


@pytest.mark.parametrize(("dtype", "bits"), BITS.items())
def test_elements_are_as_large_as_numpy_has_them_and_narrow_ones_packed(dtype: str, bits: int) -> None:
    assert plain(dtype, 1024).padded_bytes == 1024 * bits / 8


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("bf16[65536,96]{1,0:T(8,128)(2,1)}", 65536 * 128 * 2),
        ("bf16[1024,64]{0,1:T(8,128)(2,1)}", 1024 * 64 * 2),
        ("f32[1024,1]{1,0:T(8,128)}", 1024 * 128 * 4),
        ("f32[1024,1]{0,1:T(1,128)}", 1024 * 4),
        ("f32[9,129]{1,0:T(8,128)}", 16 * 256 * 4),
        ("f32[129,9]{0,1:T(8,128)}", 16 * 256 * 4),
        ("f32[5]{0:T(8,128)}", 8 * 128 * 4),
        ("f32[2,3,5]{2,1,0:T(8,128)}", 2 * 8 * 128 * 4),
        ("f32[3,5]", 3 * 5 * 4),
        ("s32[5]{0:T(128)}", 128 * 4),
        ("s32[]{:T(128)S(6)}", 512),
        ("pred[8,128]{1,0:T(8,128)(4,1)}", 1024),
        ("s4[8,128]{1,0:T(8,128)(8,1)}", 512),
        ("f32[]", 4),
        ("pred[]", 4),  # nothing is smaller than a word
    ],
)
def test_arrays_are_padded_to_whole_tiles(text: str, size: int) -> None:
    (array,) = array_types(text)
    assert array.padded_bytes == size
    assert str(array) == text.partition("{")[0]


@pytest.mark.parametrize("dtype", ["pred", "s8", "u8", "s16", "u16", "s32", "u32", "f32", "bf16", "s4", "f64"])
def test_what_the_scalar_unit_branches_on(dtype: str) -> None:
    assert plain(dtype).may_steer is (dtype not in ("bf16", "s4", "f64"))


def test_lay_out() -> None:
    row, tiled, packed, flat, short, scalar, many = array_types(
        *("s32[5]{0:T(128)}", "s32[16,256]{1,0:T(8,128)}", "s8[4,2]{1,0:T(8,128)(4,1)}", "s8[256]{0:T(512)(128)(4,1)}"),
        *("s32[3]{0:T(2,4)}", "s32[]", "s32[2,2,3]{2,1,0:T(2,2)}"),
    )
    words = lay_out(np.arange(5, dtype=np.int32), row)
    assert (words[:6], len(words)) == ([0, 1, 2, 3, 4, 0], 128)
    words = lay_out(np.arange(16 * 256, dtype=np.int32).reshape(16, 256), tiled)
    assert words[127:130] == [127, 256, 257], "the second row of the first tile follows its first row"
    words = lay_out(np.array([[1, 5], [2, 6], [3, 7], [4, 8]], np.int8), packed)
    assert words[:2] == [0x04030201, 0x08070605], "four rows share a word"
    words = lay_out(np.arange(256, dtype=np.uint8).view(np.int8), flat)
    # As compiled kernels read element i: byte (i % 512) // 128 of word i // 512 * 128 + i % 128.
    assert (words[0], words[127], len(words)) == (0x8000, 0xFF7F, 128), "elements 0 and 128 share a word"
    assert lay_out(np.array([1, 2, 3], np.int32), short) == [1, 2, 3, 0, 0, 0, 0, 0]
    assert lay_out(np.int32(7), scalar)[0] == 7
    words = lay_out(np.arange(1, 13, dtype=np.int32).reshape(2, 2, 3), many)
    assert words == [1, 2, 4, 5, 3, 0, 6, 0, 7, 8, 10, 11, 9, 0, 12, 0]
    with pytest.raises(ValueError, match="wants"):
        lay_out(np.zeros(3, np.int32), row)


def test_a_bitcast_keeps_the_bytes_and_not_the_order_of_the_elements() -> None:
    source, transposed, tiles, narrow, other, one, scalar = array_types(
        *("s32[16,256]{1,0:T(8,128)}", "s32[256,16]{0,1:T(8,128)}", "s32[2,2,8,128]{3,2,1,0:T(8,128)}"),
        *("s8[16,256]{1,0:T(8,128)(4,1)}", "s8[256,16]{0,1:T(8,128)(4,1)}", "s32[1]{0:T(128)}", "s32[]{:T(128)}"),
    )
    values = np.arange(16 * 256, dtype=np.int32).reshape(16, 256)
    np.testing.assert_array_equal(rearranged(values, source, source), values)
    np.testing.assert_array_equal(rearranged(values, source, transposed), values.T)
    by_tile = values.reshape(2, 8, 2, 128).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(rearranged(values, source, tiles), by_tile)
    assert rearranged(np.array([7], np.int32), one, scalar) == 7
    assert rearranged(values.astype(np.int8), narrow, other) is None, "four share a word"


def test_narrow_values_are_rearranged_only_where_nothing_changes() -> None:
    wide, flat, same = plain("s16", 2, 2), plain("s32", 4), plain("u16", 2, 2)
    values = np.arange(4, dtype=np.int16).reshape(2, 2)
    assert rearranged(values, wide, flat) is None
    assert rearranged(values.reshape(4).astype(np.int32), flat, wide) is None
    assert rearranged(values, wide, same) is values


@pytest.mark.parametrize(("dtype", "shape", "order", "tiles"), [
    ("s32", (16, 256), (1, 0), ((8, 128),)), ("s32", (3, 20, 200), (2, 1, 0), ((8, 128),)),
    ("s32", (20, 3, 200), (2, 0, 1), ((4, 128),)), ("s32", (300,), (0,), ((128,),)), ("s32", (5, 300), (0, 1), ()),
    ("s16", (24, 256), (1, 0), ((8, 128), (2, 1))), ("s8", (2, 64, 130), (2, 1, 0), ((8, 128), (4, 1))),
])  # fmt: skip
def test_the_byte_of_an_element_is_where_it_is_laid_out(
    dtype: str, shape: tuple[int, ...], order: tuple[int, ...], tiles: tuple[tuple[int, ...], ...]
) -> None:
    array = ArrayType(dtype=dtype, shape=shape, minor_to_major=order, tiles=tiles, space=0)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    size = array.item_bits // 8
    unsigned = np.dtype(f"u{size}")
    for part in range(0, numbers.size, (1 << array.item_bits) - 1):  # as many as there are numbers of that width
        marked = np.where((numbers >= part) & (numbers < part + (1 << array.item_bits) - 1), numbers - part + 1, 0)
        words = np.array(lay_out(marked.astype(unsigned).view(f"i{size}"), array), np.int32).view(unsigned)
        places = np.flatnonzero(words)
        elements = words[places].astype(np.int64) - 1 + part
        np.testing.assert_array_equal(byte_of(np.unravel_index(elements, shape), array), places * size)
