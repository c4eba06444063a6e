"""The library of this storey: programs compiled for a TPU, modelled, explained and executed, from Python.

JAX is imported when a function is traced or executed.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ratchet.process import environments
from ratchet.tpu import latency
from ratchet.tpu.chips import CHIPS, V5E, Chip
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.computed_operands import MOST_ELEMENTS, Steering, check_shapes, computed_operands, wanted
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.explain import explain_artefact
from ratchet.tpu.mosaic.findings import RunResult
from ratchet.values import ArraySpec, Artefact, Explanation, Mesh, Program, Refusal, Status, Timeline

Function = Callable[..., Any]


def export(
    function: Function, *arrays: Any, chip: str = V5E.name, mesh: Mapping[str, int] | None = None, specs: Any = ()
) -> bytes:
    """``function`` traced and lowered for one TPU or a slice, in this process. JAX's settings stay as they are.

    Args:
        function: anything that ``jax.jit`` takes.
        arrays: its positional arguments: arrays, ``jax.ShapeDtypeStruct``s, or pytrees of them.
        chip: the chip that kernels see when they ask, one in ``ratchet.tpu.chips.CHIPS``.
        mesh: names and sizes of the axes of a slice, as many devices as one has; it is the ambient one.
        specs: for each leaf of ``arrays`` a ``jax.sharding.PartitionSpec``, where there is a mesh.

    Returns:
        A serialised ``jax.export`` program for platform ``tpu``, whose inputs and outputs are the leaves in order.

    Raises:
        Refusal: ``USAGE`` for a chip that is not known; what was raised while tracing and lowering, as
            ``LOWERING_FAILED``, ``UNALIGNED_BLOCK``, ``UNSUPPORTED_PRIMITIVE`` or ``HOST_CALLBACK``, its cause kept.
    """
    from ratchet.tpu import exporting

    return exporting.serialised(function, arrays, _mesh(mesh, specs), _chip(chip))


def compile(
    program: Function | bytes,
    *arrays: Any,
    chip: str = V5E.name,
    folder: str | Path | None = None,
    jax: str = "",
    mesh: Mapping[str, int] | None = None,
    specs: Any = (),
) -> Program:
    """Compile for one chip or a slice with Google's TPU compiler, in a child process that takes a few seconds to start.

    Args:
        program: a function, exported with ``arrays`` first, or what :func:`export` returned, without ``arrays``.
        arrays: see :func:`export`.
        chip: the name of one in ``ratchet.tpu.chips.CHIPS``.
        folder: where the compiler's output goes, empty or new; by default a temporary folder that is removed with the
            returned value.
        jax: compile with another version, such as ``"0.12.0.1"``, of ``ratchet setup --jax``. This Python's JAX
            exports in any case.
        mesh: and ``specs``: see :func:`export`; of an exported program, those that it was exported with.

    Returns:
        The program's memory and copies; ``dump_dir`` is the folder.

    Raises:
        Refusal: as :func:`export`; ``USAGE`` for a folder that is in use or bytes with arrays; ``NOT_FOUND`` where no
            environment with that ``jax`` was made; ``COMPILE_FAILED``,
            ``VMEM_OVERFLOW`` and what else :func:`ratchet.tpu.compiler.compile.compile_artefact` refuses.
    """
    known = _chip(chip)
    artefact = _artefact(program, arrays, chip, mesh, specs)
    if folder is not None:
        where = Path(folder).resolve()
        if where.exists() and (not where.is_dir() or any(where.iterdir())):
            raise Refusal(Status.USAGE, f"{folder} is in use, wanted a folder that is empty or new")
        return _compiled(artefact, known, where, jax)
    where = Path(tempfile.mkdtemp(prefix="ratchet-"))
    try:
        compiled = _compiled(artefact, known, where, jax)
    except BaseException:
        shutil.rmtree(where, ignore_errors=True)
        raise
    weakref.finalize(compiled, shutil.rmtree, where, ignore_errors=True)
    return compiled


def model(program: Program, *, scalars: Mapping[int | str, Any] | None = None) -> Timeline:
    """Run the schedule machine over a compiled program.

    Args:
        program: of :func:`compile`; its folder still exists.
        scalars: values that loops and branches depend on: arrays of an input's shape and dtype, by its position; or
            what :func:`steering` returned.

    Returns:
        The modelled run: ``latency_ms``, ``blame`` by source line and unit, and what was not modelled.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN``, ``DEADLOCK``, ``OUT_OF_BOUNDS``, ``MEMORY_HAZARD``; ``USAGE`` for other scalars;
            ``NOT_FOUND`` where the folder was removed.
    """
    _check_kept(program)
    given: dict[int | str, Any] = {key: np.asarray(values) for key, values in (scalars or {}).items()}
    chips = len(program.chip_ids)
    return latency.step(program, _chip(program.chip), Mesh(axes=(("chip", chips),)) if chips > 1 else Mesh(), given)[0]


def steering(program: Program, exported: bytes, *arrays: Any) -> dict[int | str, Any]:
    """What steers a compiled program on these inputs, for :func:`model`.

    Args:
        program: of :func:`compile`; its folder still exists.
        exported: what it was compiled from, of :func:`export`.
        arrays: the inputs, pytrees too. Without values (``jax.ShapeDtypeStruct``) they steer nothing.

    Returns:
        Integer inputs by position; by name, tables that XLA computes beside a kernel, such as group offsets: for those
        the program is executed as by :func:`execute`. They are left out where it cannot be executed.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN`` for tables that differ in more runs than are kept; ``NOT_FOUND`` where
            the folder was removed.
    """
    import jax

    _check_kept(program)
    leaves = jax.tree.leaves(arrays)
    are_known = not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    return _integers(leaves) | dict(_tables(exported, program, leaves) if are_known else {})


def _integers(leaves: Sequence[Any]) -> dict[int | str, Any]:
    """Those of a program's inputs that are integers and have values, by position."""
    import jax

    given = {place: np.asarray(leaf) for place, leaf in enumerate(leaves) if not isinstance(leaf, jax.ShapeDtypeStruct)}
    return {
        place: leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        for place, leaf in given.items()
        if leaf.dtype.kind in "biu" and leaf.size <= MOST_ELEMENTS
    }


def _tables(exported: bytes, compiled: Program, leaves: Sequence[Any]) -> Steering:
    """Operands of kernels that XLA computes beside them, by ``"launch:place"``, by executing the program on its inputs.

    Nothing where the program cannot be executed: they may steer, and need not.
    """
    import jax

    from ratchet.tpu.compiler.tokens import tokenise
    from ratchet.tpu.mosaic.computed_operands import operands as values_of
    from ratchet.tpu.mosaic.run import Options, translated

    operands = computed_operands(load_hlo(compiled.dump_dir))
    if not operands:
        return {}
    try:
        loaded = translated(tokenise(exported)[0], Options())
    except Refusal as refusal:
        if refusal.status is Status.CANNOT_VERIFY:
            return {}
        raise
    with jax.default_device(jax.devices("cpu")[0]):
        inputs = [np.asarray(jax.numpy.asarray(leaf)) for leaf in leaves]
        ((taken,),) = values_of(loaded, [inputs], wanted(operands))
    steering: Steering = {f"{one.launch}:{one.place}": taken[one.site, one.number] for one in operands}
    check_shapes(operands, steering)
    return steering


def explain(
    program: Function | bytes,
    *arrays: Any,
    chip: str = V5E.name,
    scalars: Mapping[int | str, Any] | None = None,
    modelled: bool = True,
    jax: str = "",
    mesh: Mapping[str, int] | None = None,
    specs: Any = (),
) -> Explanation:
    """Say what a program costs on one chip or a slice and why: any function, with or without Pallas kernels in it.

    Args:
        program: a function, exported with ``arrays`` first, or what :func:`export` returned, without ``arrays``.
        arrays: see :func:`export`. Those with values steer the modelled run: see :func:`steering`.
        chip: the name of one in ``ratchet.tpu.chips.CHIPS``.
        scalars: values of inputs that loops and branches depend on, by position of the leaf, instead.
        modelled: run the schedule machine; without, VMEM and copies only.
        jax: see :func:`compile`.
        mesh: and ``specs``: see :func:`export`. What XLA computes beside a kernel steers no program on several chips.

    Returns:
        Latency with its band, by operation and source line, what limits each, VMEM by allocation, and copies. A program
        that does not fit in VMEM or SMEM is explained, too: ``status`` is ``VMEM_OVERFLOW`` or ``SMEM_OVERFLOW``. So is
        one that the machine cannot model: ``status`` and ``reason`` name what it does not know.

    Raises:
        Refusal: as :func:`compile`, except ``VMEM_OVERFLOW`` and ``SMEM_OVERFLOW``.
    """
    known = _chip(chip)
    artefact = _artefact(program, arrays, chip, mesh, specs)

    def steered(compiled: Program) -> Mapping[int | str, Any]:
        if scalars is not None:
            return scalars
        if mesh:
            from jax.tree import leaves

            return _integers(leaves(arrays))
        return steering(compiled, artefact.program, *arrays)

    with (
        tempfile.TemporaryDirectory(prefix="ratchet-") as work,
        compiling.start(Path(work, "compiler"), known, under=under(jax)) as child,
    ):
        return explain_artefact(
            artefact,
            known,
            Path(work, "program"),
            child,
            title=getattr(program, "__name__", ""),
            steering=steered,
            modelled=modelled,
        )


def execute(program: Function | bytes, *arrays: Any, chip: str = V5E.name) -> RunResult:
    """Execute a TPU program's values on this machine's CPU, and again with what must not matter changed.

    Args:
        program: a function, exported with ``arrays`` first, or what :func:`export` returned.
        arrays: the inputs; of a function, pytrees too.
        chip: that a function is exported for, as :func:`export` has it: kernels of SparseCores ask for theirs.

    Returns:
        ``outputs``, NumPy arrays of the program's own dtypes in the order of its leaves, and ``findings``: hazards and
        accesses out of bounds, with operation, grid step and source line. What has a finding has no reliable outputs.

    Raises:
        Refusal: as :func:`export`; ``CANNOT_VERIFY`` for an operation that is not known, ``USAGE`` for other inputs.
    """
    import jax

    from ratchet.tpu.mosaic import run

    exported = program if isinstance(program, bytes) else export(program, *arrays, chip=chip)
    with jax.default_device(jax.devices("cpu")[0]):
        leaves = [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(arrays)]
        return run.load(exported).check(leaves)


def _chip(name: str) -> Chip:
    if name not in CHIPS:
        raise Refusal(Status.USAGE, f"{name!r} is no chip that is known, wanted one of {', '.join(CHIPS)}")
    return CHIPS[name]


def _check_kept(program: Program) -> None:
    if not program.dump_dir.is_dir():
        raise Refusal(Status.NOT_FOUND, f"{program.dump_dir} was removed: keep the Program, or compile it to a folder")


def _artefact(
    program: Function | bytes, arrays: tuple[Any, ...], chip: str, mesh: Mapping[str, int] | None, specs: Any
) -> Artefact:
    """What the compiler room takes, of a function that is exported first, or of what ``export`` returned."""
    if not isinstance(program, bytes):
        program = export(program, *arrays, chip=chip, mesh=mesh, specs=specs)
    elif arrays:
        raise Refusal(Status.USAGE, "an exported program has its shapes: give no arrays")
    return artefact_of(program, _mesh(mesh, specs))


def _mesh(axes: Mapping[str, int] | None, specs: Any) -> Mesh:
    """A mesh, with how each leaf lies on it. Raises Refusal USAGE for specs without a mesh."""
    from jax.sharding import PartitionSpec
    from jax.tree import leaves

    listed = leaves(specs, is_leaf=lambda one: isinstance(one, PartitionSpec))
    if listed and not axes:
        raise Refusal(Status.USAGE, "specs say how arrays lie on a mesh: give mesh, such as {'chip': 8}")
    splits = (tuple(() if one is None else (one,) if isinstance(one, str) else tuple(one) for one in s) for s in listed)
    return Mesh(axes=tuple((axes or {}).items()), inputs=tuple(splits))


def artefact_of(program: bytes, mesh: Mesh = Mesh()) -> Artefact:  # noqa: B008 - a frozen value
    """What the compiler room takes, of a program that no kernel file describes."""
    from ratchet.tpu import exporting

    try:
        exported = exporting.read(program)
    except Exception as error:  # flatbuffers raises nearly anything on corrupt bytes
        raise Refusal(Status.USAGE, f"the program cannot be read: {type(error).__name__}: {error}") from None
    if exported.nr_devices != mesh.chips or tuple(exported.platforms) != ("tpu",):
        what = f"{exported.nr_devices} devices of {', '.join(exported.platforms)}"
        raise Refusal(
            Status.USAGE, f"the program is for {what}, wanted one for platform tpu and a mesh of {mesh.chips}"
        )
    inputs, outputs = (
        tuple(ArraySpec(shape=tuple(one.shape), dtype=one.dtype.name) for one in avals)
        for avals in (exported.in_avals, exported.out_avals)
    )
    return Artefact(
        kernel_name="",
        problem_description="",
        flops=0,
        tiling_meta={},
        inputs=inputs,
        outputs=outputs,
        mesh=mesh,
        program=program,
        reference_sha256="",
        inputs_sha256="",
        jail="",
        seconds=0.0,
    )


def under(jax: str) -> Path | None:
    """The environment of a version of JAX; None where that is this Python's."""
    return None if not jax or jax == metadata.version("jax") else environments.environment_of(jax)


def _compiled(artefact: Artefact, chip: Chip, folder: Path, jax: str) -> Program:
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-") as work,
        compiling.start(Path(work), chip, under=under(jax)) as child,
    ):
        return compiling.compile_artefact(artefact, chip, folder, child)
