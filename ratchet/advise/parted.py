"""A loop over blocks, some masked: one loop without the mask, one with it, and its triangle in strips. Pure.

A turn that asks whether its block is masked holds both versions and a branch. The blocks that are attended whole come
first, so that two loops need none; and where the mask divides as many blocks as the queries' block holds, each strip of
rows multiplies only with the columns that it attends (splash attention's diagonal).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.mask import is_lowest
from ratchet.advise.pattern import free_name, made, movable, runs_when
from ratchet.advise.stages import Tiles, loop_end, tiles_of
from ratchet.kernelfile.program import Kernel, calls, is_call, program_id, same
from ratchet.kernelfile.shapes import LANES
from ratchet.kernelfile.syntax import (
    Change,
    File,
    assigned_once,
    assignments,
    expression,
    first_line,
    lines_of,
    names_in,
)

_MOST_BLOCKS = 4096
"""Of queries: where the triangle of each begins is computed."""


@dataclass(frozen=True, kw_only=True)
class _Two:
    """A loop whose turns do one of two things: ``work(False)`` where a condition holds, else ``work(True)``."""

    loop: ast.FunctionDef
    end: ast.expr
    work: ast.FunctionDef
    condition: ast.Compare
    guard: ast.expr

    @property
    def place(self) -> str:
        return self.loop.args.args[0].arg


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Loops in two parts, and triangles."""
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.FunctionDef):
            yield from _parted(kernel, node)
            yield from _triangle(kernel, node)


def _parted(kernel: Kernel, loop: ast.FunctionDef) -> Iterator[Rewrite]:
    file, two = kernel.file, _two(kernel, loop)
    whole = _leading(kernel, two) if two is not None else None
    if two is None or whole is None or file.numpy is None or not movable(file, loop, *loop.body):
        return
    margin, name, place = " " * loop.col_offset, two.work.name, two.place
    plain, end, pallas = free_name(file, "plain"), free_name(file, "end"), file.pallas
    work = _dedented(file, two.work, loop.col_offset).replace(f"def {name}(", f"def {name}({place}, ", 1)
    calls_of = [f"{name}({place}, {flag})" for flag in (False, True)]
    if not _implied(kernel, two):
        calls_of = [f"{pallas}.when({file.text(two.guard)})(lambda: {one})" for one in calls_of]
    text = (
        f"{work}\n\n{margin}{end} = {file.text(two.end)}\n"
        f"{margin}{plain} = {file.numpy}.clip({whole}, 0, {end})\n\n"
        f"{margin}@{pallas}.loop(0, {plain})\n{margin}def {loop.name}({place}):\n{margin}    {calls_of[0]}\n\n"
        f"{margin}@{pallas}.loop({plain}, {end})\n{margin}def {free_name(file, '_divided')}({place}):\n"
        f"{margin}    {calls_of[1]}"
    )
    start = file.line_start(first_line(loop))
    changes = [Change(start=start, end=file.span(loop)[1], text=text)]
    yield from made(file, Edit.PART, changes, lines=lines_of(*loop.body), subject=loop.name)


def _two(kernel: Kernel, loop: ast.FunctionDef) -> _Two | None:
    """What ``mask`` makes of a mask in a loop."""
    end = loop_end(kernel, loop)
    match loop.body:
        case [
            ast.FunctionDef(args=ast.arguments(args=[_], defaults=[], kwonlyargs=[], vararg=None, kwarg=None)) as work,
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Compare(ops=[ast.LtE() | ast.Lt()]) as condition),
            ast.Expr(value=ast.Call(func=ast.Call(args=[first]), args=[ast.Lambda(body=one)])),
            ast.Expr(value=ast.Call(func=ast.Call(args=[second]), args=[ast.Lambda(body=other)])),
        ] if end is not None and not work.decorator_list:
            whole, rest = ast.unparse(one), ast.unparse(other)
            conditions = _both(first), _both(second)
            if (whole, rest) != (f"{work.name}(False)", f"{work.name}(True)") or None in conditions:
                return None
            (guard, holds), (again, fails) = conditions  # type: ignore[misc]
            negated = is_call(fails, "logical_not") and ast.unparse(fails.args[0]) == name
            if ast.unparse(holds) == name and negated and same(guard, again):
                return _Two(loop=loop, end=end, work=work, condition=condition, guard=guard)
    return None


def _both(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    return (node.args[0], node.args[1]) if is_call(node, "logical_and") and len(node.args) == 2 else None


def _leading(kernel: Kernel, two: _Two) -> str | None:
    """For how many turns, from the first on, ``j * B + rest <= end`` holds."""
    file, (right,) = kernel.file, two.condition.comparators
    terms = _signed(two.condition.left)
    steps = [step for one, minus in terms if not minus and (step := _step(kernel, one, two.place)) is not None]
    rest = [(one, minus) for one, minus in terms if minus or _step(kernel, one, two.place) is None]
    loose = two.place in {name for one in (*(term for term, _ in rest), right) for name in names_in(one)}
    if len(steps) != 1 or loose or _made_inside(two) & names_in(two.condition):
        return None
    less = "".join(f" {'+' if minus else '-'} {file.term(one)}" for one, minus in rest)
    if isinstance(two.condition.ops[0], ast.LtE):
        return f"({file.term(right)}{less}) // {steps[0]} + 1"
    return f"{file.pallas}.cdiv({file.term(right)}{less}, {steps[0]})"


def _made_inside(two: _Two) -> set[str]:
    return {name for node in two.loop.body for name, _ in assignments([node])}


def _signed(node: ast.expr, minus: bool = False) -> list[tuple[ast.expr, bool]]:
    """Terms with whether they are subtracted."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        turned = minus != isinstance(node.op, ast.Sub)
        return [*_signed(node.left, minus), *_signed(node.right, turned)]
    return [(node, minus)]


def _step(kernel: Kernel, node: ast.expr, place: str) -> str | None:
    """``B`` of ``j * B``."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for index, step in ((left, right), (right, left)):
                known = kernel.known(step) and (kernel.file.number(step) or 0) > 0
                if isinstance(index, ast.Name) and index.id == place and known:
                    return kernel.file.text(step)
    return None


def _implied(kernel: Kernel, two: _Two) -> bool:
    """Whether the loop ends before its guard ``j * B < end`` fails, as ``resident`` makes it."""
    match two.guard:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as op], comparators=[right]):
            step, text = _step(kernel, left, two.place), kernel.file.text(right)
            if step is None or two.place in names_in(right):
                return False
            most = f"{kernel.file.pallas}.cdiv({text}, {step})" if isinstance(op, ast.Lt) else f"({text}) // {step} + 1"
            ends = two.end.args if is_call(two.end, "minimum") else [two.end]
            return any(same(one, expression(most)) for one in ends)
    return False


def _dedented(file: File, node: ast.FunctionDef, column: int) -> str:
    """A function as it is written, at another margin."""
    lines = file.source[file.line_start(first_line(node)) : file.span(node)[1]].decode().split("\n")
    less = node.col_offset - column
    return "\n".join(line[less:] if line[:less].isspace() else line.lstrip() for line in lines)


# --- triangles ---


@dataclass(frozen=True, kw_only=True)
class _Divided:
    """A loop over the blocks that a mask divides, with what it calls."""

    loop: ast.FunctionDef
    work: ast.FunctionDef
    strips: Tiles
    strip: ast.expr
    """Rows of a strip."""
    rows: ast.expr
    """Rows of the queries' block."""
    side: ast.expr
    """Columns of a block."""
    first: str
    """The first of the blocks."""


def _triangle(kernel: Kernel, loop: ast.FunctionDef) -> Iterator[Rewrite]:
    """``for block in range(rows // side)``: every strip of rows with the columns that it attends."""
    file, found = kernel.file, _divided(kernel, loop)
    lengths = _lengths(kernel, found) if found is not None else None
    if found is None or lengths is None or not movable(file, loop, found.work, *found.strips.body):
        return
    block, width = free_name(file, "block"), free_name(file, "width")
    flag = found.work.args.args[1].arg
    texts = {name: file.text(getattr(found, name)) for name in ("strip", "rows", "side")}
    margin, inner = " " * loop.col_offset, " " * found.strips.body[0].col_offset
    last = found.work.args.args[-1]
    after = file.line_start(last.lineno) + last.col_offset + len(last.arg)
    row = found.strips.row
    end = f"{row} + {texts['strip']}"
    if (file.number(found.strip) or 0) % LANES:
        end = f"({end} + {LANES - 1}) // {LANES} * {LANES}"
    head = (
        f"{inner}{width} = {texts['side']}\n"
        f"{inner}if {flag}:\n"
        f"{inner}    {width} = min({texts['side']}, {end} - {block} * {texts['side']})\n"
    )
    start = f"{block} * {texts['side']} // {texts['strip']} * {texts['strip']} if {flag} else 0"
    at = file.line_start(first_line(found.strips.body[0]))
    called = f"{found.work.name}({found.first} * ({texts['rows']} // {texts['side']}) + {block}, True, {block})"
    text = f"{margin}for {block} in range({texts['rows']} // {texts['side']}):\n{margin}    {called}"
    changes = [
        Change(start=after, end=after, text=f", {block}=0"),
        Change(start=at, end=at, text=head),
        file.replaced(found.strips.counted.args[0], start),
        *(file.replaced(one, width) for one in lengths),
        Change(start=file.line_start(first_line(loop)), end=file.span(loop)[1], text=text),
    ]
    yield from made(file, Edit.TRIANGLE, changes, lines=lines_of(*found.strips.body), subject=loop.name)


def _divided(kernel: Kernel, loop: ast.FunctionDef) -> _Divided | None:
    """``@pl.loop(plain, end) def f(j): work(j, True)`` with ``where(columns <= rows, …)`` in strips of rows."""
    file = kernel.file
    match (loop.decorator_list, loop.args.args, loop.body):
        case (
            [ast.Call(args=[ast.Name(id=start), ast.Name(id=end)], keywords=[]) as over],
            [ast.arg(arg=turn)],
            [ast.Expr(value=ast.Call(func=ast.Name(id=called), args=[ast.Name(id=place), ast.Constant(value=True)]))],
        ) if is_call(over, "loop") and place == turn:
            works = [one for one in kernel.body.body if isinstance(one, ast.FunctionDef) and one.name == called]
        case _:
            return None
    tiles = tiles_of(works[0]) if len(works) == 1 and _takes_two(works[0]) else None
    if tiles is None or len(tiles.counted.args) != 3 or file.number(tiles.counted.args[0]) != 0:
        return None
    work, (_, rows, strip) = works[0], tiles.counted.args
    mask = _mask(kernel, tiles, work.args.args[0].arg)
    if mask is None:
        return None
    outer, side = mask
    height, tile, across = (file.number(one) or 0 for one in (rows, strip, side))
    if not (height and tile and across):
        return None
    whole = height % across == across % LANES == 0
    reaches = whole and _reaches(kernel, start, end, outer, rows, side)
    if not reaches:
        return None
    return _Divided(
        loop=loop, work=work, strips=tiles, strip=strip, rows=rows, side=side, first=outer
    )  # fmt: skip


def _takes_two(work: ast.FunctionDef) -> bool:
    """Whether a function takes a place and whether it masks."""
    return len(work.args.args) == 2 and not work.args.defaults


def _mask(kernel: Kernel, strips: Tiles, place: str) -> tuple[str, ast.expr] | None:
    """The place of the queries' block and the columns of a block, of ``columns <= rows`` in ``if flag:``."""
    masks = [
        one.args[0] for node in strips.body for one in calls(node, "where")
        if len(one.args) == 3 and is_lowest(one.args[2]) and isinstance(one.args[0], ast.Compare)
    ]  # fmt: skip
    if len(masks) != 1 or sum(len(calls(node, "broadcasted_iota")) for node in strips.body) != 2:
        return None
    match masks[0]:
        case ast.Compare(left=left, ops=[ast.LtE()], comparators=[right]):
            columns, rows = left, right
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]):
            columns, rows = right, left
        case _:
            return None
    given = dict(assignments(strips.body))
    ends = [
        _scalars(given.get(one.id) if isinstance(one, ast.Name) else one, at) for one, at in ((columns, 1), (rows, 0))
    ]
    if None in ends:
        return None
    across, down = ends
    assert across is not None
    assert down is not None
    rest = [one for one in down if not (isinstance(one, ast.Name) and one.id == strips.row)]
    if len(across) != 1 or len(rest) != 1 or len(down) != 2:
        return None
    match across[0], rest[0]:
        case (
            ast.BinOp(left=ast.Name(id=index), op=ast.Mult(), right=side),
            ast.BinOp(left=ast.Name(id=outer), op=ast.Mult(), right=height),
        ) if index == place and same(height, strips.counted.args[1]):
            return outer, side
    return None


def _scalars(node: ast.expr | None, dimension: int) -> list[ast.expr] | None:
    """The terms beside ``broadcasted_iota(…, dimension)``."""
    if node is None:
        return None
    terms = [one for one, minus in _signed(node) if not minus]
    iotas = [one for one in terms if is_call(one, "broadcasted_iota") and len(one.args) == 3]
    known = len(iotas) == 1 and len(terms) == len(_signed(node)) and ast.unparse(iotas[0].args[2]) == str(dimension)
    return [one for one in terms if one not in iotas] if known else None


def _reaches(kernel: Kernel, start: str, end: str, outer: str, rows: ast.expr, side: ast.expr) -> bool:
    """Whether the loop is over the columns that a block of queries attends in part, and over no more than the keys."""
    file, given = kernel.file, assigned_once(kernel.body.body)
    dimension = program_id(given[outer]) if outer in given else None
    first, bound = given.get(start), given.get(end)
    if dimension is None or first is None or bound is None or not 0 <= dimension < len(kernel.grid):
        return False
    ends = bound.args if is_call(bound, "minimum") else [bound]
    last = [f"({outer} + 1) * {file.text(rows)}", f"{outer} * {file.text(rows)} + {file.text(rows)}"]
    texts = [f"{file.pallas}.cdiv({one}, {file.text(side)})" for one in last]
    numbers = [file.number(one) for one in ends]
    queries, keys = kernel.number(kernel.grid[dimension]), next((one for one in numbers if one is not None), None)
    others = [ast.unparse(one) for one, number in zip(ends, numbers, strict=True) if number is None]
    height, across = (kernel.known(one) and file.number(one) for one in (rows, side))
    if not (queries and keys and height and across and queries <= _MOST_BLOCKS) or not all(
        one in texts for one in others
    ):
        return False
    match first:
        case ast.Call(args=[whole, ast.Constant(value=0), ast.Name(id=most)]) if is_call(first, "clip") and most == end:
            places = [kernel.value(whole, **{outer: place}) for place in range(queries)]
        case _:
            return False
    begins = all(place == number * height // across for number, place in enumerate(places))
    return begins and queries * height <= keys * across


def _lengths(kernel: Kernel, found: _Divided) -> list[ast.expr] | None:
    """Where the side of a block is a length; None where it is something that is not known."""
    known: list[ast.expr] = []
    kept: set[int] = set()
    place = found.work.args.args[0].arg
    for node in _inside(found):
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=side) if name == place:
                kept.add(id(side))
            case ast.Call(args=[_, side]) if is_call(node, "multiple_of"):
                kept.add(id(side))
            case ast.Call(args=[_, side]) if is_call(node, "ds"):
                known.append(side)
            case ast.Call(args=[_, ast.Tuple(elts=[_, side]), _]) if is_call(node, "broadcasted_iota"):
                known.append(side)
            case ast.Call(args=[_, ast.Tuple(elts=[_, ast.BinOp(left=side, op=ast.FloorDiv())])]) if is_call(
                node, "tile"
            ):
                known.append(side)
            case ast.Call(args=[ast.Constant(value=0), side, ast.Constant()]) if is_call(node, "range"):
                known.append(side)
    lengths = [one for one in known if same(one, found.side)]
    uses = [one for one in _inside(found) if isinstance(one, ast.expr) and same(one, found.side)]
    understood = {id(one) for one in lengths} | kept
    blocks = [ref for ref in kernel.refs if any(same(one, found.side) for one in ref.block or ())]
    if any(id(one) not in understood for one in uses) or blocks or _whole_names(found):
        return None
    return lengths


def _inside(found: _Divided) -> Iterator[ast.AST]:
    return (one for node in found.strips.nodes for one in ast.walk(node))


def _whole_names(found: _Divided) -> bool:
    """Whether the loop guards more than the mask with its flag."""
    flag = found.work.args.args[1].arg
    asks = [one for one in _inside(found) if isinstance(one, ast.Name) and one.id == flag]
    tests = [one for one in _inside(found) if isinstance(one, ast.If)]
    return len(asks) != len(tests) or any(runs_when(one) is not None for one in _inside(found))
