"""A division of every element by one number a row, as a multiplication by its reciprocal. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import Kernel, kernels
from ratchet.kernelfile.shapes import Shapes, Unknown
from ratchet.kernelfile.syntax import Change, File, changed


def rewrites(file: File) -> Iterator[Rewrite]:
    """``x / row`` as ``x * (1.0 / row)``, where ``row`` is one number for many elements."""
    for kernel in kernels(file):
        if not (kernel.alone and kernel.refs):
            continue
        try:
            shapes = Shapes.read(kernel)
        except Unknown:
            continue
        for node in ast.walk(kernel.body):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_row(kernel, shapes, node):
                left, right = file.text(node.left), file.text(node.right)
                gap = file.source[file.span(node.left)[1] : file.span(node.right)[0]]
                if gap.count(b"/") != 1 or b"#" in gap:
                    continue
                after = changed(
                    file.source,
                    [file.replaced(node.right, f"(1.0 / {_closed(node.right, right)})"), _times(file, node, gap)],
                )
                lines = tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                yield Rewrite(edit=Edit.DIVIDE, after=after, lines=lines, subject=left[:40])


def _closed(node: ast.expr, text: str) -> str:
    return text if isinstance(node, ast.Name | ast.Subscript | ast.Call) else f"({text})"


def _times(file: File, node: ast.BinOp, gap: bytes) -> Change:
    at = file.span(node.left)[1] + gap.index(b"/")
    return Change(start=at, end=at + 1, text="*")


def _is_row(kernel: Kernel, shapes: Shapes, node: ast.BinOp) -> bool:
    left, right = shapes.of(node.left), shapes.of(node.right)
    if left is None or right is None or not left.sides or not right.sides:
        return False
    return right.sides[-1] == "1" and left.sides[-1] != "1" and kernel.file.value(node.left) is None
