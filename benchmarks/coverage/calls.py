"""The list of calls, and what they share: arrays that are the same in every process, and references in plain JAX."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

F32 = jnp.float32


@dataclass(frozen=True, kw_only=True)
class Call:
    """A kernel with its arguments, made in the process that runs it."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    """Positional arguments: arrays or pytrees of them. Integers steer the modelled run."""
    reference: Callable[..., Any] | None = None
    """The repository's own reference, of the same arguments; without one, Pallas's interpreter is asked."""
    tolerance: float = 0.02
    """Largest error over the largest value of an output: products of float32 pass the matrix unit as bfloat16."""
    chip: str = "v5e"
    mesh: Mapping[str, int] = field(default_factory=dict)
    """Names and sizes of the axes of a slice of chips; empty for one chip."""
    specs: Sequence[Any] = ()
    """Of each leaf of ``arrays``, how it lies on the mesh."""
    check: Callable[[], object] | None = None
    """In the place of a reference: what it is part of, run whole and asserting what it asserts."""

    @property
    def where(self) -> dict[str, Any]:
        """What ``ratchet.export`` and ``ratchet.compile`` take of it."""
        return {"chip": self.chip, "mesh": self.mesh or None, "specs": tuple(self.specs)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """An entry of the list."""

    name: str
    """``repository/kernel, variant``."""
    path: str
    """Where the kernel is, from the top of its repository."""
    call: Callable[[Any], Call]
    """Makes the call, given the module that the kernel is in."""
    section: str = ""
    """Of the page, where it is not the main one."""

    @property
    def repository(self) -> str:
        """Key of :data:`benchmarks.lib.repositories.REPOSITORIES`."""
        return self.name.partition("/")[0]


CASES: dict[str, Case] = {}
"""By name, in the order of the list."""


def enter(path: str, calls: Mapping[str, Callable[[Any], Call]], *, section: str = "") -> None:
    """Enter kernels of one file into the list, each with what makes its call of the file's module."""
    for name, call in calls.items():
        if name in CASES:
            raise ValueError(f"{name!r} is in the list already")
        CASES[name] = Case(name=name, path=path, call=call, section=section)


def case(name: str, *, path: str, section: str = "") -> Callable[[Callable[[Any], Call]], Callable[[Any], Call]]:
    """Enter one kernel; the decorated function is its :attr:`Case.call`."""

    def decorate(call: Callable[[Any], Call]) -> Callable[[Any], Call]:
        enter(path, {name: call}, section=section)
        return call

    return decorate


# --- arrays ---


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


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


# --- references ---


def gradient(function: Callable[..., Any], inputs: tuple[int, ...] = (0, 1, 2)) -> Callable[..., Any]:
    """The gradients of the sum of squares of ``function``."""
    return jax.grad(lambda *arrays: (function(*arrays).astype(F32) ** 2).sum(), argnums=inputs)


def _parts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """First row and end of each group of so many rows."""
    return list(itertools.pairwise(int(edge) for edge in np.cumsum([0, *sizes])))


def grouped(lhs: Any, rhs: Any, sizes: Sequence[int]) -> Any:
    """Groups of rows of ``lhs`` [m, k], each times its matrix of ``rhs`` [groups, k, n]."""
    return jnp.concatenate([lhs[a:b] @ rhs[n] for n, (a, b) in enumerate(_parts(sizes))])


def grouped_outer(lhs: Any, rhs: Any, sizes: Sequence[int]) -> Any:
    """Groups of columns of ``lhs`` [k, m], each times as many rows of ``rhs`` [m, n], in float32."""
    return jnp.stack([lhs[:, a:b].astype(F32) @ rhs[a:b].astype(F32) for a, b in _parts(sizes)])


def causal(queries: int, keys: int, window: int | None = None) -> np.ndarray:
    """Which keys the last ``queries`` of ``keys`` tokens see: bool[queries, keys]."""
    ahead = keys - queries + np.arange(queries)[:, None] - np.arange(keys)
    return (ahead >= 0) & (ahead < (window or keys))


def attend(q: Any, k: Any, v: Any, seen: Any, *, scale: float = 1.0, cap: float | None = None) -> Any:
    """Attention in float32: q [queries, heads, d], k and v [key heads, keys, d], seen [queries, keys]."""
    q, k, v = (one.astype(F32) for one in (q, k, v))
    logits = scale * jnp.einsum("qhgd,hkd->hgqk", q.reshape(len(q), len(k), -1, q.shape[2]), k)
    logits = cap * jnp.tanh(logits / cap) if cap else logits
    weights = jax.nn.softmax(jnp.where(jnp.asarray(seen), logits, -1e30), axis=-1)
    return jnp.einsum("hgqk,hkd->qhgd", weights, v).reshape(q.shape)
