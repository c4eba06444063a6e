"""What the table of operations says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic import ops
from ratchet.tpu.mosaic.rules import RULES, Unsupported, integer

STORES = {"store", "store_all", "scatter"}
BY_CORES = {"tpu.enqueue_indirect_dma"}
"""Executed where a kernel has its cores, by no rule."""


def test_an_attribute_that_is_not_there_is_refused_by_name() -> None:
    op = Op(name="tpu.rotate", operands=(), results=(), attributes={"amount": "3"}, regions=(), location="")
    assert (integer(op, "amount"), integer(op, "stride", 0)) == (3, 0)
    with pytest.raises(Unsupported, match="without its attribute dimension"):
        integer(op, "dimension")


def named(code: CodeType) -> Iterator[str]:
    """The names of functions and attributes that code has, with the functions inside."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from named(inner)


def reached(run: Callable[..., Any], seen: set[str] | None = None) -> set[str]:
    """The names in a function and in those of the rooms' modules that it calls."""
    seen = set() if seen is None else seen
    assert isinstance(run, FunctionType)
    for name in set(named(run.__code__)) - seen:
        seen.add(name)
        called = run.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__.startswith(ops.__name__):
            reached(called, seen)
    return seen


@pytest.mark.parametrize("name", sorted(RULES))
def test_whatever_loads_memory_is_marked_as_reading_it(name: str) -> None:
    """Its reads are logged for races between chips, and digested; a store may load what it leaves as it was."""
    names = reached(RULES[name].run)
    loads = "digest" in names or (bool(names & {"load", "load_all"}) and not names & STORES)
    assert RULES[name].reads == (loads or name in BY_CORES)
