"""Sizes of elements, as the compiler lays them out."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ratchet.dump.layout import ArrayType
from ratchet.dump.listing import read_instruction

NAMES = {
    "pred": "bool", "s8": "int8", "u8": "uint8", "s16": "int16", "u16": "uint16", "bf16": "bfloat16", "f16": "float16",
    "s32": "int32", "u32": "uint32", "f32": "float32", "s64": "int64", "u64": "uint64", "f64": "float64",
    "c64": "complex64", "c128": "complex128", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e4m3": "float8_e4m3", "f8e3m4": "float8_e3m4",
    "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
PACKED = {"s2": ml_dtypes.int2, "u2": ml_dtypes.uint2, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}


def bits(dtype: str, shape: tuple[int, ...] = (1024,)) -> float:
    """Of one element of an array."""
    array = ArrayType(dtype=dtype, shape=shape, minor_to_major=(0,), tiles=(), space=0)
    return array.padded_bytes * 8 / shape[0]


@pytest.mark.parametrize(("name", "dtype"), NAMES.items())
def test_elements_are_as_large_as_numpy_has_them(name: str, dtype: str) -> None:
    assert bits(name) == 8 * jnp.dtype(dtype).itemsize


@pytest.mark.parametrize(("name", "dtype"), PACKED.items())
def test_narrow_integers_are_packed(name: str, dtype: type) -> None:
    assert bits(name) == ml_dtypes.iinfo(dtype).bits


def test_a_narrow_float_is_packed() -> None:
    assert bits("f4e2m1fn") == ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).bits


def test_nothing_is_smaller_than_a_word() -> None:
    assert ArrayType(dtype="pred", shape=(), minor_to_major=(), tiles=(), space=0).padded_bytes == np.int32().itemsize


def test_an_instruction_without_registers_moves() -> None:
    assert read_instruction("%s1_s1 = smov 5").moves
    assert read_instruction("%s2_s2 = smov %s1_s1").moves
    assert not read_instruction("%s2_s1 = smov %s1_s1").moves
