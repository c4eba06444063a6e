"""Two kernels over one grid as one: what both read is copied once, what one makes for the other stays in VMEM. Pure.

XLA fuses elementwise operations, never two kernels. Where the grids are equal, a step can do the work of both: operands
with the same blocks are shared, and a block that the second reads of the first one's result is there already.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import INDENT, deleted, free_name, made, movable
from ratchet.kernelfile.program import Kernel, Ref, is_call, kernels, keyword, parts, same
from ratchet.kernelfile.syntax import Change, File, first_line, lines_of, names_in

_KNOWN = ("out_shape", "grid", "in_specs", "out_specs", "scratch_shapes", "compiler_params")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """``y = pl.pallas_call(…)(x)`` among the statements of a function."""

    kernel: Kernel
    statement: ast.Assign
    targets: Sequence[str]
    operands: Sequence[ast.expr]
    shapes: Sequence[ast.expr]

    def refs(self, *roles: str) -> list[Ref]:
        return [ref for ref in self.kernel.refs if ref.role in roles]


def rewrites(file: File) -> Iterator[Rewrite]:
    """Every two calls of a function, the first before the second, that may be one."""
    found = [one for kernel in kernels(file) if kernel.alone and (one := _call(kernel)) is not None]
    for first, second in itertools.combinations(found, 2):
        if first.kernel.host is second.kernel.host:
            yield from _joined(file, first, second)


def _call(kernel: Kernel) -> _Call | None:
    """The call, where its result has names and its function is run as it is: no ``partial`` hands it more."""
    if not kernel.refs or kernel.settings is not kernel.call or not isinstance(kernel.call.args[0], ast.Name):
        return None
    if any(one.arg not in _KNOWN for one in kernel.call.keywords) or len(kernel.call.args) != 1:
        return None
    for node in kernel.host.body:
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=called, args=operands, keywords=[])):
                if called is not kernel.call or not movable(kernel.file, node):
                    continue
                names = [one.id for one in parts(target) if isinstance(one, ast.Name)]
                shapes = _shapes(kernel, several=isinstance(target, ast.Tuple | ast.List))
                refs = [ref.role for ref in kernel.refs]
                whole = len(names) == len(parts(target)) == len(shapes) == refs.count("out")
                if whole and len(operands) == refs.count("in"):
                    return _Call(kernel=kernel, statement=node, targets=names, operands=operands, shapes=shapes)
    return None


def _shapes(kernel: Kernel, *, several: bool) -> list[ast.expr]:
    """Of the results; none where it is not known that they are, or are not, ``several`` in a tuple or a list."""
    written = keyword(kernel.call, "out_shape")
    given = kernel.local.get(written.id) if isinstance(written, ast.Name) else written
    if several:
        return parts(given) if isinstance(given, ast.Tuple | ast.List) else []
    return [written] if written is not None and given is not None and is_call(given, "ShapeDtypeStruct") else []


def _joined(file: File, first: _Call, second: _Call) -> Iterator[Rewrite]:
    kernel, other = first.kernel, second.kernel
    body = kernel.host.body
    between = body[body.index(first.statement) + 1 : body.index(second.statement)]
    alike = len(kernel.grid) == len(other.grid) and all(map(same, kernel.grid, other.grid))
    params = [keyword(one.call, "compiler_params") for one in (kernel, other)]
    agree = params == [None, None] or (None not in params and same(*params))  # type: ignore[arg-type]
    used = any(names_in(node, ast.Load) & set(first.targets) for node in (*between, other.call))
    changed = {name for node in between for name in names_in(node, ast.Store)}
    shared = _shared(first, second)
    if not alike or not agree or used or shared is None or changed & names_in(first.statement):
        return
    name, parameters = free_name(file, "_both"), _Parameters()
    mine, its = parameters.of(first), parameters.of(second, shared)
    inner = _inner(first, second, shared)
    kept = [number for number, ref in enumerate(first.refs("out")) if ref.name not in inner]
    targets = [*(first.targets[number] for number in kept), *second.targets]
    shapes = [*(first.shapes[number] for number in kept), *second.shapes]
    rest = [pair for pair in zip(second.refs("in"), second.operands, strict=True) if pair[0].name not in shared]
    ins = [*((first, ref, mine) for ref in first.refs("in")), *((second, ref, its) for ref, _ in rest)]
    outs = [
        *((first, first.refs("out")[number], mine) for number in kept),
        *((second, ref, its) for ref in second.refs("out")),
    ]
    scratch = [(one, ref, names) for one, names in ((first, mine), (second, its)) for ref in one.refs("scratch")]
    given = [names[ref.name] for _, ref, names in (*ins, *outs)]
    given += [*(mine[ref] for ref in inner), *(names[ref.name] for _, ref, names in scratch)]
    held = [f"{file.tpu}.VMEM({text}, {dtype})" for text, dtype in inner.values()]
    held += [file.text(ref.spec) for _, ref, _ in scratch]
    settings = {
        "out_shape": _several([file.text(one) for one in shapes]),
        "grid": file.text(_written(kernel, "grid")),
        "in_specs": f"[{', '.join(_spec(one, ref) for one, ref, _ in ins)}]",
        "out_specs": _several([_spec(one, ref) for one, ref, _ in outs]),
        "scratch_shapes": f"[{', '.join(held)}]" if held else "",
        "compiler_params": file.text(params[0]) if params[0] is not None else "",
    }
    margin = " " * second.statement.col_offset
    lines = "".join(f"{margin}{INDENT}{word}={text},\n" for word, text in settings.items() if text)
    called = ", ".join(file.text(one) for one in (*first.operands, *(operand for _, operand in rest)))
    call = f"{', '.join(targets)} = {file.text(kernel.call.func)}(\n{margin}{INDENT}{name},\n{lines}{margin})({called})"
    above, (start, end) = file.line_start(first_line(kernel.host)), file.span(second.statement)
    runs = "".join(
        f"{INDENT}{one.kernel.body.name}({', '.join(names[ref.name] for ref in one.kernel.refs)})\n"
        for one, names in ((first, mine), (second, its))
    )
    changes = [
        deleted(file, first.statement),
        Change(start=start, end=end, text=call),
        Change(start=above, end=above, text=f"def {name}({', '.join(given)}):\n{runs}\n\n"),
    ]
    subject = f"{kernel.body.name} and {other.body.name}"
    yield from made(file, Edit.JOIN, changes, lines=lines_of(*kernel.body.body, *other.body.body), subject=subject)


class _Parameters:
    """Names for the references of both kernels, each once."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def of(self, call: _Call, shared: dict[str, str] | None = None) -> dict[str, str]:
        """By the name that a kernel has for it; ``shared`` are those that the other one has already."""
        names: dict[str, str] = {}
        for ref in call.kernel.refs:
            name, number = ref.name, 2
            while name in self.used and ref.name not in (shared or {}):
                name, number = f"{ref.name}_{number}", number + 1
            names[ref.name] = (shared or {}).get(ref.name, name)
            self.used.add(names[ref.name])
        return names


def _shared(first: _Call, second: _Call) -> dict[str, str] | None:
    """References of the second kernel that are the first one's, by name; None where it needs more of a result."""
    shared: dict[str, str] = {}
    inputs = list(zip(first.refs("in"), first.operands, strict=True))
    outputs = dict(zip(first.targets, first.refs("out"), strict=True))
    for ref, operand in zip(second.refs("in"), second.operands, strict=True):
        if names_in(operand) & set(outputs):
            result = outputs.get(operand.id) if isinstance(operand, ast.Name) else None
            if result is None or not _alike(result, ref) or not _of_one_step(first.kernel, result):
                return None
            shared[ref.name] = result.name
        for other, same_operand in inputs:
            if same(operand, same_operand) and _alike(other, ref):
                shared.setdefault(ref.name, other.name)
    return shared if shared else None


def _alike(one: Ref, other: Ref) -> bool:
    """Whether two references have the same blocks."""
    return same(one.spec, other.spec)


def _of_one_step(kernel: Kernel, ref: Ref) -> bool:
    """Whether each block is made in one step of the grid."""
    if ref.index is None or ref.block is None:
        return False
    names = [one.arg for one in ref.index.args.args]
    alone = [one.id for one in parts(ref.index.body) if isinstance(one, ast.Name)]
    return len(names) == len(kernel.grid) and set(names) <= set(alone)


def _inner(first: _Call, second: _Call, shared: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Results of the first kernel that nothing else needs, with block and dtype: they may be scratch."""
    file, found = first.kernel.file, dict[str, tuple[str, str]]()
    for target, ref, shape in zip(first.targets, first.refs("out"), first.shapes, strict=True):
        inside = {id(one) for node in (first.statement, second.statement) for one in ast.walk(node)}
        loads = [one for one in ast.walk(first.kernel.host) if isinstance(one, ast.Name) and one.id == target]
        elsewhere = any(id(one) not in inside for one in loads)
        made_of = first.kernel.local.get(shape.id) if isinstance(shape, ast.Name) else shape
        dtype = made_of.args[1] if isinstance(made_of, ast.Call) and len(made_of.args) == 2 else None
        if ref.name in shared.values() and not elsewhere and dtype is not None and ref.block and file.tpu is not None:
            found[ref.name] = (f"({', '.join(file.text(one) for one in ref.block)},)", file.text(dtype))
    return found


def _spec(call: _Call, ref: Ref) -> str:
    """A block as the call has it: the name of one, or the specification itself."""
    named = [name for name, value in call.kernel.local.items() if value is ref.spec]
    return named[0] if named else call.kernel.file.text(ref.spec)


def _written(kernel: Kernel, name: str) -> ast.expr:
    node = keyword(kernel.call, name)
    assert node is not None
    return node


def _several(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
