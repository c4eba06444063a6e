"""What each instruction occupies: the issue slot it takes, and for matrix instructions how long the unit is busy.

Slot classes and capacities are those of the compiler's own per-bundle utilisation dump (header of
``*final_hlo-static-per-bundle-utilization.txt``, libtpu 0.0.42.1 and 0.0.51, v5e), whose columns VALU, VPOP,
VLOAD, FILL, VSTORE, SPILL and SALU this module reproduces. Its MXU, XLU and EUP columns show how many
units are *busy* in a bundle; here they count instructions issued to them.
"""

from __future__ import annotations

import re
from functools import cache

CAPACITY = {
    "MXU": 4,
    "XLU": 3,
    "VALU": 4,
    "VPOP": 2,
    "EUP": 1,
    "VLOAD": 3,
    "FILL": 3,
    "VSTORE": 1,
    "SPILL": 1,
    "SALU": 2,
}
"""Slots per bundle, from the header of the utilisation dump (v5e)."""
SLOTS = tuple(CAPACITY)

# Least distance in cycles between matrix products on one unit in 26 compiled programs (libtpu 0.0.42.1, v5e): a
# bf16 operand holds 16 rows, an f32 one 8, an s8 one 32 and an s4 one 64; `lmr` feeds half a bf16 operand.
_MXU_CYCLES = {"bf16": 16, "f32": 8, "s8": 16, "u8": 16, "s4": 16, "u4": 16, "lmr": 8}

_WIDE_MXU_CYCLES = {"bf16": 8, "f32": 4, "s8": 8, "u8": 8, "s4": 8, "u4": 8, "f8": 8}
"""The same for 256-wide units, whose products name the row they begin at (`mubr`); v6e and v7x, one program each. An
s8 or f8 operand holds 32 rows, an s4 one 64. Where the unit converts f8 to bf16, a product takes twice as long."""

# First component of the opcode -> slot class, for what is not plain vector arithmetic.
_VECTOR_HEADS: dict[str, str] = {
    "vld": "VLOAD",
    "vpop": "VPOP",
    **dict.fromkeys(("vst", "vpush", "set", "vsetrngseed", "vsetiar"), "VSTORE"),
    **dict.fromkeys(("vperm", "vrot", "vxpose", "vsxpose", "vset", "vsetperm"), "XLU"),
    **dict.fromkeys(("vllmr", "vmatmul", "vmatpush", "vmatprep", "vmatres", "vdwg"), "MXU"),
    # 256-wide units take their weights in parts.
    **dict.fromkeys(("vmatpush1", "vmatpush2", "vmatpush3"), "MXU"),
    **dict.fromkeys(("vphi", "vmphi"), ""),
    # The compiler books mask logic, trace marks and sync flags on its third load slot; vmpackc may be on a VALU slot.
    **dict.fromkeys(("vmor", "vmand", "vmxor", "vmandn", "vmmov", "vmneg", "vmpackc", "vrng"), "VLOAD"),
}

_EUP = {
    *("vpow2", "vexp2", "vlog2", "vrcp", "vrsqrt", "vsqrt", "vtanh", "verf"),
    *("vsin", "vcos", "vsinq", "vcosq", "vsigshft"),
}

_ANYWHERE = ("VALU", "VPOP", "VLOAD", "VSTORE", "SALU")
# Executed or accounted for by the schedule machine, though their names begin with a v.
_SCALAR_SIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("vtrace", "vdelay", "dma.done.wait"), ("VLOAD",)),
    **dict.fromkeys(("vsyncadd", "vsyncadd.remote", "vsyncpa", "vsyncmov"), ("VLOAD",)),
    **dict.fromkeys(("vsyncset", "vsyncset.done", "vsyncset.notdone", "vsyncset.remote"), ("VLOAD",)),
    **{f"vwait.{kind}{trace}": ("VLOAD",) for kind in ("done", "ge", "ne") for trace in ("", ".trace")},
    "vpop.sfrf": ("SALU",),
    "vpush": ("VSTORE",),
    "inlined_call": _ANYWHERE,
    "call": _ANYWHERE,
    "vsettm": _ANYWHERE,
}

_SPILL_SLOTS = {"VLOAD": ("VLOAD", "FILL"), "VSTORE": ("VSTORE", "SPILL")}

_NO_SLOT = {"compiler-scheduling-barrier", "sphi", "pphi"}

# Plain vector arithmetic: one VALU slot. The list is what dumps held, or is named beside it in the same dumps or among
# the opcodes in libtpu's own text.
_VALU = re.compile(
    r"v(add|sub|mul|max|min|andn?|or|xor|not|shl|shll|shr|shrl|r?shra|sel|mov|cmp|cmask|cmsk|class|cvtr?|packc?|unpack[lu]?|clz|pcnt"
    r"|ceil|floor|round|trunc|abs|neg|laneseq|stv|weird|c|nez|rsb|mac|fma|broadcast|smul|ftz|combine|shift"
    r"|clamp(s|a|-gez)?(-f32|-bf16)?|maxabs|mask|smask|cdiv|erase|srl|splat|byte|sadd|ssub|mulhi|adds|subs|rev|bcast|movacc|setacc|le|lt|eq|ne|ge|gt|sign|isinf|isnan|isnum"
    r"|pow2|rcp|rsqrt|log2|tanh|erf|sin|cos|sqrt|sigshft)(\..*)?"
)


@cache
def is_vector_code(opcode: str) -> bool:
    """True for instructions that only move or compute vectors: timed and counted, not executed."""
    if opcode.startswith(("vsync", "vwait")):
        return False  # one that is not known must not pass for arithmetic
    return (opcode[0] == "v" and opcode not in _SCALAR_SIDE) or opcode in ("set.rngseed", "vsetiar.raw.iar0")


@cache
def slots(opcode: str, *, spill: bool, moves: bool) -> tuple[str, ...] | None:
    """The slot classes that one instruction is counted under, or None if the opcode is not known.

    Args:
        opcode: of the instruction.
        spill: whether it touches a spill slot.
        moves: whether its result is in another register than its last operand.
    """
    if opcode in _SCALAR_SIDE:
        return _SCALAR_SIDE[opcode]
    if opcode.startswith("int_to_ptr"):
        return ("SALU",) if moves else ()
    if opcode in _NO_SLOT or opcode.startswith("inlined_call_operand"):
        return ()
    return _vector_slots(opcode, spill) if is_vector_code(opcode) else ("SALU",)


def _vector_slots(opcode: str, spill: bool) -> tuple[str, ...] | None:
    head, _, _ = opcode.partition(".")
    if (".xlane." in opcode and head != "vpop") or (head == "vbcast" and "xlu" in opcode):
        return ("XLU",)
    if "xlu" not in opcode and head in ("vrot", "vperm"):
        return ("VALU",)  # within a lane: `vrot.slane`, `vperm.slane`
    if head in _VECTOR_HEADS:
        slot = _VECTOR_HEADS[head]
        if spill and slot in _SPILL_SLOTS:
            return _SPILL_SLOTS[slot]
        return (slot,) if slot else ()
    if head in _EUP:
        return ("VALU", "EUP")
    return ("VALU",) if _VALU.fullmatch(opcode) else None


@cache
def mxu_cycles(opcode: str) -> int | None:
    """Cycles for which a matrix product keeps its unit busy; 0 for other opcodes, None for an unknown product."""
    parts = opcode.split(".")
    if parts[0] != "vmatmul":
        return 0
    table = _WIDE_MXU_CYCLES if "mubr" in parts else _MXU_CYCLES
    if any(part.startswith("f8e") for part in parts) and "f8" in table:
        return table["f8"] * (2 if "bf16" in parts else 1)
    for part in parts[1:]:
        if part in table:
            return table[part]
    return None


XLU_CYCLES = 8
"""Least distance between two operations on one cross-lane unit, whichever they are, in the same programs."""


@cache
def xlu_cycles(opcode: str) -> int:
    """Cycles for which a cross-lane operation keeps its unit busy; setting a pattern keeps it for one."""
    return 1 if opcode.startswith("vset") else XLU_CYCLES


@cache
def named_unit(opcode: str) -> str:
    """The matrix or cross-lane unit in an opcode: ``mxu2`` for ``vmatmul.bf16.gmra.mxu2``; ``""`` for none."""
    match = re.search(r"(?:mxu|xlu)\d", opcode)
    return match.group() if match else ""


def unit_number(opcode: str) -> int:
    """Which of the units of its kind an instruction names: 2 for ``vmatmul.bf16.gmra.mxu2``; 0 if it names none."""
    return int(named_unit(opcode)[-1:] or 0)
