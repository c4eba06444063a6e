"""The kernels that an exported program calls, read as ``tpu_custom_call``s."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import ir, result_alias, string
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Call:
    """One ``tpu_custom_call`` as it is in the program."""

    name: str
    body: bytes
    """The serialised Mosaic module."""
    inputs: tuple[jax.ShapeDtypeStruct, ...]
    outputs: tuple[jax.ShapeDtypeStruct, ...]
    aliases: dict[int, int]
    """Operand number to result number."""
    on_sparse_cores: bool
    """Whether its configuration is for the SparseCores."""
    has_communication: bool
    skips_barrier: bool
    """Whether the kernel asked the compiler for no barrier of the devices before it."""
    site: str
    """The call's own name in the compiled program, as ``compiler.tokens`` gave it."""
    mesh: tuple[tuple[str, int], ...]
    """Axes of the mesh the call is sharded over by hand, and their sizes."""


_ATTRIBUTES = frozenset(
    {
        "api_version", "backend_config", "call_target_name", "called_computations", "has_side_effect", "kernel_name",
        "mhlo.frontend_attributes", "operand_layouts", "output_operand_aliases", "result_layouts",
    }
)  # fmt: skip
"""Attributes that are executed, or checked to say nothing; ``compiler.tokens`` leaves of the frontend's what steers."""


_MOST_CALLS = 1 << 12
"""Of functions with kernels that are put in the place of their calls."""


def read_call(op: ir.Operation, mesh: Any) -> Call:
    """One kernel call; its configuration is read by the one reader that the compiler's input goes through, too.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where it is not as the locked jax writes it.
    """
    if "backend_config" not in op.attributes:
        raise Refusal(Status.CANNOT_VERIFY, "a tpu_custom_call without a configuration; export it with the locked jax")
    body, configuration = kernel_config.read(string(op, "backend_config"))
    kernel_config.check_executed(configuration)
    _check_attributes(op)
    config = configuration["custom_call_config"]
    return Call(
        name=string(op, "kernel_name") if "kernel_name" in op.attributes else "kernel",
        body=body,
        inputs=tuple(aval(value.type) for value in op.operands),
        outputs=tuple(aval(value.type) for value in op.results),
        aliases=aliases_of(op),
        on_sparse_cores=configuration.get("device_type") == kernel_config.SPARSE_CORE,
        has_communication=bool(config.get("has_communication", False)),
        skips_barrier=bool(config.get("skip_device_barrier", False)),
        site=str(op.location.name_str) if isinstance(op.location, ir.NameLoc) else "",
        mesh=tuple(mesh),
    )


def aliases_of(op: ir.Operation) -> dict[int, int]:
    """Operands of a kernel call that are overwritten, and the result that each becomes.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for one that is aliased twice, or to what has another type or does not exist.
    """
    aliases: dict[int, int] = {}
    for attribute in _listed(op, "output_operand_aliases"):
        operand, inside, results = result_alias(attribute)
        results = results or [0]
        if inside or len(results) != 1:
            raise _refusal(f"it aliases a part of a tuple ({attribute})")
        if operand in aliases or results[0] in aliases.values():
            raise _refusal(f"operand {operand} or result {results[0]} is aliased twice; wanted each once")
        if not (0 <= operand < len(op.operands) and 0 <= results[0] < len(op.results)):
            raise _refusal(f"it aliases operand {operand} to result {results[0]}, which there is not")
        if op.operands[operand].type != op.results[results[0]].type:
            raise _refusal(f"operand {operand} is aliased to result {results[0]} of another type")
        aliases[operand] = results[0]
    return aliases


def _listed(op: ir.Operation, name: str) -> list[ir.Attribute]:
    return list(ir.ArrayAttr(op.attributes[name])) if name in op.attributes else []


def _check_attributes(op: ir.Operation) -> None:
    if unknown := [name for name in op.attributes if name not in _ATTRIBUTES]:
        raise _refusal(f"its attribute {unknown[0][:80]!r} is not known")
    if "api_version" in op.attributes and ir.IntegerAttr(op.attributes["api_version"]).value != 1:
        raise _refusal(f"its api_version is {op.attributes['api_version']}, wanted 1")
    if _listed(op, "called_computations"):
        raise _refusal("it has called_computations, wanted none")
    for name, values in (("operand_layouts", op.operands), ("result_layouts", op.results)):
        given = [np.array(ir.DenseIntElementsAttr(layout)).tolist() for layout in _listed(op, name)]
        wanted = [[*range(ir.RankedTensorType(value.type).rank)][::-1] for value in values]
        if given != wanted:
            raise _refusal(f"its {name} are {given}, wanted row-major {wanted}: transpose outside of the kernel")


def _refusal(what: str) -> Refusal:
    return Refusal(
        Status.CANNOT_VERIFY,
        f"a tpu_custom_call cannot be executed for its values: {what}; export it with the locked jax",
    )


_ELEMENTS = {
    "i1": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "ui4": "uint4", "ui8": "uint8",
    "ui16": "uint16", "ui32": "uint32", "f32": "float32", "bf16": "bfloat16", "f16": "float16",
    "f8E5M2": "float8_e5m2", "f8E4M3FN": "float8_e4m3fn", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f4E2M1FN": "float4_e2m1fn",
}  # fmt: skip


def aval(type_: ir.Type) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an operand or a result. Raises Refusal ``CANNOT_VERIFY`` for one that no array here has."""
    shaped = ir.RankedTensorType(type_)
    element = str(shaped.element_type)
    if (
        shaped.encoding is not None
        or element not in _ELEMENTS
        or any(shaped.is_dynamic_dim(i) for i in range(shaped.rank))
    ):
        raise Refusal(Status.CANNOT_VERIFY, f"a kernel operand of type {type_}")
    return jax.ShapeDtypeStruct(tuple(shaped.shape), jnp.dtype(_ELEMENTS[element]))


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Every operation nested in ``op``, in order."""
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from walk(view.operation)


def target(op: ir.Operation) -> str:
    """Whom a custom call calls; ``""`` for any other operation."""
    return string(op, "call_target_name") if op.name == "stablehlo.custom_call" else ""


def callee(op: ir.Operation) -> str:
    """The function that a ``func.call`` calls."""
    return str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)


def give_kernels_calls_of_their_own(module: ir.Operation) -> bool:
    """Put functions with kernels in the place of their calls, where one kernel's call would stand for several.

    That is one in a function that is called more than once. On several chips it may also be one on each.

    Returns:
        Whether anything was moved.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for functions without end.
    """
    functions = {string(op, "sym_name"): op for op in walk(module) if op.name == "func.func"}
    calls = [(callee(op), name) for name, body in functions.items() for op in walk(body) if op.name == "func.call"]
    kernels = {name for name, op in functions.items() if any(target(one) == "tpu_custom_call" for one in walk(op))}
    while more := {caller for called, caller in calls if called in kernels} - kernels:
        kernels |= more
    counts = Counter(called for called, _ in calls)
    sharded = [one for op in walk(module) if op.name == "sdy.manual_computation" for one in walk(op)]
    apart = [callee(op) for op in sharded if op.name == "func.call"] + [name for name in counts if counts[name] > 1]
    if kernels.isdisjoint(apart):
        return False
    for number in itertools.count():
        call = next((op for op in walk(module) if op.name == "func.call" and callee(op) in kernels), None)
        if call is None:
            break
        if number == _MOST_CALLS:
            raise _refusal(f"its function is called more than {_MOST_CALLS} times, or by itself")
        _inline(call, functions[callee(call)])
    for name in kernels - {"main"}:
        functions[name].erase()
    return True


def _inline(call: ir.Operation, function: ir.Operation) -> None:
    copy = function.clone()
    (block,) = copy.regions[0].blocks
    for argument, operand in zip(block.arguments, call.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *operations, end = (view.operation for view in block.operations)
    for op in operations:
        op.move_before(call)
    for before, after in zip(call.results, end.operands, strict=True):
        before.replace_all_uses_with(after)
    call.erase()
    copy.erase()


def kernel_calls(module: ir.Module) -> list[Call]:
    """Every kernel call of a program, function by function; without the meshes that they are sharded over.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for a call that cannot be read.
    """
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    functions.sort(key=lambda op: string(op, "sym_name"))
    return [read_call(op, ()) for function in functions for op in walk(function) if target(op) == "tpu_custom_call"]
