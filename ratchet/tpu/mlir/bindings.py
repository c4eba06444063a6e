"""The one importer of what JAX and jaxlib keep private: another version of them is met here, and in ``exporting.py``.

The body of a ``tpu_custom_call`` is a versioned ``stable_mosaic`` module. jaxlib's own ``mosaic-serde`` pass, the
one libtpu runs, turns it into the current ``tpu``/``vector``/``arith`` dialects, upgrading older versions.
"""

from __future__ import annotations

import io
import math
import operator
import re
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax._src.export import _export as jax_export
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import tpu
from jaxlib import _hlo, _profiler, xla_client  # type: ignore[attr-defined]
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from ratchet.tpu.mlir.module import Block, Function, KernelModule, Op, Type, Value
from ratchet.values.status import Refusal, Status

# jaxlib has no Python classes for this dialect, and would look for a module of them at each operation that is met: most
# of what a walk over a large kernel takes.
_CLASSES = "jaxlib.mlir.dialects.stable_mosaic"
if _CLASSES not in sys.modules and find_spec(_CLASSES) is None:
    sys.modules[_CLASSES] = ModuleType(_CLASSES)

_OF_A_MODULE = ("stable_mosaic.version", "sym_name")
"""Attributes of a Mosaic module: its version, and from JAX 0.12 on the name of the kernel."""
_DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()
"""A stride or an offset that a type leaves open."""
_LOCATION = re.compile(r'"([^"\n]+)":(\d+):\d+')


def parse_kernel(body: bytes) -> KernelModule:
    """Parse the ``body`` of one custom call.

    Raises:
        Refusal: ``CANNOT_VERIFY`` if it is no module, or one of a version or type that these bindings do not know.
    """
    module = mosaic_module(body)
    with module.context, ir.Location.unknown():
        try:
            attributes = module.operation.attributes
            if unknown := [name for name in attributes if name not in _OF_A_MODULE]:
                what = f"the kernel's Mosaic module has the attribute {unknown[0]!r:.80}, which is not known"
                raise Refusal(Status.CANNOT_VERIFY, f"{what}; export it with the locked jax")
            version = int(ir.IntegerAttr(attributes["stable_mosaic.version"]).value)
            PassManager.parse("builtin.module(mosaic-serde{serialize=false})").run(module.operation)
        except (ir.MLIRError, ValueError, KeyError) as error:
            raise _unreadable(error) from None
        functions = {}
        for op in module.body:
            if op.operation.name != "func.func":
                raise Refusal(
                    Status.CANNOT_VERIFY, f"top-level operation {op.operation.name} in a Mosaic module v{version}"
                )
            attrs = {name: _attribute(op.attributes[name]) for name in op.attributes}
            name = str(attrs["sym_name"])
            functions[name] = Function(name=name, body=_block(op.regions[0], {}), attributes=attrs)
    return KernelModule(version=version, functions=functions)


def mosaic_module(body: bytes) -> ir.Module:
    """The serialised module of a custom call as it is, in a context of its own.

    Raises:
        Refusal: ``CANNOT_VERIFY`` if it is no module.
    """
    context = jax_mlir.make_ir_context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        try:
            return ir.Module.parse(body)
        except (ir.MLIRError, ValueError) as error:
            raise _unreadable(error) from None


def operations() -> frozenset[str]:
    """The operations that these bindings have of the dialects that a Mosaic module is written in."""
    from jaxlib.mlir.dialects import arith, cf, func, math, memref, scf, vector

    found = (getattr(one, "OPERATION_NAME", None) for dialect in (arith, cf, func, math, memref, scf, tpu, vector)
             for one in vars(dialect).values())  # fmt: skip
    return frozenset(name for name in found if isinstance(name, str))


def body_of(module: ir.Module) -> bytes:
    """A Mosaic module as a custom call has it: what ``mosaic_module`` reads."""
    written = io.BytesIO()
    module.operation.write_bytecode(written, desired_version=0)
    return written.getvalue()


def _unreadable(error: Exception) -> Refusal:
    return Refusal(
        Status.CANNOT_VERIFY,
        f"the kernel's Mosaic module cannot be parsed: {str(error)[:300]}; export it with the locked jax",
    )


def _block(region: ir.Region, env: dict[ir.Value, Value], around: str = "") -> Block:
    if len(region.blocks) == 0:
        return Block(arguments=(), operations=())
    if len(region.blocks) != 1:
        raise Refusal(
            Status.CANNOT_VERIFY, "a Mosaic region with branches between blocks; wanted structured control flow"
        )
    block = region.blocks[0]
    arguments = []
    for argument in block.arguments:
        env[argument] = Value(_type(argument.type))
        arguments.append(env[argument])
    operations = tuple(_op(view.operation, env, around) for view in block.operations)
    return Block(arguments=tuple(arguments), operations=operations)


def _op(op: ir.Operation, env: dict[ir.Value, Value], around: str) -> Op:
    location = _location(op.location) or around
    operands = tuple(env[value] for value in op.operands)
    results = tuple(Value(_type(value.type, is_view=_is_view(op))) for value in op.results)
    for mlir_value, value in zip(op.results, results, strict=True):
        env[mlir_value] = value
    plain = Op(
        name=op.name,
        operands=operands,
        results=results,
        attributes={name: _attribute(op.attributes[name]) for name in op.attributes},
        regions=tuple(_block(region, env, location) for region in op.regions),
        location=location,
    )
    for value in results:
        value.owner = plain
    return plain


def _location(location: ir.Location) -> str:
    match = _LOCATION.search(str(location))
    return f"{match[1]}:{match[2]}" if match else ""


def _element(type_: ir.Type) -> str:
    text = str(type_)
    return text.removeprefix("!tpu.")


def _is_view(op: ir.Operation) -> bool:
    """Whether the layout of a result is that of a part of the operand: JAX before 0.9 writes it."""
    if op.name not in ("tpu.memref_slice", "tpu.memref_squeeze"):
        return False
    whole, part = ir.MemRefType(op.operands[0].type), ir.MemRefType(op.results[0].type)
    (before, start), (after, offset) = whole.get_strides_and_offset(), part.get_strides_and_offset()
    dimensions = list(zip(whole.shape, before, strict=True))
    if op.name == "tpu.memref_slice":
        indices = list(op.operands)[1 : 1 + len(before)]
        if offset != _DYNAMIC:
            known = [_constant(one) for one in indices]
            if None in known or offset != start + sum(map(operator.mul, known, before)):
                return False
        return list(after) == list(before)
    for wanted in zip(part.shape, after, strict=True):
        while dimensions and dimensions[0] != wanted and dimensions[0][0] == 1:
            del dimensions[0]
        if not dimensions or dimensions.pop(0) != wanted:
            return False
    return offset == start and all(size == 1 for size, _ in dimensions)


def _constant(value: ir.Value) -> Any:
    """The number that a value is; None where it is none that is written down."""
    owner: Any = value.owner
    return owner.attributes["value"].value if getattr(owner, "name", "") == "arith.constant" else None


def _type(type_: ir.Type, *, is_view: bool = False) -> Type:
    """Its plain counterpart; ``is_view``: a layout with strides is that of a view, which follows from its operand."""
    if isinstance(type_, ir.VectorType):
        return Type(kind="vector", shape=tuple(type_.shape), dtype=_element(type_.element_type))
    if isinstance(type_, ir.MemRefType):
        if type_.affine_map != ir.AffineMap.get_identity(type_.rank) and not is_view:
            raise Refusal(
                Status.CANNOT_VERIFY,
                f"a memref with the layout {type_.layout!s:.100}: the compiler reads it, and it is no view's",
            )
        space = str(type_.memory_space)
        space = space.removeprefix("#tpu.memory_space<").removesuffix(">") if type_.memory_space is not None else ""
        return Type(kind="memref", shape=tuple(type_.shape), dtype=_element(type_.element_type), space=space)
    return Type(kind="scalar", dtype=_element(type_))


def _attribute(attribute: ir.Attribute) -> object:
    """The plain counterpart of an attribute; its text where it has none."""
    match attribute:
        case ir.BoolAttr() | ir.IntegerAttr() | ir.FloatAttr() | ir.StringAttr():
            return attribute.value
        case ir.FlatSymbolRefAttr():
            return str(attribute.value)
        case ir.DenseI32ArrayAttr() | ir.DenseI64ArrayAttr() | ir.DenseBoolArrayAttr():
            return tuple(attribute)
        case ir.ArrayAttr():
            return tuple(_attribute(item) for item in attribute)
        case ir.DictAttr():
            return {item.name: _attribute(item.attr) for item in attribute}  # type: ignore[attr-defined]
        case ir.DenseElementsAttr():
            if attribute.is_splat:
                value = _attribute(attribute.get_splat_value())
                return np.broadcast_to(np.asarray(value), tuple(ir.ShapedType(attribute.type).shape))
            return np.array(attribute)
        case _:
            return str(attribute)


def lapack_where_called() -> None:
    """From now on this process opens LAPACK for exported programs that call it: that imports SciPy, half a second."""
    opening, lowering = jax_export._ensure_backends_initialized, jax_export._call_exported_lowering

    def nothing(platforms: tuple[str, ...]) -> Any:
        return None

    def lowered(context: Any, *arguments: Any, exported: Any) -> Any:
        is_called = b"lapack" in exported.mlir_module_serialized
        jax_export._ensure_backends_initialized = opening if is_called else nothing
        return lowering(context, *arguments, exported=exported)

    jax_mlir.register_lowering(jax_export.call_exported_p, lowered)


def waits_in_pool(exported: Any) -> bool:
    """Whether an exported program calls what splits its work over the threads that run it, and waits for them."""
    return any(name in exported.mlir_module_serialized for name in (b"lapack", b"fft"))


def device_for(compiled: Any) -> Any:
    """A CPU device on which a program like this one cannot wait for itself.

    XLA runs the independent calls of a program at once, each on a thread of one pool, and a batched call of LAPACK's
    waits there for tasks of the same pool: with as many such calls as threads, all wait for ever. This device's pool
    has a thread more than the program has calls.
    """
    calls = len(re.findall(r'custom_call_target="lapack_|\bfft\(', compiled.as_text()))
    client: Any = xla_client.make_cpu_client(num_devices=calls + 1)
    return client.devices()[0]


# --- the program around the kernels -------------------------------------------------------------


def stablehlo_of(exported: Any) -> ir.Module:
    """The StableHLO module of a ``jax.export`` artefact, in a context of its own."""
    context = jax_mlir.make_ir_context()
    with context:
        module = exported.mlir_module(serialized=False)
        # Sharding annotations may be stored in attributes; the passes jax.export itself runs make operations of them.
        if jax_export.has_sdy_meshes_in_frontend_attributes(module):
            PassManager.parse("builtin.module(xla-sdy-round-trip-import-shardy-attrs)").run(module.operation)
        PassManager.parse("builtin.module(sdy-lift-inlined-meshes)").run(module.operation)
    return module  # type: ignore[no-any-return]


def shardings_of(exported: Any) -> list[Any]:
    """The named shardings of the inputs and outputs that have one."""
    every = (*exported._in_named_shardings, *exported._out_named_shardings)
    return [sharding for sharding in every if sharding is not None]


def hlo_text(module: Any) -> str:
    """An HLO module as text, with all constants, for people."""
    printing = _hlo.HloPrintOptions()
    printing.print_large_constants = True
    return str(module.to_string(printing))


def registered() -> bytes:
    """What the compiler registered for profilers since this was asked last, as an ``XSpace``.

    The session ends at once: one that lasts keeps a core busy, and what was compiled before it is in it, too.
    """
    options = _profiler.ProfileOptions()
    options.host_tracer_level = options.python_tracer_level = 0
    return bytes(_profiler.ProfilerSession(options).stop())


def lowered_module(function: Callable[..., Any], avals: Sequence[Any], context: ir.Context) -> ir.Module:
    """StableHLO of a JAX function for the CPU, parsed into ``context``; its entry is ``@main``."""
    return _moved(jax.jit(function, keep_unused=True).lower(*avals), context)


def _moved(lowered: Any, context: ir.Context) -> ir.Module:
    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    with context:
        return ir.Module.parse(buffer.getvalue())


def lowered_per_device(
    function: Callable[..., Any],
    avals: Sequence[Any],
    mesh: Sequence[tuple[str, int]],
    context: ir.Context,
    channel: int,
) -> ir.Module:
    """Like ``lowered_module``, for a function that one device of ``mesh`` runs and that may use its axes by name.

    What is inside ``shard_map`` becomes the entry. ``channel`` numbers its collectives apart from others.
    """
    names, sizes = [name for name, _ in mesh], [size for _, size in mesh]
    nowhere, automatic = jax.sharding.PartitionSpec(), (jax.sharding.AxisType.Auto,) * len(mesh)
    sharded = jax.shard_map(
        function,
        mesh=jax.sharding.AbstractMesh(tuple(sizes), tuple(names), axis_types=automatic),
        in_specs=nowhere,
        out_specs=nowhere,
        check_vma=False,
    )
    lowered = jax.jit(sharded, keep_unused=True).trace(*avals).lower(lowering_platforms=("cpu",))
    with context, ir.Location.unknown():
        module = _moved(lowered, context)
        (main,) = (op.operation for op in module.body if string(op.operation, "sym_name") == "main")
        (manual,) = (op.operation for op in main.regions[0].blocks[0] if op.operation.name == "sdy.manual_computation")
        block = manual.regions[0].blocks[0]
        # The inner block may lack unused arguments and have constants for arguments: give it the outer signature.
        outer, inner = list(main.regions[0].blocks[0].arguments), list(block.arguments)
        for value in outer:
            block.add_argument(value.type, ir.Location.unknown())
        for value, operand in zip(inner, manual.operands, strict=True):
            if operand in outer:
                value.replace_all_uses_with(block.arguments[len(inner) + outer.index(operand)])
            else:
                with ir.InsertionPoint.at_block_begin(block):
                    value.replace_all_uses_with(operand.owner.clone().results[0])
        for _ in inner:
            block.erase_argument(0)
        end = block.operations[len(block.operations) - 1].operation
        types = ([argument.type for argument in block.arguments], [value.type for value in end.operands])
        with ir.InsertionPoint(end):
            ir.Operation.create("func.return", [], list(end.operands))
        end.erase()
        with ir.InsertionPoint(module.body):
            entry = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get("main"),
                    "sym_visibility": ir.StringAttr.get("public"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(*types)),
                },
                regions=1,
            )
        block.append_to(entry.regions[0])
        main.erase()
        for op in list(module.body):
            if op.operation.name == "sdy.mesh":
                op.operation.erase()
        _own_collectives(module.operation, channel, mesh)
    return module


def string(op: ir.Operation, name: str) -> str:
    """A string among the attributes of an operation; ``""`` where there is none of that name."""
    return str(ir.StringAttr(op.attributes[name]).value) if name in op.attributes else ""


def result_alias(attribute: ir.Attribute) -> tuple[int, list[int], list[int]]:
    """Of one of a call's ``output_operand_aliases``: the operand, where in its tuple, and where in the result's."""
    alias = stablehlo.OutputOperandAlias(attribute)
    return alias.operand_index, list(alias.operand_tuple_indices), list(alias.output_tuple_indices)


def _own_collectives(operation: ir.Operation, channel: int, mesh: Sequence[tuple[str, int]]) -> None:
    """Number collectives from ``channel`` on, and list their devices where JAX names axes of a mesh of the module."""
    names, sizes = [name for name, _ in mesh], [size for _, size in mesh]
    places = np.arange(math.prod(sizes)).reshape(sizes)

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal channel
        groups = str(op.attributes["replica_groups"]) if "replica_groups" in op.attributes else ""
        if along := [names.index(name) for name in re.findall(r'axis_ref<name = "([^"]*)"', groups)]:
            across = [axis for axis in range(len(mesh)) if axis not in along]
            listed = places.transpose(*across, *along).reshape(-1, math.prod(sizes[axis] for axis in along))
            array: Any = np.ascontiguousarray(listed, np.int64)
            op.attributes["replica_groups"] = ir.DenseElementsAttr.get(array)
        if "channel_handle" in op.attributes:
            op.attributes["channel_handle"] = ir.Attribute.parse(
                f"#stablehlo.channel_handle<handle = {channel}, type = 1>"
            )
            channel += 1
        return ir.WalkResult.ADVANCE

    operation.walk(visit)


def rebuilt(
    exported: Any, module: ir.Module, *, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), platform: str = ""
) -> Any:
    """The artefact with another module in it, which may take and give more; all flat, and without a name."""
    in_avals, out_avals = (*exported.in_avals, *inputs), (*exported.out_avals, *outputs)
    new_in, new_out = (None,) * len(inputs), (None,) * len(outputs)
    return jax_export.dataclasses.replace(
        exported,
        fun_name="program",
        in_tree=jax.tree.structure(((0,) * len(in_avals), {})),
        out_tree=jax.tree.structure((0,) * len(out_avals)),
        in_avals=in_avals,
        out_avals=out_avals,
        _in_named_shardings=(*exported._in_named_shardings, *new_in),
        _out_named_shardings=(*exported._out_named_shardings, *new_out),
        in_shardings_hlo=(*exported.in_shardings_hlo, *new_in),
        out_shardings_hlo=(*exported.out_shardings_hlo, *new_out),
        platforms=(platform,) if platform else exported.platforms,
        mlir_module_serialized=jax_export._module_to_bytecode(module),
        module_kept_var_idx=(*exported.module_kept_var_idx, *range(len(exported.in_avals), len(in_avals))),
        _get_vjp=None,
    )
