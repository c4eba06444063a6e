"""The imports of this repository, read from its files: late ones and those for type checkers count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
OLDER_JAX = metadata.version("jax").startswith("0.10.")
"""Whether the older of the two locked versions of JAX runs the tests."""


@dataclass(frozen=True)
class Module:
    """Read once it is asked for: every test process collects the tests that list the modules, and few run them."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_bytes())

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module that the file imports, and every name from one, with the name of the module before it."""
        return frozenset(imports_of(self.tree))


def name_of(path: Path) -> str:
    parts = path.relative_to(HERE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports, wherever the statement is, and every name from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = {name_of(path): Module(path) for path in (*sorted((HERE / "ratchet").rglob("*.py")), HERE / "prepare.py")}


@cache
def needs(name: str) -> set[str]:
    """The modules of ours that ``name`` imports. ``from room import module`` needs the module, not the room."""
    imports = MODULES[name].imports
    direct = {one for one in imports if one in MODULES}
    rooms = {one for one in direct if any(other.startswith(one + ".") and other in MODULES for other in imports)}
    return direct - {room for room in rooms if not _names_from(name, room)}


def _names_from(name: str, room: str) -> bool:
    """Whether ``name`` takes something from ``room`` itself that is no module of it."""
    for node in ast.walk(MODULES[name].tree):
        if isinstance(node, ast.Import) and any(alias.name == room for alias in node.names):
            return True
        if not isinstance(node, ast.ImportFrom) or node.module != room:
            continue
        if any(f"{room}.{alias.name}" not in MODULES for alias in node.names):
            return True
    return False


def closure(*start: str, without: str) -> set[str]:
    """The modules of ours that are reached from ``start``, except through ``without``."""
    reached: set[str] = set()
    waiting = [*start]
    while waiting:
        name = waiting.pop()
        if name not in reached and name != without:
            reached.add(name)
            waiting += needs(name)
    return reached


def importers(*wanted: str) -> set[str]:
    """Modules that import one of ``wanted`` or something below it."""
    return {
        name
        for name, module in MODULES.items()
        if any(one == want or one.startswith(want + ".") for one in module.imports for want in wanted)
    }


def circles() -> list[list[str]]:
    """Groups of modules that import each other, each sorted."""
    reach = {name: closure(*needs(name), without="") for name in MODULES}
    groups = {tuple(sorted(o for o in reach[name] if name in reach[o])) for name in MODULES if name in reach[name]}
    return [list(group) for group in sorted(groups)]
