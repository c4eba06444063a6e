"""Scalar instructions that only compute: Python expressions over their operands, ``{0}`` the first."""

from __future__ import annotations

import string

_M, _H = "4294967295", "2147483648"


def _wrap(expression: str) -> str:
    return f"(({expression}) + {_H} & {_M}) - {_H}"


# Scalar instructions with a result: operands are Python expressions. Loads, calls and the like are methods.
_TEMPLATES: dict[str, str] = {
    "sadd.s32": _wrap("{0} + {1}"),
    "ssub.s32": _wrap("{0} - {1}"),
    "smul.u32": _wrap("{0} * {1}"),
    "smulhi.u32": _wrap(f"({{0}} & {_M}) * ({{1}} & {_M}) >> 32"),
    "sand.u32": "{0} & {1}",
    "sor.u32": "{0} | {1}",
    "sxor.u32": "{0} ^ {1}",
    "sshll.u32": _wrap("{0} << ({1} & 31)"),
    "sshrl.u32": _wrap(f"({{0}} & {_M}) >> ({{1}} & 31)"),
    "sshra.s32": "{0} >> ({1} & 31)",
    "smin.u32": _wrap(f"X.least({{0}} & {_M}, {{1}} & {_M})"),
    "smax.u32": _wrap(f"X.most({{0}} & {_M}, {{1}} & {_M})"),
    "smin.s32": "X.least({0}, {1})",
    "smax.s32": "X.most({0}, {1})",
    "scalar_select": "({1} if {0} is True else {2} if {0} is False else {0})",  # unknown picks unknown
    "scalar_lea.hbm": _wrap("{0} + {1}"),
    "scalar_lea.vmem": _wrap("{0} + {1}"),
    "scalar_lea.smem": _wrap("{0} + {1}"),
    "scalar_lea.sflag": _wrap("{0} + {1}"),
    "sclz": "X.leading_zeros({0})",
    "sclz.u32": "X.leading_zeros({0})",  # the same in libtpu 0.0.51
    "scvt.s32.f32": "X.float_bits({0})",
    "scvt.f32.s32": "X.to_integer({0})",
    "sc.u32": f"({{0}} & {_M}) + ({{1}} & {_M}) > {_M}",
    "por": "{0} | {1}",
    "pand": "{0} & {1}",
    "pnand": "({0} & {1}) ^ True",
    "pnor": "({0} | {1}) ^ True",
    "pxor": "{0} ^ {1}",
    "pneg": "{0} ^ True",
    "pmov": "{0} != 0",
    "scalar_parameter_address": "X.parameter({0})",
    "reloc": "{0}",
}
for _name in ("floor", "ceil"):
    _TEMPLATES[f"s{_name}.f32"] = f"X.rounded({_name!r}, {{0}})"
for _name in ("add", "sub", "mul", "min", "max"):
    _TEMPLATES[f"s{_name}.f32"] = f"X.float_operation({_name!r}, {{0}}, {{1}})"
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    _TEMPLATES[f"scmp.{_name}.s32.totalorder"] = f"{{0}} {_sign} {{1}}"
    _TEMPLATES[f"scmp.{_name}.u32.totalorder"] = f"({{0}} & {_M}) {_sign} ({{1}} & {_M})"
    _TEMPLATES[f"scmp.{_name}.f32.partialorder"] = f"X.as_float({{0}}) {_sign} X.as_float({{1}})"

EXPRESSIONS: dict[str, tuple[str, int]] = {
    opcode: (template, 1 + max(int(name) for _, name, _, _ in string.Formatter().parse(template) if name))
    for opcode, template in _TEMPLATES.items()
}
"""By opcode: template, and how many operands it takes."""
