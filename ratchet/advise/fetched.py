"""An operand that stays in VMEM, copied in pieces by the kernel: work begins when the first of them is there. Pure.

The pipeline waits for all of such an operand before the first step. Here all copies start at once, and a turn waits for
the pieces up to its own that no turn before it needed (a kept experiment of attention copied its keys like that).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import INDENT, added, free_name, made, movable
from ratchet.kernelfile.program import Kernel, Ref, is_call, is_whole, keyword, parts
from ratchet.kernelfile.syntax import Change, first_line, lines_of, names_in

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
    if found is None or not waits or file.tpu is None or file.pallas is None or file.numpy is None:
        return
    body = kernel.body.body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1 if docstring else 0]
    places = _places(kernel, found)
    if places is None or not movable(file, first, *(one.before for one in waits)):
        return
    names = {wanted: free_name(file, wanted) for wanted in ("arrived", "there", "_copies", "_fetch", "_await")}
    head = file.line_start(first_line(first))
    changes = {
        *places,
        *_parameters(kernel, found, names),
        *_scratch(kernel, found),
        *_arbitrary(kernel),
        Change(start=head, end=head, text=_fetching(kernel, found, names)),
    }
    for one in waits:
        at = file.line_start(first_line(one.before))
        changes.add(Change(start=at, end=at, text=f"{' ' * one.before.col_offset}{names['_await']}({one.piece} + 1)\n"))
    subject = ", ".join(ref.name for ref in found.refs)
    yield from made(file, Edit.FETCH, changes, lines=lines_of(*body), subject=subject)


def _pieces(kernel: Kernel) -> _Pieces | None:
    refs = [ref for ref in kernel.refs if ref.role == "in" and _is_resident(kernel, ref)]
    read = [(ref, found) for ref in refs if (found := _read(kernel, ref)) is not None]
    if not read:
        return None
    (place, side), rows = read[0][1], (read[0][0].block or ())[0]
    alike = all(
        one == place and ast.dump(other) == ast.dump(side) and ref.block and ast.dump(ref.block[0]) == ast.dump(rows)
        for ref, (one, other) in read
    )
    whole, part = kernel.number(rows) or 0, kernel.file.number(side) or 0
    counted = alike and part and whole % part == 0 and 1 < whole // part <= _MOST
    known = counted and kernel.known(rows) and kernel.known(side)
    return _Pieces(refs=[ref for ref, _ in read], place=place, side=side, rows=rows) if known else None


def _is_resident(kernel: Kernel, ref: Ref) -> bool:
    """Whether its block is the same in every step."""
    if ref.index is None or ref.block is None or ref.spec.keywords:
        return False
    return all(kernel.file.number(one) == 0 and isinstance(one, ast.Constant) for one in parts(ref.index.body))


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
                piece = _piece(first)
                if name == ref.name and piece is not None and all(is_whole(_all(one), ("x",)) for one in rest):
                    known.add(id(used))
                    found.append(piece)
    same = {(place, ast.dump(side)) for place, side in found}
    return found[0] if len(same) == 1 and all(id(one) in known for one in uses) else None


def _all(side: ast.expr) -> ast.Subscript:
    return ast.Subscript(value=ast.Name(id="x"), slice=side)


def _piece(node: ast.expr) -> tuple[str, ast.expr] | None:
    match node:
        case ast.Call(
            args=[ast.Call(args=[ast.BinOp(left=ast.Name(id=place), op=ast.Mult(), right=side), again]) as start, _]
        ):
            if is_call(node, "ds") and is_call(start, "multiple_of") and ast.dump(side) == ast.dump(again):
                return place, side
    return None


def _waits(kernel: Kernel, found: _Pieces) -> list[_Wait] | None:
    """Where the pieces have to be there; None where that is not understood."""
    names = {ref.name for ref in found.refs}
    chain = _around(kernel.body, names)
    owners = [at for at, one in enumerate(chain) if found.place in [arg.arg for arg in one.args.args]]
    if not owners:
        return None
    owner = chain[owners[-1]]
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
        at = f"{part}{', :' * (len(ref.block or ()) - 1)}"
        source, semaphore = f"{_outside(kernel, ref)}.at[{at}]", f"{names['arrived']}.at[{number}, piece]"
        lines.append(f"        {tpu}.make_async_copy({source}, {ref.name}.at[{at}], {semaphore}),")
    first = [f"{pallas}.program_id({at}) == 0" for at in range(len(kernel.grid))]
    condition = first[0]
    for one in first[1:]:
        condition = f"{file.numpy}.logical_and({condition}, {one})"
    lines += [
        "    )",
        "",
        f"@{pallas}.when({condition})",
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
    file = kernel.file
    for one in kernel.body.args.args:
        ref = next((ref for ref in found.refs if ref.name == one.arg), None)
        if ref is not None:
            start = file.line_start(one.lineno) + one.col_offset
            yield Change(start=start, end=start + len(one.arg.encode()), text=_outside(kernel, ref))
    last = kernel.body.args.args[-1]
    end = file.line_start(last.lineno) + last.col_offset + len(last.arg.encode())
    more = [*(ref.name for ref in found.refs), names["arrived"], names["there"]]
    if last.arg in more:  # it is renamed itself
        raise AssertionError("a kernel's last parameter is no input")
    yield Change(start=end, end=end, text="".join(f", {name}" for name in more))


def _scratch(kernel: Kernel, found: _Pieces) -> Iterator[Change]:
    file, tpu = kernel.file, kernel.file.tpu
    scratch = [f"{tpu}.VMEM({_shape(kernel, ref)}, {_dtype(kernel, ref)})" for ref in found.refs]
    count = f"{file.text(found.rows)} // {file.text(found.side)}"
    scratch += [f"{tpu}.SemaphoreType.DMA(({len(found.refs)}, {count}))", f"{tpu}.SMEM((1,), {file.numpy}.int32)"]
    written = keyword(kernel.settings, "scratch_shapes")
    if isinstance(written, ast.List | ast.Tuple):
        end = file.span(written)[1] - 1
        comma = "" if file.source[:end].rstrip().endswith((b",", b"[", b"(")) else ", "
        yield Change(start=end, end=end, text=comma + ", ".join(scratch))
    elif written is None:
        yield added(file, kernel.settings, f"scratch_shapes=[{', '.join(scratch)}]")
    else:
        raise AssertionError("references are known of scratch that is written out alone")


def _shape(kernel: Kernel, ref: Ref) -> str:
    return f"({', '.join(kernel.file.text(one) for one in ref.block or ())},)"


def _dtype(kernel: Kernel, ref: Ref) -> str:
    """Of the operand that the call is given."""
    inputs = [one for one in kernel.refs if one.role in ("scalar", "in")]
    for node in ast.walk(kernel.host):
        if isinstance(node, ast.Call) and node.func is kernel.call and len(node.args) == len(inputs):
            operand = node.args[inputs.index(ref)]
            return f"{kernel.file.text(operand)}.dtype"
    return ""


def _arbitrary(kernel: Kernel) -> Iterator[Change]:
    """Steps in order: the first one starts what the others wait for."""
    params = keyword(kernel.call, "compiler_params")
    semantics = keyword(params, "dimension_semantics") if isinstance(params, ast.Call) else None
    for one in parts(semantics) if semantics is not None else ():
        yield kernel.file.replaced(one, '"arbitrary"')
