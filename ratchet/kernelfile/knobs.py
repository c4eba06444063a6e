"""Constants of a kernel file that may be tuned: found in its syntax tree, changed without another byte. Pure.

Which values a constant may take is said behind it (``BQ = 256  # tune: 128, 256, 512``) or on the command line; which
of their combinations are wanted, in a comment of its own (``# where: SEQ % BQ == 0``) or there.
"""

from __future__ import annotations

import ast
import io
import itertools
import math
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ratchet.kernelfile.syntax import Change, File, assignments, changed
from ratchet.values import Literal, Point
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A constant that the file assigns once, at its top level."""

    name: str
    start: int
    """Where its value begins in the file's bytes."""
    end: int
    line: int
    value: str
    """Its value as it is written."""
    names: tuple[str, ...] = ()
    """All whom the statement ``BM = BN = 512`` gives that value, in order; empty where it is given to one."""
    first: int = 0
    """Where that statement begins."""


def knobs(source: bytes, name: str) -> dict[str, Knob]:
    """The constants that a file assigns once at its top level, by name.

    Raises:
      Refusal: as ``File.of``; ``name`` is what the file is called there.
    """
    file = File.of(source, name)
    shared = {file.span(node.value): node for node in file.tree.body if _is_shared(node)}
    found: dict[str, list[Knob]] = {}
    for target, value in assignments(file.tree.body):
        start, end = file.span(value)
        knob = Knob(name=target, start=start, end=end, line=value.lineno, value=source[start:end].decode())
        if (whole := shared.get((start, end))) is not None:
            names = tuple(one.id for one in whole.targets if isinstance(one, ast.Name))
            knob = replace(knob, names=names, first=file.span(whole)[0])
        found.setdefault(target, []).append(knob)
    for node in ast.walk(file.tree):  # also where a function or a loop sets it
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.pop(node.target.id, None)
    return {target: one for target, (one, *more) in found.items() if not more}


def with_constants(source: bytes, name: str, point: Point) -> bytes:
    """The file with other values of its knobs; every other byte stays, but that ``BM = BN = 512`` is taken apart.

    Raises:
      Refusal: ``USAGE`` for a name that is no knob of the file, or shares its value with what is no name;
        ``SYNTAX_ERROR`` as ``knobs``.
    """
    known = knobs(source, name)
    for wanted in point:
        if wanted not in known:
            there = ", ".join(f"{knob.name} = {knob.value:.20}" for knob in known.values()) or "none"
            raise Refusal(
                Status.USAGE, f"{name} sets no constant {wanted!r:.60} once at its top level; it has: {there:.600}"
            )
        shared = [one for one, knob in known.items() if knob.start == known[wanted].start]
        if len(shared) > max(1, len(known[wanted].names)):
            message = f"{name}:{known[wanted].line}: {' and '.join(shared)} share one value, so that none of them can"
            raise Refusal(Status.USAGE, f"{message} be changed alone: assign each in a line of its own")
    return changed(source, {_change(known[wanted], point) for wanted in point})


def _is_shared(node: ast.stmt) -> TypeGuard[ast.Assign]:
    """Whether it is ``BM = BN = 512``."""
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) > 1
        and all(isinstance(one, ast.Name) for one in node.targets)
    )


def _change(knob: Knob, point: Point) -> Change:
    """Its new value; of several that were given one value, all their names with a value each."""
    if not knob.names:
        return Change(start=knob.start, end=knob.end, text=repr(point[knob.name]))
    values = [repr(point[one]) if one in point else knob.value for one in knob.names]
    if len(set(values)) == 1:
        return Change(start=knob.start, end=knob.end, text=values[0])
    return Change(start=knob.first, end=knob.end, text=f"{', '.join(knob.names)} = {', '.join(values)}")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a file says of its own knobs, in comments."""

    axes: tuple[tuple[str, tuple[Literal, ...]], ...]
    """Knobs and the values to try, as the file has them in order."""
    where: tuple[str, ...]
    """Conditions on them, as they are written."""


def tuning(source: bytes, name: str) -> Tuning:
    """The ``# tune:`` and ``# where:`` comments of a file.

    Raises:
      Refusal: ``USAGE`` for a ``# tune:`` that is not behind one knob, or holds no constants; as ``knobs``.
    """
    by_line: dict[int, list[Knob]] = {}
    for knob in knobs(source, name).values():
        by_line.setdefault(knob.line, []).append(knob)
    axes: list[tuple[str, tuple[Literal, ...]]] = []
    where: list[str] = []
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        word, colon, rest = token.string.lstrip("#").strip().partition(":")
        if token.type != tokenize.COMMENT or not colon:
            continue
        if word == "where":
            where.append(rest.strip())
        elif word == "tune":
            here = by_line.get(line := token.start[0], [])
            if len(here) != 1:
                raise Refusal(Status.USAGE, f"{name}:{line}: `# tune:` is behind {len(here)} constants, wanted one")
            axes.append(choices(f"{here[0].name}={rest.strip()}"))
    return Tuning(axes=tuple(axes), where=tuple(where))


def values(source: bytes, name: str) -> dict[str, Literal]:
    """What the constants of a file are, those that are written as literals."""
    found: dict[str, Literal] = {}
    for knob in knobs(source, name).values():
        try:
            value = ast.literal_eval(knob.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, int | float | bool | str | None):
            found[knob.name] = value
    return found


def choices(text: str) -> tuple[str, tuple[Literal, ...]]:
    """``BQ=512,1024`` as a name and its values.

    Raises:
      Refusal: ``USAGE``.
    """
    name, equals, values = text.partition("=")
    wanted = "wanted NAME=VALUE,VALUE… such as BQ=512,1024"
    if not equals or not name.isidentifier():
        raise Refusal(Status.USAGE, f"{text!r:.60} names no knob: {wanted}")
    try:
        read = ast.literal_eval(f"({values},)")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Refusal(Status.USAGE, f"{values!r:.60} are no Python constants: {wanted}") from None
    if not read or not all(isinstance(one, int | float | bool | str | None) and one != math.inf for one in read):
        raise Refusal(Status.USAGE, f"{values!r:.60} are no numbers or texts in quotes: {wanted}")
    return name, tuple({(type(one), one): one for one in read}.values())


def points(axes: Sequence[tuple[str, Sequence[Literal]]]) -> list[dict[str, Literal]]:
    """Every combination, the last knob turning fastest.

    Raises:
      Refusal: ``USAGE`` for a knob that is named twice.
    """
    names = [name for name, _ in axes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Refusal(Status.USAGE, f"the knob {twice} is named twice: give all its values at once")
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(values for _, values in axes))]


def in_words(point: Point) -> str:
    """``BQ 1024, BKV 512``."""
    return ", ".join(f"{name} {value}" for name, value in point.items())
