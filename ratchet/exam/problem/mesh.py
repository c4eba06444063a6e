"""The mesh that ``get_tiling_meta()`` declares: read, written as plain JSON, and its parts of an array.

    "mesh": {"chip": 4},
    "input_shardings": [[], [None, "chip"], [None, "chip"]],

names the axes with their sizes, outermost first, and for every input what a ``PartitionSpec`` says of its dimensions.
A file without a mesh is judged on one chip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ratchet.values import ArraySpec, Mesh
from ratchet.values.status import Refusal, Status


def read(meta: Mapping[str, object], inputs: Sequence[ArraySpec]) -> Mesh:
    """The mesh that a file declares for its ``inputs``.

    Raises:
      Refusal: ``CONTRACT``, with every disagreement at once.
    """
    declared, given = meta.get("mesh", {}), meta.get("input_shardings", [])
    if not isinstance(declared, dict) or not all(
        isinstance(name, str) and name and type(size) is int and size > 0 for name, size in declared.items()
    ):
        raise _refusal([f"mesh is {declared!r:.80}, wanted a dict of axis names and sizes"])
    if not declared and not given:
        return Mesh()
    if not isinstance(given, list | tuple) or len(given) != len(inputs):
        count = len(given) if isinstance(given, list | tuple) else f"a {type(given).__name__}"
        raise _refusal([f"input_shardings has {count} entries, wanted one list for each of {len(inputs)} inputs"])
    splits, wrong = [], []
    for number, (entry, spec) in enumerate(zip(given, inputs, strict=True)):
        split = _split(entry)
        if split is None:
            wrong.append(f"input_shardings[{number}] is {entry!r:.80}, wanted a list of None, axis names or lists")
            continue
        wrong += [f"input_shardings[{number}]: {what}" for what in disagreements(split, spec, declared)]
        splits.append(split)
    if wrong:
        raise _refusal(wrong)
    return Mesh(axes=tuple(declared.items()), inputs=tuple(splits))


def _refusal(wrong: Sequence[str]) -> Refusal:
    return Refusal(Status.CONTRACT, "get_tiling_meta(): " + "; ".join(wrong))


def _split(entry: object) -> tuple[tuple[str, ...], ...] | None:
    if not isinstance(entry, list | tuple):
        return None
    axes_of_each = []
    for item in entry:
        names = [] if item is None else [item] if isinstance(item, str) else item
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return None
        axes_of_each.append(tuple(names))
    return tuple(axes_of_each)


def disagreements(split: Sequence[Sequence[str]], spec: ArraySpec, axes: Mapping[str, int]) -> list[str]:
    """What is wrong with an array's split over the axes of a mesh, in words."""
    wrong = [f"{len(split)} dimensions for {spec}"] if len(split) > len(spec.shape) else []
    names = [name for dimension in split for name in dimension]
    wrong += [f"no axis {name!r} in the mesh" for name in names if name not in axes]
    if len(set(names)) != len(names):
        wrong.append("an axis is used twice")
    for size, dimension in zip(spec.shape, split, strict=False):
        count = math.prod(axes.get(name, 1) for name in dimension)
        if size % count:
            wrong.append(f"{count} chips cannot share {size} rows of {spec} evenly")
    return wrong


def plain(mesh: Mesh) -> dict[str, object]:
    """The mesh as plain JSON, in the words of ``get_tiling_meta()``."""
    shardings = [[list(names) or None for names in split] for split in mesh.inputs]
    return {"mesh": dict(mesh.axes), "input_shardings": shardings}
