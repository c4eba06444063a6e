"""Unrolled loops, found again: operations of a block that repeat with other constants or other outer scalars.

A kernel that starts its copies in a Python loop holds the body of that loop once for every copy, and XLA compiles
each: a minute for some hundred copies. Executed as a loop they compile once. Only what moves data and what leads to it
is looked at; pure functions of a block. ``Options.fast`` is the switch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mosaic.rules import DMA_OPS, TERMINATORS, VIEW_OPS, is_remote

FEWEST = 4
"""Iterations that are worth a loop."""
_DISTANCES = 8
"""How many copies that may be in each other's place an iteration may have."""
_CONSTANT = "arith.constant"
_NEVER = -1
"""The label of what is in no loop."""

Bound = dict[Value, Value]
"""The values of one iteration that are in the place of those of the first."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Operations beside each other that are iterations of one loop; none needs what an earlier one made."""

    iterations: tuple[tuple[Op, ...], ...]
    others: dict[Op, tuple[Op, ...]]
    """For each operation of the first iteration, nested ones too, those in its place in every iteration."""
    given: tuple[tuple[Value, ...], ...]
    """For each scalar that is another one in each iteration: its value in each."""
    constants: frozenset[Op]
    """Those of the first iteration that define some of ``given``."""
    left: tuple[tuple[Value, ...], ...]
    """For each scalar that is used behind the loop: its value in each iteration."""
    again: tuple[Op, ...]
    """Operations without effect whose results are used behind the loop."""

    @property
    def length(self) -> int:
        return len(self.iterations) * len(self.iterations[0])


_LOOPS: WeakKeyDictionary[Block, dict[int, Loop]] = WeakKeyDictionary()
"""A block is translated more than once: see ``state.Options``."""


def loops_of(block: Block) -> dict[int, Loop]:
    """The loops of a block, by the position of their first operation."""
    if block not in _LOOPS:
        _LOOPS[block] = _loops(block.operations)
    return _LOOPS[block]


def _loops(operations: Sequence[Op]) -> dict[int, Loop]:
    labels = _labels(operations)
    moving: dict[int, list[int]] = defaultdict(list)  # the places of what moves data, by label
    places = [place for place, label in enumerate(labels) if label != _NEVER and _moves(operations[place])]
    for place in places:
        moving[labels[place]].append(place)
    found, start = {}, 0
    while (next_one := bisect_left(places, start)) < len(places):
        mover = places[next_one]
        same = moving[labels[mover]]
        later = bisect_right(same, mover)
        lengths = [place - mover for place in same[later : later + _DISTANCES] if start > 2 * mover - place]
        one = next(filter(None, (_from(operations, labels, start, length) for length in lengths)), None)
        if one is not None:
            found[start] = one
        start += one.length if one is not None else 1
    return found


def _moves(op: Op) -> bool:
    return any(one.name in DMA_OPS for one in op.walk())


def _labels(operations: Sequence[Op]) -> list[int]:
    """A number for each operation, the same for those that may be in each other's place."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(_form(op), len(numbers)) if _may_repeat(op) else _NEVER for op in operations]


def _form(op: Op) -> Any:
    """What two operations have in common that may be in each other's place; where they are in the source is not it."""
    is_number = op.name == _CONSTANT and _are_scalars(op.results)
    attributes = sorted(
        (name, repr(value)) for name, value in op.attributes.items() if not is_number or name != "value"
    )
    types = tuple(value.type for value in op.operands), tuple(value.type for value in op.results)
    inner = tuple(tuple(map(_form, region.operations)) for region in op.regions)
    return op.name, tuple(attributes), types, inner


def _are_scalars(values: Iterable[Value]) -> bool:
    return all(value.type.kind == "scalar" for value in values)


def _may_repeat(op: Op) -> bool:
    if op.name in VIEW_OPS:
        return True
    if op.name in DMA_OPS:
        return not is_remote(op)
    if op.name == "scf.if":
        inner = (nested for region in op.regions for nested in region.operations)
        return _are_scalars(op.results) and all(one.name in TERMINATORS or _may_repeat(one) for one in inner)
    if op.name in ("memref.load", "tpu.assume_multiple"):
        return _are_scalars(op.results)
    return op.name.startswith("arith.") and _are_scalars((*op.operands, *op.results))


def _from(operations: Sequence[Op], labels: Sequence[int], start: int, length: int) -> Loop | None:
    """The loop that begins at ``start`` with iterations of that length, if there is one."""
    if labels[start] != labels[start + length]:
        return None
    form = labels[start : start + length]
    if _NEVER in form or labels[start + length : start + 2 * length] != form:
        return None
    iterations = [tuple(operations[start : start + length])]
    bound: list[Bound] = [{value: value for op in iterations[0] for value in _defined(op)}]
    given: list[Bound] = [{}]
    defined = set(bound[0])
    while labels[(at := start + len(iterations) * length) : at + length] == form:
        iteration = tuple(operations[at : at + length])
        same = _matched(iterations[0], iteration, defined)
        if same is None:
            break
        mine, outer = same
        iterations.append(iteration)
        bound.append(mine)
        given.append(outer)
        defined.update(mine.values())
    if len(iterations) < FEWEST:
        return None
    return _loop(operations[start + len(iterations) * length :], iterations, bound, given)


def _defined(op: Op) -> Iterator[Value]:
    for nested in op.walk():
        yield from nested.results


def _matched(first: Sequence[Op], other: Sequence[Op], before: set[Value]) -> tuple[Bound, Bound] | None:
    """What each value that the first iteration makes, or takes from before the loop, is in another iteration.

    None where that is not one value for each, or one of those that ``before`` made.
    """
    mine: Bound = {}
    outer: Bound = {}
    pairs = [pair for a, b in zip(first, other, strict=True) for pair in zip(a.walk(), b.walk(), strict=True)]
    for a, b in pairs:
        mine.update(zip(a.results, b.results, strict=True))
    made = before | set(mine.values())
    for a, b in pairs:
        for x, y in zip(a.operands, b.operands, strict=True):
            if x in mine or y in made:
                if mine.get(x) is not y:
                    return None
            elif outer.setdefault(x, y) is not y or (x is not y and not _are_scalars((x, y))):
                return None
    return mine, outer


def _loop(behind: Sequence[Op], iterations: list[tuple[Op, ...]], bound: list[Bound], given: list[Bound]) -> Loop:
    """The iterations with what goes in and what comes out. ``behind``: the operations after them."""
    all_of = ([one for op in iteration for one in op.walk()] for iteration in iterations)
    others = {ops[0]: ops for ops in zip(*all_of, strict=True)}
    constants = [op for op in others if op.name == _CONSTANT and len(set(map(_value, others[op]))) > 1]
    differing = dict.fromkeys(x for outer in given for x, y in outer.items() if x is not y)
    taken = [(x, *(outer[x] for outer in given[1:])) for x in differing]
    taken += [tuple(one.results[0] for one in others[op]) for op in constants]
    again, left = _needed(behind, iterations, bound)
    return Loop(
        iterations=tuple(iterations),
        others=others,
        given=tuple(taken),
        constants=frozenset(constants),
        left=tuple(tuple(values[value] for values in bound) for value in left),
        again=again,
    )


def _value(constant: Op) -> str:
    return repr(constant.attributes["value"])


def _owner(value: Value) -> Op:
    assert value.owner is not None
    return value.owner


def _needed(
    behind: Sequence[Op], iterations: list[tuple[Op, ...]], bound: list[Bound]
) -> tuple[tuple[Op, ...], list[Value]]:
    """What is used ``behind`` a loop: operations without effect, in order; of the first iteration, other scalars."""
    first_of = {mine: value for values in bound for value, mine in values.items()}
    waiting = [value for op in behind for one in op.walk() for value in one.operands if value in first_of]
    again: set[Op] = set()
    left: dict[Value, None] = {}
    while waiting:
        owner = _owner(value := waiting.pop())
        if owner.name not in VIEW_OPS and not owner.name.startswith("arith."):
            left[first_of[value]] = None
        elif owner not in again:
            again.add(owner)
            waiting += [operand for operand in owner.operands if operand in first_of]
    return tuple(op for iteration in iterations for op in iteration if op in again), list(left)
