"""The only code that ever imports a kernel file. Runs as a jailed child process, once per kernel file.

The jail is built before this module is imported (``ratchet/process/sandbox/launcher.py``).

It answers with the name of a record written last; a process that ends before has not answered. Nothing in
the record is believed: the judge checks its form, compiles its program and executes that program's values. A problem is
frozen from what another worker leaves, which never calls ``kernel_fn``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.extend import core

from ratchet.exam.candidate import contract, generated
from ratchet.exam.candidate.tracer import INPUTS, REFERENCE
from ratchet.exam.candidate.user_code import answer, blame, specs_of
from ratchet.exam.problem import jaxpr_file
from ratchet.exam.problem import mesh as meshes
from ratchet.exam.problem.jaxprs import FlatJaxpr
from ratchet.exam.problem.problem import specs
from ratchet.process.sandbox.child import serve
from ratchet.tpu.chips import CHIPS, V5E, Chip
from ratchet.tpu.exporting import digest, exported, for_gpu, for_tpu, placed, traced, without_locations
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status

# Nearly every kernel needs these. A kernel file finds them imported, however its process began.
with contextlib.suppress(ImportError):
    importlib.import_module("jax._src.pallas.mosaic.pallas_call_registration")
    importlib.import_module("jax.experimental.pallas.tpu")


def load(path: Path) -> ModuleType:
    """Execute the kernel file as a fresh module and check its seven symbols."""
    source = path.read_bytes()
    contract.check_source(source, path.name)
    module = ModuleType("kernel_under_judgement")
    module.__file__ = path.name
    sys.modules[module.__name__] = module
    with blame(Status.IMPORT_FAILED, (path.name,), "at import"):
        exec(compile(source.decode(), path.name, "exec"), module.__dict__)
    contract.check_symbols(module.__dict__)
    return module


def _arrays(tree: Any, what: str) -> list[Any]:
    leaves = jax.tree.leaves(tree)
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves):
        raise Refusal(Status.CONTRACT, f"{what} must return arrays, got {type(tree).__name__}")
    return leaves


def examine(
    path: Path,
    out: Path,
    *,
    platform: str = "tpu",
    chip: Chip = V5E,
    project: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trace a kernel file for a platform and write its programs to ``out``; returns the record.

    With a ``project`` the problem is the one that it names, and the program one that was exported elsewhere.
    """
    module, program, own = generated.unpacked(out, project) if project else (load(path), None, (path.name,))
    generator, avals, reference = problem_of(module, own, lambda function, avals: exported(function, avals, "cpu"))
    with blame(Status.IMPORT_FAILED, own, "compute_flops()"):
        flops = module.compute_flops()
    contract.check_flops(flops)
    with blame(Status.IMPORT_FAILED, own, "get_tiling_meta()"):
        meta = contract.check_tiling_meta(getattr(module, contract.OPTIONAL, dict)())
        mesh = meshes.read(meta, specs(specs_of(avals)))

    if program is None:
        kernel, jaxpr = twice(functools.partial(traced_kernel, module.kernel_fn, avals, path, mesh, platform, chip))
    else:
        kernel, jaxpr = checked(program, avals, platform), None
    left: list[Any] = [None] * len(kernel.out_avals)
    if mesh.chips > 1 and jaxpr is not None:
        left = output_shardings(jaxpr)
    with blame(Status.LOWERING_FAILED, own, "kernel_fn, written by jax.export"):
        (out / "kernel.bin").write_bytes(kernel.serialize())
    return {
        "kernel_name": module.KERNEL_NAME,
        "problem_description": module.PROBLEM_DESCRIPTION,
        "flops": flops,
        "tiling_meta": meta,
        "inputs": specs_of(avals),
        "outputs": specs_of(kernel.out_avals),
        "platform": platform,
        "reference_outputs": specs_of(reference.out_avals),
        "reference_sha256": digest(reference),
        "inputs_sha256": digest(generator),
        "jax_version": jax.__version__,
        "output_shardings": left,
    }


def problem_of(
    module: ModuleType, own: Container[str], trace: Callable[[Callable[..., Any], Sequence[Any]], Any]
) -> tuple[Any, list[Any], Any]:
    """What ``trace`` makes of the inputs' generator and of the reference, and the inputs between the two."""

    def inputs_of(data: Any) -> list[Any]:
        return _arrays(module.generate_inputs(jax.random.wrap_key_data(data)), "generate_inputs")

    with blame(Status.IMPORT_FAILED, own, "generate_inputs(key)"), without_locations():
        generator = trace(inputs_of, [jax.ShapeDtypeStruct((2,), jnp.uint32)])
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in generator.out_avals]
    with blame(Status.IMPORT_FAILED, own, "reference_fn"), without_locations():
        reference = trace(lambda *args: _arrays(module.reference_fn(*args), "reference_fn"), avals)
    return generator, avals, reference


def define(path: Path, out: Path, *, project: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the reference and the inputs of a kernel file to ``out`` as data; ``kernel_fn`` is not called."""
    module, _, own = generated.unpacked(out, project) if project else (load(path), None, (path.name,))
    generator, _, reference = problem_of(module, own, lambda function, avals: jax.make_jaxpr(function)(*avals))
    for name, what, jaxpr in ((INPUTS, "generate_inputs", generator), (REFERENCE, "reference_fn", reference)):
        with blame(Status.CONTRACT, own, what):
            (out / name).write_bytes(jaxpr_file.encode(jaxpr))
    return {}


def twice(trace: Callable[[], tuple[export.Exported, Any]]) -> tuple[export.Exported, Any]:
    """The kernel's program, and its jaxpr. What JAX keeps of earlier traces is forgotten before each.

    Raises:
      Refusal: ``NON_DETERMINISTIC`` where tracing again gives another.
    """
    # From one line: the programs carry source locations, those of the caller included.
    (kernel, jaxpr), (again, _) = ((jax.clear_caches(), trace())[1] for _ in range(2))
    if digest(kernel) != digest(again):
        raise Refusal(
            Status.NON_DETERMINISTIC, "kernel_fn traced twice gives two different programs; wanted one program"
        )
    return kernel, jaxpr


def checked(program: export.Exported, avals: Any, platform: str) -> export.Exported:
    """A program that was exported elsewhere, if it is for the inputs of this problem.

    Raises:
      Refusal: ``WRONG_SHAPE``, ``CONTRACT``.
    """
    if specs_of(program.in_avals) != specs_of(avals):
        got, wanted = (" ".join(map(str, specs(specs_of(one)))) for one in (program.in_avals, avals))
        raise Refusal(Status.WRONG_SHAPE, f"the kernel was exported for {got}, the problem has {wanted}")
    if program.nr_devices != 1 or tuple(program.platforms) != (platform,):
        what = f"{program.nr_devices} devices of {', '.join(program.platforms)}"
        raise Refusal(Status.CONTRACT, f"the kernel was exported for {what}, wanted one of {platform}")
    return program


def output_shardings(jaxpr: Any) -> list[list[Any] | None]:
    """How a program on several chips leaves its outputs: for each dimension the axes of the mesh that split it.

    ``jaxpr`` is the program's. None where it does not say: an output that no ``shard_map`` and no constraint gives.
    """
    flat = FlatJaxpr(jaxpr)
    makers = {out: (step.equation, n) for step in flat.steps for n, out in enumerate(step.outs)}
    known = [None if isinstance(out, core.Literal) else makers.get(out) for out in flat.outputs]
    return [None if maker is None else _left(*maker) for maker in known]


def _left(equation: Any, number: int) -> list[Any] | None:
    """How result ``number`` of an equation is split."""
    name, rank = equation.primitive.name, len(equation.outvars[number].aval.shape)
    if name == "shard_map":
        spec = equation.params["out_specs"][number]
    elif name == "sharding_constraint":
        spec = getattr(equation.params["sharding"], "spec", None)
    else:
        return None
    entries = [] if spec is None else [[n] if isinstance(n, str) else list(n or []) for n in spec]
    return None if spec is None else [names or None for names in entries] + [None] * (rank - len(entries))


def traced_kernel(
    kernel_fn: Callable[..., Any],
    avals: Any,
    path: Path,
    mesh: Mesh | None = None,
    platform: str = "tpu",
    chip: Chip = V5E,
) -> tuple[export.Exported, Any]:
    """The kernel's program, and its jaxpr; for a TPU with the declared mesh as the ambient one."""
    if platform != "tpu":
        ambient_device = for_gpu() if platform == "cuda" else contextlib.nullcontext()
        with blame(Status.LOWERING_FAILED, (path.name,), "kernel_fn"), ambient_device:
            return traced(lambda *args: _arrays(kernel_fn(*args), "kernel_fn"), avals, platform)
    mesh = mesh or Mesh()
    with blame(Status.LOWERING_FAILED, (path.name,), "kernel_fn"), for_tpu(mesh, chip) as ambient:
        avals = placed(avals, mesh, ambient)
        # A fresh lambda, so that JAX's trace cache cannot hide a second trace that differs.
        return traced(lambda *args: _arrays(kernel_fn(*args), "kernel_fn"), avals)


def handle(request: Path) -> str:
    """Answer one request: ``request/request.json`` names the mode and the limits."""

    def examined(asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        if asked["freeze"]:
            return define(folder / asked["kernel"], folder, project=asked["project"])
        return examine(
            folder / asked["kernel"],
            folder,
            platform=asked["platform"],
            chip=CHIPS[asked["chip"]],
            project=asked["project"],
        )

    return answer(request, examined)


if __name__ == "__main__":
    serve(handle)
