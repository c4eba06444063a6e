"""What one version of a kernel file changes of another, by their syntax trees. Pure.

A file is the statements of its top level. Each constant, function and class that both versions have, and that differs,
is one *part* of the change; so is every other statement, such as a call or a ``raise``, that came or went. What a part
may need is not counted: definitions and imports that are new, comments, and ``get_tiling_meta``, which has to follow
the kernel. Parts that need each other are one change: a function that takes other parameters (a body with one more
scratch buffer), or a definition that went, and what names it.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ratchet.kernelfile.syntax import CLAIMS, parsed


@dataclass(frozen=True, kw_only=True)
class Part:
    """A statement of the top level that differs."""

    name: str
    """What it defines; the first line of its text where it defines nothing."""
    constant: bool
    """Whether it is an assignment, and no function or class."""
    group: int = 0
    """Equal for parts that need each other."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A change, in its parts."""

    parts: tuple[Part, ...]

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """Names of the parts that need each other, together; in order."""
        groups: dict[int, list[str]] = {}
        for part in self.parts:
            groups.setdefault(part.group, []).append(part.name)
        return tuple(map(tuple, groups.values()))

    @property
    def compound(self) -> bool:
        """Whether it is more than one change."""
        return len(self.changes) > 1

    def __str__(self) -> str:
        """``one constant, BQ``; ``2 at once: BQ, block``; ``one thing, body with kernel_fn``."""
        names = ", ".join(" with ".join(one) for one in self.changes)
        if self.compound:
            return f"{len(self.changes)} at once: {names}"
        if not self.parts:
            return "comments, or what is new and not used"
        kind = "thing" if len(self.parts) > 1 else "constant" if self.parts[0].constant else "function"
        return f"one {kind}, {names}"


@dataclass(frozen=True, kw_only=True)
class _Statement:
    text: bytes
    """With the lines before it that belong to no other statement."""
    tree: str
    """Without places: equal where only comments and layout differ."""
    constant: bool
    defines: bool
    acts: bool
    """Whether it may do something where it is: it neither defines a name nor imports one."""
    parameters: str
    """Of a function, as its syntax tree has them; ``""`` of anything else."""
    names: frozenset[str]
    """All that are in it."""


_ByKey = Mapping[str, _Statement]


def mutation(before: bytes, after: bytes, name: str) -> Mutation:
    """What ``after`` changes of ``before``.

    Raises:
      Refusal: ``SYNTAX_ERROR`` for a version that is no Python; ``name`` is what the file is called.
    """
    old, new = _by_key(before, name), _by_key(after, name)
    parts = [
        Part(name=key, constant=one.constant)
        for key, one in new.items()
        if (old[key].tree != one.tree if key in old else one.acts) and key != CLAIMS
    ]
    gone = [
        Part(name=key, constant=one.constant)
        for key, one in old.items()
        if key not in new and (one.defines or one.acts)
    ]
    return Mutation(parts=_grouped((*parts, *gone), old, new))


def _grouped(parts: Sequence[Part], old: _ByKey, new: _ByKey) -> tuple[Part, ...]:
    """Parts with their groups: those that name one which takes other parameters, or is gone, are in one with it."""
    group = {part.name: number for number, part in enumerate(parts)}

    def named(name: str, by: str) -> bool:
        return any(name in versions[by].names for versions in (old, new) if by in versions)

    for part in parts:
        before, after = old.get(part.name), new.get(part.name)
        if before is not None and after is not None and before.parameters == after.parameters:
            continue
        if before is None:
            continue
        for other in parts:
            if other is not part and named(part.name, other.name):
                joined, own = group[other.name], group[part.name]
                group = {name: own if number == joined else number for name, number in group.items()}
    return tuple(replace(part, group=group[part.name]) for part in parts)


def partly(before: bytes, after: bytes, names: Collection[str], name: str) -> bytes:
    """``before`` with those parts of the change to ``after`` that are named, and with everything that is new in it.

    Raises:
      Refusal: as ``mutation``.
    """
    old, new = _by_key(before, name), _by_key(after, name)
    wanted = {part.name for part in mutation(before, after, name).parts}
    text: list[bytes] = []
    for key in _merged(list(old), list(new)):
        taken = new if (key in names or key not in wanted) and (key in new or key in names) else old
        if key in taken:
            text.append(taken[key].text)
    return b"".join(text)


def _merged(old: list[str], new: list[str]) -> list[str]:
    """Both orders as one: what only the old version has comes behind what it came behind there."""
    order = list(new)
    for at, key in enumerate(old):
        if key not in order:
            order.insert(order.index(old[at - 1]) + 1 if at else 0, key)
    return order


def _by_key(source: bytes, name: str) -> Mapping[str, _Statement]:
    """The statements of the top level by what they define; those of one key are one."""
    lines = source.splitlines(keepends=True)
    found: dict[str, list[tuple[bytes, ast.stmt]]] = {}
    shown = 0
    for node in parsed(source, name).body:
        end = max(shown, node.end_lineno or 0)  # the same for several on one line
        found.setdefault(_key(node), []).append((b"".join(lines[shown:end]), node))
        shown = end
    statements = {
        key: _Statement(
            text=b"".join(text for text, _ in nodes),
            tree=";".join(ast.dump(node) for _, node in nodes),
            constant=all(isinstance(node, ast.Assign | ast.AnnAssign) for _, node in nodes),
            defines=any(_defines(node) for _, node in nodes),
            acts=any(not _defines(node) and not _is_quiet(node) for _, node in nodes),
            parameters=";".join(ast.dump(node.args) for _, node in nodes if isinstance(node, ast.FunctionDef)),
            names=frozenset(one.id for _, node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)),
        )
        for key, nodes in found.items()
    }
    if rest := b"".join(lines[shown:]):
        statements["\0end"] = _Statement(text=rest, tree="", constant=True, defines=False, acts=False, parameters="",
                                        names=frozenset())  # fmt: skip
    return statements


def _key(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign():
            return ", ".join(map(ast.unparse, node.targets))
        case ast.AnnAssign():
            return ast.unparse(node.target)
    return ast.unparse(node).partition("\n")[0]


def _defines(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Assign():
            return all(_is_name(target) for target in node.targets)
        case ast.AnnAssign():
            return _is_name(node.target)
    return False


def _is_name(target: ast.expr) -> bool:
    """Not ``module.function`` or ``table[0]``, which change what is there already."""
    return isinstance(target, ast.Name) or (isinstance(target, ast.Tuple) and all(map(_is_name, target.elts)))


def _is_quiet(node: ast.stmt) -> bool:
    """An import, or a text by itself."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


def subsets(parts: Collection[str]) -> list[tuple[str, ...]]:
    """Which parts to try together: each alone, and all but each; of few parts every combination but none and all."""
    names = list(parts)
    if len(names) <= 3:
        sizes = range(1, len(names))
        return [one for size in sizes for one in itertools.combinations(names, size)]
    alone = [(name,) for name in names]
    return [*alone, *(tuple(other for other in names if other != name) for name in names)]
