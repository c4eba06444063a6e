"""Constants of a kernel file that may be tuned: found in its syntax tree, changed without another byte. Pure.

Which values a constant may take is said behind it (``BQ = 256  # tune: 128, 256, 512``) or on the command line; which
of their combinations are wanted, in a comment of its own (``# where: SEQ % BQ == 0``) or there.
"""

from __future__ import annotations

import ast
import codecs
import io
import itertools
import math
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


def parsed(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a file of any encoding.

    Raises:
      Refusal: ``SYNTAX_ERROR``; ``name`` is what the file is called there.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refusal(Status.SYNTAX_ERROR, f"{name}: {error}") from None


def parsed_utf8(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a file whose bytes can be changed at the places that the tree gives.

    Raises:
      Refusal: as ``parsed``; ``USAGE`` for another encoding than UTF-8.
    """
    tree = parsed(source, name)
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except SyntaxError:  # bytes of another one, and no word of it: the parser passes over them in a comment
        encoding = "unknown"
    if encoding not in ("utf-8", "utf-8-sig"):
        raise Refusal(Status.USAGE, f"{name} is not in UTF-8, which is needed to change it")
    return tree


def knobs(source: bytes, name: str) -> dict[str, Knob]:
    """All constants of a file by name: ``BQ = 256``, ``BQ: int = 256`` and ``BQ, BKV = 256, 512``.

    A name that is assigned more than once is none.

    Raises:
      Refusal: as ``parsed_utf8``.
    """
    tree = parsed_utf8(source, name)
    lines = list(itertools.accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    lines[0] = len(codecs.BOM_UTF8) if source.startswith(codecs.BOM_UTF8) else 0
    found: dict[str, list[Knob]] = {}
    for target, value in _assigned(tree):
        assert value.end_lineno is not None
        assert value.end_col_offset is not None
        start, end = lines[value.lineno - 1] + value.col_offset, lines[value.end_lineno - 1] + value.end_col_offset
        knob = Knob(name=target, start=start, end=end, line=value.lineno, value=source[start:end].decode())
        found.setdefault(target, []).append(knob)
    for node in ast.walk(tree):  # also where a function or a loop sets it
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.pop(node.target.id, None)
    return {target: one for target, (one, *more) in found.items() if not more}


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
        and not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
    ):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, its)


def turned(source: bytes, name: str, point: Point) -> bytes:
    """The file with other values of its knobs; every other byte stays.

    Raises:
      Refusal: ``USAGE`` for a name that is no knob of the file, or one that shares its value (``BM = BN = 512``);
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
        if len(shared) > 1:
            message = f"{name}:{known[wanted].line}: {' and '.join(shared)} share one value, so that none of them can"
            raise Refusal(Status.USAGE, f"{message} be changed alone: assign each in a line of its own")
    for wanted in sorted(point, key=lambda one: -known[one].start):
        knob = known[wanted]
        source = source[: knob.start] + repr(point[wanted]).encode() + source[knob.end :]
    return source


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a file says of its own knobs, in comments."""

    axes: tuple[tuple[str, tuple[Literal, ...]], ...]
    """Knobs and the values to try, as the file has them in order."""
    where: tuple[str, ...]
    """Conditions on them, as they are written."""


def asked(source: bytes, name: str) -> Asked:
    """The ``# tune:`` and ``# where:`` comments of a file.

    Raises:
      Refusal: ``USAGE`` for a ``# tune:`` that is not behind one knob, or holds no constants; as ``knobs``.
    """
    known = knobs(source, name)
    by_line: dict[int, list[Knob]] = {}
    for knob in known.values():
        by_line.setdefault(knob.line, []).append(knob)
    axes: list[tuple[str, tuple[Literal, ...]]] = []
    where: list[str] = []
    for line, comment in _comments(source):
        word, colon, rest = comment.lstrip("#").strip().partition(":")
        if not colon or word not in ("tune", "where"):
            continue
        if word == "where":
            where.append(rest.strip())
            continue
        here = by_line.get(line, [])
        if len(here) != 1:
            raise Refusal(Status.USAGE, f"{name}:{line}: `# tune:` is behind {len(here)} constants, wanted one")
        axes.append(choices(f"{here[0].name}={rest.strip()}"))
    return Asked(axes=tuple(axes), where=tuple(where))


def _comments(source: bytes) -> Iterator[tuple[int, str]]:
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


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
