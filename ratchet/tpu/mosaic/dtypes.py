"""Mosaic's element types as JAX dtypes. Integers are signless there and signed here; operations say which they mean."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ratchet.values.status import Refusal, Status

_DTYPES: dict[str, object] = {
    "i1": jnp.bool_,
    "i4": jnp.int4,
    "i8": jnp.int8,
    "i16": jnp.int16,
    "i32": jnp.int32,
    "index": jnp.int32,
    "f32": jnp.float32,
    "bf16": jnp.bfloat16,
    "f16": jnp.float16,
    "f8E5M2": jnp.float8_e5m2,
    "f8E4M3FN": jnp.float8_e4m3fn,
    "f8E4M3B11FNUZ": jnp.float8_e4m3b11fnuz,
    # A semaphore is a count: bytes for a DMA's, signals otherwise.
    "semaphore": jnp.int32,
    "dma_semaphore": jnp.int32,
}


ELEMENT_TYPES = tuple(_DTYPES)


def jax_dtype(name: str) -> np.dtype:
    """The JAX dtype of a Mosaic element type.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for one that is not known.
    """
    if name not in _DTYPES:
        raise Refusal(Status.CANNOT_VERIFY, f"element type {name} is not one this judge can execute: {sorted(_DTYPES)}")
    return np.dtype(_DTYPES[name])  # type: ignore[call-overload,no-any-return]


def is_float(dtype: np.dtype) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def bits(dtype: np.dtype) -> int:
    """Bits of one element as the TPU stores it."""
    if dtype == np.dtype(jnp.bool_):
        return 1
    info = jnp.finfo(dtype) if is_float(dtype) else jnp.iinfo(dtype)
    return int(info.bits)


def unsigned(dtype: np.dtype) -> np.dtype:
    """The unsigned integer of the same width."""
    return np.dtype({4: jnp.uint4, 8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bits(dtype)])
