"""The innermost grid dimension as a loop inside one grid step, its operands whole in VMEM. Pure.

A step of the grid has a price of its own, and what the inner dimension walks is read again for every outer step. Where
it fits, VMEM holds it once and a loop walks it; a guard that skips steps becomes the end of that loop as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import (
    deleted,
    free_name,
    indented,
    index_without,
    made,
    movable,
    places,
    runs_when,
    unguarded,
    without_dimension,
)
from ratchet.advise.tiles import with_limit
from ratchet.kernelfile.program import Kernel, Ref, bound, is_call, is_whole, num_programs, program_id, same
from ratchet.kernelfile.syntax import Change, names_in

_MOST_BYTES = 64 << 20
"""Of whole operands, twice each, at two bytes an element or more: what is too large does not compile."""
_ELEMENT_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The last grid dimension of a kernel that may become a loop."""

    kernel: Kernel
    walked: Mapping[str, int]
    """References whose blocks it walks, and along which side."""
    name: str
    """What the function calls its place in it; ``""`` where it asks ``program_id`` each time."""

    @classmethod
    def of(cls, kernel: Kernel, walked: Mapping[str, int]) -> Walk | None:
        """None where the function asks for its place in no way that is known, or calls something else by that name."""
        last = len(kernel.grid) - 1
        asks = [name for node in kernel.body.body for name, at in places(node) if at == last]
        asked = sum(program_id(node) == last for node in ast.walk(kernel.body))
        if not asked or (asks and (asked > 1 or bound(kernel.body)[asks[0]] > 1)):
            return None
        return cls(kernel=kernel, walked=walked, name=asks[0] if asks else "")

    @property
    def last(self) -> int:
        return len(self.kernel.grid) - 1

    @property
    def length(self) -> ast.expr:
        return self.kernel.grid[self.last]

    def is_index(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id == self.name) or program_id(node) == self.last


@dataclass(kw_only=True)
class Order:
    """The statements of a kernel's function, by when they run."""

    places: list[ast.stmt] = field(default_factory=list)
    """What asks for the place in the grid."""
    first: list[ast.stmt] = field(default_factory=list)
    inside: list[ast.stmt] = field(default_factory=list)
    last: list[ast.stmt] = field(default_factory=list)


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """A kernel with two grid dimensions or more whose last one walks inputs and no output."""
    walk = _walk(kernel) if len(kernel.grid) > 1 else None
    found = order(walk) if walk is not None else None
    if walk is None or found is None or (calls := _calls(walk)) is None:
        return
    if not all(_is_read_whole(walk, found, name) for name in walk.walked):
        return
    changes = {*calls, *_loop(walk, found)}
    for node in found.places:
        texts = [f"{name} = {kernel.file.pallas}.program_id({at})" for name, at in places(node) if at != walk.last]
        changes.add(kernel.file.replaced(node, "; ".join(texts)) if texts else deleted(kernel.file, node))
    for node in (*found.first, *found.last):
        changes |= unguarded(kernel.file, node)
    steps = float(kernel.number(walk.length) or 1)
    yield from made(kernel.file, Edit.RESIDENT, changes, subject=", ".join(walk.walked), factor=steps)


def _walk(kernel: Kernel) -> Walk | None:
    last = len(kernel.grid) - 1
    steps = kernel.number(kernel.grid[last])
    if any(ref.axes is None or ref.shared or ref.role == "scalar" for ref in kernel.refs):
        return None
    walked = {ref.name: _side(kernel, ref, last) for ref in kernel.refs if ref.walked_by(last)}
    if not walked or min(walked.values()) < 0 or kernel.file.pallas is None:
        return None
    if steps is None or steps < 2 or sum(_bytes(kernel, name) for name in walked) * steps > _MOST_BYTES:
        return None
    return Walk.of(kernel, walked) if kernel.known(kernel.grid[last]) else None


def _side(kernel: Kernel, ref: Ref, last: int) -> int:
    """Which side of a block the last dimension walks; -1 where that is not understood."""
    side = ref.side(last)
    if ref.role != "in" or side is None or side < 0 or ref.block is None or ref.spec.keywords:
        return -1
    return side if kernel.known(ref.block[side]) and kernel.number(ref.block[side]) else -1


def _bytes(kernel: Kernel, name: str) -> int:
    """Of both buffers of a block."""
    size = 2 * _ELEMENT_BYTES
    for side in kernel.by_name[name].block or ():
        size *= kernel.number(side) or _MOST_BYTES
    return size


def order(walk: Walk) -> Order | None:
    """The statements by when they run; None where one of them is not understood."""
    found, kernel = Order(), walk.kernel
    statements = list(kernel.body.body)
    if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        del statements[0]
    for node in statements:
        at = when(walk, node)
        if places(node) and not found.inside:
            found.places.append(node)
        elif at == "first" and not found.inside:
            found.first.append(node)
        elif at == "last":
            found.last.append(node)
        elif at or found.last or places(node):
            return None
        else:
            found.inside.append(node)
    ends = (*found.first, *found.last)
    conditions = {id(one) for node in ends for one in ast.walk(runs_when(node) or ast.Pass())}
    loose = any(walk.is_index(one) for node in ends for one in ast.walk(node) if id(one) not in conditions)
    counts = any(num_programs(one) == walk.last for node in found.inside for one in ast.walk(node))
    made = {name for node in found.inside for name in bound(node)}
    needed = any(made & (names_in(node, ast.Load) - bound(node).keys()) for node in ends)
    plain = found.inside and movable(kernel.file, *kernel.body.body)
    return found if plain and not (loose or counts or needed) else None


def _is_read_whole(walk: Walk, order: Order, name: str) -> bool:
    """Whether what is walked is read in the loop alone, a whole block at a time."""
    nodes = [one for node in order.inside for one in ast.walk(node)]
    every = sum(isinstance(one, ast.Name) and one.id == name for one in ast.walk(walk.kernel.body))
    blocks = [one for one in nodes if is_whole(one, (name,))]
    kinds = [one for one in nodes if isinstance(one, ast.Attribute) and one.attr == "dtype" and names_in(one) == {name}]
    stored = any(isinstance(one.ctx, ast.Store) for one in blocks)
    return bool(blocks) and every == len(blocks) + len(kinds) and not stored


def when(walk: Walk, node: ast.stmt) -> str:
    """``first`` or ``last`` for what runs in that step alone; ``""`` for what runs in all of them."""
    match runs_when(node):
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if walk.is_index(left):
            return "first"
        case ast.Compare(
            left=left, ops=[ast.Eq()], comparators=[ast.BinOp(left=count, op=ast.Sub(), right=ast.Constant(value=1))]
        ) if walk.is_index(left):
            every = same(count, walk.length) and walk.kernel.known(count)
            return "last" if every or num_programs(count) == walk.last else ""
    return ""


def _loop(walk: Walk, order: Order) -> set[Change]:
    """The statements inside under ``@pl.loop``, reading their block of what is whole now."""
    file, pallas = walk.kernel.file, walk.kernel.file.pallas
    name = walk.name or free_name(file, "step")
    margin = " " * order.inside[0].col_offset
    head = f"{margin}@{pallas}.loop(0, {_end(walk, order)})\n{margin}def {free_name(file, '_steps')}({name}):\n"
    changes = indented(file, order.inside, head)
    for node in order.inside:
        for one in ast.walk(node):
            if not walk.name and isinstance(one, ast.expr) and program_id(one) == walk.last:
                changes.add(file.replaced(one, name))
            if is_whole(one, walk.walked):
                changes.add(file.replaced(one, _read(walk, ast.unparse(one.value), name)))
    return changes


def _read(walk: Walk, ref: str, name: str) -> str:
    """One block of a whole operand."""
    block, at = walk.kernel.by_name[ref].block or (), walk.walked[ref]
    side, pallas = walk.kernel.file.text(block[at]), walk.kernel.file.pallas
    part = f"{pallas}.ds({pallas}.multiple_of({name} * {side}, {side}), {side})"
    return f"{ref}[{', '.join(part if here == at else ':' for here in range(len(block)))}]"


def _end(walk: Walk, order: Order) -> str:
    """How many steps the loop takes: all, or those that every guard inside lets through."""
    every, numpy = walk.kernel.file.text(walk.length), walk.kernel.file.numpy
    guards = [condition for node in order.inside if (condition := runs_when(node)) is not None]
    rest = [node for node in order.inside if runs_when(node) is None]
    if not guards or numpy is None or not all(map(_does_nothing, rest)):
        return every
    for part in _conjuncts(guards[0]):
        steps = _steps_taken(walk, part)
        if steps is not None and all(any(same(part, one) for one in _conjuncts(guard)) for guard in guards):
            return f"{numpy}.minimum({every}, {steps})"
    return every


def _does_nothing(node: ast.stmt) -> bool:
    """Whether a statement only gives a name to something."""
    if isinstance(node, ast.FunctionDef):
        return not node.decorator_list
    return isinstance(node, ast.Assign) and all(isinstance(one, ast.Name) for one in node.targets)


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    if is_call(node, "logical_and") and len(node.args) == 2:
        return [*_conjuncts(node.args[0]), *_conjuncts(node.args[1])]
    return [node]


def _steps_taken(walk: Walk, guard: ast.expr) -> str | None:
    """For how many steps, from the first on, ``j * B < end`` is true."""
    file = walk.kernel.file
    match guard:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as op], comparators=[right]):
            step, end = _multiple(walk, left), file.text(right)
            if step is not None and not any(map(walk.is_index, ast.walk(right))):
                return f"{file.pallas}.cdiv({end}, {step})" if isinstance(op, ast.Lt) else f"({end}) // {step} + 1"
    return None


def _multiple(walk: Walk, node: ast.expr) -> str | None:
    """``B`` of ``j * B``, ``1`` of ``j``."""
    if walk.is_index(node):
        return "1"
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for index, step in ((left, right), (right, left)):
                if walk.is_index(index) and walk.kernel.known(step) and (walk.kernel.file.number(step) or 0) > 0:
                    return walk.kernel.file.text(step)
    return None


def _calls(walk: Walk) -> set[Change] | None:
    """Grid, blocks, index maps, dimension semantics and VMEM limit of the call."""
    kernel, file, limit = walk.kernel, walk.kernel.file, with_limit(walk.kernel)
    fewer = without_dimension(kernel, walk.last)
    if fewer is None or limit is None:
        return None
    changes = {*limit, *fewer}
    for ref in kernel.refs:
        changes |= set(index_without(kernel, ref, walk.last))
        if ref.name in walk.walked and ref.block is not None:
            side = ref.block[walk.walked[ref.name]]
            changes.add(file.replaced(side, _whole(walk, side)))
    return changes


def _whole(walk: Walk, side: ast.expr) -> str:
    """``X`` where the grid has ``X // side`` of them, without a rest."""
    file = walk.kernel.file
    match walk.length:
        case ast.BinOp(left=whole, op=ast.FloorDiv(), right=part) if same(part, side):
            if (number := file.number(whole)) and not number % (file.number(side) or number):
                return file.text(whole)
    return f"({file.text(walk.length)}) * {file.text(side)}"
