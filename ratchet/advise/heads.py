"""A grid dimension that each step takes one of, such as heads, as a loop inside of a step over larger blocks. Pure.

Steps that do little cost more than what they do, and have nothing to do while they wait; several heads in a step share
its copies, and none waits for another (grouped heads of paged attention kernels).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.carried import carries
from ratchet.advise.pattern import (
    free_name,
    indented,
    index_without,
    made,
    movable,
    places,
    runs_when,
    without_dimension,
)
from ratchet.advise.stages import stored
from ratchet.kernelfile.program import Kernel, Ref, is_part, num_programs, parts, program_id
from ratchet.kernelfile.syntax import Change, lines_of, names_in

_MOST = 32
"""Heads that a step may take: each is unrolled."""


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Every dimension along which blocks are one long, outputs too."""
    for at in range(len(kernel.grid)) if len(kernel.grid) > 1 else ():
        if carries(kernel, at):
            continue
        sides = {ref.name: -1 if ref.shared else _side(kernel, ref, at) for ref in kernel.refs}
        along = {name: side for name, side in sides.items() if side is not None}
        outputs = {ref.name for ref in kernel.refs if ref.role == "out"}
        count = kernel.number(kernel.grid[at]) or 0
        if 1 < count <= _MOST and outputs and outputs <= set(along) and min(along.values()) >= 0:
            yield from _grouped(kernel, at, along)


def _side(kernel: Kernel, ref: Ref, at: int) -> int | None:
    """Which side of a block the dimension walks, one at a time; None for none, -1 where that is not understood."""
    side = ref.side(at)
    if side is None or side < 0 or ref.block is None:
        return side if side is None else -1
    one_long = kernel.file.number(ref.block[side]) == 1 and isinstance(ref.block[side], ast.Constant)
    return side if one_long and side < len(ref.block) - 2 else -1


def _grouped(kernel: Kernel, at: int, along: Mapping[str, int]) -> Iterator[Rewrite]:
    file, fewer = kernel.file, without_dimension(kernel, at)
    scratch = [ref for ref in kernel.refs if ref.role == "scratch"]
    groups = _groups(kernel, {*along, *(ref.name for ref in scratch)})
    if (
        fewer is None
        or groups is None
        or any(ref.block is None for ref in scratch)
        or not kernel.known(kernel.grid[at])
    ):
        return
    name, count = free_name(file, "head"), file.text(kernel.grid[at])
    inside = _inside(kernel, at, along, name)
    if inside is None:
        return
    changes = {*fewer, *inside}
    for ref in kernel.refs:
        changes |= set(index_without(kernel, ref, at))
        if ref.name in along and ref.block:
            changes.add(file.replaced(ref.block[along[ref.name]], count))
        elif ref.role == "scratch" and ref.block:
            start = file.span(ref.block[0])[0]
            changes.add(Change(start=start, end=start, text=f"{count}, "))
    for statements in groups:
        margin = " " * statements[0].col_offset
        changes |= indented(file, statements, f"{margin}for {name} in range({count}):\n")
    steps = float(kernel.number(kernel.grid[at]) or 1)
    lines = lines_of(*(one for group in groups for one in group))
    yield from made(file, Edit.GROUP, changes, lines=lines, subject=count, factor=steps)


def _groups(kernel: Kernel, own: set[str]) -> list[Sequence[ast.stmt]] | None:
    """Statements that a loop goes around; None where heads would meet, by a name or a reference of all of them."""
    groups: list[list[ast.stmt]] = []
    shared: set[str] = set()
    together = False
    for node in _statements(kernel):
        if places(node):
            shared |= names_in(node, ast.Store)
            together = False
        elif isinstance(node, ast.FunctionDef) and runs_when(node) is not None:
            groups.append(node.body)
            together = False
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.If):
            groups[-1:] = [[*groups[-1], node]] if together else [*groups[-1:], [node]]
            together = True
        else:
            return None
    stores = [{name for one in group for name in names_in(one, ast.Store)} for group in groups]
    for number, group in enumerate(groups):
        others = {name for other, names in enumerate(stores) if other != number for name in names}
        if {name for one in group for name in names_in(one, ast.Load)} & (others - shared):
            return None
    every = [one for group in groups for node in group for one in ast.walk(node)]
    plain = all(movable(kernel.file, *group) and stored(group) <= own for group in groups)
    returns = any(isinstance(one, ast.Return | ast.FunctionDef) for one in every)
    return list(groups) if plain and groups and not returns else None


def _statements(kernel: Kernel) -> Sequence[ast.stmt]:
    """Of the kernel's function, without its docstring."""
    first, *rest = kernel.body.body
    return rest if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else [first, *rest]


def _inside(kernel: Kernel, at: int, along: Mapping[str, int], head: str) -> set[Change] | None:
    """What is read and stored of references for one head; None where a use of one is not understood."""
    file, changes, known = kernel.file, set[Change](), set[int]()
    scratch = {ref.name for ref in kernel.refs if ref.role == "scratch"}
    for node in ast.walk(kernel.body):
        if is_part(node, along) and (side := _zero(kernel, node, along[node.value.id])) is not None:  # type: ignore[attr-defined]
            changes.add(file.replaced(side, head))
            known.add(id(node.value))
        elif is_part(node, scratch):
            whole = isinstance(node.slice, ast.Constant) and node.slice.value is Ellipsis
            start, end = file.span(node.slice)
            changes.add(Change(start=start, end=end if whole else start, text=head if whole else f"{head}, "))
            known.add(id(node.value))
        elif isinstance(node, ast.Attribute) and node.attr == "dtype":
            known.add(id(node.value))
    loose = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and id(one) not in known]
    changes |= {file.replaced(one, f"{one.id}[{head}]") for one in loose if one.id in scratch}
    asked = _asked(kernel, at)
    return changes | asked if asked is not None and not any(one.id in along for one in loose) else None


def _zero(kernel: Kernel, node: ast.Subscript, side: int) -> ast.expr | None:
    """The index 0 of the one head that a block has."""
    sides = parts(node.slice)
    early = any(isinstance(one, ast.Constant) and one.value is Ellipsis for one in sides[: side + 1])
    return sides[side] if not early and side < len(sides) and kernel.file.number(sides[side]) == 0 else None


def _asked(kernel: Kernel, at: int) -> set[Change] | None:
    """Later dimensions by their new number; None where this one is asked for."""
    changes: set[Change] = set()
    for node in ast.walk(kernel.body):
        asked = program_id(node) if program_id(node) is not None else num_programs(node)
        if asked == at:
            return None
        if asked is not None and asked > at and isinstance(node, ast.Call):
            (number,) = (*node.args, *(one.value for one in node.keywords))
            changes.add(kernel.file.replaced(number, str(asked - 1)))
    return changes
