"""An operand that stays in VMEM, copied in pieces by the kernel: work begins when the first of them is there. Pure.

The pipeline waits for all of such an operand before the first step. Here all copies start at once, and a turn waits for
the pieces up to its own that no turn before it needed (a kept experiment of attention copied its keys like that).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import INDENT, added, free_name, made, movable
from ratchet.kernelfile.program import Kernel, Ref, bound, is_call, is_whole, keyword, parts, same
from ratchet.kernelfile.syntax import Change, assignments, first_line, lines_of, names_in

_MOST = 256
"""Pieces of an operand: each has a semaphore."""


@dataclass(frozen=True, kw_only=True)
class _Pieces:
    """References that are read a piece at a time, ``x[pl.ds(pl.multiple_of(j * S, S), …), :]``."""

    refs: Sequence[Ref]
    place: str
    """``j``."""
    side: ast.expr
    """``S``: rows of a piece."""
    rows: ast.expr


@dataclass(frozen=True, kw_only=True)
class _Wait:
    """Where to wait for which piece."""

    before: ast.stmt
    piece: str


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Kernels with operands that every step reads from the same place, in pieces."""
    file, found = kernel.file, _pieces(kernel)
    waits = _waits(kernel, found) if found is not None else None
    held, semantics = keyword(kernel.settings, "scratch_shapes"), kernel.semantics
    if found is None or not waits or file.tpu is None or file.pallas is None or file.numpy is None:
        return
    if semantics is None or not (held is None or isinstance(held, ast.List | ast.Tuple)):
        return
    body = kernel.body.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1 if docstring else 0]
    places = _places(kernel, found)
    if places is None or not movable(file, first, *(one.before for one in waits)):
        return
    names = {
        wanted: free_name(file, wanted) for wanted in ("arrived", "there", "_copies", "_fetch", "_await", "_drain")
    }
    head = file.line_start(first_line(first))
    changes = {
        *places,
        *_parameters(kernel, found, names),
        _scratch(kernel, found, held),
        *(file.replaced(one, '"arbitrary"') for one in semantics.elts),  # the first step starts what others wait for
        Change(start=head, end=head, text=_fetching(kernel, found, names)),
        file.behind(body[-1], _draining(kernel, found, names)),
    }
    for one in waits:
        at = file.line_start(first_line(one.before))
        changes.add(Change(start=at, end=at, text=f"{' ' * one.before.col_offset}{names['_await']}({one.piece} + 1)\n"))
    subject = ", ".join(ref.name for ref in found.refs)
    yield from made(file, Edit.FETCH, changes, lines=lines_of(*body), subject=subject)


def _pieces(kernel: Kernel) -> _Pieces | None:
    refs = [ref for ref in kernel.refs if ref.role == "in" and _is_resident(kernel, ref)]
    read = [(ref, found) for ref in refs if (found := _read(kernel, ref)) is not None]
    taken = {"piece", "pieces", "copy"} & set(kernel.by_name)
    aliased = keyword(kernel.call, "input_output_aliases") is not None
    if not read or not kernel.grid or kernel.refs[-1].role == "in" or taken or aliased:
        return None
    (place, side), rows = read[0][1], (read[0][0].block or ())[0]
    alike = all(
        one == place and same(other, side) and ref.block and same(ref.block[0], rows) for ref, (one, other) in read
    )
    whole, part = kernel.number(rows) or 0, kernel.file.number(side) or 0
    counted = alike and part and whole % part == 0 and 1 < whole // part <= _MOST
    known = counted and kernel.known(side)
    return _Pieces(refs=[ref for ref, _ in read], place=place, side=side, rows=rows) if known else None


def _is_resident(kernel: Kernel, ref: Ref) -> bool:
    """Whether its block is the first one in every step, of sides that are known in the kernel, and of a known dtype."""
    if ref.index is None or ref.block is None or ref.shared or ref.spec.keywords:
        return False
    first = all(kernel.file.number(one) == 0 and isinstance(one, ast.Constant) for one in parts(ref.index.body))
    operand = (kernel.operands or {}).get(ref.name)
    typed = isinstance(operand, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    return first and typed and all(map(kernel.known, ref.block))


def _read(kernel: Kernel, ref: Ref) -> tuple[str, ast.expr] | None:
    """The place and the side of its pieces; None where it is read in another way as well."""
    uses = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and one.id == ref.name]
    known: set[int] = set()
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(kernel.body):
        match node:
            case ast.Attribute(value=ast.Name(id=name) as used, attr="dtype") if name == ref.name:
                known.add(id(used))
            case ast.Subscript(value=ast.Name(id=name) as used, slice=ast.Tuple(elts=[first, *rest]), ctx=ast.Load()):
                piece = _piece(kernel, first)
                if name == ref.name and piece is not None and all(is_whole(_all(one), ("x",)) for one in rest):
                    known.add(id(used))
                    found.append(piece)
    alike = {(place, ast.dump(side)) for place, side in found}
    return found[0] if len(alike) == 1 and all(id(one) in known for one in uses) else None


def _all(side: ast.expr) -> ast.Subscript:
    return ast.Subscript(value=ast.Name(id="x"), slice=side)


def _piece(kernel: Kernel, node: ast.expr) -> tuple[str, ast.expr] | None:
    match node:
        case ast.Call(
            args=[
                ast.Call(args=[ast.BinOp(left=ast.Name(id=place), op=ast.Mult(), right=side), again]) as start,
                length,
            ]
        ) if is_call(node, "ds") and is_call(start, "multiple_of"):
            if same(side, again) and _is_no_longer(kernel, length, side):
                return place, side
    return None


def _is_no_longer(kernel: Kernel, length: ast.expr, side: ast.expr) -> bool:
    """Whether no more than a piece is read: its side, or a name that is given the side or the least of it and more."""
    if same(length, side):
        return True
    given = [
        value for node in ast.walk(kernel.body) if isinstance(node, ast.Assign)
        for name, value in assignments([node]) if isinstance(length, ast.Name) and name == length.id
    ]  # fmt: skip
    least = [one.args if is_call(one, "min", "minimum") else [one] for one in given]
    every = isinstance(length, ast.Name) and bound(kernel.body)[length.id] == len(given) > 0
    return every and all(any(same(one, side) for one in some) for some in least)


def _waits(kernel: Kernel, found: _Pieces) -> list[_Wait] | None:
    """Where the pieces have to be there; None where that is not understood."""
    names = {ref.name for ref in found.refs}
    chain = _around(kernel.body, names)
    owners = [at for at, one in enumerate(chain) if found.place in [arg.arg for arg in one.args.args]]
    if not owners:
        return None
    owner = chain[owners[-1]]
    if bound(owner)[found.place] > 1:
        return None
    if _yields(owner):
        return _of_tasks(kernel, owner, found.place)
    inner = [one for one in chain[owners[-1] :] if not _yields(one)]
    return [_Wait(before=inner[-1].body[0], piece=found.place)]


def _around(function: ast.FunctionDef, names: set[str]) -> list[ast.FunctionDef]:
    """Functions, outermost first, each of which has all uses of the names in it."""
    uses = sum(
        isinstance(one, ast.Name) and one.id in names and isinstance(one.ctx, ast.Load) for one in ast.walk(function)
    )
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef) and node is not function:
            inside = sum(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))
            if inside == uses:
                return [node, *_around(node, names)]
    return []


def _yields(function: ast.FunctionDef) -> bool:
    """Whether a function itself is a generator."""
    return any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield) for one in function.body)


def _of_tasks(kernel: Kernel, tile: ast.FunctionDef, place: str) -> list[_Wait] | None:
    """Of a generator: before the statements that run it, for the last piece that any of their tasks needs."""
    at = [one.arg for one in tile.args.args].index(place)
    statements = [
        node for node in ast.walk(kernel.body)
        if isinstance(node, ast.Expr) and any(is_call(one, tile.name) for one in ast.walk(node))
    ]  # fmt: skip
    waits = []
    for node in statements:
        tasks = next((one for one in ast.walk(node) if isinstance(one, ast.List | ast.ListComp)), None)
        element = tasks.elts[-1] if isinstance(tasks, ast.List) and tasks.elts else getattr(tasks, "elt", None)
        if not isinstance(element, ast.Call) or len(element.args) <= at:
            return None
        piece = _last(kernel, element.args[at], tasks.generators if isinstance(tasks, ast.ListComp) else [])
        if piece is None:
            return None
        waits.append(_Wait(before=node, piece=piece))
    return waits


def _last(kernel: Kernel, piece: ast.expr, generators: Sequence[ast.comprehension]) -> str | None:
    """The largest value of a piece's number over a comprehension."""
    text = kernel.file.text(piece)
    for one in generators:
        used = names_in(one.target) & names_in(piece)
        match one:
            case ast.comprehension(ifs=[_, *_]):
                return None
            case ast.comprehension() if not used:
                continue
            case ast.comprehension(target=ast.Name(), iter=ast.Name(id=several)) if isinstance(piece, ast.Name):
                text = f"{several}[-1]"
            case ast.comprehension(
                target=ast.Tuple(elts=[_, ast.Name(id=name)]), iter=ast.Call(args=[ast.Name(id=several)]) as counted
            ) if is_call(counted, "enumerate") and isinstance(piece, ast.Name) and piece.id == name:
                text = f"{several}[-1]"
            case ast.comprehension(target=ast.Name(id=name), iter=ast.Call(args=[count]) as counted) if _adds(
                piece, name
            ):
                if not is_call(counted, "range"):
                    return None
                text = _with(piece, name, f"({kernel.file.text(count)} - 1)")
            case _:
                return None
    return text


def _adds(piece: ast.expr, name: str) -> bool:
    """Whether a number grows with a name: ``several * TURNS + one``."""
    return isinstance(piece, ast.BinOp) and isinstance(piece.op, ast.Add) and ast.unparse(piece.right) == name


def _with(piece: ast.expr, name: str, text: str) -> str:
    assert isinstance(piece, ast.BinOp)
    return f"{ast.unparse(piece.left)} + {text}" if name else text


# --- changes ---


def _fetching(kernel: Kernel, found: _Pieces, names: dict[str, str]) -> str:
    """Functions that start all copies in the first step, and wait for the first so many pieces."""
    file, pallas, tpu = kernel.file, kernel.file.pallas, kernel.file.tpu
    part = free_name(file, "part")
    rows, side = file.text(found.rows), file.text(found.side)
    lines = [
        f"def {names['_copies']}(piece):",
        f"    {part} = {pallas}.ds({pallas}.multiple_of(piece * {side}, {side}), {side})",
    ]
    lines.append("    return (")
    for number, ref in enumerate(found.refs):
        rest = "".join(f", :{file.text(one)}" for one in (ref.block or ())[1:])  # the array may be wider
        source, semaphore = f"{_outside(kernel, ref)}.at[{part}{rest}]", f"{names['arrived']}.at[{number}, piece]"
        lines.append(f"        {tpu}.make_async_copy({source}, {ref.name}.at[{part}{rest}], {semaphore}),")
    lines += [
        "    )",
        "",
        f"@{pallas}.when({_in_step(kernel, '0')})",
        f"def {names['_fetch']}():",
        f"    {names['there']}[0] = 0",
        "",
        f"    @{pallas}.loop(0, {rows} // {side})",
        "    def _start(piece):",
        f"        for copy in {names['_copies']}(piece):",
        "            copy.start()",
        "",
        f"def {names['_await']}(pieces):",
        f"    @{pallas}.loop({names['there']}[0], pieces)",
        "    def _wait(piece):",
        f"        for copy in {names['_copies']}(piece):",
        "            copy.wait()",
        "",
        f"    {names['there']}[0] = {file.numpy}.maximum({names['there']}[0], pieces)",
        "",
    ]
    return "".join(f"{INDENT if line else ''}{line}\n" for line in lines)


def _draining(kernel: Kernel, found: _Pieces, names: dict[str, str]) -> str:
    """No copy is under way when the kernel ends, whatever its steps needed."""
    last = _in_step(kernel, f"{kernel.file.pallas}.num_programs({{0}}) - 1")
    count = f"{kernel.file.text(found.rows)} // {kernel.file.text(found.side)}"
    head = f"\n\n{INDENT}@{kernel.file.pallas}.when({last})\n{INDENT}def {names['_drain']}():\n"
    return f"{head}{INDENT}{INDENT}{names['_await']}({count})"


def _in_step(kernel: Kernel, place: str) -> str:
    """The condition of one step, whose place in dimension ``{0}`` is given."""
    conditions = [f"{kernel.file.pallas}.program_id({at}) == {place.format(at)}" for at in range(len(kernel.grid))]
    return functools.reduce(lambda one, other: f"{kernel.file.numpy}.logical_and({one}, {other})", conditions)


def _outside(kernel: Kernel, ref: Ref) -> str:
    """What the operand is called where it is not in VMEM yet."""
    return free_name(kernel.file, f"{ref.name.removesuffix('_ref')}_hbm")


def _places(kernel: Kernel, found: _Pieces) -> set[Change] | None:
    """Blocks that are left where they are; None where another reference shares one."""
    names = {ref.name for ref in found.refs}
    others = [ref for ref in kernel.refs if ref.name not in names and any(ref.spec is one.spec for one in found.refs)]
    specs = {
        kernel.file.replaced(ref.spec, f"{kernel.file.pallas}.BlockSpec(memory_space={kernel.file.pallas}.ANY)")
        for ref in found.refs
    }
    return specs if not others else None


def _parameters(kernel: Kernel, found: _Pieces, names: dict[str, str]) -> Iterator[Change]:
    file, inputs = kernel.file, {ref.name: ref for ref in found.refs}
    for one in kernel.body.args.args:
        if one.arg in inputs:
            yield file.replaced(one, _outside(kernel, inputs[one.arg]))
    more = [*inputs, names["arrived"], names["there"]]
    yield file.behind(kernel.body.args.args[-1], "".join(f", {name}" for name in more))


def _scratch(kernel: Kernel, found: _Pieces, held: ast.List | ast.Tuple | None) -> Change:
    file, tpu = kernel.file, kernel.file.tpu
    scratch = [f"{tpu}.VMEM({_shape(kernel, ref)}, {_dtype(kernel, ref)})" for ref in found.refs]
    count = f"{file.text(found.rows)} // {file.text(found.side)}"
    scratch += [f"{tpu}.SemaphoreType.DMA(({len(found.refs)}, {count}))", f"{tpu}.SMEM((1,), {file.numpy}.int32)"]
    if held is None:
        return added(file, kernel.settings, f"scratch_shapes=[{', '.join(scratch)}]")
    end = file.span(held)[1] - 1
    comma = "" if file.source[:end].rstrip().endswith((b",", b"[", b"(")) else ", "
    return Change(start=end, end=end, text=comma + ", ".join(scratch))


def _shape(kernel: Kernel, ref: Ref) -> str:
    return f"({', '.join(kernel.file.text(one) for one in ref.block or ())},)"


def _dtype(kernel: Kernel, ref: Ref) -> str:
    """Of the operand that the call is given."""
    return f"{kernel.file.text((kernel.operands or {})[ref.name])}.dtype"
