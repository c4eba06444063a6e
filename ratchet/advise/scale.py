"""Factors of products and exponentials: less arithmetic for each element, the same values except for rounding. Pure."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.mask import is_lowest
from ratchet.kernelfile.program import Kernel, has_all_lanes, is_call, kernels
from ratchet.kernelfile.shapes import numpy_of
from ratchet.kernelfile.syntax import Change, File, changed

LOG2_E = math.log2(math.e)
_PRODUCTS = ("dot", "dot_general", "matmul")


def rewrites(file: File) -> Iterator[Rewrite]:
    """The factor of a product moved to its smaller operand; exponentials of differences to base 2; narrow operands."""
    for kernel in kernels(file):
        if not kernel.alone:
            continue
        scaled = [one for node in ast.walk(kernel.body) if (one := _scaled(kernel, node)) is not None]
        yield from scaled
        if (one := _base_2(kernel)) is not None:
            yield one
            yield from (both for first in scaled if (both := _both(file, first, one)) is not None)
        if (one := _narrow(kernel)) is not None:
            yield one


def _both(file: File, first: Rewrite, second: Rewrite) -> Rewrite | None:
    """Exponentials to base 2 of scores whose factor is on an operand: then no score is multiplied at all."""
    scaled = File.of(first.after, file.name)
    every = [one for kernel in kernels(scaled) if kernel.alone and (one := _base_2(kernel)) is not None]
    if len(every) != 1:
        return None
    lines = tuple(sorted({*first.lines, *second.lines}))
    return replace(every[0], lines=lines, subject=f"{second.subject}, {first.subject} scaled")


def _scaled(kernel: Kernel, node: ast.AST) -> Rewrite | None:
    """``dot(x[...], y) * c`` as ``dot((x[...] * c).astype(x.dtype), y)``."""
    file, numpy = kernel.file, numpy_of(kernel.file)
    match = _product_and_factor(file, node) if isinstance(node, ast.BinOp) else None
    if match is None or numpy is None:
        return None
    product, factor = match
    operand = product.args[0]
    if not has_all_lanes(operand, kernel.by_name) or not isinstance(operand, ast.Subscript):
        return None
    ref, text = file.text(operand.value), file.text(operand)
    scaled = f"({text}.astype({numpy}.float32) * ({file.text(factor)})).astype({ref}.dtype)"
    assert isinstance(node, ast.BinOp)
    return Rewrite(
        edit=Edit.SCALE,
        after=changed(file.source, [file.replaced(node, file.text(product, [file.replaced(operand, scaled)]))]),
        lines=_lines(node),
        subject=ref,
    )


def _product_and_factor(file: File, node: ast.BinOp) -> tuple[ast.Call, ast.expr] | None:
    """The product of matrices and the constant that it is multiplied with."""
    for product, factor in ((node.left, node.right), (node.right, node.left)):
        known = isinstance(product, ast.Call) and is_call(product, *_PRODUCTS) and len(product.args) >= 2
        if isinstance(node.op, ast.Mult) and known and isinstance(file.value(factor), int | float):
            assert isinstance(product, ast.Call)
            return product, factor
    return None


def _base_2(kernel: Kernel) -> Rewrite | None:
    """``exp(s * c - m)`` of scores with a factor as ``exp2`` of scores with another one."""
    file = kernel.file
    exponentials = [node for node in ast.walk(kernel.body) if isinstance(node, ast.Call) and is_call(node, "exp")]
    if not exponentials or not all(_is_difference(node) for node in exponentials):
        return None
    factors = [one for node in ast.walk(kernel.body) if (one := _factor(file, node)) is not None]
    if len(factors) != 1:
        return None
    scores, factor = factors[0]
    scaled = _with_factor(kernel, scores)
    inside = {id(one) for node in exponentials for one in ast.walk(node)}
    statements = [node for node in ast.walk(kernel.body) if isinstance(node, ast.stmt)]
    if not all(_keeps(one, scaled) for node in exponentials for one in _operands(node.args[0])):
        return None
    if not all(_lets_through(node, scaled, inside) for node in statements if not isinstance(node, ast.FunctionDef)):
        return None
    changes = [file.replaced(factor, f"{LOG2_E!r} * ({file.text(factor)})")]
    for node in exponentials:
        end = file.span(node.func)[1]
        changes.append(Change(start=end, end=end, text="2"))
    return Rewrite(
        edit=Edit.BASE_2,
        after=changed(file.source, changes),
        lines=tuple(sorted({line for node in exponentials for line in _lines(node)})),
        subject=next(iter(sorted(_names(exponentials[0].args[0]) & scaled)), ""),
    )


def _operands(node: ast.expr) -> tuple[ast.expr, ...]:
    return (node.left, node.right) if isinstance(node, ast.BinOp) else (node,)


def _is_difference(node: ast.Call) -> bool:
    return len(node.args) == 1 and isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Sub)


def _factor(file: File, node: ast.AST) -> tuple[str, ast.expr] | None:
    """The name that scores with a factor are given, and the factor: on the product, or on one of its operands."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
        return None
    name, value = node.targets[0].id, node.value
    if isinstance(value, ast.BinOp) and (match := _product_and_factor(file, value)) is not None:
        return name, match[1]
    if isinstance(value, ast.Call) and is_call(value, *_PRODUCTS):
        for operand in value.args[:2]:
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
                scaled |= _target(node.targets[0])
    return scaled


def _joins(value: ast.expr, scaled: set[str]) -> bool:
    """Whether an expression may be such scores, joined with what may be others."""
    if isinstance(value, ast.Call) and is_call(value, "maximum", "where"):
        return any(_keeps(one, scaled) for one in value.args)
    return _keeps(value, scaled)


def _target(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return {node.value.id}
    return set()


def _keeps(value: ast.expr, scaled: set[str]) -> bool:
    """Whether an expression is such scores, selected or joined."""
    if isinstance(value, ast.Name):
        return value.id in scaled
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        return value.value.id in scaled
    if isinstance(value, ast.Call) and is_call(value, "maximum", "max", "tile", "broadcast_to"):
        return all(_keeps(one, scaled) for one in (value.args if is_call(value, "maximum") else value.args[:1]))
    if isinstance(value, ast.Call) and is_call(value, "where") and len(value.args) == 3:
        return _keeps(value.args[1], scaled) and is_lowest(value.args[2])
    return False


def _lets_through(node: ast.stmt, scaled: set[str], inside: set[int]) -> bool:
    """Whether a statement uses such scores in nothing but exponentials, shapes and what holds them alone."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
        return True
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _target(node.targets[0]) & scaled:
        fill = isinstance(node.value, ast.Call) and is_call(node.value, "full_like")
        if _keeps(node.value, scaled):
            return True
        if fill and isinstance(node.value, ast.Call):
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


def _narrow(kernel: Kernel) -> Rewrite | None:
    """``dot(x[...].astype(float32), …)`` without the casts: the matrix units take bfloat16 as it is."""
    file, changes = kernel.file, list[Change]()
    lines: set[int] = set()
    for node in ast.walk(kernel.body):
        if not (isinstance(node, ast.Call) and is_call(node, *_PRODUCTS) and len(node.args) >= 2):
            continue
        operands = node.args[:2]
        wide = any(one.arg == "preferred_element_type" for one in node.keywords)
        if not wide or any(one.arg == "precision" for one in node.keywords):
            continue
        if all(_is_wide_read(one, kernel) for one in operands):
            for one in operands:
                assert isinstance(one, ast.Call)
                assert isinstance(one.func, ast.Attribute)
                changes.append(file.replaced(one, file.text(one.func.value)))
                lines.update(_lines(one))
    if not changes:
        return None
    return Rewrite(
        edit=Edit.NARROW, after=changed(file.source, changes), lines=tuple(sorted(lines)), subject=kernel.body.name
    )


def _is_wide_read(node: ast.expr, kernel: Kernel) -> bool:
    """``x_ref[...].astype(jnp.float32)``."""
    return (
        _is_cast(node)
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and has_all_lanes(node.func.value, kernel.by_name)
        and len(node.args) == 1
        and ast.unparse(node.args[0]).endswith("float32")
    )


def _names(node: ast.AST) -> set[str]:
    """Variables that are read, without modules and functions."""
    called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    names = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            called.add(id(one.value))
        if isinstance(one, ast.Name) and id(one) not in called:
            names.add(one.id)
    return names


def _lines(node: ast.expr) -> tuple[int, ...]:
    return tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))
