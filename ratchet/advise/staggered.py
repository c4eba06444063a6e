"""Products ahead of what uses them: a loop's turn in stages, several tiles or turns of it under way at a time. Pure.

The compiler keeps the order of products and fits the rest around them. A turn that multiplies, works on the result and
multiplies again leaves the matrix units idle in between; where the first product of the next tile stands before the
second one of this tile, vector and matrix units work at the same time (FlashAttention-3's order).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import INDENT, free_name, made, movable
from ratchet.advise.stages import Stages, in_order, independent, is_plain, loop_end, stages_of, stored, yielded
from ratchet.kernelfile.program import PRODUCTS, REDUCTIONS, Kernel, calls, is_call, kernels
from ratchet.kernelfile.shapes import LANES
from ratchet.kernelfile.syntax import Change, File, changed, first_line, lines_of, names_in, tree

_AT_ONCE = (2, 4)
"""Turns of a loop that are one afterwards: a constant of the file, which larger blocks double."""
_MOST_ABREAST = 32
_PARTS = (1, 2, 4)
"""Of the strips of half a block that ``tiles`` makes."""
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


def rewrites(kernel: Kernel, others: Sequence[Rewrite]) -> Iterator[Rewrite]:
    """Loops over tiles in stages; loops with products whose turns overlap; several turns of what is in stages.

    Turns are joined where no triangle is left to cut, which is the larger gain and is not seen in joined ones.

    Args:
      others: of the other patterns; those in strips are put in stages here.
    """
    whole = not any(one.edit is Edit.TRIANGLE for one in others)
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.For):
            yield from _tiles(kernel, node)
        if isinstance(node, ast.FunctionDef) and (end := loop_end(kernel, node)) is not None:
            yield from _turns(kernel, node, end)
            yield from _joined(kernel, node, end) if whole else ()
    for strips in others:
        if strips.edit is Edit.STRIPS:
            yield from _strips(kernel, strips)


def _strips(kernel: Kernel, strips: Rewrite) -> Iterator[Rewrite]:
    """A block in strips of its rows, and these in stages: strips alone have nothing to do meanwhile."""
    file = File.of(strips.after, kernel.file.name)
    (length,) = set(file.assigned) - set(kernel.file.assigned)
    rows = file.number(file.assigned[length]) or 0
    for parts in _PARTS:
        if rows % parts or rows // parts < LANES:
            continue
        smaller = File.of(changed(file.source, [file.replaced(file.assigned[length], str(rows // parts))]), file.name)
        for other in kernels(smaller):
            loops = [
                node for node in ast.walk(other.body) if isinstance(node, ast.For) and length in names_in(node.iter)
            ]
            for one in (one for node in loops for one in _tiles(other, node) if one.edit is Edit.STAGGER):
                yield replace(one, lines=strips.lines, subject=f"{strips.subject} in strips of {rows // parts} rows")


def _tiles(kernel: Kernel, loop: ast.For) -> Iterator[Rewrite]:
    """``for row in range(0, N, S)`` as a function of the row that yields between stages."""
    body = loop.body
    if not isinstance(loop.target, ast.Name) or not is_call(loop.iter, "range") or loop.orelse:
        return
    if not independent(kernel, loop, loop.target.id) or not movable(kernel.file, loop, *body):
        return
    if in_order(kernel, stages := stages_of(body)):
        yield from _in_stages(kernel, loop, loop.target.id, Edit.STAGGER, stages)
    stages = [[node] for node in body]
    few = _takes_few(kernel, loop.iter)
    if few and calls(loop, *PRODUCTS, *REDUCTIONS) and len(stages) > 1 and all(map(is_plain, body)):
        yield from _in_stages(kernel, loop, loop.target.id, Edit.ABREAST, stages)


def _takes_few(kernel: Kernel, counted: ast.Call) -> bool:
    """Whether a ``range`` has more than one turn, and no more than may be alive at once."""
    known = [number for one in counted.args if (number := kernel.file.number(one)) is not None]
    if len(known) != len(counted.args) or not 1 <= len(known) <= 3 or known[2:] == [0]:
        return False
    return 1 < len(range(*known)[: _MOST_ABREAST + 1]) <= _MOST_ABREAST


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
        file.behind(loop, f"\n\n{margin}{driver}({tasks}, {len(stages)})"),
    }
    subject = ", ".join(sorted(stored(loop.body)))
    yield from made(file, edit, changes, lines=lines_of(*loop.body), subject=subject)


def _turns(kernel: Kernel, loop: ast.FunctionDef, end: ast.expr) -> Iterator[Rewrite]:
    """``@pl.loop(0, N)`` over statements with products: several turns at once, each a stage behind another."""
    file, stages = kernel.file, stages_of(loop.body)
    if not in_order(kernel, stages) or not movable(file, loop, *loop.body) or file.pallas is None:
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
            file.behind(loop, "\n\n" + _loops(kernel, loop, end, constant, many, one)),
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
    if not alone or not in_order(kernel, yielded(found.tile.body)) or not movable(file, loop) or file.pallas is None:
        return
    counted = _counted(kernel, found, [one for one in sites if id(one) not in inside])
    turns, more = free_name(file, "turns"), "".join(f", {file.text(one)}" for one in rest)
    at, element = file.span(found.tasks.generators[0].target)[0] - len("for "), found.tasks.elt
    assert isinstance(element, ast.Call)
    first, taken = file.span(element.func)[1] + 1, {id(one) for one in ast.walk(counted.site)} if counted else set()
    numbers, listed = (f"{counted.name}, {parameter.arg}", f"enumerate({turns})") if counted else (parameter.arg, turns)
    changes = {
        file.replaced(parameter, turns),
        file.before(found.tile.args.args[0], f"{numbers}, "),
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
                stages = yielded(tile.body)
                plain = len(stages) > 1 and all(isinstance(one, ast.Expr) for one in waits)
                return _Tiled(function=node, tile=tile, tasks=tasks, waits=waits) if plain else None
    return None


# --- changes ---


def _driver(kernel: Kernel, wanted: tuple[str, str], constant: str = "") -> tuple[str, set[Change]]:
    """The name of the function that runs stages, and what puts it and a constant above the kernel's."""
    name, text = wanted
    known = kernel.file.functions.get(name)
    if known is not None and ast.unparse(known) == ast.unparse(tree(text.format(name))):
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
