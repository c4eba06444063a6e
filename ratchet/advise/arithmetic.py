"""Factors, exponentials and quotients: less arithmetic for each element, the same values except for rounding. Pure."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.mask import is_lowest
from ratchet.advise.pattern import made
from ratchet.kernelfile.program import PRODUCTS, Kernel, calls, has_all_lanes, is_call, kernels, keyword
from ratchet.kernelfile.shapes import Shapes
from ratchet.kernelfile.syntax import Change, File, lines_of

LOG2_E = math.log2(math.e)


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """The factor of a product moved to its smaller operand; exponentials of differences to base 2; narrow operands."""
    scaled = [one for node in ast.walk(kernel.body) for one in _scaled(kernel, node)]
    yield from scaled
    for one in _base_2(kernel):
        yield one
        for first in scaled:
            yield from _both(kernel.file, first, one)
    yield from _narrow(kernel)


def reciprocals(kernel: Kernel) -> Iterator[Rewrite]:
    """``x / row`` as ``x * (1.0 / row)``, where ``row`` is one number for many elements."""
    file, shapes = kernel.file, Shapes.read(kernel)
    for node in ast.walk(kernel.body):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
            continue
        sides = [shape.sides if shape else () for shape in map(shapes.of, (node.left, node.right))]
        at, end = file.span(node.left)[1], file.span(node.right)[0]
        gap, row = file.source[at:end], file.text(node.right)
        of_rows = all(sides) and sides[1][-1] == "1" != sides[0][-1] and file.value(node.left) is None
        if of_rows and gap.count(b"/") == 1 and b"#" not in gap:
            row = row if isinstance(node.right, ast.Name | ast.Subscript | ast.Call) else f"({row})"
            at += gap.index(b"/")
            changes = [Change(start=at, end=at + 1, text="*"), file.replaced(node.right, f"(1.0 / {row})")]
            yield from made(file, Edit.DIVIDE, changes, lines=lines_of(node), subject=file.text(node.left)[:40])


def _both(file: File, first: Rewrite, second: Rewrite) -> Iterator[Rewrite]:
    """Exponentials to base 2 of scores whose factor is on an operand: then no score is multiplied at all."""
    alone = [kernel for kernel in kernels(File.of(first.after, file.name)) if kernel.alone]
    every = [one for kernel in alone for one in _base_2(kernel)]
    if len(every) == 1:
        lines = tuple(sorted({*first.lines, *second.lines}))
        yield replace(every[0], lines=lines, subject=f"{second.subject}, {first.subject} scaled")


def _scaled(kernel: Kernel, node: ast.AST) -> Iterator[Rewrite]:
    """``dot(x[...], y) * c`` as ``dot((x[...] * c).astype(x.dtype), y)``."""
    file = kernel.file
    match = _product_and_factor(file, node)
    if match is None or file.numpy is None or not isinstance(node, ast.BinOp):
        return
    product, factor = match
    operand = product.args[0]
    if has_all_lanes(operand, kernel.by_name):
        ref, text = file.text(operand.value), file.text(operand)
        scaled = f"({text}.astype({file.numpy}.float32) * ({file.text(factor)})).astype({ref}.dtype)"
        changes = [file.replaced(node, file.text(product, [file.replaced(operand, scaled)]))]
        yield from made(file, Edit.SCALE, changes, lines=lines_of(node), subject=ref)


def _product_and_factor(file: File, node: ast.AST) -> tuple[ast.Call, ast.expr] | None:
    """The product of matrices and the constant that it is multiplied with."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for product, factor in ((node.left, node.right), (node.right, node.left)):
            known = isinstance(file.value(factor), int | float)
            if known and is_call(product, *PRODUCTS) and len(product.args) >= 2:
                return product, factor
    return None


def _base_2(kernel: Kernel) -> Iterator[Rewrite]:
    """``exp(s * c - m)`` of scores with a factor as ``exp2`` of scores with another one."""
    file, exponentials = kernel.file, calls(kernel.body, "exp")
    factors = [one for node in ast.walk(kernel.body) if (one := _factor(file, node)) is not None]
    if not exponentials or not all(map(_is_difference, exponentials)) or len(factors) != 1:
        return
    scores, factor = factors[0]
    scaled = _with_factor(kernel, scores)
    inside = {id(one) for node in exponentials for one in ast.walk(node)}
    statements = [node for node in ast.walk(kernel.body) if isinstance(node, ast.stmt)]
    operands = [one for node in exponentials for one in ast.iter_child_nodes(node.args[0]) if isinstance(one, ast.expr)]
    if not all(_keeps(one, scaled) for one in operands):
        return
    if not all(_lets_through(node, scaled, inside) for node in statements):
        return
    ends = [file.span(node.func)[1] for node in exponentials]
    changes = [Change(start=end, end=end, text="2") for end in ends]
    changes.append(file.replaced(factor, f"{LOG2_E!r} * ({file.text(factor)})"))
    subject = min(_names(exponentials[0].args[0]) & scaled, default="")
    yield from made(file, Edit.BASE_2, changes, lines=lines_of(*exponentials), subject=subject)


def _is_difference(node: ast.Call) -> bool:
    return len(node.args) == 1 and isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Sub)


def _factor(file: File, node: ast.AST) -> tuple[str, ast.expr] | None:
    """The name that scores with a factor are given, and the factor: on the product, or on one of its operands."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if (found := _product_and_factor(file, value)) is not None:
                return name, found[1]
            for operand in value.args[:2] if is_call(value, *PRODUCTS) else ():
                inner = operand.func.value if _is_cast(operand) else operand  # type: ignore[attr-defined]
                if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
                    for one in (inner.right, inner.left):
                        if isinstance(file.value(one), float):
                            return name, one
    return None


def _is_cast(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "astype"


def _with_factor(kernel: Kernel, scores: str) -> set[str]:
    """Names and references that hold nothing but such scores and the largest of them."""
    scaled = {scores}
    size = 0
    while size != len(scaled):
        size = len(scaled)
        for node in ast.walk(kernel.body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and _joins(node.value, scaled):
                scaled |= _held(node.targets[0])
    return scaled


def _joins(value: ast.expr, scaled: set[str]) -> bool:
    """Whether an expression may be such scores, joined with what may be others."""
    if is_call(value, "maximum", "where"):
        return any(_keeps(one, scaled) for one in value.args)
    return _keeps(value, scaled)


def _held(node: ast.expr) -> set[str]:
    """The name or reference that a node is, or is a part of."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return {node.id} if isinstance(node, ast.Name) else set()


def _keeps(value: ast.expr, scaled: set[str]) -> bool:
    """Whether an expression is such scores, selected or joined."""
    if is_call(value, "maximum"):
        return all(_keeps(one, scaled) for one in value.args)
    if is_call(value, "max", "tile", "broadcast_to"):
        return all(_keeps(one, scaled) for one in value.args[:1])
    if is_call(value, "where") and len(value.args) == 3:
        return _keeps(value.args[1], scaled) and is_lowest(value.args[2])
    return bool(_held(value) & scaled)


def _lets_through(node: ast.stmt, scaled: set[str], inside: set[int]) -> bool:
    """Whether a statement uses such scores in nothing but exponentials, shapes and what holds them alone."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
        return True
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _held(node.targets[0]) & scaled:
        if _keeps(node.value, scaled):
            return True
        if is_call(node.value, "full_like"):
            return len(node.value.args) == 2 and is_lowest(node.value.args[1])
        return isinstance(node.targets[0], ast.Name) and not _read(node.value, scaled, inside)
    return node.value is None or not _read(node.value, scaled, inside)


def _read(value: ast.AST, scaled: set[str], inside: set[int]) -> bool:
    """Whether one of the names is read, other than in an exponential or for its shape or dtype."""
    for one in ast.iter_child_nodes(value):
        if isinstance(one, ast.Attribute) and one.attr in ("shape", "dtype"):
            continue
        if _read(one, scaled, inside):
            return True
    return isinstance(value, ast.Name) and value.id in scaled and id(value) not in inside


def _narrow(kernel: Kernel) -> Iterator[Rewrite]:
    """``dot(x[...].astype(float32), …)`` without the casts: the matrix units take bfloat16 as it is."""
    file, changes, casts = kernel.file, list[Change](), list[ast.expr]()
    for node in calls(kernel.body, *PRODUCTS):
        wide = keyword(node, "preferred_element_type") is not None and keyword(node, "precision") is None
        operands = [_wide_read(one, kernel) for one in node.args[:2]]
        if wide and len(operands) == 2 and None not in operands:
            casts += node.args[:2]
            changes += [
                file.replaced(cast, file.text(one)) for cast, one in zip(node.args, operands, strict=False) if one
            ]
    if changes:
        yield from made(file, Edit.NARROW, changes, lines=lines_of(*casts), subject=kernel.body.name)


def _wide_read(node: ast.expr, kernel: Kernel) -> ast.expr | None:
    """``x_ref[...]`` of ``x_ref[...].astype(jnp.float32)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=read, attr="astype"), args=[dtype]):
            if has_all_lanes(read, kernel.by_name) and ast.unparse(dtype).endswith("float32"):
                return read
    return None


def _names(node: ast.AST) -> set[str]:
    """Variables that are read, without modules and functions."""
    called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    called |= {id(one.value) for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and id(one) not in called}
