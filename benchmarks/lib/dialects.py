"""The operations that there are: in the bindings, in what Pallas writes, and in what the TPU compiler takes.

What the compiler takes was asked by ``python -m benchmarks.dialect``, version by version, and is in
``benchmarks/data/lowers.json``.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ratchet.tpu.mlir import bindings

FILE = Path(__file__).parent.parent / "data" / "lowers.json"
CHIPS = ("v5e", "v5p", "v6e", "tpu7x")
_PALLAS = "jax._src.pallas.mosaic"


def place(chip: str, core: str) -> str:
    """A core of a chip, as the file names it: ``v6e`` is its TensorCore, ``v6e.sc`` a SparseCore."""
    return chip if core == "tc" else f"{chip}.sc"


def version() -> str:
    """What ``lowers.json`` calls the installed JAX."""
    return importlib.metadata.version("jax")


def registered() -> frozenset[str]:
    """The operations of the bindings: the tpu dialect, and those of MLIR's that a Mosaic module may hold."""
    return bindings.operations()


def written() -> frozenset[str]:
    """Those that Pallas' lowerings for TensorCore and SparseCore name, read from their source."""
    there, spec = registered(), find_spec(_PALLAS)
    assert spec is not None
    assert spec.submodule_search_locations
    files = [path for folder in spec.submodule_search_locations for path in sorted(Path(folder).glob("*.py"))]
    return frozenset(name for path in files for name in named(ast.parse(path.read_bytes()), there))


def named(tree: ast.Module, there: frozenset[str]) -> Iterator[str]:
    """Operations that a module builds: ``arith.addi(…)``, ``arith.AddIOp(…)``, ``scf.yield_(…)``."""
    dialects = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("dialects")
        for alias in node.names
    }
    classes = {_class(name): name for name in there}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in dialects:
            dialect = dialects[node.value.id]
            function = f"{dialect}.{node.attr.rstrip('_')}"
            if function in there:
                yield function
            elif (dialect, node.attr.lower()) in classes:
                yield classes[dialect, node.attr.lower()]


def _class(name: str) -> tuple[str, str]:
    """The dialect and the name of an operation's class, in lower case."""
    dialect, _, rest = name.partition(".")
    return dialect, rest.replace("_", "").replace(".", "") + "op"


@functools.cache
def _known() -> Mapping[str, Mapping[str, str]]:
    """The file: by version and places, the names of operations."""
    whole: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return whole


@functools.cache
def lowers(version: str) -> Mapping[str, Sequence[str]]:
    """Where the compiler of a version of JAX takes each operation of its bindings: see :func:`place`."""
    return {name: places.split() for places, names in _known()[version].items() for name in names.split()}


def versions() -> list[str]:
    """The versions of JAX of which it was asked."""
    return list(_known())


def keep(answer: Mapping[str, Mapping[str, bool]]) -> None:
    """Write for the installed version whether an operation is taken, by name and place; what was not asked stays."""
    before = lowers(version()) if version() in versions() else {}
    groups: dict[str, list[str]] = {}
    for name in sorted({*before, *answer}):
        taken = {**dict.fromkeys(before.get(name, ()), True), **answer.get(name, {})}
        places = (place(chip, core) for chip in CHIPS for core in ("tc", "sc"))
        groups.setdefault(" ".join(at for at in places if taken.get(at)), []).append(name)
    made = {places: " ".join(names) for places, names in sorted(groups.items())}
    FILE.write_text(json.dumps(dict(sorted({**_known(), version(): made}.items())), indent=1) + "\n", encoding="utf-8")
    _known.cache_clear()
    lowers.cache_clear()
