"""Row statistics: a column of numbers takes a whole register per eight rows, so let all of its lanes hold it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import Kernel, Ref, has_all_lanes, is_call, kernels, keyword
from ratchet.kernelfile.shapes import LANES, Shapes, Unknown, numpy_of
from ratchet.kernelfile.syntax import Change, File, changed


def rewrites(file: File) -> Iterator[Rewrite]:
    """Scratch of one column made as wide as the lanes; then its sums across lanes put off to where it is read."""
    for kernel in kernels(file):
        if kernel.alone and kernel.refs:
            yield from _wide(kernel)
            yield from (one for ref in kernel.refs if (one := _lane_sums(kernel, ref)) is not None)


def _wide(kernel: Kernel) -> Iterator[Rewrite]:
    """All columns at once: they meet each other."""
    columns = [ref for ref in kernel.refs if _is_column(kernel, ref)]
    if not columns:
        return
    try:
        shapes = Shapes.read(kernel, wide=[ref.name for ref in columns])
    except Unknown:
        return
    file = kernel.file
    sides = [file.replaced(ref.block[1], str(LANES)) for ref in columns if ref.block is not None]
    yield Rewrite(
        edit=Edit.WIDE,
        after=changed(file.source, [*sides, *shapes.changes]),
        lines=_lines_of(kernel, [ref.name for ref in columns]),
        subject=", ".join(ref.name for ref in columns),
    )


def _is_column(kernel: Kernel, ref: Ref) -> bool:
    """Whether it is scratch of float32[rows, 1], whose shape no other scratch shares in the source."""
    if ref.role != "scratch" or ref.block is None or len(ref.block) != 2:
        return False
    shared = sum(other.spec is ref.spec for other in kernel.refs) > 1
    column = kernel.file.value(ref.block[1]) == 1 and isinstance(ref.block[1], ast.Constant)
    return column and not shared and isinstance(ref.dtype, ast.Attribute) and ref.dtype.attr == "float32"


def _lane_sums(kernel: Kernel, ref: Ref) -> Rewrite | None:
    """``l = a * l + sum(p, axis=1, keepdims=True)`` of a wide ``l``, added up per lane; summed up where it is read."""
    if ref.role != "scratch" or ref.block is None or len(ref.block) != 2 or kernel.number(ref.block[1]) != LANES:
        return None
    if numpy_of(kernel.file) is None:
        return None
    uses = [node for node in ast.walk(kernel.body) if isinstance(node, ast.Name) and node.id == ref.name]
    stores = [
        node
        for node in ast.walk(kernel.body)
        if isinstance(node, ast.Assign) and any(has_all_lanes(one, (ref.name,)) for one in node.targets)
    ]
    cleared = [node for node in stores if _is_zero(node.value, ref.name)]
    added = [node for node in stores if node not in cleared]
    if len(cleared) != 1 or len(added) != 1 or len(stores) != 2:
        return None
    try:
        shapes = Shapes.read(kernel)
    except Unknown:
        return None
    found = _addend(added[0].value, ref.name, shapes)
    if found is None:
        return None
    values, side = found
    reads = [
        node for node in ast.walk(kernel.body)
        if has_all_lanes(node, (ref.name,)) and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        and not _within(kernel.file, node, added[0])
    ]  # fmt: skip
    inside = sum(isinstance(node, ast.Name) and node.id == ref.name for node in ast.walk(added[0]))
    in_clear = sum(isinstance(node, ast.Name) and node.id == ref.name for node in ast.walk(cleared[0]))
    if not reads or len(uses) != inside + in_clear + len(reads):
        return None
    return _summed_late(kernel, ref, values, side, reads)


def _summed_late(kernel: Kernel, ref: Ref, call: ast.Call, side: str, reads: list[ast.Subscript]) -> Rewrite:
    file, numpy = kernel.file, numpy_of(kernel.file)
    value = call.args[0]
    whole = file.text(value)
    if not isinstance(value, ast.Name):
        whole = f"({whole})"
    lanes = f"sum({whole}[:, at : at + {LANES}] for at in range(0, {side}, {LANES}))"
    changes: list[Change] = [file.replaced(call, lanes)]
    changes += [file.replaced(node, f"{numpy}.sum({file.text(node)}, axis=1, keepdims=True)") for node in reads]
    return Rewrite(
        edit=Edit.LANES,
        after=changed(file.source, changes),
        lines=_span(call),
        subject=ref.name,
    )


def _addend(value: ast.expr, name: str, shapes: Shapes) -> tuple[ast.Call, str] | None:
    """The row sum that is added to what is there already, times something that is no sum; and how long its rows are."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    for old, new in ((value.left, value.right), (value.right, value.left)):
        if not (isinstance(new, ast.Call) and is_call(new, "sum") and len(new.args) == 1 and _is_rowwise(new)):
            continue
        mine = [node for node in ast.walk(old) if isinstance(node, ast.Name) and node.id == name]
        scaled = isinstance(old, ast.BinOp) and isinstance(old.op, ast.Mult)
        if len(mine) != 1 or not (has_all_lanes(old, (name,)) or (scaled and _has_whole(old, name))):
            continue
        shape = shapes.of(new.args[0])
        number = shapes.number(shape.sides[-1]) if shape is not None and len(shape.sides) == 2 else None
        if shape is not None and number is not None and number % LANES == 0:
            return new, shape.sides[-1]
    return None


def _has_whole(product: ast.expr, name: str) -> bool:
    return isinstance(product, ast.BinOp) and (
        has_all_lanes(product.left, (name,)) or has_all_lanes(product.right, (name,))
    )


def _is_rowwise(call: ast.Call) -> bool:
    axis, keeps = keyword(call, "axis"), keyword(call, "keepdims")
    last = axis is not None and ast.unparse(axis) in ("1", "-1")
    return last and isinstance(keeps, ast.Constant) and keeps.value is True


def _is_zero(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Call(args=[ast.Name(id=like)]) if is_call(value, "zeros_like"):
            return like == name
        case ast.Call(args=[ast.Name(id=like), ast.Constant(value=0 | 0.0)]) if is_call(value, "full_like"):
            return like == name
        case ast.Call() if is_call(value, "zeros"):
            return True
    return False


def _within(file: File, node: ast.expr, outer: ast.stmt) -> bool:
    (start, end), (first, last) = file.span(node), file.span(outer)
    return first <= start and end <= last


def _span(node: ast.expr | ast.stmt) -> tuple[int, ...]:
    return tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _lines_of(kernel: Kernel, names: list[str]) -> tuple[int, ...]:
    """Lines of statements that use one of the references."""
    lines: set[int] = set()
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id in names for one in ast.walk(node)
        ):
            lines.update(_span(node))
    return tuple(sorted(lines))
