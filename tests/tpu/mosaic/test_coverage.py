"""What is known of the dialects, beside the bindings, Pallas' lowerings, and what the compiler takes."""

from __future__ import annotations

import ast
from importlib import metadata

import pytest

from ratchet.tpu.mosaic import coverage, dialect
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import RULES, WAYS_OUT

OF_SEVERAL_CORES = {
    "tpu.barrier", "tpu.enqueue_indirect_dma", "tpu.fetch_and_add_sync", "tpu.shared_memref_slice",
    "tpu.wait_indirect_dma",
}  # fmt: skip
"""What subcores of a SparseCore do with each other and with HBM."""


def test_the_page_has_every_rule_finding_and_refusal() -> None:
    text = coverage.markdown()
    assert [name for name in (*RULES, *WAYS_OUT) if f"| `{name}` |" not in text] == []
    assert [kind for kind in Kind if f"| `{kind.label}` | `{kind.status.name}` |" not in text] == []


def test_no_operation_of_the_bindings_went_unasked() -> None:
    """A newer jaxlib has others: ``python -m benchmarks.dialect --write`` asks for them."""
    assert set(dialect.lowers(metadata.version("jax"))) == set(dialect.registered())


def test_a_refusal_is_of_an_operation_that_there_is_and_is_not_executed() -> None:
    there = {name for version in dialect.versions() for name in dialect.lowers(version)}
    assert set(RULES) | set(WAYS_OUT) <= there
    assert not set(RULES) & set(WAYS_OUT)


def test_what_pallas_writes_is_known() -> None:
    written = dialect.written()
    assert len(written) > 100
    assert {"tpu.matmul", "tpu.sort", "scf.yield", "arith.addf", "vector.shape_cast"} <= written
    unknown = {name for name in written if not coverage.executed(name) and name not in WAYS_OUT}
    assert unknown <= OF_SEVERAL_CORES


@pytest.mark.parametrize(
    ("version", "chip"),
    [(version, chip) for version in dialect.versions() for chip in coverage.asked(dialect.lowers(version))],
)
def test_at_least_97_of_100_operations_that_compile_are_known(version: str, chip: str) -> None:
    there, executed, refused = coverage.counts(dialect.lowers(version), (chip,))
    assert there > 150
    assert executed + refused >= 0.97 * there


def test_operations_are_found_in_the_source_of_a_lowering() -> None:
    text = """
from jax._src.lib.mlir.dialects import arith
from jax.experimental.mosaic.dialects import tpu as mosaic
made = {1: arith.addi, 2: arith.MulFOp}
def rule(x):
  mosaic.yield_(mosaic.vector_load(x)); other.addf(x); arith.nothing(x)
"""
    there = frozenset({"arith.addi", "arith.mulf", "arith.addf", "tpu.yield", "tpu.vector_load"})
    assert set(dialect.named(ast.parse(text), there)) == there - {"arith.addf"}
