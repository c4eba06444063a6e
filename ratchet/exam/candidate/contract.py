"""The seven symbols: what a kernel file must hold, and what it must not do.

The static check is an early, friendly refusal. The wall is elsewhere: only bytes leave the jail.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Iterable, Mapping

from ratchet.exam.candidate.source_text import text_of
from ratchet.process.boot.installed import has
from ratchet.process.concurrency import PARSING
from ratchet.values.status import Refusal, Status

SYMBOLS: Mapping[str, str] = {
    "KERNEL_NAME": "a non-empty string",
    "PROBLEM_DESCRIPTION": "a non-empty string",
    "kernel_fn": "a function of the input arrays",
    "reference_fn": "a function of the input arrays",
    "generate_inputs": "a function of a PRNG key",
    "compute_flops": "a function without arguments",
}
OPTIONAL = "get_tiling_meta"
"""A function without arguments: claims to compare, and the mesh of a program on several chips."""

ALLOWED_IMPORTS = frozenset(
    "__future__ collections dataclasses enum functools itertools jax math numpy operator typing".split()
)
FORBIDDEN_MODULES = ("jax.experimental.pallas.ops", "jax._src", "jax.lib", "jax.experimental.io_callback", "jax.ffi")
FORBIDDEN_NAMES = frozenset("__import__ breakpoint compile eval exec exit globals input locals open quit vars".split())
ALLOWED_DUNDERS = frozenset("__name__ __doc__ __init__ __post_init__ __call__".split())

MAX_SOURCE_BYTES = 1 << 20
STARTED = ("sitecustomize", "usercustomize", "ratchet", "prepare")
"""Names that Python or the judge imports as it starts."""


def check_name(name: str, packages: Iterable[str]) -> None:
    """Refuse a kernel file named like a module of Python's or of an installed package: it is easily run in its place.

    Raises:
      Refusal: ``USAGE``.
    """
    if shadows(name.removesuffix(".py"), packages):
        raise Refusal(Status.USAGE, f"{name} would shadow a module of that name: give the kernel file another")


def shadows(module: str, packages: Iterable[str]) -> bool:
    """Whether a module at the top would be imported in place of Python's own, the judge's, or an installed one."""
    installed = has(packages, (module, f"{module}.py"))
    return installed or module in sys.stdlib_module_names or module in STARTED


def parsed(source: bytes, name: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
      Refusal: ``SYNTAX_ERROR`` with the line, or as ``source_text.text_of``.
    """
    text = text_of(source, name)
    try:
        with PARSING:
            return ast.parse(text, filename=name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{name}:{line}" if line else name
        detail = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise Refusal(Status.SYNTAX_ERROR, f"{where}: {detail}") from None


def check_source(source: bytes, name: str) -> None:
    """Refuse a file that is not Python, is not what it looks like, or does what the contract forbids.

    Raises:
      Refusal: ``SYNTAX_ERROR`` with the line, or ``FORBIDDEN`` with every finding at once.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise Refusal(
            Status.FORBIDDEN, f"{name} has {len(source)} bytes; a kernel file may have at most {MAX_SOURCE_BYTES}"
        )
    findings = sorted(set(_findings(parsed(source, name))))
    if findings:
        lines = "; ".join(f"{name}:{line}: {what}" for line, what in findings)
        raise Refusal(Status.FORBIDDEN, f"the contract forbids this (see program.md): {lines}")


def _findings(tree: ast.AST) -> list[tuple[int, str]]:
    findings: list[tuple[int, str]] = []
    modules = _imported_names(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            findings += [(line, f"import of {a.name}") for a in node.names if not _import_allowed(a.name)]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            findings += [
                (line, f"import of {base}.{a.name}")
                for a in node.names
                if node.level or a.name == "*" or not (_import_allowed(base) and _import_allowed(f"{base}.{a.name}"))
            ]
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            findings.append((line, f"use of {node.id}"))
        elif isinstance(node, ast.Name) and _is_dunder(node.id):
            findings.append((line, f"access to {node.id}"))
        elif isinstance(node, ast.Attribute) and (_is_dunder(node.attr) or node.attr == "_src"):
            findings.append((line, f"access to .{node.attr}"))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            root = _root_name(node)
            if root in modules:
                findings.append((line, f"write to an attribute of the imported {root}"))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("setattr", "delattr", "getattr")
            and not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.func.id == "getattr")
        ):
            findings.append((line, f"{node.func.id} with a computed name or as a write"))
    return findings


def _imported_names(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def _import_allowed(module: str) -> bool:
    banned = any(module == name or module.startswith(name + ".") for name in FORBIDDEN_MODULES)
    return module.partition(".")[0] in ALLOWED_IMPORTS and not banned


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ALLOWED_DUNDERS


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def check_symbols(namespace: Mapping[str, object]) -> None:
    """Refuse a module whose seven symbols are missing or of the wrong type, naming all of them at once.

    Raises:
      Refusal: ``CONTRACT``.
    """
    wrong = []
    for symbol, wanted in SYMBOLS.items():
        value = namespace.get(symbol)
        if symbol not in namespace:
            wrong.append(f"{symbol} is missing (wanted: {wanted})")
        elif symbol.isupper() and not (isinstance(value, str) and value.strip()):
            wrong.append(f"{symbol} is {type(value).__name__} (wanted: {wanted})")
        elif not symbol.isupper() and not callable(value):
            wrong.append(f"{symbol} is {type(value).__name__} (wanted: {wanted})")
    if not callable(namespace.get(OPTIONAL, check_symbols)):
        wrong.append(f"{OPTIONAL} is {type(namespace[OPTIONAL]).__name__} (wanted: a function without arguments)")
    if wrong:
        raise Refusal(Status.CONTRACT, "; ".join(wrong))


_LIMIT = 1 << 63
_DEEPEST = 20


def _largest(value: object, depth: int = 0) -> int:
    """The largest amount of any integer in ``value``, at any depth that is looked at."""
    if isinstance(value, int):
        return abs(value)
    if depth > _DEEPEST or not isinstance(value, dict | list | tuple):
        return 0
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return max((_largest(one, depth + 1) for one in inner), default=0)


def check_flops(flops: object) -> None:
    """Refuse what ``compute_flops()`` returned unless it is an amount.

    Raises:
      Refusal: ``CONTRACT``.
    """
    if type(flops) is not int or not 0 <= flops < _LIMIT:
        shown = f"an int of {flops.bit_length()} bits" if type(flops) is int and flops > 0 else f"{flops!r:.80}"
        raise Refusal(Status.CONTRACT, f"compute_flops() returned {shown}, wanted an int below 2^63: 0 for a copy")


def _wrong_entries(key: str, entries: object, fields: Mapping[str, type]) -> list[str]:
    if not isinstance(entries, list | tuple):
        return [f"{key} is {type(entries).__name__}, wanted a list"]
    wrong = []
    for index, entry in enumerate(entries):
        missing = [
            f"{field} ({kind.__name__})"
            for field, kind in fields.items()
            if not (isinstance(entry, dict) and type(entry.get(field)) is kind)
        ]
        if missing:
            wrong.append(f"{key}[{index}] lacks {', '.join(missing)}")
    return wrong


def check_tiling_meta(meta: object) -> dict[str, object]:
    """Return ``get_tiling_meta()``'s claims as plain JSON values.

    All may be left out:
    ``grid`` (list of int); ``buffers`` (list of ``{name, size_bytes, double_buffered}``); ``inputs`` and
    ``outputs`` (lists of ``{name, size_bytes, re_reads}``); ``vreg_estimate_bytes`` (int). Further keys are kept
    if they are plain JSON.

    Raises:
      Refusal: ``CONTRACT``, with every disagreement at once.
    """
    wrong: list[str] = []
    if not isinstance(meta, dict):
        raise Refusal(Status.CONTRACT, f"get_tiling_meta() returned {type(meta).__name__}, wanted a dict")
    if _largest(meta) >= _LIMIT:
        raise Refusal(Status.CONTRACT, "get_tiling_meta() claims a number of more than 63 bits; wanted plain amounts")
    grid = meta.get("grid", ())
    if not (isinstance(grid, list | tuple) and all(type(n) is int and n > 0 for n in grid)):
        wrong.append(f"grid is {grid!r:.80}, wanted a list of positive int")
    elif math.prod(grid) >= _LIMIT:
        wrong.append("grid has more steps than 63 bits hold")
    wanted_fields: dict[str, dict[str, type]] = {
        "buffers": {"name": str, "size_bytes": int, "double_buffered": bool},
        "inputs": {"name": str, "size_bytes": int, "re_reads": int},
        "outputs": {"name": str, "size_bytes": int, "re_reads": int},
    }
    for key, fields in wanted_fields.items():
        wrong += _wrong_entries(key, meta.get(key, ()), fields)
    if type(meta.get("vreg_estimate_bytes", 0)) is not int:
        wrong.append("vreg_estimate_bytes is not an int")
    try:
        json.dumps(meta)
    except (TypeError, ValueError, RecursionError) as error:
        wrong.append(f"it is not plain JSON: {error}")
    if wrong:
        raise Refusal(Status.CONTRACT, "get_tiling_meta(): " + "; ".join(wrong))
    return meta
