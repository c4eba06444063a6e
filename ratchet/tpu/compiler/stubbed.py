"""A program whose kernels do nothing: what the compiler makes of all that is around them takes half a second to see."""

from __future__ import annotations

from typing import Any

from jax import export

from ratchet.tpu.mlir import kernel_config
from ratchet.tpu.mlir.bindings import body_of, ir, mosaic_module, rebuilt, stablehlo_of
from ratchet.tpu.mlir.calls import target, walk


def hollowed(program: export.Exported) -> export.Exported:
    """``program`` with the body of each kernel emptied: the same calls, operands, windows, scratch and configuration.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for a kernel whose configuration or module does not read.
    """
    module = stablehlo_of(program)
    with module.context, ir.Location.unknown():
        for op in list(walk(module.operation)):
            if target(op) == "tpu_custom_call":
                body, config = kernel_config.read(str(ir.StringAttr(op.attributes["backend_config"]).value))
                op.attributes["backend_config"] = ir.StringAttr.get(kernel_config.write(_emptied(body), config))
    return rebuilt(program, module)


def _emptied(body: bytes) -> bytes:
    """A serialised Mosaic module whose kernel only returns; the functions that say where windows are stay."""
    module: Any = mosaic_module(body)
    with module.context, ir.Location.unknown():
        kernel = module.operation.regions[0].blocks[0].operations[0].operation
        operations = [view.operation for view in kernel.regions[0].blocks[0].operations]
        for operation in reversed(operations[:-1]):
            operation.erase()
        return body_of(module)
