"""The HLO copy trap: bytes that the compiled program moves around its kernels without computing.

The only importer of XLA's HLO bindings (private to jaxlib). Runs in the compile child.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.values import Copy

_SHAPE = re.compile(r"(?P<dtype>[a-z]+\d*[a-z0-9]*)\[(?P<dims>[\d,]*)\](?:\{(?P<layout>[^}]*)\})?")
_MOVES = ("copy", "transpose", "bitcast", "reshape", "parameter", "tuple", "get-tuple-element", "convert", "constant")
_TRANSPARENT = ("bitcast", "copy", "copy-start", "copy-done", "get-tuple-element", "tuple", "optimization-barrier")
_ASKED = ("transpose", "convert", "reshape", "broadcast", "slice", "pad", "concatenate", "reverse")
_BITS = {"pred": 8, "s4": 4, "u4": 4}
CUSTOM_CALL = "tpu_custom_call"


def opcode(instruction: Any) -> str:
    """HLO text's name of an opcode: ``HloOpcode.kGetTupleElement`` -> ``get-tuple-element``."""
    name = str(instruction.opcode).rpartition(".")[2].removeprefix("k")
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def is_kernel(instruction: Any) -> bool:
    """Whether an HLO instruction is a Mosaic kernel."""
    return opcode(instruction) == "custom-call" and f'custom_call_target="{CUSTOM_CALL}"' in instruction.to_string()


def entry_of(module: Any) -> Any:
    """The entry computation of an HLO module."""
    text = module.to_string()
    name = re.search(r"^ENTRY %?([^\s(]+)", text, re.MULTILINE)
    return next(c for c in module.computations() if name is not None and c.name == name[1])


def kernels(module: Any) -> tuple[str, ...]:
    """Names of the live kernels: the compiler removed whatever does not reach an output."""
    return tuple(i.name for c in module.computations() for i in c.instructions() if is_kernel(i))


def find(optimized: Any, lowered: Any) -> tuple[Copy, ...]:
    """Every copy of the entry computation.

    Args:
      optimized: HLO module after the compiler's passes.
      lowered: HLO module before them: what the author wrote.
    """
    asked = _asked_operands(lowered)
    bodies = {computation.name: computation for computation in optimized.computations()}
    found = []
    for instruction in entry_of(optimized).instructions():
        kind = _kind(instruction, bodies)
        if kind is not None:
            injected, cause = _cause(instruction, asked)
            found.append(
                Copy(
                    instruction=instruction.name,
                    kind=kind,
                    injected=injected,
                    size_bytes=padded_bytes(_result_shape(instruction)),
                    cause=cause,
                )
            )
    return tuple(found)


def _result_shape(instruction: Any) -> str:
    text = instruction.to_string().partition(" = ")[2]
    match = _SHAPE.search(text)
    return match[0] if match else ""


def _operand_shape(instruction: Any) -> str:
    operands = instruction.operands()
    return _result_shape(operands[0]) if operands else ""


def _split_layout(shape: str) -> tuple[str, str]:
    """Layout with tiling, and memory space, of a shape's text."""
    match = _SHAPE.search(shape)
    layout = (match["layout"] or "") if match else ""
    space = re.search(r"S\(\d+\)", layout)
    return re.sub(r"S\(\d+\)", "", layout), space[0] if space else ""


def _kind(instruction: Any, bodies: Mapping[str, Any]) -> str | None:
    """``relayout``, ``prefetch``, ``copy``, or None for an instruction that computes."""
    code = opcode(instruction)
    if code == "transpose":
        return "relayout"
    if code == "fusion":
        return _fusion_kind(instruction, bodies)
    if code not in ("copy", "copy-start"):
        return None
    result, operand = _split_layout(_result_shape(instruction)), _split_layout(_operand_shape(instruction))
    if result[0] != operand[0]:
        return "relayout"
    return "prefetch" if result[1] != operand[1] or code == "copy-start" else "copy"


def _fusion_kind(instruction: Any, bodies: Mapping[str, Any]) -> str | None:
    called = re.search(r"\bcalls=%?([^\s,]+)", instruction.to_string())
    opcodes = {opcode(i) for i in bodies[called[1]].instructions()} if called else set()
    return "relayout" if opcodes <= set(_MOVES) and opcodes & {"copy", "transpose"} else None


def _neighbours(instruction: Any) -> Iterator[tuple[str, Any, int]]:
    """Kernels next to a copy: ``("operand" | "result", kernel, index)``, looking through transparent ops."""
    frontier = [(instruction, user) for user in instruction.users()]
    while frontier:
        source, user = frontier.pop()
        if is_kernel(user):
            names = [o.name for o in user.operands()]
            yield "operand", user, names.index(source.name)
        elif opcode(user) in _TRANSPARENT:
            frontier += [(user, further) for further in user.users()]
    back = list(instruction.operands())
    while back:
        operand = back.pop()
        if is_kernel(operand):
            yield "result", operand, 0
        elif opcode(operand) in _TRANSPARENT:
            back += list(operand.operands())


def _signature(kernel: Any) -> str:
    """Dtypes and shapes of a kernel's result and operands: what it keeps of itself through the compiler's passes."""
    found = _SHAPE.finditer(" ".join(_result_shape(i) for i in (kernel, *kernel.operands())))
    return " ".join(f"{match['dtype']}[{match['dims']}]" for match in found)


def _cause(instruction: Any, asked: Mapping[tuple[str, str, int], str]) -> tuple[bool, str]:
    for side, kernel, index in _neighbours(instruction):
        op = asked.get((_signature(kernel), side, index))
        if op:
            return False, f"the author's {op} at {side} {index} of {kernel.name}"
        return True, f"the compiler's, at {side} {index} of {kernel.name}"
    name = re.search(r'op_name="([^"]*)"', instruction.to_string())
    if name is not None:
        return False, f"the author's {name[1]}"
    return True, "the compiler's"


def _asked_operands(lowered: Any) -> dict[tuple[str, str, int], str]:
    """Operands and results of the kernels that the author himself moved: (signature, side, index) -> opcode."""
    asked: dict[tuple[str, str, int], str] = {}
    for computation in lowered.computations():
        for kernel in (i for i in computation.instructions() if is_kernel(i)):
            signature = _signature(kernel)
            for index, operand in enumerate(kernel.operands()):
                walk = operand
                while opcode(walk) in (*_ASKED, *_TRANSPARENT) and walk.operands():
                    if opcode(walk) in _ASKED:
                        asked.setdefault((signature, "operand", index), opcode(walk))
                    walk = walk.operands()[0]
            frontier = list(kernel.users())
            while frontier:
                user = frontier.pop()
                if opcode(user) in _ASKED:
                    asked.setdefault((signature, "result", 0), opcode(user))
                if opcode(user) in (*_ASKED, *_TRANSPARENT):
                    frontier += list(user.users())
    return asked


def padded_bytes(shape: str) -> int:
    """Bytes that an array occupies with its tiling, from HLO text such as ``bf16[65536,96]{1,0:T(8,128)(2,1)}``."""
    match = _SHAPE.search(shape)
    if match is None:
        return 0
    bits = _BITS.get(match["dtype"]) or int((re.findall(r"\d+", match["dtype"]) or ["8"])[0])
    dims = [int(d) for d in match["dims"].split(",") if d]
    layout = match["layout"] or ""
    order, _, rest = layout.partition(":")
    minor_first = [int(d) for d in order.split(",") if d] or list(range(len(dims)))[::-1]
    tile = re.match(r"T\(([\d,]+)\)", rest)
    if tile is not None:
        for size, dim in zip(reversed([int(t) for t in tile[1].split(",")]), minor_first, strict=False):
            dims[dim] = -(-dims[dim] // size) * size
    count = 1
    for size in dims:
        count *= size
    return count * bits // 8
