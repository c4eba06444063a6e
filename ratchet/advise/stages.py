"""What of a loop may be in stages: which statements, and what no turn of it may need of another. Pure."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from ratchet.kernelfile.program import PRODUCTS, Kernel, is_call
from ratchet.kernelfile.syntax import names_in

Stages = Sequence[Sequence[ast.stmt]]


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """A function that does nothing but run tiles: ``for row in range(…)``, or the same in stages."""

    row: str
    counted: ast.Call
    """The ``range``."""
    body: Sequence[ast.stmt]
    """What is done for each tile."""
    nodes: tuple[ast.AST, ...]


def tiles_of(function: ast.FunctionDef) -> Tiles | None:
    """The tiles of a function; None for one that does something else."""
    match without_waits(function):
        case [ast.For(target=ast.Name(id=row), iter=ast.Call() as counted, orelse=[]) as loop]:
            nodes: tuple[ast.AST, ...] = (loop,)
            body = loop.body
        case [
            ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg=row)])) as tile,
            ast.Expr(
                value=ast.Call(args=[ast.ListComp(elt=ast.Call(func=ast.Name(id=name)), generators=[each]), _])
            ) as run,
        ] if name == tile.name and isinstance(each.iter, ast.Call) and not each.ifs:
            nodes, body, counted = (tile, run), tile.body, each.iter
        case _:
            return None
    return Tiles(row=row, counted=counted, body=body, nodes=nodes) if is_call(counted, "range") else None


def loop_end(kernel: Kernel, node: ast.FunctionDef) -> ast.expr | None:
    """``end`` of ``@pl.loop(0, end)`` over a function of the place."""
    match node.decorator_list:
        case [ast.Call(args=[first, end], keywords=[]) as call] if is_call(call, "loop") and len(node.args.args) == 1:
            return end if kernel.file.number(first) == 0 else None
    return None


def without_waits(function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function behind calls that it begins with, such as waits for what it reads."""
    return list(itertools.dropwhile(_calls, function.body))


def _calls(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)


def stages_of(body: Sequence[ast.stmt]) -> Stages:
    """Statements by whether they hold a product; those before the first one with it."""
    stages: list[list[ast.stmt]] = []
    before: list[ast.stmt] = []
    for node in body:
        product = _multiplies([node])
        if not stages and not product:
            before.append(node)
        elif not stages:
            stages.append([*before, node])
        elif product == _multiplies(stages[-1]) or _only_stores(node):
            stages[-1].append(node)
        else:
            stages.append([node])
    return stages


def _only_stores(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)


def _multiplies(stage: Sequence[ast.stmt]) -> bool:
    operators = (one for node in stage for one in ast.walk(node))
    return any(isinstance(one, ast.MatMult) or is_call(one, *PRODUCTS) for one in operators)


def yielded(body: Sequence[ast.stmt]) -> Stages:
    """Statements between ``yield``s."""
    stages: list[list[ast.stmt]] = [[]]
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
            stages.append([])
        else:
            stages[-1].append(node)
    return stages


def in_order(kernel: Kernel, stages: Stages) -> bool:
    """Whether a task may begin before the one before it is done: no reference is stored two stages from another use."""
    body = [node for stage in stages for node in stage]
    if len(stages) < 2 or not all(map(is_plain, body)) or not _is_all_seen(kernel, body):
        return False
    for name in stored(body):
        used = [at for at, stage in enumerate(stages) if any(name in names_in(node) for node in stage)]
        if used[-1] - used[0] > 1:
            return False
    return True


def is_plain(node: ast.stmt) -> bool:
    """Assignments, and conditions that are known when the kernel is traced."""
    match node:
        case ast.If(body=body, orelse=[]):
            return all(isinstance(one, ast.Continue | ast.Return) or is_plain(one) for one in body)
        case ast.Assign() | ast.AugAssign():
            return not any(isinstance(one, ast.Lambda | ast.Await | ast.NamedExpr) for one in ast.walk(node))
    return False


def stored(body: Sequence[ast.stmt]) -> set[str]:
    """References that statements store into, by whatever names the place is written: ``x.at[row][...] = y``, too."""
    return {
        name
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)
        for name in names_in(one.value)
    }


def _is_all_seen(kernel: Kernel, body: Sequence[ast.stmt]) -> bool:
    """Whether statements hold every use of a reference: none is given away, no function of the kernel's is called."""
    nodes = [one for node in body for one in ast.walk(node)]
    functions = {one.name for one in ast.walk(kernel.body) if isinstance(one, ast.FunctionDef)}
    used = {id(one.value) for one in nodes if isinstance(one, ast.Subscript) or asks_kind(one)}
    names = functions | set(kernel.by_name)
    return all(id(one) in used for one in nodes if isinstance(one, ast.Name) and one.id in names)


def asks_kind(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """``x_ref.dtype``, ``x_ref.shape``."""
    return isinstance(node, ast.Attribute) and node.attr in ("dtype", "shape")


def independent(kernel: Kernel, loop: ast.For, row: str) -> bool:
    """Whether no turn needs what another one stores or names, and nothing behind the loop needs its names."""
    inside = {id(one) for one in ast.walk(loop)}
    named = {name for node in loop.body for name in _given(node)}
    later = (one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and id(one) not in inside)
    if any(one.id in named for one in later) or row in named or _read_before(loop.body, named):
        return False
    leaves = any(isinstance(one, ast.Return) for one in ast.walk(loop))  # the turns behind, too
    if leaves or not _is_all_seen(kernel, loop.body):
        return False
    step = loop.iter.args[2] if isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 3 else None
    return all(name in kernel.by_name and _is_apart(loop, name, row, step) for name in stored(loop.body))


def _given(node: ast.AST) -> set[str]:
    """Names that a statement gives something; those of a comprehension are its own."""
    own = {
        one.id
        for node in ast.walk(node)
        if isinstance(node, ast.comprehension)
        for one in ast.walk(node.target)
        if isinstance(one, ast.Name)
    }
    return names_in(node, ast.Store) - own


def _read_before(body: Sequence[ast.stmt], named: set[str]) -> bool:
    """Whether one of the names is read before it is given something, whichever conditions hold."""
    for node in body:
        reads = names_in(node.test if isinstance(node, ast.If) else node, ast.Load)
        if isinstance(node, ast.AugAssign):
            reads |= names_in(node.target)
        if reads & named or (isinstance(node, ast.If) and _read_before(node.body, named)):
            return True
        if not isinstance(node, ast.If):
            named = named - _given(node)
    return False


def _is_apart(loop: ast.For, name: str, row: str, step: ast.expr | None) -> bool:
    """Whether turns use different parts of a reference: ``x[row : row + S, ...]`` or ``x[..., row, ...]``."""
    uses = [one for one in ast.walk(loop) if isinstance(one, ast.Name) and one.id == name]
    found = [one for one in ast.walk(loop) if isinstance(one, ast.Subscript) and one.value in uses]
    kinds = [one for one in ast.walk(loop) if asks_kind(one) and one.value in uses]
    if len(found) + len(kinds) != len(uses):
        return False
    every = [_place(one, row, step) for one in found]
    return None not in every and len(set(every)) == 1


def _place(node: ast.Subscript, row: str, step: ast.expr | None) -> int | None:
    """Which side of a part is the turn's own."""
    sides = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for at, side in enumerate(sides):
        match side:
            case ast.Name(id=name) if name == row:
                return at
            case ast.Slice(
                lower=ast.Name(id=name), upper=ast.BinOp(left=ast.Name(id=again), op=ast.Add(), right=length)
            ):
                if name == again == row and step is not None and ast.dump(length) == ast.dump(step):
                    return at
    return None
