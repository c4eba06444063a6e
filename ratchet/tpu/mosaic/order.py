"""The order in which a kernel's grid steps run: lexicographic, with the steps of parallel dimensions shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.memory import Array, Index, known


@dataclass(kw_only=True)
class Order:
    """Which coordinates the ``n``-th step has, under one seed."""

    kernel: Kernel
    bounds: tuple[Index, ...]
    seed: Array
    """int32 scalar; 0 is lexicographic."""
    _permutations: list[Array | None] = field(init=False)

    def __post_init__(self) -> None:
        self._permutations = [
            _permutation(self.seed, i, bound) if "parallel" in semantics else None
            for i, (bound, semantics) in enumerate(zip(self.kernel.bounds, self.kernel.semantics, strict=True))
        ]

    def coordinates(self, step: Array) -> list[Index]:
        rest, out = step, []
        for i in reversed(range(len(self.bounds))):
            bound = self.bounds[i]
            if i == 0:
                coordinate = rest
            else:
                coordinate, rest = lax.rem(rest, jnp.int32(bound)), lax.div(rest, jnp.int32(bound))
            if known(bound) and int(bound) == 1:
                coordinate = np.int32(0)
            order = self._permutations[i]
            if order is not None:
                coordinate = lax.dynamic_slice(order, (coordinate,), (1,), allow_negative_indices=False)[0]
            elif self.kernel.bounds[i] is None and "parallel" in self.kernel.semantics[i]:
                coordinate = jnp.where(self.seed == 0, coordinate, bound - 1 - coordinate)
            out.append(coordinate)
        return out[::-1]

    def linear(self, coordinates: Sequence[Index]) -> Index:
        """Row-major number of a step, whenever it runs."""
        total: Index = np.int32(0)
        for coordinate, bound in zip(coordinates, self.bounds, strict=True):
            total = total * bound + coordinate
        return total


def _permutation(seed: Array, dimension: int, bound: int | None) -> Array | None:
    """The identity for seed 0, otherwise scattered by the seed and never beginning with step 0."""
    if bound is None or bound <= 1:
        return None
    i = jnp.arange(bound, dtype=jnp.int32)
    mixed = (i + jnp.int32(1 + dimension)) * jnp.int32(-1640531535) * (2 * seed + 1)
    scattered = jnp.argsort(mixed ^ lax.shift_right_logical(mixed, 15)).astype(jnp.int32)
    scattered = jnp.where(scattered[0] == 0, scattered[::-1], scattered)
    return jnp.where(seed == 0, i, scattered)
