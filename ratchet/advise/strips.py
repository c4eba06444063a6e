"""A block in strips of its rows: fewer values alive at once, and chains that do not wait for each other. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.blocks import first_line, free_name, indented, movable
from ratchet.kernelfile.program import Kernel, is_call, is_whole, kernels
from ratchet.kernelfile.shapes import Shapes, Unknown
from ratchet.kernelfile.syntax import Change, File, changed

_LEAST_ROWS = 16
_PRODUCTS = ("dot", "dot_general", "matmul")
_ROWS_APART = (
    *_PRODUCTS, "exp", "exp2", "log", "maximum", "minimum", "where", "max", "sum", "min", "mean", "astype", "abs",
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

    def has_rows(self, name: str) -> bool:
        ref = self.kernel.by_name.get(name)
        return (
            ref is not None and ref.block is not None and len(ref.block) == 2 and ast.unparse(ref.block[0]) == self.side
        )


def rewrites(file: File) -> Iterator[Rewrite]:
    """Functions with products of matrices, their rows in two strips."""
    for kernel in kernels(file):
        if not (kernel.alone and kernel.refs):
            continue
        sides = {ast.unparse(ref.block[0]): ref.block[0] for ref in kernel.refs if ref.role == "out" and ref.block}
        if len(sides) != 1:
            continue
        try:
            shapes = Shapes.read(kernel)
        except Unknown:
            continue
        for function in _innermost(kernel):
            block = _Block(kernel=kernel, function=function, rows=next(iter(sides.values())), shapes=shapes)
            if (one := _stripped(block)) is not None:
                yield one


def _innermost(kernel: Kernel) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.FunctionDef) and node is not kernel.body:
            inner = any(isinstance(one, ast.FunctionDef | ast.For) and one is not node for one in ast.walk(node))
            if not inner and any(is_call(one, *_PRODUCTS) for one in ast.walk(node)):
                yield node


def _nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Of its statements."""
    return (node for statement in function.body for node in ast.walk(statement))


def _stripped(block: _Block) -> Rewrite | None:
    kernel, file, function = block.kernel, block.kernel.file, block.function
    rows = kernel.number(block.rows)
    if rows is None or rows % 2 or rows // 2 < _LEAST_ROWS or not kernel.known(block.rows):
        return None
    if not all(movable(file, node) for node in function.body) or not _apart(block):
        return None
    length, at = free_name(file, "STRIP"), free_name(file, "row")
    margin = " " * function.body[0].col_offset
    changes = indented(file, function.body, f"{margin}for {at} in range(0, {block.side}, {length}):\n")
    for node in _nodes(function):
        changes |= _of_strip(block, node, at, length)
    top = file.line_start(first_line(kernel.body))
    changes.add(Change(start=top, end=top, text=f"{length} = {rows // 2}\n\n\n"))
    try:
        after = changed(file.source, changes)
        ast.parse(after)
    except (ValueError, SyntaxError):
        return None
    lines = tuple(range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1))
    return Rewrite(edit=Edit.STRIPS, after=after, lines=lines, subject=function.name, factor=2.0)


def _of_strip(block: _Block, node: ast.AST, at: str, length: str) -> set[Change]:
    """One node, where it has all rows of the block, with those of a strip."""
    file = block.kernel.file
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and block.has_rows(node.value.id):
        return {file.replaced(node, f"{node.value.id}[{at} : {at} + {length}, :]")}
    if not (isinstance(node, ast.Call) and is_call(node, "broadcasted_iota") and len(node.args) == 3):
        return set()
    shape = node.args[1]
    changes = {file.replaced(shape.elts[0], length)} if isinstance(shape, ast.Tuple) else set()
    if file.number(node.args[2]) == 0:
        start, end = file.span(node)
        changes |= {Change(start=start, end=start, text=f"({at} + "), Change(start=end, end=end, text=")")}
    return changes


def _apart(block: _Block) -> bool:
    """Whether no row of the block needs another."""
    touched = False
    for node in _nodes(block.function):
        if isinstance(node, ast.Call) and not is_call(node, *_ROWS_APART):
            return False
        if isinstance(node, ast.Call) and is_call(node, "max", "sum", "min", "mean") and not _along_rows(node):
            return False
        if isinstance(node, ast.Call) and is_call(node, *_PRODUCTS) and not _keeps_rows(block, node):
            return False
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and block.has_rows(node.value.id):
            if not is_whole(node, block.kernel.by_name):
                return False
            touched |= isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return False
        elif isinstance(node, ast.MatMult | ast.Return | ast.Lambda):
            return False
    return touched


def _along_rows(node: ast.Call) -> bool:
    """Of a reduction; the ``sum`` of Python's has none of its own and adds what is alike."""
    if isinstance(node.func, ast.Name):
        return True
    axes = [one.value for one in node.keywords if one.arg == "axis"]
    keeps = any(one.arg == "keepdims" for one in node.keywords)
    return len(axes) == 1 and ast.unparse(axes[0]) in ("1", "-1") and keeps


def _keeps_rows(block: _Block, node: ast.Call) -> bool:
    """Whether the rows of a product are the block's and none of its sums goes along them."""
    shapes = [block.shapes.of(one) for one in node.args[:2]]
    made = block.shapes.of(node)
    if made is None or any(shape is None for shape in shapes):
        return False
    left, right = shapes
    return (
        left is not None
        and right is not None
        and left.sides[0] == block.side == made.sides[0]
        and block.side not in right.sides
    )
