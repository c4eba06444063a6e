"""Kernels that write in place: which entry parameters the compiled program may overwrite.

A caller of an in-place kernel donates what it overwrites. Without donation XLA copies it first, which is no part of the
kernel. Only a parameter that a kernel overwrites itself is donated, for the output that the kernel's result is.
"""

from __future__ import annotations

import re
from typing import Any

from ratchet.tpu.mlir.bindings import ir, string
from ratchet.tpu.mlir.calls import aliases_of, callee, target, walk

_SAME_BYTES = ("stablehlo.reshape",)
_EDGES = ("edge_padding_low", "edge_padding_high", "interior_padding")
_PER_CHIP = "sdy.manual_computation"


def donated(module: ir.Module) -> dict[int, int]:
    """Number of each input of ``@main`` that may be overwritten, and the output that takes its memory."""
    trace = _Trace(module)
    main = trace.functions["main"]
    arguments, results = list(main.regions[0].blocks[0].arguments), _results(main)
    given = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else [""] * len(arguments)
    outputs: dict[Any, tuple[int, set[str]]] = {}
    for number, value in enumerate(results):
        origin, split = trace.origin(value)
        outputs.setdefault(origin, (number, split))
    pairs: dict[int, int] = {}
    kernels = [op for op in walk(module.operation) if target(op) == "tpu_custom_call"]
    for op in reversed(kernels):  # what a later kernel overwrites of an earlier one's is in the same memory
        for operand, result in aliases_of(op).items():
            (between, split), known = trace.origin(op.operands[operand]), outputs.get(op.results[result])
            if known is not None and not split and between not in arguments:
                outputs.setdefault(between, known)
    for op in kernels:
        for operand, result in aliases_of(op).items():
            (argument, split), known = trace.origin(op.operands[operand]), outputs.get(op.results[result])
            if known is None or argument not in arguments:
                continue
            number, (output, split_after) = arguments.index(argument), known
            stays = split == split_after and all(one in str(given[number]) for one in split)  # on the same chips
            if not stays or argument.type != results[output].type:
                continue
            if number not in pairs and output not in pairs.values():
                pairs[number] = output
    return pairs


def donate(lowered: ir.Module, pairs: dict[int, int]) -> None:
    """Mark ``pairs`` of :func:`donated` in the module that is compiled, whose entry takes and gives the same."""
    with lowered.context:
        (main,) = (op.operation for op in lowered.body if string(op.operation, "sym_name") == "main")
        attributes = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        for number, output in pairs.items():
            entries = {entry.name: entry.attr for entry in ir.DictAttr(attributes[number])}  # type: ignore[attr-defined]
            entries["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), output)
            attributes[number] = ir.DictAttr.get(entries)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


class _Trace:
    """Follows values through functions that are called once."""

    def __init__(self, module: ir.Module) -> None:
        self.functions = {string(op.operation, "sym_name"): op.operation for op in module.body}
        self.calls: dict[str, list[ir.Operation]] = {}
        for op in walk(module.operation):
            if op.name == "func.call":
                self.calls.setdefault(callee(op), []).append(op)

    def origin(self, value: Any) -> tuple[Any, set[str]]:
        """What ``value`` is, other than in shape: an argument of ``@main``, or what an operation makes.

        With it how it is split over chips where it goes into, or comes out of, what each chip does by itself.
        """
        split: set[str] = set()
        while (before := self._before(value, split)) is not None:
            value = before
        return value, split

    def _before(self, value: Any, split: set[str]) -> Any:
        if isinstance(value.owner, ir.Block):
            argument: Any = ir.BlockArgument(value)
            owner = argument.owner.owner.operation
            if owner.name == _PER_CHIP:
                split.add(_shardings(owner, "in_shardings")[argument.arg_number])
                return owner.operands[argument.arg_number]
            calls = self.calls.get(string(owner, "sym_name"), []) if owner.name == "func.func" else []
            return calls[0].operands[argument.arg_number] if len(calls) == 1 else None
        result: Any = ir.OpResult(value)
        op = result.owner.operation
        if op.name in _SAME_BYTES or _changes_nothing(op):
            return op.operands[0]
        if op.name == _PER_CHIP:
            split.add(_shardings(op, "out_shardings")[result.result_number])
            return _results(op)[result.result_number]
        if op.name != "func.call" or len(self.calls[callee(op)]) != 1:
            return None
        return _results(self.functions[callee(op)])[result.result_number]


def _changes_nothing(op: ir.Operation) -> bool:
    """Whether a pad pads by nothing or a slice takes all, as of arrays that are whole tiles already. XLA drops both."""
    if op.name == "stablehlo.pad":
        return all(not any(ir.DenseI64ArrayAttr(op.attributes[edge])) for edge in _EDGES)
    return op.name == "stablehlo.slice" and op.results[0].type == op.operands[0].type


def _shardings(op: ir.Operation, which: str) -> list[str]:
    """How operands or results are split, each as ``<@mesh, [{"chip"}, {}]>``."""
    return re.findall(r"<@.*?\]>", str(op.attributes[which]))


def _results(function: ir.Operation) -> list[Any]:
    operations = function.regions[0].blocks[0].operations
    return list(operations[len(operations) - 1].operation.operands)
