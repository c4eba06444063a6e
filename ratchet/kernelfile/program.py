"""What a kernel file calls: grid, blocks, scratch and the function that they are for, by its syntax tree. Pure.

Nothing is known by its name in the file: a ``pallas_call`` is one by the name that Pallas gives it, and a reference by
its position among the parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from ratchet.kernelfile.syntax import File, assigned_once, names_in

PRODUCTS = ("dot", "dot_general", "matmul")
REDUCTIONS = ("max", "sum", "min", "mean")


@dataclass(frozen=True, kw_only=True)
class Ref:
    """A parameter of the kernel's function."""

    name: str
    role: str
    """``in``, ``out`` or ``scratch``; ``scalar`` of what is prefetched."""
    spec: ast.Call
    """The ``BlockSpec``, or the call that makes the scratch; of scalars the grid specification."""
    block: tuple[ast.expr, ...] | None
    """Its shape; None for a whole array, and for semaphores."""
    index: ast.Lambda | None
    dtype: ast.expr | None
    """Of a scratch."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One ``pallas_call`` and the function that it runs, where both are written out in the file."""

    file: File
    call: ast.Call
    settings: ast.Call
    """The call with the keyword ``grid``: the ``pallas_call``, or its grid specification."""
    host: ast.FunctionDef
    """The function of the top level that makes the call."""
    body: ast.FunctionDef
    grid: tuple[ast.expr, ...]
    grid_node: ast.expr
    refs: tuple[Ref, ...]
    """Every parameter; empty where they could not be matched."""
    alone: bool = False
    """Whether this call alone runs the function."""

    @cached_property
    def by_name(self) -> Mapping[str, Ref]:
        return {ref.name: ref for ref in self.refs}

    @cached_property
    def local(self) -> Mapping[str, ast.expr]:
        """What names of the host are given, where that is one thing."""
        return assigned_once(self.host.body)

    def number(self, node: ast.expr) -> int | None:
        """An expression of the host's, as an integer."""
        return self.file.number(_resolved(node, self.local))

    def known(self, node: ast.expr) -> bool:
        """Whether an expression means the same wherever in the file it is written."""
        local = {one.arg for one in self.host.args.args} | set(self.local)
        return not names_in(node) & local and self.file.value(node) is not None


def kernels(file: File) -> tuple[Kernel, ...]:
    """Every ``pallas_call`` of the file whose function and grid are written out."""
    pairs = [(host, call) for host in file.functions.values() for call in calls(host, "pallas_call")]
    made = [one for host, call in pairs if (one := _kernel(file, host, call)) is not None]
    bodies = [one.body.name for one in made]
    used = [node.id for node in ast.walk(file.tree) if isinstance(node, ast.Name)]
    return tuple(
        replace(one, alone=bodies.count(name) == used.count(name) == 1) for one, name in zip(made, bodies, strict=True)
    )


def is_call(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node calls a function of one of these names, in whatever module."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return (isinstance(function, ast.Attribute) and function.attr in names) or (
        isinstance(function, ast.Name) and function.id in names
    )


def calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """The calls inside a node of functions of these names."""
    return [one for one in ast.walk(node) if is_call(one, *names)]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of that name."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two nodes are written alike."""
    return ast.dump(one) == ast.dump(other)


def program_id(node: ast.AST) -> int | None:
    """The dimension of ``pl.program_id(0)``."""
    return _dimension(node, "program_id")


def num_programs(node: ast.AST) -> int | None:
    """The dimension of ``pl.num_programs(0)``."""
    return _dimension(node, "num_programs")


def _dimension(node: ast.AST, name: str) -> int | None:
    if not is_call(node, name):
        return None
    match [*node.args, *(one.value for one in node.keywords if one.arg == "axis")]:
        case [ast.Constant(value=int() as at)] if len(node.args) + len(node.keywords) == 1:
            return at
    return None


def is_part(node: ast.AST, names: Container[str]) -> TypeGuard[ast.Subscript]:
    """Whether a node is ``x_ref[...]`` of one of these references, whatever of it."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names


def is_whole(node: ast.AST, names: Container[str]) -> TypeGuard[ast.Subscript]:
    """Whether a node is all of one of these references: ``x_ref[...]`` or ``x_ref[:, :]``."""
    return is_part(node, names) and all(
        _is_all(one) or (isinstance(one, ast.Constant) and one.value is Ellipsis) for one in parts(node.slice)
    )


def has_all_lanes(node: ast.AST, names: Container[str]) -> TypeGuard[ast.Subscript]:
    """Whether a node is a reference as a whole, or rows of it: ``x_ref[...]``, ``x_ref[a:b, :]``."""
    if is_whole(node, names):
        return True
    if not is_part(node, names) or not isinstance(node.slice, ast.Tuple):
        return False
    sides = node.slice.elts
    return len(sides) == 2 and isinstance(sides[0], ast.Slice) and _is_all(sides[1])


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None


def parts(node: ast.expr) -> list[ast.expr]:
    """The elements of a tuple or a list; anything else alone."""
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _kernel(file: File, host: ast.FunctionDef, call: ast.Call) -> Kernel | None:
    local = assigned_once(host.body)
    body = _function(file, call)
    spec = keyword(call, "grid_spec")
    settings = _resolved(spec, local) if spec is not None else call
    written = keyword(settings, "grid") if isinstance(settings, ast.Call) else None
    if body is None or written is None or not isinstance(settings, ast.Call):
        return None
    grid = _resolved(written, local)
    return Kernel(
        file=file,
        call=call,
        settings=settings,
        host=host,
        body=body,
        grid=tuple(parts(grid)),
        grid_node=grid,
        refs=tuple(_refs(settings, body, local)),
    )


def _function(file: File, call: ast.Call) -> ast.FunctionDef | None:
    if not call.args:
        return None
    named = call.args[0]
    if is_call(named, "partial") and len(named.args) == 1:
        named = named.args[0]
    return file.functions.get(named.id) if isinstance(named, ast.Name) else None


def _refs(settings: ast.Call, body: ast.FunctionDef, local: Mapping[str, ast.expr]) -> Iterator[Ref]:
    given = body.args
    match keyword(settings, "num_scalar_prefetch"):
        case None:
            scalars = 0
        case ast.Constant(value=int() as scalars):
            pass
        case _:
            return
    if given.vararg or given.kwarg or given.posonlyargs or given.defaults:
        return
    made: list[tuple[str, ast.expr]] = [("scalar", settings)] * scalars
    for name, role in (("in_specs", "in"), ("out_specs", "out"), ("scratch_shapes", "scratch")):
        value = keyword(settings, name)
        if value is not None:
            made += [(role, _resolved(one, local)) for one in parts(_resolved(value, local))]
        elif role != "scratch":
            return
    specs = [(role, spec) for role, spec in made if isinstance(spec, ast.Call)]
    if not len(specs) == len(made) == len(given.args):
        return
    for argument, (role, spec) in zip(given.args, specs, strict=True):
        second = spec.args[1] if len(spec.args) > 1 else None
        index = (second or keyword(spec, "index_map")) if role in ("in", "out") else None
        yield Ref(
            name=argument.arg,
            role=role,
            spec=spec,
            block=_block(spec, role, local),
            index=index if isinstance(index, ast.Lambda) else None,
            dtype=second if role == "scratch" else None,
        )


def _block(spec: ast.Call, role: str, local: Mapping[str, ast.expr]) -> tuple[ast.expr, ...] | None:
    if role == "scalar":
        return None
    if role == "scratch":
        shape = spec.args[0] if is_call(spec, "VMEM") and spec.args else None
    else:
        shape = spec.args[0] if spec.args else keyword(spec, "block_shape")
    shape = _resolved(shape, local) if shape is not None else None
    return tuple(shape.elts) if isinstance(shape, ast.Tuple) else None


def _resolved(node: ast.expr, local: Mapping[str, ast.expr]) -> ast.expr:
    """What a local name was given, where it was given something once."""
    for _ in range(4):
        if not (isinstance(node, ast.Name) and node.id in local):
            break
        node = local[node.id]
    return node
