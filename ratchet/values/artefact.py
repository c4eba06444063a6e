"""What leaves a candidate's process: bytes and a validated record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """Shape and dtype of one array, e.g. ``(16384, 128)`` and ``"bfloat16"``."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The chips that a program is sharded over, and how its inputs are laid out on them. Without axes: one chip."""

    axes: tuple[tuple[str, int], ...] = ()
    """Names and sizes, outermost first."""
    inputs: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Per input and dimension: the axes that the dimension is split over. What is missing at an end is whole."""

    @property
    def chips(self) -> int:
        return math.prod(size for _, size in self.axes)

    def part(self, number: int, shape: Sequence[int], place: int) -> tuple[slice, ...]:
        """The part of input ``number`` on the chip at ``place`` of the mesh (row-major): one slice per dimension."""
        at: dict[str, int] = {}
        for name, size in reversed(self.axes):
            place, at[name] = divmod(place, size)
        sizes = dict(self.axes)
        split = self.inputs[number] if number < len(self.inputs) else ()
        slices = []
        for dimension, size in enumerate(shape):
            count, index = 1, 0
            for name in split[dimension] if dimension < len(split) else ():
                count, index = count * sizes[name], index * sizes[name] + at[name]
            slices.append(slice(index * size // count, (index + 1) * size // count))
        return tuple(slices)


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """All that leaves the candidate's process: bytes and a validated record. No Python of the candidate's."""

    kernel_name: str
    problem_description: str
    flops: int
    """The file's own ``compute_flops()``; only compared with the frozen problem."""
    tiling_meta: Mapping[str, object]
    """The author's claims, as plain JSON."""
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    mesh: Mesh = Mesh()
    """As ``get_tiling_meta()`` declares it; the frozen problem has to agree."""
    program: bytes
    """``jax.export`` artefact for one platform, source locations kept."""
    platform: str = "tpu"
    """``tpu``, ``cpu`` or ``cuda``."""
    reference_sha256: str
    """Digest of the file's reference, as a location-free exported program."""
    inputs_sha256: str
    """Digest of the file's input generator, likewise."""
    output_splits: tuple[tuple[tuple[str, ...], ...] | None, ...] = ()
    """How the program leaves each output on the chips, as ``Mesh.inputs``; None where it does not say."""
    jail: str
    """``""`` if the file-system jail held, else what is missing, in words."""
    seconds: float
