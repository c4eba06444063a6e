"""Imports a function of the user's and exports it for one TPU. Runs as a jailed child, in any Python that has JAX.

Other versions of JAX than the judge's run this file: what is newer than 0.7 is asked for before it is used. Nothing in
the record is believed: the judge reads the program itself.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ratchet.exam.candidate.user_code import SourceFinder, answer, blame, specs_of
from ratchet.process.sandbox.child import serve
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.exporting import exported, in_stablehlo, lowering, placed
from ratchet.values import Mesh
from ratchet.values.status import Status

MESH = ("mesh", "input_shardings")
"""What a request and ``get_tiling_meta()`` say of one, in the words of ``exam.problem.mesh``."""


def attribute(named: Sequence[str], files: SourceFinder) -> Any:
    """What is ``named``: a module, which is imported here, and a name in it, dots allowed."""
    module, name = named
    with blame(Status.IMPORT_FAILED, files, f"import of {module}"):
        found = importlib.import_module(module)
    with blame(Status.CONTRACT, files, f"{module}:{name}"):
        return functools.reduce(getattr, name.split("."), found)


def arguments(asked: Mapping[str, Any], files: SourceFinder) -> Any:
    """The positional arguments as a tuple of ``jax.ShapeDtypeStruct``s, or of pytrees of them."""
    if not asked["generator"]:
        return tuple(jax.ShapeDtypeStruct(tuple(one["shape"]), jnp.dtype(one["dtype"])) for one in asked["inputs"])
    generate = attribute(asked["generator"], files)
    with blame(Status.IMPORT_FAILED, files, f"{asked['generator'][1]}(key)"):
        made = jax.eval_shape(generate, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
        return made if isinstance(made, tuple) else (made,)


def mesh_of(asked: Mapping[str, Any], leaves: Sequence[Any], files: SourceFinder) -> tuple[Mesh, dict[str, Any]]:
    """The mesh that is asked for, or that a kernel file declares; also as it was said, which the judge checks."""
    said = {name: asked[name] for name in MESH}
    with blame(Status.CONTRACT, files, asked["meta"]):
        if asked["meta"] and not said["mesh"]:
            meta: Any = getattr(sys.modules[asked["target"][0]], asked["meta"], dict)()
            said = {name: meta[name] for name in MESH if name in meta}
        axes = tuple(said.get("mesh", {}).items())
        if axes and not said.get("input_shardings"):
            said["input_shardings"] = [[] for _ in leaves]
        splits = [[(axis,) if isinstance(axis, str) else tuple(axis or ()) for axis in split]
                  for split in said.get("input_shardings", ())]  # fmt: skip
        return Mesh(axes=axes, inputs=tuple(map(tuple, splits)) if axes else ()), said


def examine(asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Export one function; the program goes to ``kernel.bin``."""
    sys.path.append(str(folder / asked["spare"]))
    files = SourceFinder.unpacked(folder / asked["archive"], folder / "tree")
    files.install()
    function: Callable[..., Any] = attribute(asked["target"], files)
    leaves, tree = jax.tree.flatten(arguments(asked, files))
    options = asked["options"]
    mesh, said = mesh_of(asked, leaves, files)
    with blame(Status.LOWERING_FAILED, files, asked["target"][1]), lowering(mesh, CHIPS[asked["chip"]]) as ambient:
        on_mesh = placed(leaves, mesh, ambient)
        program = exported(lambda *given: function(*jax.tree.unflatten(tree, given), **options), on_mesh)
        program = in_stablehlo(program, asked["stablehlo"])
    (folder / "kernel.bin").write_bytes(program.serialize())
    return {
        "inputs": specs_of(program.in_avals),
        "outputs": specs_of(program.out_avals),
        **said,
        "imported": files.imported(),
        "jax_version": jax.__version__,
    }


def handle(request: Path) -> str:
    """Answer one request: ``request/request.json`` says what is exported."""
    return answer(request, examine)


if __name__ == "__main__":
    serve(handle)
