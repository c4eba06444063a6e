"""A block in strips of its rows: fewer values alive at once, and chains that do not wait for each other. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import free_name, indented, made, movable
from ratchet.kernelfile.program import PRODUCTS, Kernel, calls, is_call, is_part, is_whole, keyword
from ratchet.kernelfile.shapes import Shapes
from ratchet.kernelfile.syntax import Change, first_line, lines_of

_LEAST_ROWS = 16
_ROWS_APART = (
    *PRODUCTS, "exp", "exp2", "log", "maximum", "minimum", "where", "max", "sum", "min", "mean", "astype", "abs",
    "broadcasted_iota", "tile", "ds", "multiple_of", "range", "sqrt", "rsqrt", "tanh", "program_id",
)  # fmt: skip
"""What treats every row alike, where it goes along the last axis."""


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A function whose values all have the rows of one block, or none of them."""

    kernel: Kernel
    function: ast.FunctionDef
    rows: ast.expr
    """The side, as the output's block has it."""
    shapes: Shapes

    @property
    def side(self) -> str:
        return ast.unparse(self.rows)

    @cached_property
    def refs(self) -> list[str]:
        """References that have all rows of the block."""
        blocks = {ref.name: ref.block for ref in self.kernel.refs}
        return [
            name for name, block in blocks.items() if block and len(block) == 2 and ast.unparse(block[0]) == self.side
        ]

    def nodes(self) -> Iterator[ast.AST]:
        """Of its statements."""
        return (node for statement in self.function.body for node in ast.walk(statement))


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Functions with products of matrices, their rows in two strips."""
    sides = {ast.unparse(ref.block[0]): ref.block[0] for ref in kernel.refs if ref.role == "out" and ref.block}
    if len(sides) == 1:
        (rows,), shapes = sides.values(), Shapes.read(kernel)
        for function in _innermost(kernel):
            yield from _stripped(_Block(kernel=kernel, function=function, rows=rows, shapes=shapes))


def _innermost(kernel: Kernel) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.FunctionDef) and node is not kernel.body:
            inner = any(isinstance(one, ast.FunctionDef | ast.For) and one is not node for one in ast.walk(node))
            if not inner and calls(node, *PRODUCTS):
                yield node


def _stripped(block: _Block) -> Iterator[Rewrite]:
    kernel, file, function = block.kernel, block.kernel.file, block.function
    rows = kernel.number(block.rows)
    if rows is None or rows % 2 or rows // 2 < _LEAST_ROWS or not kernel.known(block.rows):
        return
    if not movable(file, *function.body) or not _apart(block):
        return
    length, at = free_name(file, "STRIP"), free_name(file, "row")
    margin = " " * function.body[0].col_offset
    changes = indented(file, function.body, f"{margin}for {at} in range(0, {block.side}, {length}):\n")
    for node in block.nodes():
        changes |= _of_strip(block, node, at, length)
    top = file.line_start(first_line(kernel.body))
    changes.add(Change(start=top, end=top, text=f"{length} = {rows // 2}\n\n\n"))
    yield from made(file, Edit.STRIPS, changes, lines=lines_of(*function.body), subject=function.name, factor=2.0)


def _of_strip(block: _Block, node: ast.AST, at: str, length: str) -> set[Change]:
    """One node, where it has all rows of the block, with those of a strip."""
    file = block.kernel.file
    if is_part(node, block.refs):
        return {file.replaced(node, f"{ast.unparse(node.value)}[{at} : {at} + {length}, :]")}
    if not (is_call(node, "broadcasted_iota") and len(node.args) == 3):
        return set()
    shape = node.args[1]
    changes = {file.replaced(shape.elts[0], length)} if isinstance(shape, ast.Tuple) else set()
    if file.number(node.args[2]) == 0:
        start, end = file.span(node)
        changes |= {Change(start=start, end=start, text=f"({at} + "), Change(start=end, end=end, text=")")}
    return changes


def _apart(block: _Block) -> bool:
    """Whether no row of the block needs another, and something is stored of it."""
    stored = [node for node in block.nodes() if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    return all(_is_apart(block, node) for node in block.nodes()) and any(is_part(one, block.refs) for one in stored)


def _is_apart(block: _Block, node: ast.AST) -> bool:
    match node:
        case ast.Call():
            along = not is_call(node, "max", "sum", "min", "mean") or _along_rows(node)
            return is_call(node, *_ROWS_APART) and along and (not is_call(node, *PRODUCTS) or _keeps_rows(block, node))
        case ast.Subscript():
            return is_whole(node, block.refs) if is_part(node, block.refs) else not isinstance(node.ctx, ast.Store)
    return not isinstance(node, ast.MatMult | ast.Return | ast.Lambda)


def _along_rows(node: ast.Call) -> bool:
    """Of a reduction; the ``sum`` of Python's has none of its own and adds what is alike."""
    if isinstance(node.func, ast.Name):
        return True
    axis = keyword(node, "axis")
    return axis is not None and ast.unparse(axis) in ("1", "-1") and keyword(node, "keepdims") is not None


def _keeps_rows(block: _Block, node: ast.Call) -> bool:
    """Whether the rows of a product are the block's and none of its sums goes along them."""
    if len(node.args) < 2:
        return False
    left, right, product = (block.shapes.of(one) for one in (*node.args[:2], node))
    if left is None or right is None or product is None:
        return False
    return left.sides[0] == block.side == product.sides[0] and block.side not in right.sides
