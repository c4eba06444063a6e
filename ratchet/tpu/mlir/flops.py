"""How many FLOPs a StableHLO module computes as written, loops as often as they turn. XLA counts a loop's body once.

An elementwise operation counts one for each element of its result, as in XLA's ``HloCostAnalysis`` (openxla/xla,
``xla/service/hlo_cost_analysis.cc``), a product two for each multiplication, a reduction one for each element that it
takes. A loop counts as often as its counter goes from one constant to another by a third; any other loop once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ratchet.tpu.mlir.bindings import ir, string

_ELEMENTWISE = frozenset(
    "abs add and atan2 cbrt ceil clamp compare convert cosine divide exponential exponential_minus_one floor is_finite "
    "log log_plus_one logistic maximum minimum multiply negate not or popcnt power remainder round_nearest_afz "
    "round_nearest_even rsqrt select shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan "
    "tanh xor".split()
)


def flops(module: ir.Module) -> float:
    """Of ``main`` and all that it calls, as often as it does."""
    functions = {
        string(view.operation, "sym_name"): view.operation
        for view in module.body.operations
        if view.operation.name == "func.func"
    }
    return _Counter(functions).of("main")


class _Counter:
    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions, self._known = functions, dict[str, float]()

    def of(self, name: str) -> float:
        """FLOPs of a function; 0 of one that is not there."""
        if name not in self._known:
            self._known[name] = 0.0  # of one that calls itself, which no program of JAX's does
            if (function := self._functions.get(name)) is not None:
                self._known[name] = sum(map(self._region, function.regions))
        return self._known[name]

    def _region(self, region: Any) -> float:
        return sum(self._op(view.operation) for block in region.blocks for view in block.operations)

    def _op(self, op: Any) -> float:
        name = op.name.removeprefix("stablehlo.").removeprefix("chlo.")
        if name in _ELEMENTWISE:
            return _elements(op.results[0])
        match name:
            case "func.call":
                return self.of(str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value))
            case "while":
                condition, body = op.regions
                return trips(op) * (self._region(condition) + self._region(body))
            case "dot_general":
                return 2 * _elements(op.results[0]) * _contracted(op)
            case "reduce" | "reduce_window" | "select_and_scatter":
                return _elements(op.operands[0])
            case "case" | "if":
                return max(map(self._region, op.regions), default=0.0)
        return sum(map(self._region, op.regions)) if name not in ("sort", "scatter") else 0.0


def _elements(value: Any) -> float:
    kind = ir.RankedTensorType(value.type)
    return float(math.prod(kind.shape))


def _contracted(op: Any) -> int:
    """Elements that a product sums for one of its result's."""
    numbers = str(op.attributes["dot_dimension_numbers"])
    _, found, rest = numbers.partition("lhs_contracting_dimensions = [")
    sides = [int(side) for side in rest.partition("]")[0].split(",") if side.strip()] if found else []
    shape = ir.RankedTensorType(op.operands[0].type).shape
    return math.prod(shape[side] for side in sides)


def trips(loop: Any) -> int:
    """How often a loop turns whose counter goes up from one constant to another; 1 where that is not seen."""
    condition, body = (region.blocks[0] for region in loop.regions)
    compare = _operation(condition.operations[len(condition.operations) - 1].operation.operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return 1
    if "LT" not in str(compare.attributes["comparison_direction"]):
        return 1
    place = next((place for place, one in enumerate(condition.arguments) if one == compare.operands[0]), None)
    if place is None:
        return 1
    after = body.operations[len(body.operations) - 1].operation.operands[place]
    step = _step(after, body.arguments[place])
    first, last = _constant(loop.operands[place]), _constant(compare.operands[1])
    if step is None or step <= 0 or first is None or last is None:
        return 1
    return max(0, -(-(last - first) // step))


def _step(after: Any, before: Any) -> int | None:
    """What an addition adds to ``before``; None where ``after`` is none."""
    op = _operation(after)
    if op is None or op.name != "stablehlo.add" or op.operands[0] != before:
        return None
    return _constant(op.operands[1])


def _constant(value: Any) -> int | None:
    op = _operation(value)
    if op is None or op.name != "stablehlo.constant" or ir.RankedTensorType(value.type).shape:
        return None
    try:
        return int(ir.DenseIntElementsAttr(op.attributes["value"])[0])
    except (ValueError, TypeError, IndexError):
        return None


def _operation(value: Any) -> Any:
    """What makes a value; None for a block's argument."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    return owner.operation if isinstance(owner, ir.OpView) else owner
