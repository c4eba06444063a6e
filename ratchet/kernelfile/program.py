"""What a kernel file calls: grid, blocks, scratch and the function that they are for, by its syntax tree. Pure.

Nothing is known by its name in the file: a ``pallas_call`` is one by the name that Pallas gives it, and a reference by
its position among the parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.kernelfile.syntax import File, assigned_once


@dataclass(frozen=True, kw_only=True)
class Ref:
    """A parameter of the kernel's function."""

    name: str
    role: str
    """``in``, ``out`` or ``scratch``."""
    spec: ast.Call
    """The ``BlockSpec``, or the call that makes the scratch."""
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
    alone: bool
    """Whether this call alone runs the function."""

    @cached_property
    def by_name(self) -> Mapping[str, Ref]:
        return {ref.name: ref for ref in self.refs}

    def number(self, node: ast.expr) -> int | None:
        """An expression of the host's, as an integer."""
        node = _resolved(node, assigned_once(self.host.body))
        return self.file.number(node)

    def known(self, node: ast.expr) -> bool:
        """Whether an expression means the same wherever in the file it is written."""
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        local = {one.arg for one in self.host.args.args} | set(assigned_once(self.host.body))
        return not names & local and self.file.value(node) is not None


def kernels(file: File) -> tuple[Kernel, ...]:
    """Every ``pallas_call`` of the file whose function and grid are written out."""
    calls = [
        (host, call) for host in file.functions.values() for call in ast.walk(host) if is_call(call, "pallas_call")
    ]
    made = []
    for host, call in calls:
        assert isinstance(call, ast.Call)
        if (one := _kernel(file, host, call)) is not None:
            made.append(one)
    bodies = [one.body.name for one in made]
    used = [node.id for node in ast.walk(file.tree) if isinstance(node, ast.Name)]
    return tuple(
        Kernel(**{**one.__dict__, "alone": bodies.count(one.body.name) == 1 and used.count(one.body.name) == 1})
        for one in made
    )


def is_call(node: ast.AST, *names: str) -> bool:
    """Whether a node calls a function of one of these names, in whatever module."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return (isinstance(function, ast.Attribute) and function.attr in names) or (
        isinstance(function, ast.Name) and function.id in names
    )


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
    match node:
        case ast.Call(args=[ast.Constant(value=int() as at)]) if is_call(node, name):
            return at
        case ast.Call(args=[], keywords=[ast.keyword(arg="axis", value=ast.Constant(value=int() as at))]) if is_call(
            node, name
        ):
            return at
    return None


def is_whole(node: ast.AST, names: Sequence[str] | Mapping[str, object]) -> bool:
    """Whether a node is all of one of these references: ``x_ref[...]`` or ``x_ref[:, :]``."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return all(
        (isinstance(one, ast.Constant) and one.value is Ellipsis)
        or (isinstance(one, ast.Slice) and one.lower is None and one.upper is None and one.step is None)
        for one in parts
    )


def has_all_lanes(node: ast.AST, names: Sequence[str] | Mapping[str, object]) -> bool:
    """Whether a node is a reference as a whole, or rows of it: ``x_ref[...]``, ``x_ref[a:b, :]``."""
    if is_whole(node, names):
        return True
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[ast.Slice(), ast.Slice() as lanes])):
            return name in names and lanes.lower is None and lanes.upper is None and lanes.step is None
    return False


def _kernel(file: File, host: ast.FunctionDef, call: ast.Call) -> Kernel | None:
    local = assigned_once(host.body)
    body = _function(file, call)
    spec = keyword(call, "grid_spec")
    settings = _resolved(spec, local) if spec is not None else call
    if body is None or not isinstance(settings, ast.Call):
        return None
    written = keyword(settings, "grid")
    grid_node = _resolved(written, local) if written is not None else None
    if grid_node is None:
        return None
    grid = tuple(grid_node.elts) if isinstance(grid_node, ast.Tuple | ast.List) else (grid_node,)
    return Kernel(
        file=file,
        call=call,
        settings=settings,
        host=host,
        body=body,
        grid=grid,
        grid_node=grid_node,
        refs=tuple(_refs(file, settings, body, local)),
        alone=False,
    )


def _function(file: File, call: ast.Call) -> ast.FunctionDef | None:
    if not call.args:
        return None
    named = call.args[0]
    if is_call(named, "partial") and isinstance(named, ast.Call) and len(named.args) == 1:
        named = named.args[0]
    return file.functions.get(named.id) if isinstance(named, ast.Name) else None


def _refs(file: File, settings: ast.Call, body: ast.FunctionDef, local: Mapping[str, ast.expr]) -> Iterator[Ref]:
    arguments = body.args
    if (
        arguments.vararg
        or arguments.kwarg
        or arguments.posonlyargs
        or arguments.defaults
        or keyword(settings, "num_scalar_prefetch")
    ):
        return
    made: list[tuple[str, ast.Call]] = []
    for name, role in (("in_specs", "in"), ("out_specs", "out"), ("scratch_shapes", "scratch")):
        value = keyword(settings, name)
        if value is None and role != "scratch":
            return
        for one in _listed(value, local):
            if not isinstance(one, ast.Call):
                return
            made.append((role, one))
    if len(made) != len(arguments.args):
        return
    for argument, (role, spec) in zip(arguments.args, made, strict=True):
        block = _block(spec, role, local)
        index = spec.args[1] if len(spec.args) > 1 else keyword(spec, "index_map")
        yield Ref(
            name=argument.arg,
            role=role,
            spec=spec,
            block=block,
            index=index if isinstance(index, ast.Lambda) and role != "scratch" else None,
            dtype=spec.args[1] if role == "scratch" and len(spec.args) > 1 else None,
        )


def _listed(value: ast.expr | None, local: Mapping[str, ast.expr]) -> list[ast.expr]:
    if value is None:
        return []
    value = _resolved(value, local)
    if isinstance(value, ast.Tuple | ast.List):
        return [_resolved(one, local) for one in value.elts]
    return [value]


def _block(spec: ast.Call, role: str, local: Mapping[str, ast.expr]) -> tuple[ast.expr, ...] | None:
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
