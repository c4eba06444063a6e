"""A matmul sharded over a 2x2 slice: three ways to sum its float32 partial products, rounded to the operands' dtype."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from benchmarks.lib.published.build import Built, NotBuilt, Sharding, aval
from benchmarks.lib.published.cases import Case


def _partial(a: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.dot(a, w, preferred_element_type=jnp.float32)


def psum(a: jax.Array, w: jax.Array) -> jax.Array:
    """One product of all columns, summed over ``y``; both chips have the whole sum."""
    return lax.psum(_partial(a, w), "y").astype(a.dtype)


def psum_scatter(a: jax.Array, w: jax.Array) -> jax.Array:
    """One product of all columns; each chip gets the sum of its half."""
    return lax.psum_scatter(_partial(a, w), "y", scatter_dimension=1, tiled=True).astype(a.dtype)


def ring(a: jax.Array, w: jax.Array) -> jax.Array:
    """The neighbour's half of the columns is multiplied first, and travels while the own half is."""
    me, half = lax.axis_index("y"), w.shape[1] // 2

    def columns(chip: Any) -> jax.Array:
        return lax.dynamic_slice_in_dim(w, chip * half, half, axis=1)

    arrived = lax.ppermute(_partial(a, columns(1 - me)), "y", [(0, 1), (1, 0)])
    return (arrived + _partial(a, columns(me))).astype(a.dtype)


_BY_WORD = (("ppermute", ring), ("psum_scatter", psum_scatter), ("psum", psum))
"""The first word that stands in the name of an implementation decides."""


def build(case: Case) -> Built:
    """The program that a row names. Raises NotBuilt."""
    function = next((function for word, function in _BY_WORD if word in case.kernel), None)
    if function is None:
        raise NotBuilt(f"{case.kernel!r} names none of {', '.join(word for word, _ in _BY_WORD)}")
    if len(case.arrays) != 2:
        raise NotBuilt("a matmul of other than two operands")
    return Built(
        function=function,
        avals=tuple(aval(array) for array in case.arrays),
        sharding=Sharding(
            axes=(("x", 2), ("y", 2)),
            inputs=(PartitionSpec("x", "y"), PartitionSpec("y")),
            output=PartitionSpec("x") if function is psum else PartitionSpec("x", "y"),
        ),
    )
