"""The source files that a function of the user's may import: followed by name from file to file, and no others.

Only these files go into the jail, so that their digest covers every line of the user's that can run there.
An import whose name is computed is not followed: such a file has to be named.
"""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.exam.candidate.contract import parsed, shadows
from ratchet.exam.candidate.source_text import text_of
from ratchet.process import paths
from ratchet.values.status import Refusal, Status

MOST_FILES = 2000
MOST_BYTES = 64 << 20

Read = Callable[[str], bytes | None]
"""The contents of the file at a path relative to the source folder, or None where there is no such file."""


@dataclass(frozen=True, kw_only=True)
class SourceClosure:
    """Source files, as they were at one time."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by path relative to the source folder, with slashes."""

    @property
    def tops(self) -> tuple[str, ...]:
        """The names under which they are imported: of files and folders at the top."""
        return tuple(sorted({path.partition("/")[0].removesuffix(".py") for path in self.files}))

    @property
    def sha256(self) -> Mapping[str, str]:
        """Digests by path."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in sorted(self.files.items())}

    def digest(self, *, without: Iterable[str] = ()) -> str:
        """SHA-256 over paths and contents of all files except ``without``."""
        left_out = set(without)
        lines = "".join(f"{path}\0{digest}\n" for path, digest in self.sha256.items() if path not in left_out)
        return hashlib.sha256(lines.encode()).hexdigest()

    def zipped(self) -> bytes:
        """An archive, the same bytes for the same files."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(path), content)
        return buffer.getvalue()


def work_tree(folder: Path) -> Read:
    """Reads the files below a folder."""

    def read(path: str) -> bytes | None:
        file = folder / path
        return paths.read(file) if paths.is_file(file) else None

    return read


def closure_of(read: Read, modules: Iterable[str], others: Mapping[str, bytes] | None = None) -> SourceClosure:
    """The files of ``modules`` and of all that they import, however late; of a package its ``__init__`` too.

    ``others`` are files to add, such as tables that a module reads. What is not below the source folder is an
    installed package's and left out.

    Raises:
      Refusal: ``SYNTAX_ERROR`` with file and line, ``FORBIDDEN`` for more files than a jail holds, or one that is not
        what it looks like (``source_text.text_of``).
    """
    files = dict(others or {})
    waiting, seen = [*modules, *(_module(path) for path in files if path.endswith(".py"))], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += [name.rpartition(".")[0]] if "." in name else []
        stem = name.replace(".", "/")
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            content = files[path] if path in files else read(path)
            if content is not None:
                files[path] = content
                waiting += _imports(path, content)
                break
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        message = f"{len(files)} files are imported, wanted at most {MOST_FILES} of {MOST_BYTES >> 20} MiB together"
        raise Refusal(Status.FORBIDDEN, message)
    for path, content in files.items():
        if path.endswith(".py"):  # those, too, that no import names: a loader of the user's may
            text_of(content, path)
    return SourceClosure(files=files)


def import_chain(closure: SourceClosure, modules: Iterable[str], path: str) -> tuple[str, ...]:
    """A shortest chain of imports to the file at ``path``, from a file of ``modules``; empty where there is none."""
    files = closure.files
    chains: dict[str, tuple[str, ...]] = {one: (one,) for name in modules for one in _files_of(name, files)}
    for one in (waiting := list(chains)):
        if one == path:
            return chains[one]
        for name in _imports(one, files[one]):
            for other in _files_of(name, files):
                if other not in chains:
                    chains[other] = (*chains[one], other)
                    waiting.append(other)
    return ()


def _files_of(name: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """What Python runs to import a module: the packages that it is in, and its own file."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        stem = "/".join(parts[:length])
        yield from (path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in files)


def check_tops(closure: SourceClosure, packages: Sequence[str] = ()) -> None:
    """Refuse files that would be imported in place of Python's own, the judge's, or those of an installed package.

    Raises:
      Refusal: ``FORBIDDEN``.
    """
    for top in closure.tops:
        if shadows(top, packages):
            message = f"{top} of the source folder would shadow an installed module of that name: rename it"
            raise Refusal(Status.FORBIDDEN, message)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(path: str, source: bytes) -> Iterator[str]:
    """Every module that a file imports, wherever the statement is, and every name from one."""
    folder = path.split("/")[:-1]
    for node in ast.walk(parsed(source, path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(folder):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names if alias.name != "*")
