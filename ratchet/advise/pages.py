"""Several steps of the last grid dimension in one, where what they read is not in a row: pages of a table. Pure.

A page is as small as the cache's allocator wants it, and a step that reads one waits for its copy longer than it works.
The same array is given several times, each with an index map of its own, so that a step has several copies under way
(JAX's paged attention copies ``pages_per_compute_block`` of them).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import claims, free_name, indented, made
from ratchet.advise.resident import Walk, order
from ratchet.kernelfile.program import Kernel, Ref, keyword, num_programs, parts
from ratchet.kernelfile.syntax import Change, lines_of, names_in

_AT_ONCE = (2, 4, 8)


def rewrites(kernel: Kernel) -> Iterator[Rewrite]:
    """A last dimension that inputs alone walk, one of them by more than its own number."""
    last = len(kernel.grid) - 1
    walked = [ref for ref in kernel.refs if ref.walked_by(last)]
    gathers = any(ref.side(last) == -1 for ref in walked)
    alone = all(ref.role == "in" and ref.block is not None and not ref.shared for ref in walked)
    copied = all(ref.index in list(ast.walk(ref.spec)) for ref in walked)
    known = copied and kernel.grid_is_written and all(ref.axes is not None for ref in kernel.refs)
    if gathers and alone and known and keyword(kernel.call, "input_output_aliases") is None:
        walk = Walk.of(kernel, {ref.name: 0 for ref in walked})
        for times in _AT_ONCE if walk is not None else ():
            if walk is not None and (kernel.number(walk.length) or 1) % times == 0:
                yield from _several(walk, walked, times)


def _several(walk: Walk, walked: Sequence[Ref], times: int) -> Iterator[Rewrite]:
    kernel, file = walk.kernel, walk.kernel.file
    found, specs = order(walk), keyword(kernel.settings, "in_specs")
    names = [ref.name for ref in walked]
    if found is None or kernel.operands is None or not isinstance(specs, ast.List | ast.Tuple):
        return
    ends, inside = (*found.first, *found.last), found.inside
    if any(names_in(node) & set(names) for node in ends) or not all(map(_is_plain, inside)):
        return
    inputs = [ref for ref in kernel.refs if ref.role == "in"]
    parameters = {one.arg: one for one in kernel.body.args.args}
    lengths = [walk.length, *(said.elts[walk.last] for said in claims(kernel))]
    changes = {file.replaced(one, f"{file.term(one)} // {times}") for one in lengths} | set(_counted(walk, ends, times))
    more = {name: [free_name(file, f"{name}_{number}") for number in range(1, times)] for name in names}
    for ref in walked:
        changes |= _index(kernel, ref, times, 0)
        spec, operand = specs.elts[inputs.index(ref)], kernel.operands[ref.name]
        texts = [file.text(ref.spec, _index(kernel, ref, times, number)) for number in range(1, times)]
        changes |= {
            file.behind(spec, "".join(f", {text}" for text in texts)),
            file.behind(operand, f", {file.text(operand)}" * (times - 1)),
            file.behind(parameters[ref.name], "".join(f", {one}" for one in more[ref.name])),
        }
    changes |= _loop(walk, inside, names, more, times)
    yield from made(
        file, Edit.PAGES, changes, lines=lines_of(*inside), subject=f"{', '.join(names)}, {times}", factor=times
    )


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
                        yield walk.kernel.file.replaced(count, f"{walk.kernel.file.term(count)} // {times}")


def _index(kernel: Kernel, ref: Ref, times: int, number: int) -> set[Change]:
    """An index map of one of several pages."""
    assert ref.index is not None
    last = ref.index.args.args[len(kernel.grid) - 1].arg
    place = f"{last} * {times} + {number}" if number else f"{last} * {times}"
    names = [one for one in ast.walk(ref.index.body) if isinstance(one, ast.Name) and one.id == last]
    sides = parts(ref.index.body)
    return {kernel.file.replaced(one, place if one in sides or _indexes(sides, one) else f"({place})") for one in names}


def _indexes(sides: Sequence[ast.expr], name: ast.Name) -> bool:
    """Whether a name is an index by itself: ``table[b, p]``."""
    subscripts = [one for side in sides for one in ast.walk(side) if isinstance(one, ast.Subscript)]
    return any(one is name for node in subscripts for one in parts(node.slice))


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
