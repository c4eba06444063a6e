"""Arrays as a command line has them: ``bf16[1024,256]``, and on a mesh ``bf16[2048@chip,1024]``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ratchet.exam.problem import mesh as meshes
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status

Split = tuple[tuple[str, ...], ...]
"""Per dimension, the axes of a mesh that it is split over."""

_ARRAY = re.compile(r"([a-z][a-z0-9_]*)\[([0-9A-Za-z_@+, ]*)\]")
_SIDE = re.compile(r"([0-9]+)((?:[@+][A-Za-z_][A-Za-z_0-9]*)*)")
_AXIS = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)=([0-9]{1,9})")
_NARROW = (
    (4, "e2m1fn"),
    *((8, kind) for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")),
)
"""JAX's floats of few bits: how many, and of which kind."""
_SHORT = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"{sign}{bits}": f"int{bits}" for sign in "is" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "bf16": "bfloat16",
    "pred": "bool",
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
    **{f"f{bits}{kind}": f"float{bits}_{kind}" for bits, kind in _NARROW},
}
_DTYPES = frozenset(_SHORT.values())
_WIDE = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
"""What JAX makes of dtypes of 64 bits, which it knows only with a switch that is off here."""
_MOST_ROWS = 1 << 31
"""More than any side of an array has that a chip holds."""


def array(text: str) -> ArraySpec:
    """Read ``bf16[1024,256]``; dtypes in JAX's long names or XLA's short ones. ``f32[]`` is a scalar.

    Raises:
      Refusal: ``USAGE``.
    """
    spec, split = split_array(text)
    if any(split):
        raise Refusal(Status.USAGE, f"{text!r:.80} is split over a mesh, and there is none: wanted sizes alone")
    return spec


def split_array(text: str) -> tuple[ArraySpec, Split]:
    """Read ``bf16[2048@chip,1024]``: the rows are split over the axis ``chip``, over two axes by ``@x+y``.

    Raises:
      Refusal: ``USAGE``.
    """
    match = _ARRAY.fullmatch(text.strip())
    sides = [_SIDE.fullmatch(side.strip()) for side in match[2].split(",") if side.strip()] if match else []
    found = [side for side in sides if side is not None]
    if match is None or len(found) < len(sides) or any(side[2].startswith("+") for side in found):
        raise Refusal(Status.USAGE, f"{text!r:.80} is no array: wanted dtype[size,size], such as bf16[1024,256]")
    dtype = _SHORT.get(match[1], match[1])
    if dtype not in _DTYPES:
        message = (
            f"{match[1]!r:.40} in {text!r:.80} is no dtype: wanted one of JAX's, such as bf16, float32, s8 or bool"
        )
        raise Refusal(Status.USAGE, message)
    if dtype in _WIDE:
        raise Refusal(Status.USAGE, f"{text!r:.80}: JAX traces {dtype} as {_WIDE[dtype]} here: wanted that")
    sizes = [int(side[1]) for side in found]
    if any(size >= _MOST_ROWS for size in sizes):
        raise Refusal(Status.USAGE, f"{text!r:.80} is no array that a chip holds: wanted sizes below {_MOST_ROWS}")
    split = tuple(tuple(re.findall(r"[^@+]+", side[2])) for side in found)
    return ArraySpec(shape=tuple(sizes), dtype=dtype), split


def axes(text: str) -> dict[str, int]:
    """Read ``chip=8`` or ``x=2,y=4``: a mesh, outermost axis first.

    Raises:
      Refusal: ``USAGE``.
    """
    found = [_AXIS.fullmatch(part.strip()) for part in text.split(",")]
    sizes = {one[1]: int(one[2]) for one in found if one is not None}
    if len(sizes) < len(found):
        raise Refusal(Status.USAGE, f"{text!r:.80} is no mesh: wanted axis=size,axis=size, such as chip=8 or x=2,y=4")
    return sizes


def check_mesh(mesh: Mapping[str, int], specs: Sequence[ArraySpec], splits: Sequence[Split]) -> None:
    """Raises Refusal USAGE where arrays are not split over the axes of ``mesh``, or not evenly."""
    for spec, split in zip(specs, splits, strict=True):
        if any(split) and not mesh:
            raise Refusal(Status.USAGE, f"{spec} is split over {split!r:.60}: say the mesh, too, such as chip=8")
        if wrong := meshes.disagreements(split, spec, mesh):
            raise Refusal(Status.USAGE, f"{spec}: {'; '.join(wrong)}")
