"""The judge's own source files, read once and compiled. Compiled code is kept in the judge's private folder.

Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ratchet.home import FILES, PACKAGE_ROOT
from ratchet.private import private_folder
from ratchet.served import Compiled

PACKAGE = "ratchet"
JUDGE = "prepare"
"""The one module of the judge's that is not in the package: ``prepare.py``."""

_KEPT = 4
"""Files of compiled code that stay in the private folder."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """All source files of the judge's, as they were at one time."""

    root: Path
    files: Mapping[str, bytes]
    """Contents by path, relative to ``root``."""

    @property
    def digest(self) -> str:
        whole = hashlib.sha256(importlib.util.MAGIC_NUMBER + str(self.root).encode())
        for path, content in sorted(self.files.items()):
            whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return whole.hexdigest()

    def compiled(self) -> Compiled:
        """The code of every module, out of the private folder where it is there."""
        folder = private_folder()
        kept = folder / f"code-{self.digest}" if folder else None
        if kept is not None:
            with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
                return marshal.loads(kept.read_bytes())  # type: ignore[no-any-return]
        made = {
            _module(path): (
                path.endswith("__init__.py"),
                str(self.root / path),
                marshal.dumps(compile(content, str(self.root / path), "exec", dont_inherit=True)),
            )
            for path, content in self.files.items()
        }
        if kept is not None:
            _keep(kept, marshal.dumps(made))
        return made

    def plain(self) -> dict[str, tuple[bool, str, bytes]]:
        """As ``compiled``, with sources instead of code: for a Python of another version."""
        return {
            _module(path): (path.endswith("__init__.py"), str(self.root / path), content)
            for path, content in self.files.items()
        }


def read(root: Path) -> Sources:
    """The judge's sources below ``root``, links left out."""
    paths = [path for path in (root / PACKAGE).rglob("*.py") if "__pycache__" not in path.parts]
    judge = (FILES if root == PACKAGE_ROOT else root) / f"{JUDGE}.py"
    files = {path.relative_to(root).as_posix(): path for path in paths} | {judge.name: judge}
    return Sources(
        root=root,
        files={name: path.read_bytes() for name, path in files.items() if path.is_file() and not path.is_symlink()},
    )


@cache
def loaded(root: Path) -> Sources:
    """The sources that this process runs, or, where it imported them in the ordinary way, has first looked at."""
    return read(root)


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _keep(path: Path, data: bytes) -> None:
    """Write beside and rename; older ones go. Nothing depends on its success."""
    beside = path.with_name(f"new-{os.getpid()}")
    with contextlib.suppress(OSError):
        beside.write_bytes(data)
        beside.replace(path)
        for old in sorted(path.parent.glob("code-*"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            old.unlink()
