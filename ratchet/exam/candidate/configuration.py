"""``[tool.ratchet]`` in a repository's ``pyproject.toml``: what it may say of files and shares, whoever wrote it."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.process import paths
from ratchet.process.root import Root, is_of_git
from ratchet.values.status import Refusal, Status

FILE = "pyproject.toml"
MOST_SHARE = 0.5
"""By how much a latency may be allowed to grow: what allows more checks nothing."""
_TABLE_BYTES = 4 << 20
PATTERNS = "patterns of files"
SHARE = f"a share such as 0.02, at most {MOST_SHARE}"


def included(source: Path) -> dict[str, bytes]:
    """Files below ``source`` that ``include`` names in ``[tool.ratchet]`` of the nearest ``pyproject.toml``.

    Raises:
      Refusal: ``USAGE`` for what is no list of patterns.
    """
    root = next((folder for folder in (source, *source.parents) if paths.is_file(folder / FILE)), None)
    if root is None:
        return {}
    found = [root / name for name in matching(root, include_of(root))]
    return {file.relative_to(source).as_posix(): paths.read(file) for file in found if file.is_relative_to(source)}


def matching(root: Path, patterns: Sequence[str]) -> list[str]:
    """The regular files below a folder that patterns fit, by name, sorted; no link is followed, nothing is of ``.git``.

    Raises:
      Refusal: ``USAGE`` for a pattern that leads out of the folder, or names a link or a file of git's.
    """
    top, where = Root(root), f"{root / FILE}: include"
    found: set[str] = set()
    for pattern in patterns:
        try:
            fitting = paths.matching(top, inside(root, pattern, where, wanted=PATTERNS))
            if not fitting and not glob.has_magic(pattern) and top.exists(pattern):
                raise Refusal(Status.USAGE, f"{where}: {pattern!r:.80} is no regular file: put the file itself there")
        except OSError as error:
            what = f"{where}: {pattern!r:.80}: {error.strerror}; wanted {PATTERNS} of the repository"
            raise Refusal(Status.USAGE, what) from None
        found.update(fitting)
    return sorted(found)


def inside(root: Path, name: str, where: str, *, wanted: str = "a file") -> str:
    """A file's name, or a pattern, as it is below a repository.

    Raises:
      Refusal: ``USAGE`` for one that leads out of it, or is git's own. ``where`` says who named it, ``wanted`` as what.
    """
    try:
        there = Root(root).name(name)
        why = "it is git's own" if is_of_git(there) else ""
    except OSError as error:
        there, why = "", str(error.strerror)
    if why:
        raise Refusal(Status.USAGE, f"{where}: {name!r:.80}: {why}; wanted {wanted} of the repository")
    return there


def include_of(root: Path) -> tuple[str, ...]:
    """The patterns of ``include`` in ``[tool.ratchet]`` of a folder's ``pyproject.toml``. Raises as ``included``."""
    listed = table(root).get("include", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise Refusal(Status.USAGE, f"{root / FILE}: include is {listed!r:.40}, wanted a list of patterns")
    return tuple(listed)


def table(root: Path) -> Mapping[str, Any]:
    """``[tool.ratchet]`` of a folder's ``pyproject.toml``; empty where there is none.

    Raises:
      Refusal: ``USAGE`` for what cannot be read as TOML, or is no table.
    """
    path = root / FILE
    try:
        tool = tomllib.loads(paths.read(path, _TABLE_BYTES).decode()).get("tool", {})
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(Status.USAGE, f"{path} is no TOML: {error}") from None
    found = tool.get("ratchet", {}) if isinstance(tool, Mapping) else {}
    if not isinstance(found, Mapping):
        raise Refusal(Status.USAGE, f"{path}: tool.ratchet is {found!r:.40}, wanted a table")
    return found


def is_share(value: object) -> bool:
    """Whether a value of a table is a share that a latency may grow by: finite, and at most ``MOST_SHARE``."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_SHARE
