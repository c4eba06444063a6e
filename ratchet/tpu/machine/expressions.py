"""Scalar instructions that only compute: Python expressions over their operands, ``{0}`` the first.

An expression equals the function of :mod:`ratchet.tpu.scalar` for its instruction wherever the operands are words. What
has no short expression calls the machine, ``X``, which has them all lifted to unknown words (``arithmetic.py``).
"""

from __future__ import annotations

_M, _H = "4294967295", "2147483648"


def _wrap(expression: str) -> str:
    return f"(({expression}) + {_H} & {_M}) - {_H}"


_ADD = _wrap("{0} + {1}")

EXPRESSIONS: dict[str, tuple[str, int]] = {
    "sadd.s32": (_ADD, 2),
    "ssub.s32": (_wrap("{0} - {1}"), 2),
    "smul.u32": (_wrap("{0} * {1}"), 2),
    "smulhi.u32": (_wrap(f"({{0}} & {_M}) * ({{1}} & {_M}) >> 32"), 2),
    "sand.u32": ("{0} & {1}", 2),
    "sor.u32": ("{0} | {1}", 2),
    "sxor.u32": ("{0} ^ {1}", 2),
    "smin.u32": ("X.minimum_unsigned({0}, {1})", 2),
    "smax.u32": ("X.maximum_unsigned({0}, {1})", 2),
    "smin.s32": ("X.minimum({0}, {1})", 2),
    "smax.s32": ("X.maximum({0}, {1})", 2),
    "scalar_select": ("({1} if {0} is True else {2} if {0} is False else {0})", 3),  # unknown picks unknown
    "scalar_lea.hbm": (_ADD, 2),
    "scalar_lea.vmem": (_ADD, 2),
    "scalar_lea.smem": (_ADD, 2),
    "scalar_lea.sflag": (_ADD, 2),
    "sclz": ("X.leading_zeros({0})", 1),
    "sclz.u32": ("X.leading_zeros({0})", 1),  # the same in libtpu 0.0.51
    "scvt.s32.f32": ("X.float_from_integer({0})", 1),
    "scvt.f32.s32": ("X.float_to_integer({0})", 1),
    "sfloor.f32": ("X.float_floor({0})", 1),
    "sceil.f32": ("X.float_ceil({0})", 1),
    "sadd.f32": ("X.float_add({0}, {1})", 2),
    "ssub.f32": ("X.float_subtract({0}, {1})", 2),
    "smul.f32": ("X.float_multiply({0}, {1})", 2),
    "smin.f32": ("X.float_minimum({0}, {1})", 2),
    "smax.f32": ("X.float_maximum({0}, {1})", 2),
    "sc.u32": (f"({{0}} & {_M}) + ({{1}} & {_M}) > {_M}", 2),
    "por": ("{0} | {1}", 2),
    "pand": ("{0} & {1}", 2),
    "pnand": ("({0} & {1}) ^ True", 2),
    "pnor": ("({0} | {1}) ^ True", 2),
    "pxor": ("{0} ^ {1}", 2),
    "pneg": ("{0} ^ True", 1),
    "pmov": ("{0} != 0", 1),
    "scalar_parameter_address": ("X.parameter({0})", 1),
    "reloc": ("{0}", 1),
}
"""By opcode: expression, and how many operands it takes."""

for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    EXPRESSIONS[f"scmp.{_name}.s32.totalorder"] = f"{{0}} {_sign} {{1}}", 2
    EXPRESSIONS[f"scmp.{_name}.u32.totalorder"] = f"({{0}} & {_M}) {_sign} ({{1}} & {_M})", 2
    EXPRESSIONS[f"scmp.{_name}.f32.partialorder"] = f"X.float_{_name}({{0}}, {{1}})", 2

SHIFTS: dict[str, tuple[str, str]] = {
    "sshll.u32": (_wrap("{0} << {1}"), "X.shift_left({0}, {1})"),
    "sshllo.u32": (_wrap("({0} + 1 << {1}) - 1"), "X.shift_left_ones({0}, {1})"),
    "sshrl.u32": (_wrap(f"({{0}} & {_M}) >> {{1}}"), "X.shift_right_logical({0}, {1})"),
    "sshra.s32": ("{0} >> {1}", "X.shift_right_arithmetic({0}, {1})"),
}
"""By opcode: the expression for a known amount from 0 to 31, and that for any other amount."""
