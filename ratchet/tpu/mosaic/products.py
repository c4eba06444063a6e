"""Products of the program around the kernels, as the TPU's matrix unit computes them."""

from __future__ import annotations

from ratchet.tpu.mlir.bindings import ir
from ratchet.values.status import Refusal, Status

_PRODUCTS = frozenset({"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})

_MANTISSA = {"DEFAULT": 7, "HIGH": 15}
"""Bits that are left of a float32 operand: one pass rounds it to bfloat16, three to the sum of two of them."""


def round_operands(op: ir.Operation) -> None:
    """Round the float32 operands of a product to what the passes of its precision keep; other operations stay.

    XLA's CPU backend multiplies float32 exactly whatever precision is asked for, its TPU backend does not.

    Raises:
      Refusal: ``CANNOT_VERIFY`` for a product by a named algorithm.
    """
    if op.name not in _PRODUCTS:
        return
    if "algorithm" in op.attributes:
        raise Refusal(Status.CANNOT_VERIFY, f"a product beside the kernel by {op.attributes['algorithm']}")
    asked = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else "DEFAULT"
    kept = [bits for name, bits in _MANTISSA.items() if f"precision {name}>" in asked or asked == name]
    if not kept:
        return
    with ir.InsertionPoint(op), op.location:
        for number, value in enumerate(op.operands):
            if str(ir.RankedTensorType(value.type).element_type) != "f32":
                continue
            width = ir.IntegerType.get_signless(32)
            kinds = {"exponent_bits": 8, "mantissa_bits": min(kept)}
            bits: dict[str, ir.Attribute] = {name: ir.IntegerAttr.get(width, count) for name, count in kinds.items()}
            rounded = ir.Operation.create("stablehlo.reduce_precision", [value.type], [value], bits)
            op.operands[number] = rounded.results[0]
