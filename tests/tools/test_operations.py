"""What is known of the dialects, beside the bindings, Pallas' lowerings, and what the compiler takes."""

from __future__ import annotations

import ast

import pytest

from benchmarks.lib import dialects
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import RULES, WAYS_OUT
from tools import operations


def test_the_page_has_every_rule_finding_and_refusal() -> None:
    text = operations.markdown()
    assert [name for name in (*RULES, *WAYS_OUT) if f"| `{name}` |" not in text] == []
    assert [kind for kind in Kind if f"| `{kind.label}` | `{kind.status.name}` |" not in text] == []


def test_no_operation_of_the_bindings_went_unasked() -> None:
    """A newer jaxlib has others: ``python -m benchmarks.dialect --write`` asks for them."""
    assert set(dialects.lowers(dialects.version())) == set(dialects.registered())


def test_a_refusal_is_of_an_operation_that_there_is_and_is_not_executed() -> None:
    there = {name for version in dialects.versions() for name in dialects.lowers(version)}
    assert set(RULES) | set(WAYS_OUT) <= there
    assert not set(RULES) & set(WAYS_OUT)


def test_what_pallas_writes_is_known() -> None:
    written = dialects.written()
    assert len(written) > 100
    assert {"tpu.matmul", "tpu.sort", "scf.yield", "arith.addf", "vector.shape_cast"} <= written
    assert [name for name in sorted(written) if not operations.executed(name) and name not in WAYS_OUT] == []


@pytest.mark.parametrize(
    ("version", "chip"),
    [(version, chip) for version in dialects.versions() for chip in operations.asked(dialects.lowers(version))],
)
def test_at_least_97_of_100_operations_that_compile_are_known(version: str, chip: str) -> None:
    there, executed, refused = operations.counts(dialects.lowers(version), (chip,))
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
    assert set(dialects.named(ast.parse(text), there)) == there - {"arith.addf"}
