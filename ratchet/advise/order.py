"""The order of a grid's dimensions. Pure.

A block whose place does not change from one step to the next is not copied again, so which dimension is the inner one
decides which operand stays (Pallas's matmul guide counts the traffic of both).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.carried import carries
from ratchet.advise.pattern import made, runs_when
from ratchet.kernelfile.program import Kernel, Ref, is_call, keyword, num_programs, parts, program_id
from ratchet.kernelfile.syntax import CLAIMS, Change, File, names_in


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Two neighbouring dimensions swapped, where every output has a block of its own for each."""
    for at in range(len(kernel.grid) - 1):
        if carries(kernel, at + 1):
            continue
        if all(_walks(kernel, ref, at) and _walks(kernel, ref, at + 1) for ref in kernel.refs if ref.role == "out"):
            yield from _swapped(kernel, at)


def _walks(kernel: Kernel, ref: Ref, at: int) -> bool:
    """Whether each step of a dimension has a block of its own."""
    if ref.index is None or len(ref.index.args.args) < len(kernel.grid):
        return False
    name = ref.index.args.args[at].arg
    return any(isinstance(one, ast.Name) and one.id == name for one in parts(ref.index.body))


def _swapped(kernel: Kernel, at: int) -> Iterator[Rewrite]:
    file, grid = kernel.file, kernel.grid_node
    params = keyword(kernel.call, "compiler_params")
    semantics = keyword(params, "dimension_semantics") if isinstance(params, ast.Call) else None
    maps = [ref.index for ref in kernel.refs if ref.role in ("in", "out") and ref.block is not None]
    written = isinstance(grid, ast.Tuple | ast.List) and keyword(kernel.settings, "grid") is grid
    if not written or None in maps or _in_order(kernel, at) or not any(ref.role == "out" for ref in kernel.refs):
        return
    changes = {*_exchanged(file, kernel.grid[at], kernel.grid[at + 1]), *_claims(kernel, at)}
    if isinstance(semantics, ast.Tuple | ast.List) and len(semantics.elts) == len(kernel.grid):
        changes |= set(_exchanged(file, semantics.elts[at], semantics.elts[at + 1]))
    elif semantics is not None:
        return
    for index in maps:
        assert index is not None
        one, other = index.args.args[at : at + 2]
        changes |= {_renamed(file, one, other.arg), _renamed(file, other, one.arg)}
    for node in ast.walk(kernel.body):
        asked = program_id(node) if program_id(node) is not None else num_programs(node)
        if asked in (at, at + 1) and isinstance(node, ast.Call):
            (number,) = (*node.args, *(one.value for one in node.keywords))
            changes.add(file.replaced(number, str(2 * at + 1 - asked)))
    names = " and ".join(file.text(one) for one in kernel.grid[at : at + 2])
    yield from made(file, Edit.SWAP, changes, subject=names)


def _in_order(kernel: Kernel, at: int) -> bool:
    """Whether something runs in the first or the last step of one of two dimensions alone."""
    given = {
        name
        for node in ast.walk(kernel.body) if isinstance(node, ast.Assign)
        if any(program_id(one) in (at, at + 1) for one in ast.walk(node.value))
        for name in names_in(node, ast.Store)
    }  # fmt: skip
    conditions = [condition for node in ast.walk(kernel.body) if (condition := runs_when(node)) is not None]
    conditions += [one for node in ast.walk(kernel.body) if is_call(node, "when", "cond") for one in node.args[:1]]
    return any(
        program_id(one) in (at, at + 1) or (isinstance(one, ast.Name) and one.id in given)
        for condition in conditions
        for one in ast.walk(condition)
    )


def _exchanged(file: File, one: ast.expr, other: ast.expr) -> tuple[Change, Change]:
    return file.replaced(one, file.text(other)), file.replaced(other, file.text(one))


def _renamed(file: File, parameter: ast.arg, name: str) -> Change:
    start = file.line_start(parameter.lineno) + parameter.col_offset
    return Change(start=start, end=start + len(parameter.arg.encode()), text=name)


def _claims(kernel: Kernel, at: int) -> Iterator[Change]:
    """What the author says of the grid, in the same order."""
    claims = kernel.file.functions.get(CLAIMS)
    for node in ast.walk(claims) if claims else ():
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            said = parts(value)
            if isinstance(key, ast.Constant) and key.value == "grid" and len(said) == len(kernel.grid):
                yield from _exchanged(kernel.file, said[at], said[at + 1])
