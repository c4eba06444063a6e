"""Vectors of numbers most of which are constants, made with few operations.

A number that is another one in each turn of an unrolled loop, evenly spaced, is computed for all of a vector at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mosaic.memory import Array, known


@dataclass(frozen=True, kw_only=True, eq=False)
class Spaced:
    """``first + apart * turn``."""

    first: int
    apart: int
    turn: Array


Number = Any
"""A constant, a traced int32 scalar or a :class:`Spaced`."""


def computed(number: Number) -> Array:
    """A number as one constant or traced scalar."""
    return number.first + number.apart * number.turn if isinstance(number, Spaced) else number


def words(numbers: Sequence[Number]) -> Array:
    """int32 vector of numbers; constants beside each other are one piece."""
    pieces: list[Array] = []
    fixed = [number.first if isinstance(number, Spaced) else number for number in numbers]
    for is_constant, group in itertools.groupby(fixed, known):
        if is_constant:
            pieces.append(np.array([int(number) for number in group], np.int32))
        else:
            pieces += [lax.reshape(lax.convert_element_type(number, np.int32), (1,)) for number in group]
    vector = lax.concatenate(pieces, 0) if len(pieces) > 1 else jnp.asarray(pieces[0])
    for turn in {id(number.turn): number.turn for number in numbers if isinstance(number, Spaced)}.values():
        apart = [n.apart if isinstance(n, Spaced) and n.turn is turn else 0 for n in numbers]
        vector = vector + np.array(apart, np.int32) * turn
    return vector


def one_of(numbers: Sequence[Number], which: Array) -> Number:
    """One of some int32 numbers, of which constants that are evenly spaced need no table."""
    if not all(map(known, numbers)):
        return jnp.stack([jnp.asarray(computed(number), jnp.int32) for number in numbers])[which]
    first, *apart = numbers[0], *(b - a for a, b in itertools.pairwise(numbers))
    if len(set(apart)) == 1:
        return Spaced(first=first, apart=apart[0], turn=which) if apart[0] else first
    return jnp.asarray(np.array(numbers, np.int32))[which]
