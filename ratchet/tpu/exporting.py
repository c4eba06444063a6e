"""A function, traced and exported for a TPU that is not there, and what its errors are to a user."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import export
from jaxlib.mlir.dialects import stablehlo

from ratchet.tpu.chips import V5E, Chip
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import GPU_KERNELS

GPU = "NVIDIA A100"
"""The GPU that kernels are lowered for, whichever they are timed on: the oldest that has what they use."""
_EXPIRED = "jax_export_deserialize_expired_versions"
_reading = threading.Lock()
"""Held while that setting is another than the user's."""
_CALLS_BACK = "the platform for the specified backend"
"""Of what JAX says when a callback is lowered for a TPU where there is none."""


def exported(function: Callable[..., Any], avals: Sequence[Any], platform: str = "tpu") -> export.Exported:
    """``function``, outputs flattened to a list, exported for one platform.

    Raises:
      ValueError: for a TPU, it returns no array.
    """
    return traced(function, avals, platform)[0]


def traced(function: Callable[..., Any], avals: Sequence[Any], platform: str = "tpu") -> tuple[export.Exported, Any]:
    """As ``exported``, with the jaxpr that was exported, which is traced once for both."""

    def program(*args: Any) -> list[Any]:
        outputs = jax.tree.leaves(function(*args))
        if not outputs and platform == "tpu":
            raise ValueError("it returns no array: wanted one or more")
        return outputs

    # It is read by this very version of JAX, so promises about other versions are not needed.
    kernels = [export.DisabledSafetyCheck.custom_call(name) for name in GPU_KERNELS] if platform == "cuda" else []
    jitted = jax.jit(program)
    made = export.export(jitted, platforms=(platform,), disabled_checks=kernels)(*avals)
    return made, jitted.trace(*avals).jaxpr


def serialised(function: Callable[..., Any], arrays: Sequence[Any], mesh: Mesh, chip: Chip, newest: str = "") -> bytes:
    """``function`` of arrays or pytrees of them, traced and lowered for one TPU or a slice; its inputs are the leaves.

    Args:
      newest: written in no newer StableHLO; ``""``: in this JAX's.

    Raises:
      Refusal: what was raised while tracing and lowering, its cause kept; as ``lowering``.
    """
    try:
        leaves, tree = jax.tree.flatten(jax.eval_shape(lambda *given: given, *arrays))
        with lowering(mesh, chip) as ambient:
            program = exported(lambda *given: function(*jax.tree.unflatten(tree, given)), placed(leaves, mesh, ambient))
        return bytes((in_stablehlo(program, newest) if newest else program).serialize())
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(status_of(error), f"cannot export: {in_one_line(error)}") from error


def read(program: bytes) -> export.Exported:
    """A serialised program, of whatever JAX since 0.7.2: from 0.12 on JAX refuses those that are half a year old.

    Raises what JAX raises for one that it cannot read.
    """
    with _reading:
        before = jax.config.values.get(_EXPIRED)
        try:
            if before is False:
                jax.config.update(_EXPIRED, True)
            return export.deserialize(bytearray(program))
        finally:
            if before is False:
                jax.config.update(_EXPIRED, False)


@contextlib.contextmanager
def without_locations() -> Iterator[None]:
    """Trace without source locations: what is written must not depend on where a kernel file lay."""
    limit = jax.config.values["jax_traceback_in_locations_limit"]
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", limit)


def digest(program: export.Exported) -> str:
    """SHA-256 of a program's text, which holds no source locations."""
    return hashlib.sha256(str(program.mlir_module()).encode()).hexdigest()


@contextlib.contextmanager
def for_tpu(mesh: Mesh | None = None, chip: Chip = V5E) -> Iterator[jax.sharding.AbstractMesh]:
    """While the block runs, ``mesh`` of ``chip`` is JAX's ambient one, and kernels keep their source lines apart."""
    ambient = abstract_mesh((mesh or Mesh()).axes, chip.device_kind, chip.cores, "tpu")
    keep_barriers_inside()
    with lines_apart(), jax.sharding.use_abstract_mesh(ambient):
        yield ambient


@contextlib.contextmanager
def lowering(mesh: Mesh, chip: Chip) -> Iterator[Any]:
    """While the block runs, kernels see ``chip``, in a JAX that can say so; it gives the ambient mesh.

    Raises:
      Refusal: ``USAGE`` for a mesh under another JAX.
    """
    if hasattr(jax.sharding, "AbstractDevice"):
        with for_tpu(mesh, chip) as ambient:
            yield ambient
    elif mesh.chips > 1:
        raise Refusal(Status.USAGE, f"JAX {jax.__version__} exports for one chip here: wanted 0.9 or newer for a mesh")
    else:
        yield None


def in_stablehlo(program: export.Exported, newest: str) -> export.Exported:
    """``program`` written in StableHLO ``newest``, such as ``1.17.0``, where this JAX writes a newer one.

    Raises:
      ValueError: an operation has no form in that version. Nothing of a program is left out.
    """
    own = stablehlo.get_version_from_compatibility_requirement(stablehlo.StablehloCompatibilityRequirement.WEEK_4)
    if stablehlo.get_smaller_version(own, newest) == own:
        return program
    written = stablehlo.serialize_portable_artifact_str(str(program.mlir_module()), newest)
    return dataclasses.replace(program, mlir_module_serialized=written)


def placed(avals: Any, mesh: Mesh, ambient: jax.sharding.AbstractMesh) -> Any:
    """``avals`` as they lie on the chips; unchanged for a single one."""
    if mesh.chips == 1:
        return avals
    shardings = [jax.sharding.NamedSharding(ambient, jax.sharding.PartitionSpec(*split)) for split in mesh.inputs]
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in zip(avals, shardings, strict=True)]


@contextlib.contextmanager
def for_gpu() -> Iterator[None]:
    """While the block runs, a GPU is JAX's ambient device: from JAX 0.11 on Pallas asks for its compute capability."""
    with jax.sharding.use_abstract_mesh(abstract_mesh((), GPU, None, "gpu")):
        yield


def abstract_mesh(
    axes: Sequence[tuple[str, int]], device_kind: str, cores: int | None, platform: str
) -> jax.sharding.AbstractMesh:
    """A mesh whose devices are not there. Its axes are automatic ones, which are JAX's default no longer."""
    known: dict[str, Any] = {"device_kind": device_kind, "num_cores": cores, "platform": platform}
    fields = [one.name for one in dataclasses.fields(jax.sharding.AbstractDevice)]  # before JAX 0.10 no platform
    device = jax.sharding.AbstractDevice(**{name: known[name] for name in fields if name in known})
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.sharding.AbstractMesh(sizes, names, axis_types=kinds, abstract_device=device)


def keep_barriers_inside() -> None:
    """A barrier of a SparseCore's subcores is its kernel's own affair, as JAX has it from 0.12 on.

    Before, its effect is one of the whole program, and no program with it can be exported.
    """
    try:
        from jax._src.pallas import core
        from jax._src.pallas.mosaic import sc_primitives

        core.kernel_local_effects.add_type(sc_primitives.MemoryEffect)
    except (ImportError, AttributeError):  # a JAX without SparseCores, or without such a set
        return


@contextlib.contextmanager
def lines_apart() -> Iterator[None]:
    """While the block runs, Pallas lowers every operation of a kernel for itself.

    JAX 0.10 lowers equal operations (same primitive, shapes and parameters) once and reuses the result, whose source
    line is that of the first: two stores of the same shape would both be blamed on one line. The program is the same
    either way, to the bundle; a JAX without that cache is left as it is. Afterwards JAX is as it was.
    """
    from jax._src.pallas.mosaic import lowering

    uncached = getattr(lowering, "_uncacheable_primitives", None)
    if not isinstance(uncached, set):
        yield
        return
    before = set(uncached)
    for rules in lowering.lowering_rules.values():
        uncached.update(rules)
    try:
        yield
    finally:
        uncached.intersection_update(before)


def status_of(error: BaseException) -> Status:
    """The status of what JAX or Pallas raised while lowering."""
    text = str(error)
    if "last two dimensions" in text and "block" in text.lower():
        return Status.UNALIGNED_BLOCK
    if "Unimplemented primitive in Pallas TPU lowering" in text:
        return Status.UNSUPPORTED_PRIMITIVE
    if _CALLS_BACK in text:
        return Status.HOST_CALLBACK
    return Status.LOWERING_FAILED


def in_one_line(error: BaseException) -> str:
    """What was raised, on one line of at most some 600 characters."""
    if _CALLS_BACK in str(error):
        return "it calls the host (pure_callback, io_callback, debug.print or debug.callback), which a kernel may not"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    detail = " ".join(lines)[:600]
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__
