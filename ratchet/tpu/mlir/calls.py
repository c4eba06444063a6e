"""The kernels that an exported program calls, read as ``tpu_custom_call``s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import ir, string
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
    has_communication: bool
    skips_barrier: bool
    """Whether the kernel asked the compiler for no barrier of the devices before it."""
    site: str
    """The call's own name in the compiled program, as ``compiler.tokens`` gave it."""
    mesh: tuple[tuple[str, int], ...]
    """Axes of the mesh the call is sharded over by hand, and their sizes."""


def read_call(op: ir.Operation, mesh: Any) -> Call:
    """One kernel call; its configuration is read by the one reader that the compiler's input goes through, too.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where it is not as the locked jax writes it.
    """
    if "backend_config" not in op.attributes:
        raise Refusal(Status.CANNOT_VERIFY, "a tpu_custom_call without a configuration; export it with the locked jax")
    body, configuration = kernel_config.read(string(op, "backend_config"))
    config = configuration["custom_call_config"]
    aliases = {}
    if "output_operand_aliases" in op.attributes:
        for alias in ir.ArrayAttr(op.attributes["output_operand_aliases"]):
            text = str(alias)
            operand = int(text.split("operand_index =", 1)[1].split(",", 1)[0])
            output = text.split("output_tuple_indices = [", 1)[1].split("]", 1)[0].strip()
            aliases[operand] = int(output) if output else 0
    return Call(
        name=string(op, "kernel_name") if "kernel_name" in op.attributes else "kernel",
        body=body,
        inputs=tuple(aval(value.type) for value in op.operands),
        outputs=tuple(aval(value.type) for value in op.results),
        aliases=aliases,
        has_communication=bool(config.get("has_communication", False)),
        skips_barrier=bool(config.get("skip_device_barrier", False)),
        site=str(op.location.name_str) if isinstance(op.location, ir.NameLoc) else "",
        mesh=tuple(mesh),
    )


_ELEMENTS = {
    "i1": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "ui4": "uint4", "ui8": "uint8",
    "ui16": "uint16", "ui32": "uint32", "f32": "float32", "bf16": "bfloat16", "f16": "float16",
    "f8E5M2": "float8_e5m2", "f8E4M3FN": "float8_e4m3fn", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
}  # fmt: skip


def aval(type_: ir.Type) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an operand or a result. Raises Refusal ``CANNOT_VERIFY`` for one that no array here has."""
    shaped = ir.RankedTensorType(type_)
    element = str(shaped.element_type)
    if element not in _ELEMENTS or any(shaped.is_dynamic_dim(i) for i in range(shaped.rank)):
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


def kernel_calls(module: ir.Module) -> list[Call]:
    """Every kernel call of a program, function by function; without the meshes that they are sharded over.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for a call that cannot be read.
    """
    functions = [op.operation for op in module.body if op.operation.name == "func.func"]
    functions.sort(key=lambda op: string(op, "sym_name"))
    return [read_call(op, ()) for function in functions for op in walk(function) if target(op) == "tpu_custom_call"]
