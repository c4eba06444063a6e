"""Lowers every ``tpu_custom_call`` of an exported program to code for the CPU.

The program's own StableHLO stays as it is, except the operands of float32 products. Two values are threaded through it
to every kernel and back: ``config`` (how memory starts and in which order parallel steps run) and ``report`` (the first
findings of every kernel).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.bindings import ir, lowered_module, lowered_per_device, rebuilt, stablehlo_of, string
from ratchet.tpu.mlir.calls import Call, aval, callee, read_call, target, walk
from ratchet.tpu.mosaic.state import never_written
from ratchet.values.status import Refusal, Status

CONFIG_WIDTH = 3
"""Seed of the order of parallel steps, fill of memory never written, fill of the padding past ragged edges."""

_HARMLESS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"})
"""Custom calls of the partitioner, which the CPU compiler knows too."""
_KERNEL, _BUFFER = "tpu_custom_call", "AllocateBuffer"
"""Custom calls that are replaced: a kernel, and memory that is not written yet."""
_PRODUCTS = frozenset({"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})

_MANTISSA = {"DEFAULT": 7, "HIGH": 15}
"""Bits that are left of a float32 operand: one pass rounds it to bfloat16, three to the sum of two of them."""

Translate = Callable[[int, Call], Callable[..., tuple[list[Any], Any]]]
"""Number of the call and the call -> a JAX function ``(config, *operands) -> (results, report)``."""

Merge = Callable[[jax.Array, jax.Array], jax.Array]
"""What was reported of a call before, and now -> the report of both."""


def lowered(exported: Any, translate: Translate, width: int, merge: Merge, *, config: int = CONFIG_WIDTH) -> Any:
    """An exported TPU program for the CPU, with ``translate`` of every kernel call in its place.

    Args:
        width: words of a kernel's report.
        config: words of the configuration; behind the first ``CONFIG_WIDTH`` is what ``translate`` reads there.

    Returns:
        The program with one input more, ``config`` (int32[config]), and one output more, ``report``
        (int32[kernels * width], at least one).

    Raises:
        Refusal: ``HOST_CALLBACK`` for a call to the host, ``CANNOT_VERIFY`` for another custom call or for a kernel
            in a place that is not known.
    """
    module = stablehlo_of(exported)
    count = _Lowering(module, translate, width, merge, config).run()
    taken = jax.core.ShapedArray((config,), jnp.int32)
    report = jax.core.ShapedArray((max(count, 1) * width,), jnp.int32)
    return rebuilt(exported, module, inputs=[taken], outputs=[report], platform="cpu")


class _Lowering:
    def __init__(self, module: ir.Module, translate: Translate, width: int, merge: Merge, config: int) -> None:
        self.module, self.translate, self.one, self.merge, self.config = module, translate, width, merge, config
        named = [(string(op.operation, "sym_name"), op.operation) for op in module.body if "sym_name" in op.attributes]
        self.functions = {name: op for name, op in named if op.name == "func.func"}
        self.meshes = {name: str(op.attributes["mesh"]) for name, op in named if op.name == "sdy.mesh"}
        operations = list(walk(module.operation))
        for op in operations:
            _check_allowed(op)
            _round_operands(op)
        self.total = sum(target(op) == _KERNEL for op in operations)
        self.width = max(self.total, 1) * width
        self.calls = self.buffers = 0
        self.touched: set[str] = set()
        while new := {name for name, op in self.functions.items() if self._is_touched(op)} - self.touched:
            self.touched |= new
        self.touched.add("main")

    def _is_touched(self, op: ir.Operation) -> bool:
        """Whether a kernel is called or memory allocated inside, directly or through functions."""
        return any(
            target(inner) in (_KERNEL, _BUFFER) or (inner.name == "func.call" and callee(inner) in self.touched)
            for inner in (op, *walk(op))
        )

    def run(self) -> int:
        with self.module.context, ir.Location.unknown():
            self.config_type, self.report_type = _words(self.config), _words(self.width)
            for name in sorted(self.touched):
                self._function(self.functions[name], is_main=name == "main")
            if not self.module.operation.verify():
                raise Refusal(Status.INTERNAL, "the program does not verify after its kernels were replaced")
        return self.calls

    # --- threading config and report ---

    def _function(self, function: ir.Operation, *, is_main: bool) -> None:
        block = function.regions[0].blocks[0]
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        config = block.add_argument(self.config_type, ir.Location.unknown())
        inputs = [*old.inputs, self.config_type]
        if is_main:
            report = self._constant(block)
        else:
            report = block.add_argument(self.report_type, ir.Location.unknown())
            inputs.append(self.report_type)
        results = [*old.results, self.report_type]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
        for key, count in (("arg_attrs", len(inputs)), ("res_attrs", len(results))):
            if key in function.attributes:
                attrs = list(ir.ArrayAttr(function.attributes[key]))
                attrs += [ir.DictAttr.get({})] * (count - len(attrs))
                function.attributes[key] = ir.ArrayAttr.get(attrs)
        self._block(block, config, report, mesh=())

    def _constant(self, block: ir.Block) -> ir.Value:
        value = ir.DenseElementsAttr.get_splat(
            self.report_type, ir.IntegerAttr.get(ir.IntegerType.get_signless(32), -1)
        )
        with ir.InsertionPoint.at_block_begin(block):
            op = ir.Operation.create("stablehlo.constant", [self.report_type], attributes={"value": value})
        return op.results[0]

    def _block(
        self, block: ir.Block, config: ir.Value, report: ir.Value, mesh: Any, *, passes: Sequence[ir.Value] = ()
    ) -> None:
        """Rewrite a block; its terminator passes on the report, and what else is given, after its last operand."""
        operations = [view.operation for view in block.operations]
        for op in operations[:-1]:
            if self._is_touched(op):
                report = self._operation(op, config, report, mesh)
        end = operations[-1]
        self._recreate(end, [*end.operands, *passes, report], _types(end))

    def _recreate(
        self,
        op: ir.Operation,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: Any = None,
        *,
        name: str = "",
    ) -> ir.Operation:
        """The same operation with other operands and result types; results after the old ones are new."""
        attrs = {name: op.attributes[name] for name in op.attributes} if attributes is None else attributes
        with ir.InsertionPoint(op):
            new = ir.Operation.create(
                name or op.name, list(results), list(operands), attrs, regions=len(op.regions), loc=op.location
            )
        for old_region, new_region in zip(op.regions, new.regions, strict=True):
            while len(old_region.blocks):
                old_region.blocks[0].append_to(new_region)
        for before, after in zip(op.results, new.results, strict=False):
            before.replace_all_uses_with(after)
        op.erase()
        return new

    def _operation(self, op: ir.Operation, config: ir.Value, report: ir.Value, mesh: Any) -> ir.Value:
        if target(op) == _KERNEL:
            return self._kernel(op, config, report, mesh)
        if target(op) == _BUFFER:
            self._buffer(op, config)
            return report
        if op.name == "func.call":
            if mesh:
                raise Refusal(
                    Status.CANNOT_VERIFY, f"a kernel in function @{callee(op)} called inside a sharded computation"
                )
            return self._recreate(op, [*op.operands, config, report], [*_types(op), self.report_type]).results[-1]
        if op.name in ("stablehlo.case", "stablehlo.if"):
            for region in op.regions:
                self._block(region.blocks[0], config, report, mesh)
            return self._recreate(op, op.operands, [*_types(op), self.report_type]).results[-1]
        if op.name == "stablehlo.while":
            return self._loop(op, config, report, mesh)
        if op.name == "sdy.manual_computation":
            return self._manual(op, config, report)
        raise Refusal(Status.CANNOT_VERIFY, f"a kernel inside {op.name} is not something this judge can execute")

    def _loop(self, op: ir.Operation, config: ir.Value, report: ir.Value, mesh: Any) -> ir.Value:
        """A loop around kernels: config and report are carried."""
        test, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
        if any(self._is_touched(view.operation) for view in test.operations):
            raise Refusal(Status.CANNOT_VERIFY, "a kernel in the condition of a loop")
        for block in (test, body):
            block.add_argument(self.config_type, ir.Location.unknown())
            block.add_argument(self.report_type, ir.Location.unknown())
        inner_config, inner_report = list(body.arguments)[-2:]
        self._block(body, inner_config, inner_report, mesh, passes=[inner_config])
        types = [*_types(op), self.config_type, self.report_type]
        return self._recreate(op, [*op.operands, config, report], types).results[-1]

    def _manual(self, op: ir.Operation, config: ir.Value, report: ir.Value) -> ir.Value:
        """A sharded computation: every device has a report of its own; the largest entries are kept."""
        axes = [str(ir.StringAttr(a).value) for a in ir.ArrayAttr(_axes(op.attributes["manual_axes"]))]
        name = str(op.attributes["out_shardings"]) + str(op.attributes["in_shardings"])
        (mesh_name,) = {n for n in self.meshes if f"@{n}," in name} or {""}
        if not mesh_name:
            raise Refusal(Status.CANNOT_VERIFY, "a sharded computation over a mesh that is not named")
        sizes = dict(_mesh_axes(self.meshes[mesh_name]))
        mesh = tuple((axis, sizes[axis]) for axis in sizes if axis in axes)
        devices = int(np.prod([n for _, n in mesh]))
        block = op.regions[0].blocks[0]
        inner_config = block.add_argument(self.config_type, ir.Location.unknown())
        inner_report = block.add_argument(self.report_type, ir.Location.unknown())
        self._block(block, inner_config, inner_report, mesh)
        attrs = {key: op.attributes[key] for key in op.attributes}
        everywhere, split = f"<@{mesh_name}, [{{}}]>", ", ".join(f'"{a}"' for a, _ in mesh)
        attrs["in_shardings"] = _extend(attrs["in_shardings"], [everywhere, everywhere])
        attrs["out_shardings"] = _extend(attrs["out_shardings"], [f"<@{mesh_name}, [{{{split}}}]>"])
        wide = _words(devices * self.width)
        new = self._recreate(op, [*op.operands, config, report], [*_types(op), wide], attrs)
        width = self.width

        def merge(reports: jax.Array) -> jax.Array:
            return reports.reshape(devices, width).max(0)

        aval = jax.ShapeDtypeStruct((devices * self.width,), jnp.int32)
        function = self._insert(f"mosaic_merge_{self.calls}", lowered_module(merge, [aval], self.module.context))
        with ir.InsertionPoint.after(new):
            call = ir.Operation.create(
                "func.call", [self.report_type], [new.results[-1]], {"callee": ir.FlatSymbolRefAttr.get(function)}
            )
        return call.results[0]

    # --- one kernel ---

    def _kernel(self, op: ir.Operation, config: ir.Value, report: ir.Value, mesh: Any) -> ir.Value:
        number = self.calls
        self.calls += 1
        call = read_call(op, mesh)
        run = self.translate(number, call)
        low, high = number * self.one, (number + 1) * self.one

        def function(config: jax.Array, report: jax.Array, *operands: jax.Array) -> tuple[jax.Array, ...]:
            results, now = run(config, *operands)
            return (*results, report.at[low:high].set(self.merge(report[low:high], now)))

        avals = [*(jax.ShapeDtypeStruct((width,), jnp.int32) for width in (self.config, self.width)), *call.inputs]
        if call.mesh:
            module = lowered_per_device(function, avals, call.mesh, self.module.context, channel=1000 * (number + 1))
        else:
            module = lowered_module(function, avals, self.module.context)
        called = ir.FlatSymbolRefAttr.get(self._insert(f"mosaic_kernel_{number}", module))
        operands, results = [config, report, *op.operands], [*_types(op), self.report_type]
        return self._recreate(op, operands, results, {"callee": called}, name="func.call").results[-1]

    def _buffer(self, op: ir.Operation, config: ir.Value) -> None:
        """Put an array that reads as memory never written in the place of a buffer."""
        number = self.buffers
        self.buffers += 1
        shape = aval(op.results[0].type)

        def function(config: jax.Array) -> jax.Array:
            return jnp.broadcast_to(never_written(np.dtype(shape.dtype), config[1]), shape.shape)

        module = lowered_module(function, [jax.ShapeDtypeStruct((self.config,), jnp.int32)], self.module.context)
        made = ir.FlatSymbolRefAttr.get(self._insert(f"mosaic_buffer_{number}", module))
        self._recreate(op, [config], _types(op), {"callee": made}, name="func.call")

    def _insert(self, name: str, module: ir.Module) -> str:
        """Move the functions of ``module`` into the program under names of their own; the name of its entry."""
        for view in list(module.body.operations):
            op = view.operation
            if op.name != "func.func":
                raise Refusal(Status.INTERNAL, f"a translated kernel holds a top-level {op.name}")
            old = string(op, "sym_name")
            new = name if old == "main" else f"{name}_{old}"
            ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
            ir.SymbolTable.set_symbol_name(op, new)
            ir.SymbolTable.set_visibility(op, "private")
        for view in list(module.body.operations):
            with ir.InsertionPoint(self.module.body):
                view.operation.clone()
        return name


def _check_allowed(op: ir.Operation) -> None:
    """Refuse an operation of the program around the kernels that calls the host or that no CPU executes.

    Raises:
        Refusal: ``HOST_CALLBACK`` or ``CANNOT_VERIFY``.
    """
    if op.name in ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"):
        raise Refusal(Status.HOST_CALLBACK, f"the program calls the host ({op.name}); a kernel may not")
    name = target(op)
    if not name or name in (_KERNEL, _BUFFER) or name in _HARMLESS:
        return
    if "callback" in name or "host" in name.lower():
        raise Refusal(Status.HOST_CALLBACK, f"the program calls back to the host ({name}); a kernel may not")
    raise Refusal(Status.CANNOT_VERIFY, f"custom call {name} beside the kernel is not something this judge can execute")


def _round_operands(op: ir.Operation) -> None:
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


def _types(op: ir.Operation) -> list[ir.Type]:
    return [result.type for result in op.results]


def _words(count: int) -> ir.Type:
    return ir.RankedTensorType.get([count], ir.IntegerType.get_signless(32))


def _axes(attribute: ir.Attribute) -> ir.Attribute:
    """``#sdy<manual_axes{"x", "y"}>`` as an array of strings."""
    inner = str(attribute).split("{", 1)[1].rsplit("}", 1)[0]
    return ir.Attribute.parse(f"[{inner}]")


def _mesh_axes(text: str) -> list[tuple[str, int]]:
    """``#sdy.mesh<["x"=2, "y"=4]>`` as names and sizes."""
    inner = text.split("[", 1)[1].split("]", 1)[0]
    return [(part.split("=")[0].strip().strip('"'), int(part.split("=")[1])) for part in inner.split(",")]


def _extend(attribute: ir.Attribute, items: Sequence[str]) -> ir.Attribute:
    """``#sdy.sharding_per_value<[a, b]>`` with more entries."""
    text = str(attribute)
    head, tail = text[: text.rindex("]>")], text[text.rindex("]>") :]
    separator = "" if head.endswith("<[") else ", "
    return ir.Attribute.parse(head + separator + ", ".join(items) + tail)
