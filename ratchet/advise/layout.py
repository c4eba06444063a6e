"""Row statistics: a column of numbers takes a whole register per eight rows, so let all of its lanes hold it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import made
from ratchet.kernelfile.program import Kernel, Ref, has_all_lanes, is_call, kernels, keyword
from ratchet.kernelfile.shapes import LANES, Shapes, Unknown
from ratchet.kernelfile.syntax import File, lines_of, names_in


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Scratch of one column made as wide as the lanes; then its sums across lanes put off to where it is read."""
    for wide in _wide(kernel):
        yield wide
        yield from _both(kernel, wide)
    for ref in kernel.refs:
        yield from _lane_sums(kernel, ref)


def _both(kernel: Kernel, wide: Rewrite) -> Iterator[Rewrite]:
    """Sums put off in what is wide now: wide statistics alone may cost more than they save."""
    for other in kernels(File.of(wide.after, kernel.file.name)):
        for ref in other.refs if other.body.name == kernel.body.name else ():
            for one in _lane_sums(other, ref):
                lines = tuple(sorted({*wide.lines, *one.lines}))
                yield replace(one, lines=lines, subject=f"{one.subject}, {wide.subject} wide")


def _wide(kernel: Kernel) -> Iterator[Rewrite]:
    """All columns at once: they meet each other."""
    columns = {ref.name: ref.block[1] for ref in kernel.refs if ref.block is not None and _is_column(kernel, ref)}
    if not columns:
        return
    try:
        shapes = Shapes.read(kernel, wide=list(columns))
    except Unknown:
        return
    changes = [*(kernel.file.replaced(side, str(LANES)) for side in columns.values()), *shapes.changes]
    using = [node for node in ast.walk(kernel.body) if isinstance(node, ast.Assign) and names_in(node) & set(columns)]
    yield from made(kernel.file, Edit.WIDE, changes, lines=lines_of(*using), subject=", ".join(columns))


def _is_column(kernel: Kernel, ref: Ref) -> bool:
    """Whether it is scratch of float32[rows, 1], whose shape no other scratch shares in the source."""
    if ref.role != "scratch" or ref.block is None or len(ref.block) != 2:
        return False
    shared = sum(other.spec is ref.spec for other in kernel.refs) > 1
    column = kernel.file.value(ref.block[1]) == 1 and isinstance(ref.block[1], ast.Constant)
    return (
        column
        and not shared
        and not ref.shared
        and isinstance(ref.dtype, ast.Attribute)
        and ref.dtype.attr == "float32"
    )


def _lane_sums(kernel: Kernel, ref: Ref) -> Iterator[Rewrite]:
    """``l = a * l + sum(p, axis=1, keepdims=True)`` of a wide ``l``, added up per lane; summed up where it is read."""
    file, name = kernel.file, ref.name
    if ref.role != "scratch" or ref.block is None or len(ref.block) != 2 or kernel.number(ref.block[1]) != LANES:
        return
    stores = [
        node for node in ast.walk(kernel.body)
        if isinstance(node, ast.Assign) and any(has_all_lanes(one, (name,)) for one in node.targets)
    ]  # fmt: skip
    cleared = [node for node in stores if _is_zero(node.value, name)]
    added = [node for node in stores if node not in cleared]
    if file.numpy is None or len(cleared) != 1 or len(added) != 1:
        return
    found = _addend(added[0].value, name, Shapes.read(kernel))
    inside = {id(one) for node in stores for one in ast.walk(node)}
    uses = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and one.id == name]
    reads = [
        node for node in ast.walk(kernel.body)
        if has_all_lanes(node, (name,)) and isinstance(node.ctx, ast.Load) and id(node) not in inside
    ]  # fmt: skip
    if found is None or not reads or len([one for one in uses if id(one) not in inside]) != len(reads):
        return
    call, side = found
    whole = file.text(call.args[0]) if isinstance(call.args[0], ast.Name) else f"({file.text(call.args[0])})"
    lanes = f"sum({whole}[:, at : at + {LANES}] for at in range(0, {side}, {LANES}))"
    late = [file.replaced(node, f"{file.numpy}.sum({file.text(node)}, axis=1, keepdims=True)") for node in reads]
    yield from made(file, Edit.LANES, [file.replaced(call, lanes), *late], lines=lines_of(call), subject=name)


def _addend(value: ast.expr, name: str, shapes: Shapes) -> tuple[ast.Call, str] | None:
    """The row sum that is added to what is there already, times something that is no sum; and how long its rows are."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    for old, new in ((value.left, value.right), (value.right, value.left)):
        if not (is_call(new, "sum") and len(new.args) == 1 and _is_rowwise(new)):
            continue
        mine = [node for node in ast.walk(old) if isinstance(node, ast.Name) and node.id == name]
        factors = [old.left, old.right] if isinstance(old, ast.BinOp) and isinstance(old.op, ast.Mult) else [old]
        if len(mine) != 1 or not any(has_all_lanes(one, (name,)) for one in factors):
            continue
        shape = shapes.of(new.args[0])
        if shape is not None and len(shape.sides) == 2 and shapes.has_whole_lanes(shape.sides[-1]):
            return new, shape.sides[-1]
    return None


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
    return is_call(value, "zeros")
