"""Products ahead of what uses them: a loop's turn in stages, several tiles or turns of it under way at a time. Pure.

The compiler keeps the order of products and fits the rest around them. A turn that multiplies, works on the result and
multiplies again leaves the matrix units idle in between; where the first product of the next tile stands before the
second one of this tile, vector and matrix units work at the same time (FlashAttention-3's order).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import INDENT, free_name, made, movable
from ratchet.kernelfile.program import PRODUCTS, REDUCTIONS, Kernel, calls, is_call
from ratchet.kernelfile.syntax import Change, File, first_line, lines_of, names_in

_AT_ONCE = (2, 4)
"""Turns of a loop that are one afterwards: a constant of the file, which larger blocks double."""
_MOST_ABREAST = 32
_STAGGERED = '''def {}(tasks, stages):
    """One stage of each task after the other: a task begins when the one before it has done its first stage."""
    for time in range(len(tasks) + stages - 1):
        for stage in reversed(range(stages)):
            if 0 <= time - stage < len(tasks):
                next(tasks[time - stage], None)


'''
"""Later stages first: what a task leaves in memory is there when the next one reads it, a stage earlier."""
_ABREAST = '''def {}(tasks, stages):
    """The first stage of every task, then the second one of every task, and so on."""
    for _ in range(stages):
        for task in tasks:
            next(task, None)


'''
"""So that nothing waits for what it has just begun, at the price of as many values alive."""
_DRIVERS = {Edit.STAGGER: ("_staggered", _STAGGERED), Edit.ABREAST: ("_abreast", _ABREAST)}
Stages = Sequence[Sequence[ast.stmt]]


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """Loops over tiles in stages; loops with products whose turns overlap; several turns of what is in stages."""
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.For):
            yield from _tiles(kernel, node)
        if isinstance(node, ast.FunctionDef) and (end := loop_end(kernel, node)) is not None:
            yield from _turns(kernel, node, end)
            yield from _joined(kernel, node, end)


def loop_end(kernel: Kernel, node: ast.FunctionDef) -> ast.expr | None:
    """``end`` of ``@pl.loop(0, end)`` over a function of the place."""
    match node.decorator_list:
        case [ast.Call(args=[first, end], keywords=[]) as call] if is_call(call, "loop") and len(node.args.args) == 1:
            return end if kernel.file.number(first) == 0 else None
    return None


def _tiles(kernel: Kernel, loop: ast.For) -> Iterator[Rewrite]:
    """``for row in range(0, N, S)`` as a function of the row that yields between stages."""
    body = loop.body
    if not isinstance(loop.target, ast.Name) or not is_call(loop.iter, "range") or loop.orelse:
        return
    if not _independent(kernel, loop, loop.target.id) or not movable(kernel.file, loop, *body):
        return
    if _in_order(stages := _stages(body)):
        yield from _in_stages(kernel, loop, loop.target.id, Edit.STAGGER, stages)
    counted = [kernel.file.number(one) for one in loop.iter.args]
    few = None not in counted and 1 < len(range(*map(int, filter(None, counted)))) <= _MOST_ABREAST
    stages = [[node] for node in body]
    if few and calls(loop, *PRODUCTS, *REDUCTIONS) and len(stages) > 1 and all(map(_is_plain, body)):
        yield from _in_stages(kernel, loop, loop.target.id, Edit.ABREAST, stages)


def _in_stages(kernel: Kernel, loop: ast.For, row: str, edit: Edit, stages: Stages) -> Iterator[Rewrite]:
    file, name = kernel.file, free_name(kernel.file, "_tile")
    driver, changes = _driver(kernel, _DRIVERS[edit])
    margin = " " * loop.col_offset
    start, end = file.span(loop)[0], file.line_start((loop.iter.end_lineno or loop.lineno) + 1)
    tasks = f"[{name}({row}) for {row} in {file.text(loop.iter)}]"
    changes |= {
        Change(start=start, end=end, text=f"def {name}({row}):\n"),
        *_yields(file, stages),
        *(file.replaced(one, "return") for one in ast.walk(loop) if isinstance(one, ast.Continue)),
        _behind(file, loop, f"\n\n{margin}{driver}({tasks}, {len(stages)})"),
    }
    subject = ", ".join(sorted(_stored(loop.body)))
    yield from made(file, edit, changes, lines=lines_of(*loop.body), subject=subject)


def _turns(kernel: Kernel, loop: ast.FunctionDef, end: ast.expr) -> Iterator[Rewrite]:
    """``@pl.loop(0, N)`` over statements with products: several turns at once, each a stage behind another."""
    file, stages = kernel.file, _stages(loop.body)
    if not _in_order(stages) or not movable(file, loop, *loop.body):
        return
    for times in _AT_ONCE:
        name, turn, constant = free_name(file, "_turn"), loop.args.args[0].arg, free_name(file, "TURNS")
        driver, changes = _driver(kernel, _DRIVERS[Edit.STAGGER], f"{constant} = {times}\n")
        start, header = file.line_start(first_line(loop)), file.line_start(first_line(loop.body[0]))
        tasks = (f"[{name}({place}){each}]" for place, each in _places(file, turn, constant))
        many, one = (f"{driver}({task}, {len(stages)})" for task in tasks)
        changes |= {
            Change(start=start, end=header, text=f"{' ' * loop.col_offset}def {name}({turn}):\n"),
            *_yields(file, stages),
            _behind(file, loop, "\n\n" + _loops(kernel, loop, end, constant, many, one)),
        }
        yield from made(file, Edit.STAGGER, changes, lines=lines_of(*loop.body), subject=f"{loop.name}, {times} turns")


@dataclass(frozen=True, kw_only=True)
class _Tiled:
    """A function that does nothing but ``_staggered([_tile(row) for row in range(...)], 3)``."""

    function: ast.FunctionDef
    tile: ast.FunctionDef
    tasks: ast.ListComp
    waits: Sequence[ast.stmt]
    """For what it reads, in front of that."""


def _joined(kernel: Kernel, loop: ast.FunctionDef, end: ast.expr) -> Iterator[Rewrite]:
    """``@pl.loop(0, N)`` that calls a function of tiles in stages: the tiles of several turns in one row."""
    file, turn = kernel.file, loop.args.args[0].arg
    match loop.body:
        case [ast.Expr(value=ast.Call(func=ast.Name(id=called), args=[ast.Name(id=place), *rest], keywords=[]))]:
            found = _tiled(kernel, called) if place == turn else None
        case _:
            return
    if found is None or not all(isinstance(one, ast.Constant) for one in rest):
        return
    parameter = found.function.args.args[0]
    inside = {id(one) for one in ast.walk(loop)}
    sites = [one for one in calls(kernel.body, called) if isinstance(one.func, ast.Name) and one.args]
    uses = [one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and one.id == called]
    alone = len(uses) == len(sites) and parameter.arg not in names_in(found.tile, ast.Store)
    if not alone or not _in_order(_yielded(found.tile.body)) or not movable(file, loop):
        return
    counted = _counted(kernel, found, [one for one in sites if id(one) not in inside])
    turns, more = free_name(file, "turns"), "".join(f", {file.text(one)}" for one in rest)
    at, element = file.span(found.tasks.generators[0].target)[0] - len("for "), found.tasks.elt
    assert isinstance(element, ast.Call)
    first, taken = file.span(element.func)[1] + 1, {id(one) for one in ast.walk(counted.site)} if counted else set()
    numbers, listed = (f"{counted.name}, {parameter.arg}", f"enumerate({turns})") if counted else (parameter.arg, turns)
    changes = {
        _named(file, parameter, turns),
        _parameter(file, found.tile, numbers),
        Change(start=first, end=first, text=f"{numbers}, "),
        Change(start=at, end=at, text=f"for {numbers} in {listed} "),
        *(
            file.replaced(one, f"{turns}[-1]")
            for wait in found.waits
            for one in ast.walk(wait)
            if isinstance(one, ast.Name) and one.id == parameter.arg
        ),
        *(file.replaced(one.args[0], f"[{file.text(one.args[0])}]") for one in sites if id(one) not in inside | taken),
        *(counted.changes if counted else ()),
    }
    for times in _AT_ONCE:
        constant = free_name(file, "TURNS")
        lists = (f"[{place}{each}]" for place, each in _places(file, turn, constant))
        many, one = (f"{called}({places}{more})" for places in lists)
        start = file.line_start(first_line(loop))
        both = {
            *changes,
            Change(start=start, end=file.span(loop)[1], text=_loops(kernel, loop, end, constant, many, one)),
            _above(kernel, f"{constant} = {times}\n"),
        }
        yield from made(file, Edit.TURNS, both, lines=lines_of(*found.tile.body), subject=f"{called}, {times} turns")


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """``for block in range(N): work(first + block, True, block)``, and what makes it one call of all of them."""

    site: ast.For
    name: str
    """What the function calls ``block``, which is the number of a turn then."""
    changes: frozenset[Change]


def _counted(kernel: Kernel, found: _Tiled, sites: Sequence[ast.Call]) -> _Counted | None:
    """The one loop with such a call, if the number matters to no other call."""
    file, arguments = kernel.file, found.function.args
    loops = [
        node for node in ast.walk(kernel.body)
        if isinstance(node, ast.For) and len(node.body) == 1 and isinstance(node.body[0], ast.Expr)
        and node.body[0].value in sites and isinstance(node.target, ast.Name)
    ]  # fmt: skip
    if len(loops) != 1 or len(arguments.args) != 3 or len(arguments.defaults) != 1 or not movable(file, loops[0]):
        return None
    (site,), (_, flag, number) = loops, arguments.args
    assert isinstance(site.body[0], ast.Expr)
    assert isinstance(site.target, ast.Name)
    match site.body[0].value:
        case ast.Call(args=[place, ast.Constant(value=True), ast.Name(id=name)], keywords=[]) if name == site.target.id:
            others = [one for one in sites if one is not site.body[0].value]
        case _:
            return None
    masked = [
        one
        for one in ast.walk(found.function)
        if isinstance(one, ast.If | ast.IfExp) and ast.unparse(one.test) == flag.arg
    ]
    shown = [part for one in masked for part in (one.body if isinstance(one.body, list) else [one.body])]
    guarded = {id(one) for part in shown for one in ast.walk(part)}
    loose = [
        one
        for one in ast.walk(found.function)
        if isinstance(one, ast.Name) and one.id == number.arg and id(one) not in guarded
    ]
    plain = all(len(one.args) == 2 and ast.unparse(one.args[1]) == "False" for one in others)
    if loose or not plain:
        return None
    start = file.line_start(flag.lineno) + flag.col_offset + len(flag.arg.encode())
    text = f"{found.function.name}([{file.text(place)} for {name} in {file.text(site.iter)}], True)"
    begin, end = file.span(site)
    changes = {
        Change(start=begin, end=end, text=text),
        Change(start=start, end=file.span(arguments.defaults[0])[1], text=""),
    }
    return _Counted(site=site, name=number.arg, changes=frozenset(changes))


def _places(file: File, turn: str, constant: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The place of one of several turns with the loop over them, and that of a single one."""
    several, at = free_name(file, "several"), free_name(file, "one")
    return (f"{several} * {constant} + {at}", f" for {at} in range({constant})"), (turn, "")


def _loops(kernel: Kernel, loop: ast.FunctionDef, end: ast.expr, constant: str, many: str, one: str) -> str:
    """Loops over several turns at once, and over what is left of them."""
    file, margin, turn = kernel.file, " " * loop.col_offset, loop.args.args[0].arg
    count = file.text(end) if isinstance(end, ast.Name | ast.Call | ast.Constant) else f"({file.text(end)})"
    return (
        f"{margin}@{file.pallas}.loop(0, {count} // {constant})\n"
        f"{margin}def {loop.name}({free_name(file, 'several')}):\n{margin}{INDENT}{many}\n\n"
        f"{margin}@{file.pallas}.loop({count} // {constant} * {constant}, {file.text(end)})\n"
        f"{margin}def {free_name(file, '_left')}({turn}):\n{margin}{INDENT}{one}"
    )


# --- what may be in stages ---


def _stages(body: Sequence[ast.stmt]) -> Stages:
    """Statements by whether they hold a product; those before the first one with it."""
    stages: list[list[ast.stmt]] = []
    before: list[ast.stmt] = []
    for node in body:
        product = bool(calls(node, *PRODUCTS)) or any(isinstance(one, ast.MatMult) for one in ast.walk(node))
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
    return any(calls(node, *PRODUCTS) for node in stage)


def _yielded(body: Sequence[ast.stmt]) -> Stages:
    """Statements between ``yield``s."""
    stages: list[list[ast.stmt]] = [[]]
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
            stages.append([])
        else:
            stages[-1].append(node)
    return stages


def _in_order(stages: Stages) -> bool:
    """Whether a task may begin before the one before it is done: no reference is stored two stages from another use."""
    if len(stages) < 2 or not all(_is_plain(node) for stage in stages for node in stage):
        return False
    for name in _stored([node for stage in stages for node in stage]):
        used = [at for at, stage in enumerate(stages) if any(name in names_in(node) for node in stage)]
        if used[-1] - used[0] > 1:
            return False
    return True


def _is_plain(node: ast.stmt) -> bool:
    """Assignments, and conditions that are known when the kernel is traced."""
    match node:
        case ast.If(body=body, orelse=[]):
            return all(isinstance(one, ast.Continue | ast.Return) or _is_plain(one) for one in body)
        case ast.Assign() | ast.AugAssign():
            return not any(isinstance(one, ast.Lambda | ast.Await | ast.NamedExpr) for one in ast.walk(node))
    return False


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    """References that statements store into."""
    return {
        one.value.id
        for node in body
        for one in ast.walk(node)
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name)
    }


def _independent(kernel: Kernel, loop: ast.For, row: str) -> bool:
    """Whether no turn needs what another one stores or names, and nothing behind the loop needs its names."""
    inside = {id(one) for one in ast.walk(loop)}
    named = {name for node in loop.body for name in _given(node)}
    later = (one for one in ast.walk(kernel.body) if isinstance(one, ast.Name) and id(one) not in inside)
    if any(one.id in named for one in later) or row in named or _read_before(loop.body, named):
        return False
    step = loop.iter.args[2] if isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 3 else None
    return all(_is_apart(loop, name, row, step) for name in _stored(loop.body))


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
    """Whether one of the names is read before it is given something."""
    given: set[str] = set()
    for node in body:
        reads = names_in(node.value if isinstance(node, ast.Assign) else node, ast.Load)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            reads |= {node.target.id}
        own = {name for one in node.body for name in _given(one)} if isinstance(node, ast.If) else set()
        first = _read_before(node.body, own - given) if isinstance(node, ast.If) else False
        if first or (reads & named) - given - own:
            return True
        given |= _given(node)
    return False


def _is_apart(loop: ast.For, name: str, row: str, step: ast.expr | None) -> bool:
    """Whether turns use different parts of a reference: ``x[row : row + S, ...]`` or ``x[..., row, ...]``."""
    uses = [one for one in ast.walk(loop) if isinstance(one, ast.Name) and one.id == name]
    found = [one for one in ast.walk(loop) if isinstance(one, ast.Subscript) and one.value in uses]
    kinds = [one for one in ast.walk(loop) if isinstance(one, ast.Attribute) and one.value in uses]
    if len(found) + len(kinds) != len(uses) or not all(one.attr in ("dtype", "shape") for one in kinds):
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


def _tiled(kernel: Kernel, called: str) -> _Tiled | None:
    """The function of that name, if it does nothing but run tiles in stages."""
    for node in ast.walk(kernel.body):
        if not (isinstance(node, ast.FunctionDef) and node.name == called and node.args.args):
            continue
        match node.body:
            case [
                *waits,
                ast.FunctionDef(args=ast.arguments(args=[_])) as tile,
                ast.Expr(
                    value=ast.Call(
                        args=[ast.ListComp(elt=ast.Call(func=ast.Name(id=name)), generators=[one]) as tasks, _]
                    )
                ),
            ] if name == tile.name and isinstance(one.target, ast.Name) and not one.ifs:
                stages = _yielded(tile.body)
                plain = len(stages) > 1 and all(isinstance(one, ast.Expr) for one in waits)
                return _Tiled(function=node, tile=tile, tasks=tasks, waits=waits) if plain else None
    return None


# --- changes ---


def _driver(kernel: Kernel, wanted: tuple[str, str], constant: str = "") -> tuple[str, set[Change]]:
    """The name of the function that runs stages, and what puts it and a constant above the kernel's."""
    name, text = wanted
    known = kernel.file.functions.get(name)
    if known is not None and ast.unparse(known) == ast.unparse(ast.parse(text.format(name))):
        return name, {_above(kernel, constant)} if constant else set()
    name = free_name(kernel.file, name)
    return name, {_above(kernel, constant + ("\n\n" if constant else "") + text.format(name))}


def _above(kernel: Kernel, text: str) -> Change:
    """Text above the kernel's function."""
    at = kernel.file.line_start(first_line(kernel.body))
    return Change(start=at, end=at, text=text if text.endswith("\n\n\n") else f"{text}\n\n")


def _yields(file: File, stages: Stages) -> set[Change]:
    """``yield`` between stages."""
    heads = [stage[0] for stage in stages[1:]]
    starts = [(file.line_start(first_line(node)), " " * node.col_offset) for node in heads]
    return {Change(start=at, end=at, text=f"{margin}yield\n") for at, margin in starts}


def _behind(file: File, node: ast.stmt, text: str) -> Change:
    end = file.span(node)[1]
    return Change(start=end, end=end, text=text)


def _named(file: File, parameter: ast.arg, name: str) -> Change:
    """A parameter under another name."""
    start = file.line_start(parameter.lineno) + parameter.col_offset
    return Change(start=start, end=start + len(parameter.arg.encode()), text=name)


def _parameter(file: File, function: ast.FunctionDef, name: str) -> Change:
    """One more parameter, before the others."""
    one = function.args.args[0]
    start = file.line_start(one.lineno) + one.col_offset
    return Change(start=start, end=start, text=f"{name}, ")
