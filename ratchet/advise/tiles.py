"""Blocks made larger or smaller: constants that divide a grid or step a loop, changed by a power of two. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.advise.advice import Edit, Rewrite
from ratchet.kernelfile.program import Kernel, is_call, kernels, keyword
from ratchet.kernelfile.syntax import File, assigned_once, changed

FACTORS = (2, 4)
_LEAST = 1


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


def tiles(file: File) -> tuple[Tile, ...]:
    """What may be tuned: no constant that the problem needs, and none that only some arithmetic uses."""
    found: dict[tuple[int, int], Tile] = {}
    frozen = file.frozen | _made(file)
    for of_grid, node in _sides(file):
        for name, value in _literals(file, node, frozen):
            number = file.number(value)
            if number is None or number < _LEAST:
                continue
            where = file.span(value)
            before = found.get(where)
            found[where] = Tile(
                name=before.name if before else name,
                value=number,
                node=value,
                of_grid=of_grid or bool(before and before.of_grid),
            )
    return tuple(found.values())


def _made(file: File) -> frozenset[str]:
    """What the shapes of outputs need, which is the problem's as well."""
    shapes = [keyword(kernel.call, "out_shape") for kernel in kernels(file)]
    names = {one.id for node in shapes if node is not None for one in ast.walk(node) if isinstance(one, ast.Name)}
    return file.needed_by(names)


def rewrites(file: File) -> Iterator[Rewrite]:
    """Every tile twice and four times as large, and half."""
    for tile in tiles(file):
        for factor in (*FACTORS, 1 / FACTORS[0]):
            wanted = int(tile.value * factor)
            if wanted < _LEAST or wanted == tile.value:
                continue
            after = changed(file.source, [file.replaced(tile.node, str(wanted))])
            if _fits(file, File.of(after, file.name)):
                yield Rewrite(
                    edit=Edit.LARGER if factor > 1 else Edit.SMALLER,
                    after=after,
                    lines=(),
                    subject=tile.name,
                    point={tile.name: wanted},
                    factor=factor if tile.of_grid else 1 + (factor - 1) / 4,
                )


def _sides(file: File) -> Iterator[tuple[bool, ast.expr]]:
    """Expressions of which blocks are made: divisors of a grid, sides of blocks, steps of loops."""
    for kernel in kernels(file):
        for node in (*kernel.grid, *_needed(kernel, kernel.grid)):
            yield from ((True, divisor) for divisor in _divisors(node))
        for ref in kernel.refs:
            if ref.role != "scratch":
                yield from ((True, side) for side in ref.block or ())
        for one in ast.walk(kernel.body):
            if isinstance(one, ast.For) and isinstance(one.iter, ast.Call) and is_call(one.iter, "range"):
                yield from ((False, step) for step in one.iter.args[2:])
            if isinstance(one, ast.Call) and is_call(one, "loop", "fori_loop"):
                yield from ((False, divisor) for bound in one.args[:2] for divisor in _divisors(bound))


def _needed(kernel: Kernel, nodes: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """What names in the grid were given, in its host and at the top level."""
    local = assigned_once(kernel.host.body)
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, ast.Name):
                value = local.get(one.id, kernel.file.assigned.get(one.id))
                if value is not None:
                    yield value


def _divisors(node: ast.expr) -> Iterator[ast.expr]:
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv):
            yield one.right
        if is_call(one, "cdiv") and isinstance(one, ast.Call) and len(one.args) == 2:
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
    old, new = _quotients(before), _quotients(after)
    return len(old) == len(new) and all(
        (was is None or now is not None) and not (was == 0 and now != 0) for was, now in zip(old, new, strict=True)
    )


def _quotients(file: File) -> list[int | None]:
    """The rest of each division between constants; None where it has no value, or the quotient is zero."""
    rests: list[int | None] = []
    for node in ast.walk(file.tree):
        pair: tuple[ast.expr, ast.expr] | None = None
        match node:
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                pair = left, right
            case ast.Call(args=[_, end, step]) if is_call(node, "range"):
                pair = end, step
        if pair is None:
            continue
        whole, part = (file.number(one) for one in pair)
        known = whole is not None and part is not None and part > 0 and whole >= part
        rests.append(whole % part if known and whole is not None and part is not None else None)
    return rests
