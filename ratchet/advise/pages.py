"""Several steps of the last grid dimension in one, where what they read is not in a row: pages of a table. Pure.

A page is as small as the cache's allocator wants it, and a step that reads one waits for its copy longer than it works.
The same array is given several times, each with an index map of its own, so that a step has several copies under way
(JAX's paged attention copies ``pages_per_compute_block`` of them).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import free_name, indented, made, movable, places
from ratchet.advise.resident import Walk, when
from ratchet.kernelfile.program import Kernel, Ref, keyword, num_programs, parts, program_id
from ratchet.kernelfile.syntax import Change, lines_of, names_in

_AT_ONCE = (2, 4, 8)


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """A last dimension that inputs alone walk, one of them by more than its own number."""
    if not kernel.refs or len(kernel.grid) != len(parts(kernel.grid_node)):
        return
    last = len(kernel.grid) - 1
    walked = [ref for ref in kernel.refs if ref.index is not None and _last(kernel, ref) in names_in(ref.index.body)]
    gathers = any(not isinstance(one, ast.Name) for ref in walked for one in _using(kernel, ref))
    asks = [name for node in kernel.body.body for name, at in places(node) if at == last]
    asked = sum(program_id(node) == last for node in ast.walk(kernel.body))
    alone = all(ref.role == "in" and ref.block is not None for ref in walked) and not (asks and asked > 1)
    if walked and gathers and alone and asked and keyword(kernel.call, "input_output_aliases") is None:
        walk = Walk(kernel=kernel, walked={ref.name: 0 for ref in walked}, name=asks[0] if asks else "")
        for times in _AT_ONCE:
            if (kernel.number(walk.length) or 1) % times == 0:
                yield from _several(walk, walked, times)


def _last(kernel: Kernel, ref: Ref) -> str:
    """What an index map calls its place in the last dimension."""
    names = [one.arg for one in ref.index.args.args] if ref.index is not None else []
    return names[len(kernel.grid) - 1] if len(names) >= len(kernel.grid) else ""


def _using(kernel: Kernel, ref: Ref) -> list[ast.expr]:
    sides = parts(ref.index.body) if ref.index is not None else []
    return [one for one in sides if _last(kernel, ref) in names_in(one)]


def _several(walk: Walk, walked: Sequence[Ref], times: int) -> Iterator[Rewrite]:
    kernel, file = walk.kernel, walk.kernel.file
    inside, ends = _inside(walk)
    operands = _operands(kernel)
    specs = keyword(kernel.settings, "in_specs")
    if inside is None or operands is None or not isinstance(specs, ast.List | ast.Tuple) or len(kernel.grid) < 1:
        return
    names = [ref.name for ref in walked]
    loose = any(names_in(node) & set(names) for node in ends)
    counts = any(num_programs(one) == walk.last for node in inside for one in ast.walk(node))
    if loose or counts or not movable(file, *inside):
        return
    inputs = [ref for ref in kernel.refs if ref.role in ("scalar", "in")]
    scalars = sum(ref.role == "scalar" for ref in inputs)
    changes = {file.replaced(walk.length, f"{_factor(walk)} // {times}"), *_counted(walk, ends, times)}
    more = {name: [free_name(file, f"{name}_{number}") for number in range(1, times)] for name in names}
    for ref in walked:
        assert ref.index is not None
        changes |= _index(kernel, ref, times, 0)
        at = inputs.index(ref)
        spec, operand = specs.elts[at - scalars], operands[at]
        texts = [file.text(ref.spec, _index(kernel, ref, times, number)) for number in range(1, times)]
        changes |= {
            _behind(kernel, spec, "".join(f", {text}" for text in texts)),
            _behind(kernel, operand, f", {file.text(operand)}" * (times - 1)),
            _behind_parameter(kernel, ref.name, "".join(f", {one}" for one in more[ref.name])),
        }
    changes |= _loop(walk, inside, names, more, times)
    yield from made(
        file, Edit.PAGES, changes, lines=lines_of(*inside), subject=f"{', '.join(names)}, {times}", factor=times
    )


def _factor(walk: Walk) -> str:
    text = walk.kernel.file.text(walk.length)
    return text if isinstance(walk.length, ast.Name | ast.Constant | ast.Call) else f"({text})"


def _inside(walk: Walk) -> tuple[list[ast.stmt] | None, list[ast.stmt]]:
    """Statements of every step, in one row, and those of the first and the last step."""
    ends = [node for node in walk.kernel.body.body if when(walk, node)]
    texts = [
        node for node in walk.kernel.body.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    inside = [one for one in walk.kernel.body.body if one not in ends and one not in texts and not places(one)]
    body = walk.kernel.body.body
    together = inside and body.index(inside[-1]) - body.index(inside[0]) + 1 == len(inside)
    plain = all(map(_is_plain, inside))
    named = {name for one in inside for name in names_in(one, ast.Store)}
    used = any(named & (names_in(one, ast.Load) - names_in(one, ast.Store)) for one in ends)
    return (inside if together and plain and not used else None), ends


def _is_plain(node: ast.stmt) -> bool:
    """Assignments, and what tiles in stages are written as."""
    runs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
    defines = isinstance(node, ast.FunctionDef) and not node.decorator_list
    tiles = isinstance(node, ast.For) and isinstance(node.target, ast.Name)  # of pages it is a tuple: they are taken
    return runs or defines or tiles or isinstance(node, ast.Assign | ast.AugAssign)


def _counted(walk: Walk, ends: Sequence[ast.stmt], times: int) -> Iterator[Change]:
    """``page == PAGES - 1`` of the last step with fewer steps."""
    for node in ends:
        for one in ast.walk(node):
            match one:
                case ast.Compare(left=left, comparators=[ast.BinOp(left=count, op=ast.Sub())]) if walk.is_index(left):
                    if num_programs(count) is None:
                        yield walk.kernel.file.replaced(count, f"{_factor(walk)} // {times}")


def _index(kernel: Kernel, ref: Ref, times: int, number: int) -> set[Change]:
    """An index map of one of several pages."""
    assert ref.index is not None
    last = _last(kernel, ref)
    place = f"{last} * {times} + {number}" if number else f"{last} * {times}"
    names = [one for one in ast.walk(ref.index.body) if isinstance(one, ast.Name) and one.id == last]
    sides = parts(ref.index.body)
    return {kernel.file.replaced(one, place if one in sides or _indexes(sides, one) else f"({place})") for one in names}


def _indexes(sides: Sequence[ast.expr], name: ast.Name) -> bool:
    """Whether a name is an index by itself: ``table[b, p]``."""
    subscripts = [one for side in sides for one in ast.walk(side) if isinstance(one, ast.Subscript)]
    return any(one is name for node in subscripts for one in parts(node.slice))


def _operands(kernel: Kernel) -> list[ast.expr] | None:
    """What the call is given."""
    for node in ast.walk(kernel.host):
        if isinstance(node, ast.Call) and node.func is kernel.call:
            inputs = sum(ref.role in ("scalar", "in") for ref in kernel.refs)
            starred = any(isinstance(one, ast.Starred) for one in node.args)
            return node.args if len(node.args) == inputs and not starred and not node.keywords else None
    return None


def _behind(kernel: Kernel, node: ast.expr, text: str) -> Change:
    end = kernel.file.span(node)[1]
    return Change(start=end, end=end, text=text)


def _behind_parameter(kernel: Kernel, name: str, text: str) -> Change:
    (one,) = (one for one in kernel.body.args.args if one.arg == name)
    end = kernel.file.line_start(one.lineno) + one.col_offset + len(name.encode())
    return Change(start=end, end=end, text=text)


def _loop(
    walk: Walk, inside: Sequence[ast.stmt], names: Sequence[str], more: dict[str, list[str]], times: int
) -> set[Change]:
    """The statements of a step once for each page."""
    file, margin, number = walk.kernel.file, " " * inside[0].col_offset, free_name(walk.kernel.file, "number")
    each = [", ".join([str(at), *(name if not at else more[name][at - 1] for name in names)]) for at in range(times)]
    rows = ", ".join(f"({one})" for one in each)
    changes = indented(file, inside, f"{margin}for {number}, {', '.join(names)} in ({rows}):\n")
    for node in inside:
        for one in ast.walk(node):
            if isinstance(one, ast.expr) and walk.is_index(one):
                changes.add(file.replaced(one, f"({file.text(one)} * {times} + {number})"))
    return changes
