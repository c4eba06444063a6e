"""The order of a grid's dimensions. Pure.

A block whose place does not change from one step to the next is not copied again, so which dimension is the inner one
decides which operand stays (Pallas's matmul guide counts the traffic of both).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.carried import carries
from ratchet.advise.pattern import claims, made, runs_when
from ratchet.kernelfile.program import Kernel, is_call, num_programs, program_id
from ratchet.kernelfile.syntax import Change, File, names_in


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Two neighbouring dimensions swapped, where every output has a block of its own for each."""
    outputs = [ref for ref in kernel.refs if ref.role == "out"]
    if not outputs or any(ref.axes is None or ref.shared for ref in kernel.refs):
        return
    for at in range(len(kernel.grid) - 1):
        if carries(kernel, at + 1):
            continue
        walked = all((ref.side(one) or 0) >= 0 and ref.walked_by(one) for ref in outputs for one in (at, at + 1))
        if walked and kernel.grid_is_written and not _in_order(kernel, at):
            yield from _swapped(kernel, at)


def _swapped(kernel: Kernel, at: int) -> Iterator[Rewrite]:
    file, semantics = kernel.file, kernel.semantics
    if semantics is None:
        return
    changes = set[Change]()
    for row in (kernel.grid, *(one.elts for one in claims(kernel)), semantics.elts):
        changes |= set(_exchanged(file, *row[at : at + 2])) if row else set()
    for ref in kernel.refs:
        if ref.index is not None:
            one, other = ref.index.args.args[at : at + 2]
            changes |= {file.replaced(one, other.arg), file.replaced(other, one.arg)}
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
