"""The minimal kernels that the TPU compiler is asked by, each of its own operation, and what is kept of the answers."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks import dialect
from benchmarks.lib import dialect_kernels, dialects
from benchmarks.lib.dialect_kernels import SPARSE_CORE, TENSOR_CORE, Core
from ratchet.tpu.mlir.calls import walk

CORES = {"": Core(kind=TENSOR_CORE, lanes=8), ".sc": Core(kind=SPARSE_CORE, lanes=8)}
AROUND = {"func.func", "func.return"}
"""Operations that every kernel is made of."""


def texts(core: Core, operation: str) -> list[str]:
    made = []
    for body in dialect_kernels.lines(operation):
        try:
            made.append(dialect.kernel(core, body))
        except ValueError:
            continue
    return made


def counted(text: str) -> Counter[str]:
    """The operations of a kernel, as the bindings read them."""
    return Counter(op.name for op in walk(dialect._parsed(text).operation))


@pytest.mark.parametrize(("end", "least"), [("", 150), (".sc", 140)], ids=["tc", "sc"])
def test_there_is_a_kernel_of_each_operation_that_compiles(end: str, least: int) -> None:
    """It has the operation once more than a kernel that does nothing."""
    core, lowers = CORES[end], dialects.lowers(dialects.version())
    took = [name for name, places in lowers.items() if any(place.endswith(".sc") == bool(end) for place in places)]
    assert len(took) > least
    around = counted(dialect_kernels.module(core, ""))
    kernels = {name: [counted(text) for text in texts(core, name)] for name in took}
    assert {name for name, made in kernels.items() if not any(one[name] > around[name] for one in made)} == AROUND


def test_what_a_kernel_computes_is_stored() -> None:
    (text,) = texts(CORES[""], "vector.from_elements")
    assert text.index("vector.from_elements") < text.index("tpu.vector_store")


def test_no_kernel_is_made_of_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="operand"):
        dialect.kernel(CORES[""], '%r = "arith.addf"(%n, %m) : (I, I) -> I')


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What is known, where ``--write`` may change it."""
    monkeypatch.setattr(dialects, "FILE", tmp_path / "lowers.json")
    known = {"0.0.1": {"v5e": "arith.addi"}, dialects.version(): {"v5e v6e": "arith.addi", "v6e": "arith.addf"}}
    dialects.FILE.write_text(json.dumps(known))
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    dialects._known.cache_clear()
    dialects.lowers.cache_clear()


@pytest.mark.usefixtures("kept")
def test_what_was_not_asked_stays_as_it_was(monkeypatch):
    """Nor does a compiler that dies, or does not come back, say that it does not take an operation."""
    answered = {"arith.addi": "no", "arith.addf": dialect.DIES, "arith.muli": ""}
    monkeypatch.setattr(dialect, "answers", lambda chip, kind, names: [(name, answered[name]) for name in names])
    monkeypatch.setattr("sys.argv", ["dialect", "--only", *answered, "--on", "v6e", "--write"])
    dialect.main()
    assert dialects.lowers(dialects.version()) == {
        "arith.addi": ["v5e"], "arith.addf": ["v6e"], "arith.muli": ["v6e", "v6e.sc"]
    }  # fmt: skip
    assert dialects.lowers("0.0.1") == {"arith.addi": ["v5e"]}


@pytest.mark.usefixtures("kept")
def test_some_operations_of_an_unknown_version_are_not_written_as_all(monkeypatch, capsys):
    monkeypatch.setattr(dialect, "version", lambda: "9.9")
    monkeypatch.setattr("sys.argv", ["dialect", "--only", "arith.addi", "--write"])
    with pytest.raises(SystemExit, match="2"):
        dialect.main()
    assert "without --only" in capsys.readouterr().err
