"""The HLO copy trap: bytes that the compiled program moves around its kernels without computing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType
from ratchet.values import Copy

_MOVES = frozenset(
    "copy transpose bitcast reshape parameter tuple get-tuple-element convert constant".split()
)  # all that a fusion may hold to be a copy
_TRANSPARENT = frozenset("bitcast copy copy-start copy-done get-tuple-element tuple optimization-barrier".split())
_ASKED = frozenset("transpose convert reshape broadcast slice pad concatenate reverse".split())

_Signature = tuple[tuple[str, tuple[int, ...]], ...]
"""Dtypes and shapes of a kernel's result and operands: what it keeps of itself through the compiler's passes."""


def find(optimized: HloModule, lowered: HloModule) -> tuple[Copy, ...]:
    """Every copy of the entry computation.

    Args:
        optimized: HLO module after the compiler's passes.
        lowered: HLO module before them: what the author wrote.
    """
    asked = _asked_operands(lowered)
    named = {op.op_name for op in lowered.ops.values() if op.opcode in _ASKED | {"copy"}} - {""}
    copies = []
    for op in optimized.entry_ops():
        kind = _kind(optimized, op)
        if kind is not None:
            injected, cause = _cause(optimized, op, asked, named)
            copies.append(
                Copy(
                    instruction=op.name,
                    kind=kind,
                    injected=injected,
                    size_bytes=op.types[0].padded_bytes if op.types else 0,
                    cause=cause,
                    **_layouts(optimized, op, kind),
                )
            )
    return tuple(copies)


def _layouts(module: HloModule, op: HloOp, kind: str) -> dict[str, Any]:
    """``has``, ``wants`` and ``parameter`` of a copy."""
    operands = module.operands(op)
    if kind != "relayout" or not op.types or not operands or not operands[0].types:
        return {}
    source = operands[0]
    has, wants = source.types[0], op.types[0]
    while source.opcode in _TRANSPARENT and source.operands:
        source = module.operands(source)[0]
    return {"has": _with_layout(has), "wants": _with_layout(wants), "parameter": source.parameter}


def _with_layout(array: ArrayType) -> str:
    return f"{array}{{{','.join(map(str, array.minor_to_major))}}}"


def _kind(module: HloModule, op: HloOp) -> str | None:
    """``relayout``, ``prefetch``, ``copy``, or None for an instruction that computes."""
    if op.opcode == "transpose":
        return "relayout"
    if op.opcode == "fusion":
        inside = {inner.opcode for name in op.called for inner in module.by_computation[name]}
        return "relayout" if inside <= _MOVES and inside & {"copy", "transpose"} else None
    if op.opcode not in ("copy", "copy-start"):
        return None
    result, operand = op.types[0], module.operands(op)[0].types[0]
    if _layout(result) != _layout(operand):
        return "relayout"
    return "prefetch" if result.space != operand.space or op.opcode == "copy-start" else "copy"


def _layout(array: ArrayType) -> tuple[object, ...]:
    return array.minor_to_major, array.tiles


def _neighbours(module: HloModule, op: HloOp) -> Iterator[tuple[str, HloOp, int]]:
    """Kernels next to a copy: ``("operand" | "result", kernel, index)``, looking through transparent ops."""
    frontier = [(op, user) for user in module.users(op)]
    while frontier:
        source, user = frontier.pop()
        if user.name in module.launches:
            yield "operand", user, user.operands.index(source.name)
        elif user.opcode in _TRANSPARENT:
            frontier += [(user, further) for further in module.users(user)]
    back = module.operands(op)
    while back:
        operand = back.pop()
        if operand.name in module.launches:
            yield "result", operand, 0
        elif operand.opcode in _TRANSPARENT:
            back += module.operands(operand)


def _signature(module: HloModule, kernel: HloOp) -> _Signature:
    return tuple((op.types[0].dtype, op.types[0].shape) for op in (kernel, *module.operands(kernel)) if op.types)


def _cause(
    module: HloModule, op: HloOp, asked: Mapping[tuple[_Signature, str, int], str], named: Collection[str]
) -> tuple[bool, str]:
    """Whether the compiler put a copy there, and at what. ``named``: operations of the author's that move bytes."""
    for side, launch, place in _neighbours(module, op):
        kernel, index = module.launches[launch.name], place
        if side == "operand":
            numbers = {module.launched_operand(launch.name, n): n for n in range(len(kernel.operands))}
            index = numbers.get(place, place)
        by = asked.get((_signature(module, kernel), side, index))
        if by:
            return False, f"the author's {by} at {side} {index} of {launch.name}"
        return True, f"the compiler's, at {side} {index} of {launch.name}"
    if op.op_name in named:
        return False, f"the author's {op.op_name}"
    # A copy has the name of what it copies, whoever wanted it.
    return True, f"the compiler's, of {op.op_name}" if op.op_name else "the compiler's"


def _asked_operands(lowered: HloModule) -> dict[tuple[_Signature, str, int], str]:
    """Operands and results of the kernels that the author himself moved: (signature, side, index) -> opcode."""
    asked: dict[tuple[_Signature, str, int], str] = {}
    for kernel in (op for op in lowered.ops.values() if op.is_kernel):
        signature = _signature(lowered, kernel)
        for index, operand in enumerate(lowered.operands(kernel)):
            walk = operand
            while walk.opcode in _ASKED | _TRANSPARENT and walk.operands:
                if walk.opcode in _ASKED:
                    asked.setdefault((signature, "operand", index), walk.opcode)
                walk = lowered.operands(walk)[0]
        frontier = list(lowered.users(kernel))
        while frontier:
            user = frontier.pop()
            if user.opcode in _ASKED:
                asked.setdefault((signature, "result", 0), user.opcode)
            if user.opcode in _ASKED | _TRANSPARENT:
                frontier += lowered.users(user)
    return asked
