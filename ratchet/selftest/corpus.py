"""The corpus of the self-test, read from ``tests/candidates``: data, none of which runs in the judge's process.

A kernel cheat is a Python file with headers in comments, put behind an honest kernel, whose names it replaces:

    \"""Cheat 13: leaves half of the output unwritten.\"""
    # rejected as: MEMORY_HAZARD, NOT_FINITE
    # kind: stale output
    # caught by: unwritten memory

``base:`` names another honest kernel than ``rows_attention``, or a cheat of which this one is a variant; ``base: none``
stands for a whole file. ``problem: its own`` freezes the file's problem. ``on: cpu`` measures. ``wall:`` names a wall
of the jail without which the cheat is skipped, ``said:`` what the reason has to contain. ``left out of: tests, quick``
keeps it from the test suite, and from ``--quick``. An honest kernel is a whole file, or has a ``base:`` too: another
honest kernel or a file of the tree.

An attack on the tree is a TOML file: what is planted in a copy of the tree, and what is then run there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ratchet.values.status import Refusal, Status
from ratchet.values.trial import NO_EFFECT, NO_GAIN, Trial

FOLDER = "tests/candidates"
BASE = "rows_attention"
NO_BASE = "none"
MODEL = "v5e-model"


@dataclass(frozen=True, kw_only=True)
class Honest:
    """A kernel that has to pass."""

    group: ClassVar[str] = "honest"
    expected: ClassVar[tuple[str, ...]] = (Status.PASS.name,)
    caught_by: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = ""
    name: str
    source: str
    on: str
    """The evaluator: ``v5e-model`` or ``cpu``."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What must not pass, or have an effect."""

    group: ClassVar[str]
    name: str
    number: int | None
    """Of the class that it belongs to; None where it is in no list."""
    what: str
    kind: str
    expected: tuple[str, ...]
    caught_by: tuple[str, ...]
    said: str = ""
    """What the reason, or all that is printed, has to contain."""
    left_out_of: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cheat(Attack):
    """A kernel that must not pass."""

    group: ClassVar[str] = "cheat"
    base: str
    own_problem: bool
    on: str
    wall: str
    marks: frozenset[str]
    """All headers as they are: some are for the test suite alone."""
    text: str
    """The file, headers included, behind those of the cheats that it is a variant of."""


@dataclass(frozen=True, kw_only=True)
class Planted(Attack):
    """An attack on the tree that the judge is run from, or on what runs it."""

    group: ClassVar[str] = "planted"
    runs: tuple[tuple[str, ...], ...]
    """Arguments of ``./ratchet.sh``; the last one's exit code counts."""
    inside: bool = False
    """Whether it is run in the tree's folder, and not above it."""
    history: bool = False
    """Whether the tree has a first experiment behind it: a row, a lock, references."""
    files: Mapping[str, str] = field(default_factory=dict)
    """New contents by path in the tree. ``{tree}`` is its folder, ``{extension}`` the suffix of extension modules."""
    appended: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By path: what is replaced once, and by what."""
    bytecode: Mapping[str, str] = field(default_factory=dict)
    """By path of a source file: Python whose bytecode is put where Python takes it for that of the source."""
    links: Mapping[str, str] = field(default_factory=dict)
    hard: Mapping[str, str] = field(default_factory=dict)
    """Hard links."""
    swapped: Mapping[str, str] = field(default_factory=dict)
    """Pairs of names that change places again and again while it runs."""
    pipes: tuple[str, ...] = ()
    large: Mapping[str, int] = field(default_factory=dict)
    """Files of so many MiB of zeros."""
    zeroed: str = ""
    """Glob of files of arrays, ``.npy``, which are all set to zero."""
    git: tuple[tuple[str, ...], ...] = ()
    """Arguments of git, run in the tree."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Paths and texts of all of these may name ``{outside}``, a folder of the user's that nothing may change, and
    ``{key}``, the user's key."""


Entry = Honest | Cheat | Planted


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """All of it."""

    honest: Mapping[str, Honest]
    cheats: tuple[Cheat, ...]
    planted: tuple[Planted, ...]


def read(root: Path) -> Corpus:
    """The corpus beside a tree.

    Raises:
      Refusal: ``NOT_FOUND`` where there is none, ``INFRASTRUCTURE`` for an entry that does not say what it is.
    """
    folder = root / FOLDER
    if not (folder / "honest").is_dir() or not (folder / "cheats").is_dir():
        raise Refusal(
            Status.NOT_FOUND, f"the self-test needs the corpus in {FOLDER}, which is not beside {root.name}: clone it"
        )
    paths = [*sorted((folder / "honest").glob("*.py")), *sorted((folder / "measured").glob("*.py"))]
    named = {path.stem: path for path in paths}
    honest = [_honest(path, named, root) for path in paths]
    cheats = {path.stem: cheat(path) for path in sorted((folder / "cheats").glob("*.py"))}
    return Corpus(
        honest={one.name: one for one in honest},
        cheats=tuple(_whole(one, cheats) for one in cheats.values()),
        planted=tuple(_planted(path) for path in sorted((folder / "cheats").glob("*.toml"))),
    )


def _honest(path: Path, others: Mapping[str, Path], root: Path) -> Honest:
    """A kernel behind its base, if it has one."""
    text = path.read_text()
    if base := _headers(text).get("base"):
        text = f"{_honest(others.get(base, root / base), others, root).source}\n\n{text}"
    return Honest(name=path.stem, source=text, on="cpu" if path.parent.name == "measured" else MODEL)


def _whole(one: Cheat, cheats: Mapping[str, Cheat]) -> Cheat:
    """A cheat behind the one that it is a variant of, if it is."""
    if one.base not in cheats:
        return one
    first = _whole(cheats[one.base], {name: other for name, other in cheats.items() if name != one.name})
    return replace(one, base=first.base, text=f"{first.text}\n\n{one.text}")


def _headers(text: str) -> dict[str, str]:
    """Comments directly behind the first line; a header without a colon has no value."""
    headers = {}
    for line in text.splitlines()[1:]:
        if not line.startswith("# "):
            break
        key, _, value = line.removeprefix("# ").partition(": ")
        headers[key] = value
    return headers


def cheat(path: Path) -> Cheat:
    """One kernel cheat.

    Raises:
      Refusal: ``INFRASTRUCTURE`` where it does not say what it is.
    """
    text = path.read_text()
    headers = _headers(text)
    what = text.partition("\n")[0].strip('"')
    label, _, about = what.partition(": ")
    expected = _listed(headers.get("rejected as", ""))
    unknown = [name for name in expected if name != NO_GAIN and name not in Status.__members__]
    if not expected or unknown:
        raise Refusal(Status.INFRASTRUCTURE, f"{path.name} does not say as what it is rejected, in a status's name")
    return Cheat(
        name=path.stem,
        number=int(label.removeprefix("Cheat ")) if label.startswith("Cheat ") else None,
        what=about.rstrip("."),
        kind=headers.get("kind", ""),
        expected=expected,
        caught_by=_listed(headers.get("caught by", "")),
        base=headers.get("base", BASE),
        own_problem=headers.get("problem") == "its own" or headers.get("base") == NO_BASE,
        on=headers.get("on", MODEL),
        wall=headers.get("wall", ""),
        said=headers.get("said", ""),
        left_out_of=_listed(headers.get("left out of", "")),
        marks=frozenset(f"{key}: {value}" if value else key for key, value in headers.items()),
        text=text,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _planted(path: Path) -> Planted:
    try:
        document = {key: _frozen(value) for key, value in tomllib.loads(path.read_text()).items()}
        planted = Planted(name=path.stem, number=document.pop("cheat"), **document)
        if any(name != NO_EFFECT and name not in Status.__members__ for name in planted.expected):
            raise ValueError(f"{planted.expected} is no status")
    except (KeyError, TypeError, ValueError) as error:
        raise Refusal(Status.INFRASTRUCTURE, f"{path.name} is no attack on the tree: {error}") from None
    return planted


def _frozen(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    if isinstance(value, dict):
        return {key: _frozen(one) for key, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def trial(entry: Entry, **known: Any) -> Trial:
    """What came of an entry: ``known``, beside what was expected."""
    expected = {"name": entry.name, "group": entry.group, "kind": entry.kind, "expected": entry.expected}
    return Trial(**{**expected, "wanted": entry.caught_by, **known})
