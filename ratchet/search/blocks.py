"""What a file may be searched for that names no values itself: the sides of its blocks, as ``advise`` finds them. Pure.

Values go by powers of two, so that the space is the same one whichever of them the file has. What was divided without
a rest has to be again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.tiles import fixed, tiles
from ratchet.kernelfile.program import is_call
from ratchet.kernelfile.syntax import File, expression, names_in
from ratchet.values import Literal

SMALL, LARGE = (1, 15), (16, 2048)
"""Least and most of what is below 16, as pages are, and of what is not."""
MOST_CHARACTERS = 1000
"""Of a condition; longer ones are left out."""
_DEPTH = 40


def axes(file: File) -> dict[str, tuple[Literal, ...]]:
    """The integers of the top level by name, each with the values to try; all names that share one integer."""
    given: dict[tuple[int, int], list[str]] = {}
    for name, node in file.assigned.items():
        given.setdefault(file.span(node), []).append(name)
    never = fixed(file)
    return {
        name: _values(tile.value)
        for tile in tiles(file)
        for name in given.get(file.span(tile.node), ())
        if name not in never
    }


def _values(value: int) -> tuple[Literal, ...]:
    least, most = LARGE if value >= LARGE[0] else SMALL
    odd = value // (value & -value)
    return tuple(one for power in range(most.bit_length()) if least <= (one := odd << power) <= most) or (value,)


def conditions(file: File, names: frozenset[str]) -> tuple[str, ...]:
    """That divisions of constants by what follows from ``names`` leave no rest where they leave none now."""
    found: dict[str, None] = {}
    for whole, part in _divisions(file):
        left, right = file.number(whole), file.number(part)
        if left is None or right is None or not left >= right > 0 or left % right:
            continue
        over, under = (_written(file, one, names, _DEPTH) for one in (whole, part))
        if over and under and names & names_in(expression(f"{over}, {under}")):
            found[f"({under}) > 0 and ({over}) >= ({under}) and ({over}) % ({under}) == 0"] = None
    # Shorter ones first: one that holds another division is asked only where that one holds.
    return tuple(sorted((one for one in found if len(one) <= MOST_CHARACTERS), key=len))


def _divisions(file: File) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            yield node.left, node.right
        if isinstance(node, ast.Call) and is_call(node, "range") and len(node.args) == 3:
            yield node.args[1], node.args[2]


def _written(file: File, node: ast.expr, names: frozenset[str], depth: int) -> str:
    """An expression of ``names`` and numbers alone; empty where it is none."""
    match node:
        case ast.Name(id=name) if name in names:
            return name
        case ast.Constant(value=int() as number):
            return str(int(number))
        case ast.Name(id=name) if name in file.assigned and depth:
            return _written(file, file.assigned[name], names, depth - 1)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as op):
            left, right = (_written(file, one, names, depth - 1) for one in (node.left, node.right))
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}[type(op)]
            return f"({left} {sign} {right})" if left and right else ""
    value = file.number(node)
    return str(value) if value is not None and not names & names_in(node) else ""
