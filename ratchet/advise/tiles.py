"""Blocks larger or smaller, in strips of their rows, and under a higher limit of VMEM; loops unrolled. Pure.

Strips have fewer values alive at once, and chains that do not wait for each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.pattern import added, free_name, indented, made, movable
from ratchet.advise.stages import without_waits
from ratchet.kernelfile.program import PRODUCTS, Kernel, calls, is_call, is_part, is_whole, kernels, keyword
from ratchet.kernelfile.shapes import Shapes
from ratchet.kernelfile.syntax import Change, File, changed, first_line, lines_of, names_in

FACTORS = (2, 4)
LIMIT = "100 << 20"
"""Bytes of VMEM: most of a v5e's 128 MiB, where the compiler gives 16 unless asked."""
_LEAST_ROWS = 16
_ROWS_APART = (
    *PRODUCTS, "exp", "exp2", "log", "maximum", "minimum", "where", "max", "sum", "min", "mean", "astype", "abs",
    "broadcasted_iota", "tile", "ds", "multiple_of", "range", "sqrt", "rsqrt", "tanh", "program_id",
)  # fmt: skip
"""What treats every row alike, where it goes along the last axis."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """An integer at the top level that a block's side follows from."""

    name: str
    """``BQ``, or ``BLOCK[0]``."""
    value: int
    node: ast.expr
    """Where it is written."""
    of_grid: bool
    """Whether the number of grid steps follows from it."""


def rewrites(file: File) -> Iterator[Rewrite]:
    """Every tile twice and four times as large, and half."""
    for tile in tiles(file):
        for factor in (*FACTORS, 1 / FACTORS[0]):
            wanted = int(tile.value * factor)
            if not wanted:
                continue
            for one in made(
                file,
                Edit.LARGER if factor > 1 else Edit.SMALLER,
                [file.replaced(tile.node, str(wanted))],
                subject=tile.name,
                point={tile.name: wanted},
                factor=factor if tile.of_grid else 1 + (factor - 1) / 4,
            ):
                if _fits(file, File.of(one.after, file.name)):
                    yield one


def unrolled(kernel: Kernel) -> Iterator[Rewrite]:
    """Loops of a known length unrolled."""
    file = kernel.file
    for node in calls(kernel.body, "loop", "fori_loop"):
        first, end = (file.number(one) for one in node.args[:2]) if len(node.args) >= 2 else (None, None)
        if first is None or end is None or keyword(node, "unroll") is not None:
            continue
        for times in FACTORS:
            if end - first > times and (end - first) % times == 0:
                changes = [added(file, node, f"unroll={times}")]
                subject = file.text(node.args[1])
                yield from made(file, Edit.UNROLL, changes, lines=lines_of(node), subject=subject, factor=times)


def with_limit(kernel: Kernel) -> set[Change] | None:
    """A higher limit of VMEM, unless one is set already; None where the call cannot be given one."""
    file, limit = kernel.file, f"vmem_limit_bytes={LIMIT}"
    written = keyword(kernel.call, "compiler_params")
    if written is None and file.tpu is not None:
        return {added(file, kernel.call, f"compiler_params={file.tpu}.CompilerParams({limit})")}
    if not isinstance(written, ast.Call):
        return None
    return {added(file, written, limit)} if keyword(written, "vmem_limit_bytes") is None else set()


def raised(rewrite: Rewrite, name: str) -> Rewrite | None:
    """A larger block under a higher limit of VMEM; None for another edit, and where no kernel can be given one."""
    if rewrite.edit is not Edit.LARGER:
        return None
    file = File.of(rewrite.after, name)
    changes = {one for kernel in kernels(file) for one in with_limit(kernel) or ()}
    return replace(rewrite, edit=Edit.VMEM, after=changed(file.source, changes)) if changes else None


def tiles(file: File) -> tuple[Tile, ...]:
    """What may be tuned: no constant that the problem or an output needs, and none that only some arithmetic uses."""
    never = fixed(file)
    found: dict[tuple[int, int], Tile] = {}
    for of_grid, node in _sides(file):
        for name, value in _literals(file, node, never):
            number, where = file.number(value), file.span(value)
            if number is not None and number > 0:
                before = found.get(where, Tile(name=name, value=number, node=value, of_grid=False))
                found[where] = replace(before, of_grid=of_grid or before.of_grid)
    return tuple(found.values())


def fixed(file: File) -> frozenset[str]:
    """Names of the top level that the problem or an output needs."""
    shapes = [keyword(kernel.call, "out_shape") for kernel in kernels(file)]
    return file.frozen | file.needed_by({name for node in shapes if node is not None for name in names_in(node)})


def _sides(file: File) -> Iterator[tuple[bool, ast.expr]]:
    """Expressions of which blocks are made: divisors of a grid, sides of blocks, steps of loops."""
    for kernel in kernels(file):
        for node in (*kernel.grid, *_needed(kernel)):
            yield from ((True, divisor) for divisor in _divisors(node))
        for ref in kernel.refs:
            if ref.role != "scratch":
                yield from ((True, side) for side in ref.block or ())
        for one in ast.walk(kernel.body):
            if isinstance(one, ast.For | ast.comprehension) and is_call(one.iter, "range"):
                yield from ((False, step) for step in one.iter.args[2:])
            if is_call(one, "loop", "fori_loop"):
                yield from ((False, divisor) for bound in one.args[:2] for divisor in _divisors(bound))


def _needed(kernel: Kernel) -> Iterator[ast.expr]:
    """What names in the grid were given, in its host and at the top level."""
    given = {**kernel.file.assigned, **kernel.local}
    for node in kernel.grid:
        yield from (given[one.id] for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in given)


def _divisors(node: ast.expr) -> Iterator[ast.expr]:
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv):
            yield one.right
        if is_call(one, "cdiv") and len(one.args) == 2:
            yield one.args[1]


def _literals(file: File, node: ast.expr, frozen: frozenset[str]) -> Iterator[tuple[str, ast.expr]]:
    """The integers of the top level that an expression follows from and the problem does not."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as at)):
            whole = file.assigned.get(name)
            if name not in frozen and isinstance(whole, ast.Tuple) and -len(whole.elts) <= at < len(whole.elts):
                yield from _written(f"{name}[{at}]", whole.elts[at])
        case ast.Name(id=name):
            value = file.assigned.get(name)
            if name in frozen or value is None:
                return
            if isinstance(value, ast.Tuple):
                for at, one in enumerate(value.elts):
                    yield from _written(f"{name}[{at}]", one)
            elif isinstance(value, ast.Constant):
                yield from _written(name, value)
            else:
                yield from _literals(file, value, frozen)
        case ast.BinOp():
            yield from _literals(file, node.left, frozen)
            yield from _literals(file, node.right, frozen)


def _written(name: str, node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield name, node


def _fits(before: File, after: File) -> bool:
    """Whether everything that was divided without a rest still is, and no step is longer than its range."""
    old, new = list(_rests(before)), list(_rests(after))
    return len(old) == len(new) and all(
        (was is None or now is not None) and not (was == 0 and now != 0) for was, now in zip(old, new, strict=True)
    )


def _rests(file: File) -> Iterator[int | None]:
    """The rest of each division between constants; None where it has no value, or the quotient is zero."""
    for node in ast.walk(file.tree):
        match node:
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                whole, part = file.number(left), file.number(right)
            case ast.Call(args=[_, end, step]) if is_call(node, "range"):
                whole, part = file.number(end), file.number(step)
            case _:
                continue
        yield whole % part if whole is not None and part is not None and whole >= part > 0 else None


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A function whose values all have the rows of one block, or none of them."""

    kernel: Kernel
    function: ast.FunctionDef
    rows: ast.expr
    """The side, as the output's block has it."""
    shapes: Shapes

    @property
    def side(self) -> str:
        return ast.unparse(self.rows)

    @cached_property
    def refs(self) -> list[str]:
        """References that have all rows of the block."""
        blocks = {ref.name: ref.block for ref in self.kernel.refs}
        return [
            name for name, block in blocks.items() if block and len(block) == 2 and ast.unparse(block[0]) == self.side
        ]

    @cached_property
    def body(self) -> list[ast.stmt]:
        """Its statements behind calls that it begins with, such as waits for what it reads."""
        return without_waits(self.function)

    def nodes(self) -> Iterator[ast.AST]:
        """Of these statements."""
        return (node for statement in self.body for node in ast.walk(statement))


def strips(kernel: Kernel) -> Iterator[Rewrite]:
    """Functions with products of matrices, their rows in two strips."""
    sides = {ast.unparse(ref.block[0]): ref.block[0] for ref in kernel.refs if ref.role == "out" and ref.block}
    if len(sides) == 1:
        (rows,), shapes = sides.values(), Shapes.read(kernel)
        for function in _innermost(kernel):
            yield from _stripped(_Block(kernel=kernel, function=function, rows=rows, shapes=shapes))


def _innermost(kernel: Kernel) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(kernel.body):
        if isinstance(node, ast.FunctionDef) and node is not kernel.body:
            inner = any(isinstance(one, ast.FunctionDef | ast.For) and one is not node for one in ast.walk(node))
            if not inner and calls(node, *PRODUCTS):
                yield node


def _stripped(block: _Block) -> Iterator[Rewrite]:
    kernel, file, function = block.kernel, block.kernel.file, block.function
    rows = kernel.number(block.rows)
    if rows is None or rows % 2 or rows // 2 < _LEAST_ROWS or not kernel.known(block.rows):
        return
    if not block.body or not movable(file, *block.body) or not _apart(block):
        return
    length, at = free_name(file, "STRIP"), free_name(file, "row")
    margin = " " * block.body[0].col_offset
    changes = indented(file, block.body, f"{margin}for {at} in range(0, {block.side}, {length}):\n")
    for node in block.nodes():
        changes |= _of_strip(block, node, at, length)
    top = file.line_start(first_line(kernel.body))
    changes.add(Change(start=top, end=top, text=f"{length} = {rows // 2}\n\n\n"))
    yield from made(file, Edit.STRIPS, changes, lines=lines_of(*block.body), subject=function.name, factor=2.0)


def _of_strip(block: _Block, node: ast.AST, at: str, length: str) -> set[Change]:
    """One node, where it has all rows of the block, with those of a strip."""
    file = block.kernel.file
    if is_part(node, block.refs):
        return {file.replaced(node, f"{ast.unparse(node.value)}[{at} : {at} + {length}, :]")}
    if not (is_call(node, "broadcasted_iota") and len(node.args) == 3):
        return set()
    shape = node.args[1]
    changes = {file.replaced(shape.elts[0], length)} if isinstance(shape, ast.Tuple) else set()
    if file.number(node.args[2]) == 0:
        start, end = file.span(node)
        changes |= {Change(start=start, end=start, text=f"({at} + "), Change(start=end, end=end, text=")")}
    return changes


def _apart(block: _Block) -> bool:
    """Whether no row of the block needs another, and something is stored of it."""
    stored = [node for node in block.nodes() if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    return all(_is_apart(block, node) for node in block.nodes()) and any(is_part(one, block.refs) for one in stored)


def _is_apart(block: _Block, node: ast.AST) -> bool:
    match node:
        case ast.Call():
            along = not is_call(node, "max", "sum", "min", "mean") or _along_rows(node)
            return is_call(node, *_ROWS_APART) and along and (not is_call(node, *PRODUCTS) or _keeps_rows(block, node))
        case ast.Subscript():
            return is_whole(node, block.refs) if is_part(node, block.refs) else not isinstance(node.ctx, ast.Store)
    return not isinstance(node, ast.MatMult | ast.Return | ast.Lambda)


def _along_rows(node: ast.Call) -> bool:
    """Of a reduction; the ``sum`` of Python's has none of its own and adds what is alike."""
    if isinstance(node.func, ast.Name):
        return True
    axis = keyword(node, "axis")
    return axis is not None and ast.unparse(axis) in ("1", "-1") and keyword(node, "keepdims") is not None


def _keeps_rows(block: _Block, node: ast.Call) -> bool:
    """Whether the rows of a product are the block's and none of its sums goes along them."""
    if len(node.args) < 2:
        return False
    left, right, product = (block.shapes.of(one) for one in (*node.args[:2], node))
    if left is None or right is None or product is None:
        return False
    return left.sides[0] == block.side == product.sides[0] and block.side not in right.sides
