"""What a kernel file calls: grid, blocks, scratch and the function that they are for, by its syntax tree. Pure.

Nothing is known by its name in the file: a ``pallas_call`` is one by the name that Pallas gives it, and a reference by
its position among the parameters.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from ratchet.kernelfile.syntax import File, Value, assigned_once, names_in

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
    """Its index map; None where there is none, and where it cannot be read."""
    axes: tuple[frozenset[int], ...] | None
    """Of each side of the block the grid dimensions that its place follows from; empty where the block never changes.

    None where that cannot be read: of index maps that are no plain ``lambda`` of the grid's places and of scalars.
    """
    dtype: ast.expr | None
    """Of a scratch."""
    shared: bool = False
    """Whether what it is made of is read for something else as well, and cannot be changed for it alone."""

    def walked_by(self, at: int) -> bool:
        """Whether the block follows from a grid dimension."""
        return any(at in axes for axes in self.axes or ())

    def side(self, at: int) -> int | None:
        """Which side of the block a grid dimension walks by its own number; None for none, -1 if not understood."""
        using = [number for number, axes in enumerate(self.axes or ()) if at in axes]
        if self.axes is not None and not using:
            return None
        if len(using) != 1 or self.index is None:
            return -1
        return using[0] if isinstance(parts(self.index.body)[using[0]], ast.Name) else -1


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
    semantics: ast.Tuple | ast.List | None
    """What the call says of each grid dimension; empty where it says nothing, None where that cannot be changed."""
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
        return self._names.given

    @cached_property
    def _names(self) -> _Names:
        return _Names(self.host)

    @cached_property
    def _bound(self) -> tuple[Counter[str], Counter[str]]:
        return bound(self.host), bound(self.body)

    @property
    def grid_is_written(self) -> bool:
        """Whether the grid is written out where the call has it."""
        return isinstance(self.grid_node, ast.Tuple | ast.List) and keyword(self.settings, "grid") is self.grid_node

    @cached_property
    def applied(self) -> ast.Call | None:
        """The call of what ``pallas_call`` gives."""
        return next((one for one in ast.walk(self.host) if isinstance(one, ast.Call) and one.func is self.call), None)

    @cached_property
    def operands(self) -> Mapping[str, ast.expr] | None:
        """What it is given for each reference; None where that is not written out."""
        inputs = [ref.name for ref in self.refs if ref.role in ("scalar", "in")]
        if self.applied is None or self.applied.keywords or len(self.applied.args) != len(inputs):
            return None
        starred = any(isinstance(one, ast.Starred) for one in self.applied.args)
        return dict(zip(inputs, self.applied.args, strict=True)) if not starred else None

    def number(self, node: ast.expr) -> int | None:
        """An expression of the host's, as an integer."""
        node = self._names.followed(node)
        return self.file.number(node) if names_in(node).isdisjoint(self._bound[0]) else None

    def value(self, node: ast.expr, **given: int) -> Value | None:
        """What an expression is worth that means the same wherever it is written, but for the names ``given``."""
        own = any(name in names for name in names_in(node) - given.keys() for names in self._bound)
        return self.file.value(node, **given) if not own else None

    def known(self, node: ast.expr) -> bool:
        """Whether an expression means the same wherever in the file it is written."""
        return self.value(node) is not None


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


def bound(node: ast.AST) -> Counter[str]:
    """How often each name is given a meaning in a node, by functions inside of it too."""
    found = Counter[str]()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                found[name] += 1
            case ast.alias():
                found[one.asname or one.name] += 1
    return found


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


class _Names:
    """Names that a host gives one thing, followed to it; and whether they are read for more than what is followed."""

    def __init__(self, host: ast.FunctionDef) -> None:
        parameters = {one.arg for one in ast.walk(host) if isinstance(one, ast.arg)}
        once = assigned_once(host.body)
        self.given = {name: value for name, value in once.items() if name not in parameters}
        self.reads = Counter(
            one.id for one in ast.walk(host) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        )
        self.met: dict[int, str] = {}

    def followed(self, node: ast.expr, path: set[str] | None = None) -> ast.expr:
        """What a node is, with the names in between added to ``path``."""
        for _ in range(4):
            if not (isinstance(node, ast.Name) and node.id in self.given):
                break
            self.met[id(node)] = node.id
            if path is not None:
                path.add(node.id)
            node = self.given[node.id]
        return node

    def are_shared(self, path: set[str]) -> bool:
        """Whether some of these names are read elsewhere."""
        known = Counter(self.met.values())
        return any(self.reads[name] > known[name] for name in path)


def _kernel(file: File, host: ast.FunctionDef, call: ast.Call) -> Kernel | None:
    names, path = _Names(host), set[str]()
    body = _function(file, call)
    spec = keyword(call, "grid_spec")
    settings = names.followed(spec, path) if spec is not None else call
    written = keyword(settings, "grid") if isinstance(settings, ast.Call) else None
    if body is None or written is None or not isinstance(settings, ast.Call):
        return None
    grid = names.followed(written)
    if isinstance(grid, ast.Name) and grid.id not in bound(host):
        grid = file.assigned.get(grid.id, grid)
    known = _is_countable(file, grid) and not _asks_elsewhere(file, body)
    dimensions = len(parts(grid)) if known else None
    return Kernel(
        file=file,
        call=call,
        settings=settings,
        host=host,
        body=body,
        grid=tuple(parts(grid)),
        grid_node=grid,
        semantics=_semantics(call, names, dimensions),
        refs=_with_shared(list(_refs(settings, body, names, path, dimensions)), names),
    )


def _is_countable(file: File, grid: ast.expr) -> bool:
    """Whether it is known how many dimensions a grid has."""
    if isinstance(grid, ast.Tuple | ast.List):
        return not any(isinstance(one, ast.Starred) for one in grid.elts)
    divides = isinstance(grid, ast.BinOp) and isinstance(grid.op, ast.FloorDiv)
    return divides or is_call(grid, "cdiv") or file.number(grid) is not None


def _asks_elsewhere(file: File, body: ast.FunctionDef) -> bool:
    """Whether a place in the grid is asked for by another function of the file, or not by a constant."""
    needed = [file.functions[name] for name in file.needed_by([body.name]) if name in file.functions]
    asked = [(one, node) for one in needed for node in calls(one, "program_id", "num_programs")]
    return any(one is not body or (program_id(node), num_programs(node)) == (None, None) for one, node in asked)


def _semantics(call: ast.Call, names: _Names, dimensions: int | None) -> ast.Tuple | ast.List | None:
    path, said, given = set[str](), None, list(call.keywords)
    if written := keyword(call, "compiler_params"):
        params = names.followed(written, path)
        if not is_call(params, "CompilerParams", "TPUCompilerParams") or params.args:
            return None
        said, given = keyword(params, "dimension_semantics"), [*given, *params.keywords]
    if any(one.arg is None for one in given):
        return None
    said = names.followed(said, path) if said is not None else ast.Tuple(elts=[])
    if not isinstance(said, ast.Tuple | ast.List) or (said.elts and names.are_shared(path)):
        return None
    return said if len(said.elts) in (0, dimensions) else None


def _function(file: File, call: ast.Call) -> ast.FunctionDef | None:
    if not call.args:
        return None
    named = call.args[0]
    if is_call(named, "partial") and len(named.args) == 1:
        named = named.args[0]
    return file.functions.get(named.id) if isinstance(named, ast.Name) else None


def _refs(
    settings: ast.Call, body: ast.FunctionDef, names: _Names, path: set[str], dimensions: int | None
) -> Iterator[tuple[Ref, set[str]]]:
    """References with the names of the host that they are found by."""
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
    made: list[tuple[str, ast.expr, set[str]]] = [("scalar", settings, path)] * scalars
    for name, role in (("in_specs", "in"), ("out_specs", "out"), ("scratch_shapes", "scratch")):
        value, here = keyword(settings, name), set(path)
        if value is not None:
            for one in parts(names.followed(value, here)):
                way = set(here)
                made.append((role, names.followed(one, way), way))
        elif role != "scratch":
            return
    specs = [(role, spec, way) for role, spec, way in made if isinstance(spec, ast.Call)]
    if not len(specs) == len(made) == len(given.args):
        return
    for argument, (role, spec, way) in zip(given.args, specs, strict=True):
        second = spec.args[1] if len(spec.args) > 1 else None
        block = _block(spec, role, names, way)
        written = second or keyword(spec, "index_map") if role in ("in", "out") else None
        index = names.followed(written, way) if written is not None else None
        axes = _axes(spec, index, block, dimensions, scalars) if role in ("in", "out") else ()
        yield (
            Ref(
                name=argument.arg,
                role=role,
                spec=spec,
                block=block,
                index=index if isinstance(index, ast.Lambda) and axes is not None else None,
                axes=axes,
                dtype=second if role == "scratch" else None,
            ),
            way,
        )


def _block(spec: ast.Call, role: str, names: _Names, path: set[str]) -> tuple[ast.expr, ...] | None:
    if role == "scalar":
        return None
    if role == "scratch":
        shape = spec.args[0] if is_call(spec, "VMEM") and spec.args else None
    else:
        shape = spec.args[0] if spec.args else keyword(spec, "block_shape")
    shape = names.followed(shape, path) if shape is not None else None
    return tuple(shape.elts) if isinstance(shape, ast.Tuple) else None


def _axes(
    spec: ast.Call,
    index: ast.expr | None,
    block: tuple[ast.expr, ...] | None,
    dimensions: int | None,
    scalars: int,
) -> tuple[frozenset[int], ...] | None:
    plain = is_call(spec, "BlockSpec") and not any(isinstance(one, ast.Starred) for one in spec.args)
    if dimensions is None or not plain or any(one.arg is None for one in spec.keywords):
        return None
    if index is None or (isinstance(index, ast.Constant) and index.value is None):
        return ()
    match index:
        case ast.Lambda(
            args=ast.arguments(posonlyargs=[], args=given, vararg=None, kwonlyargs=[], kwarg=None, defaults=[])
        ) if len(given) == dimensions + scalars:
            sides = parts(index.body)
        case _:
            return None
    if any(isinstance(one, ast.Starred) for one in sides) or (block is not None and len(block) != len(sides)):
        return None
    at = {one.arg: number for number, one in enumerate(given[:dimensions])}
    return tuple(frozenset(at[name] for name in names_in(side) if name in at) for side in sides)


def _with_shared(found: Sequence[tuple[Ref, set[str]]], names: _Names) -> tuple[Ref, ...]:
    refs = [ref for ref, _ in found]
    return tuple(
        replace(ref, shared=names.are_shared(path) or any(_share_partly(ref, other) for other in refs))
        for ref, path in found
    )


def _share_partly(one: Ref, other: Ref) -> bool:
    """Whether two references have a block in common, but not what moves it: an edit may be to one of them alone."""
    common = bool(one.block and other.block) and one.block[0] is other.block[0]  # type: ignore[index]
    maps = one.index or ast.Pass(), other.index or ast.Pass()
    return common and not ((one.role == "scratch") == (other.role == "scratch") and same(*maps))
