"""Arrays for the calls of public kernels: the same in every process."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np


def normal(name: str, *shape: int, dtype: Any = jnp.bfloat16, scale: float = 1.0) -> Any:
    """Normally distributed floats; another ``name`` gives others."""
    return jnp.asarray(_generator(name).normal(size=shape) * scale, dtype)


def integers(name: str, low: int, high: int, *shape: int, dtype: Any = jnp.int32) -> Any:
    """Integers from ``low`` up to and without ``high``."""
    return jnp.asarray(_generator(name).integers(low, high, size=shape), dtype)


def permuted(name: str, *shape: int) -> Any:
    """All numbers below the product of ``shape``, in a random order, as int32: page tables."""
    return jnp.asarray(_generator(name).permutation(int(np.prod(shape))).reshape(shape), jnp.int32)


def ints(*values: int) -> Any:
    """A vector of int32."""
    return jnp.asarray(values, jnp.int32)


def parts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """First row and end of each group of so many rows."""
    return list(itertools.pairwise(int(edge) for edge in np.cumsum([0, *sizes])))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
