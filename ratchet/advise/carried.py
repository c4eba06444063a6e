"""What a step of the grid may find in scratch that an earlier one left: such steps have to keep their order. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ratchet.advise.pattern import runs_when
from ratchet.advise.stages import asks_kind
from ratchet.kernelfile.program import Kernel, is_call, is_whole, program_id
from ratchet.kernelfile.syntax import assigned_once, names_in

_CHOICES = ("when", "cond", "switch", "select", "where")
_LOOPS = ("loop", "fori_loop", "while_loop")
_LIKE = ("full_like", "zeros_like", "ones_like")


def carries(kernel: Kernel, last: int) -> bool:
    """Whether a step may need what one at another place along dimensions 0 to ``last`` left in scratch.

    It does not where the first step at each such place stores all scratch anew, nor where the function never compares
    its place along them.
    """
    scratch = {ref.name for ref in kernel.refs if ref.role == "scratch"}
    return bool(scratch - _stored_anew(kernel, scratch, last)) and any(at <= last for at in _compared(kernel))


def _stored_anew(kernel: Kernel, scratch: set[str], last: int) -> set[str]:
    """Scratch that is stored whole before another use, in each step or the first along a dimension behind ``last``."""
    given = assigned_once(kernel.body.body)
    new, used = set[str](), set[str]()
    for node in kernel.body.body:
        match runs_when(node):
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if isinstance(
                node, ast.FunctionDef
            ):
                at = program_id(given.get(left.id, left) if isinstance(left, ast.Name) else left)
                body = node.body if at is not None and at > last else [node]
            case _:
                body = [node]
        for one in body:
            match one:
                case ast.Assign(targets=[target], value=value) if is_whole(target, scratch - used):
                    if not _reads(value, scratch):
                        new |= names_in(target.value)
            used |= names_in(one)
    return new


def _reads(value: ast.expr, scratch: set[str]) -> bool:
    """Whether a value needs more of scratch than its shape and dtype."""
    kinds = {id(one.args[0]) for one in ast.walk(value) if is_call(one, *_LIKE) and one.args}
    kinds |= {id(one.value) for one in ast.walk(value) if asks_kind(one)}
    return any(isinstance(one, ast.Name) and one.id in scratch and id(one) not in kinds for one in ast.walk(value))


def _compared(kernel: Kernel) -> set[int]:
    """Dimensions of the grid by the place along which something is decided, be it through names."""
    nodes, found = list(ast.walk(kernel.body)), dict[str, set[int]]()
    size = -1
    while size != sum(map(len, found.values())):
        size = sum(map(len, found.values()))
        for names, value in _flows(kernel, nodes):
            for name in names:
                found.setdefault(name, set()).update(_dimensions(kernel, value, found))
    return {at for node in nodes for one in _decided_by(kernel, node) for at in _dimensions(kernel, one, found)}


def _flows(kernel: Kernel, nodes: list[ast.AST]) -> Iterator[tuple[set[str], ast.AST]]:
    """Names with what they follow from: what is assigned to them, or what a loop or a call hands to a function."""
    inner = {one.name: one for one in nodes if isinstance(one, ast.FunctionDef) and one is not kernel.body}
    for node in nodes:
        match node:
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
                yield names_in(node, ast.Store), node
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield names_in(target), value
            case ast.FunctionDef() if node is not kernel.body:
                for one in node.decorator_list:
                    yield {each.arg for each in node.args.args}, one
            case ast.Call():
                lambdas = [one.args for one in ast.walk(node) if isinstance(one, ast.Lambda)]
                handed = [*lambdas, *(inner[one].args for one in names_in(node) if one in inner)]
                yield {each.arg for one in handed for each in one.args}, node


def _dimensions(kernel: Kernel, node: ast.AST, names: dict[str, set[int]]) -> set[int]:
    """By the place along which a node's value may differ; all of them where it asks for one that is not known."""
    found: set[int] = set()
    for one in ast.walk(node):
        if is_call(one, "program_id"):
            at = program_id(one)
            found |= {at} if at is not None else set(range(len(kernel.grid)))
        elif isinstance(one, ast.Name):
            found |= names.get(one.id, set())
    return found


def _decided_by(kernel: Kernel, node: ast.AST) -> list[ast.expr]:
    """What decides whether something is done, which of two values is taken, or how often a loop turns."""
    match node:
        case ast.Compare() | ast.BoolOp():
            return [node]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return [test]
        case ast.Call(func=ast.Name(id=name)) if name in kernel.file.functions:
            return [*node.args, *(one.value for one in node.keywords)]
        case ast.Call() if is_call(node, *_CHOICES):
            return node.args[:1]
        case ast.Call() if is_call(node, *_LOOPS):
            return node.args[:2]
    return []
