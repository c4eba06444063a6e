"""A published case as a JAX program ready to be lowered."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from benchmarks.lib.published.builders import builder_of
from benchmarks.lib.published.cases import Array, Case

_DTYPES = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "s8": "int8", "i8": "int8", "int8": "int8",
           "s32": "int32", "i32": "int32", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}  # fmt: skip


class NotBuilt(Exception):
    """Nobody here wrote the kernel that a row names, or its settings say what the builder does not know."""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a program for several chips is spread over them."""

    axes: tuple[tuple[str, int], ...]
    """The mesh: names and sizes."""
    inputs: tuple[PartitionSpec, ...]
    output: PartitionSpec

    @property
    def chips(self) -> int:
        """How many it takes."""
        return math.prod(size for _, size in self.axes)


@dataclass(frozen=True, kw_only=True)
class Built:
    """A program ready to be lowered."""

    function: Callable[..., Any]
    avals: tuple[jax.ShapeDtypeStruct, ...]
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Values that steer control flow: by number of the entry parameter (``"2"``), or of the kernel's operand
    (``"kernel:0"``), counted as the compiled custom call has them."""
    sharding: Sharding | None = None
    """None for a program on one device; else ``function`` is what each chip does with its shards of ``avals``."""


def aval(array: Array) -> jax.ShapeDtypeStruct:
    """Shape and dtype as JAX has them. Raises NotBuilt for a dtype that is not known here."""
    if array.dtype not in _DTYPES:
        raise NotBuilt(f"dtype {array.dtype!r} is not known here; known: {', '.join(_DTYPES)}")
    return jax.ShapeDtypeStruct(array.shape, jnp.dtype(_DTYPES[array.dtype]))


def build(case: Case) -> Built:
    """Builds the program of a case.

    Raises:
        NotBuilt: no builder is known for the kernel or its settings, or an optional dependency is missing.
    """
    module = builder_of(case.kernel)
    if not module:
        raise NotBuilt(f"no builder for {case.kernel!r}")
    try:
        return importlib.import_module(f"benchmarks.lib.published.{module}").build(case)
    except ImportError as error:
        raise NotBuilt(f"{error}; install the extra `peers`") from error
