"""Kernels that write in place: which entry parameters the compiled program may overwrite.

A caller of an in-place kernel donates what it overwrites. Without donation XLA copies it first, which is no part of the
kernel. Only a parameter that a kernel overwrites itself is donated, for the output that the kernel's result is.
"""

from __future__ import annotations

from typing import Any

from ratchet.tpu.mlir.bindings import ir
from ratchet.tpu.mlir.calls import read_call, target, walk

_SAME_BYTES = ("stablehlo.reshape",)


def donated(module: ir.Module) -> dict[int, int]:
    """Number of each input of ``@main`` that may be overwritten, and the output that takes its memory."""
    trace = _Trace(module)
    main = trace.functions["main"].regions[0].blocks[0]
    outputs: dict[Any, int] = {}
    for number, value in enumerate(main.operations[len(main.operations) - 1].operation.operands):
        outputs.setdefault(trace.origin(value), number)
    pairs: dict[int, int] = {}
    for op in walk(module.operation):
        if target(op) != "tpu_custom_call":
            continue
        for operand, result in read_call(op, ()).aliases.items():
            argument, output = trace.origin(op.operands[operand]), outputs.get(op.results[result])
            if output is not None and isinstance(argument.owner, ir.Block) and argument in list(main.arguments):
                number = ir.BlockArgument(argument).arg_number
                end = main.operations[len(main.operations) - 1].operation.operands[output]
                if argument.type == end.type and number not in pairs and output not in pairs.values():
                    pairs[number] = output
    return pairs


def donate(lowered: ir.Module, pairs: dict[int, int]) -> None:
    """Mark ``pairs`` of :func:`donated` in the module that is compiled, whose entry takes and gives the same."""
    with lowered.context:
        (main,) = (op.operation for op in lowered.body if _name(op.operation) == "main")
        attributes = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        for number, output in pairs.items():
            entries = {entry.name: entry.attr for entry in _entries(attributes[number])}
            entries["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), output)
            attributes[number] = ir.DictAttr.get(entries)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


class _Trace:
    """Follows values through functions that are called once."""

    def __init__(self, module: ir.Module) -> None:
        self.functions = {_name(v.operation): v.operation for v in module.body if v.operation.name == "func.func"}
        self.calls: dict[str, list[ir.Operation]] = {}
        for op in walk(module.operation):
            if op.name == "func.call":
                self.calls.setdefault(str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value), []).append(op)

    def origin(self, value: Any) -> Any:
        """What ``value`` is, other than in shape: an argument of ``@main``, or what an operation makes."""
        while True:
            before = self._before(value)
            if before is None:
                return value
            value = before

    def _before(self, value: Any) -> Any:
        if isinstance(value.owner, ir.Block):
            argument: Any = ir.BlockArgument(value)
            owner = argument.owner.owner.operation
            calls = self.calls.get(_name(owner), []) if owner.name == "func.func" else []
            return calls[0].operands[argument.arg_number] if len(calls) == 1 else None
        result: Any = ir.OpResult(value)
        op = result.owner.operation
        if op.name in _SAME_BYTES:
            return op.operands[0]
        callee = str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value) if op.name == "func.call" else ""
        if len(self.calls.get(callee, [])) != 1:
            return None
        block = self.functions[callee].regions[0].blocks[0]
        return block.operations[len(block.operations) - 1].operation.operands[result.result_number]


def _entries(attribute: ir.Attribute) -> Any:
    return ir.DictAttr(attribute)


def _name(op: ir.Operation) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value) if "sym_name" in op.attributes else ""
