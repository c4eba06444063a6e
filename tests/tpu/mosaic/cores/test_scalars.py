"""Scalars that a core computes quickly, beside the rules that other kernels are traced with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.mlir.module import Block, Function, KernelModule, Op, Type, Value
from ratchet.tpu.mosaic.cores.scalars import quick
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.ops import RULE_MODULES
from ratchet.tpu.mosaic.scalars import FOLDED
from ratchet.tpu.mosaic.state import Options

assert RULE_MODULES
words = st.integers(-(2**31), 2**31 - 1) | st.integers(-40, 40)


def operation(name: str, kinds: tuple[str, ...], result: str, **attributes: object) -> Op:
    operands = tuple(Value(Type(kind="scalar", dtype=kind)) for kind in kinds)
    op = Op(name, operands, (), attributes, (), "")
    op.results = (Value(Type(kind="scalar", dtype=result), op),)
    return op


def both(op: Op, *given: np.generic) -> tuple[object, object]:
    """What the quick way binds, None where it leaves the operation to the rule, and what the rule binds."""
    values = dict(zip(op.operands, given, strict=True))
    fast = quick(op)
    assert fast is not None
    mine = dict(values)
    known = fast(mine)
    module = KernelModule(version=0, functions={"k": Function(name="k", body=Block((), (op,)), attributes={})})
    executor = Executor(kernel=module, options=Options(), fill=np.int32(0), padding=np.int32(0))
    executor.values.update(values)
    executor.execute(op)
    return (mine[op.results[0]] if known else None), np.asarray(executor.values[op.results[0]])[()]


@pytest.mark.parametrize("name", sorted(FOLDED))
@given(a=words, b=words)
def test_words_are_computed_as_the_rule_does(name, a, b):
    fast, slow = both(operation(name, ("i32", "i32"), "i32"), np.int32(a), np.int32(b))
    assert fast is None or (fast == slow and fast.dtype == np.int32)


@pytest.mark.parametrize("predicate", range(6))
@given(a=words, b=words)
def test_words_are_compared_as_the_rule_does(predicate, a, b):
    fast, slow = both(operation("arith.cmpi", ("i32", "i32"), "i1", predicate=predicate), np.int32(a), np.int32(b))
    assert fast == slow


@given(which=st.booleans(), a=words, b=words)
def test_one_of_two_is_chosen_as_the_rule_does(which, a, b):
    op = operation("arith.select", ("i1", "i32", "i32"), "i32")
    fast, slow = both(op, np.bool_(which), np.int32(a), np.int32(b))
    assert fast == slow == (a if which else b)


def test_what_is_no_word_is_left_to_the_rule():
    assert quick(operation("arith.addi", ("i16", "i16"), "i16")) is None
    assert quick(operation("arith.addf", ("f32", "f32"), "f32")) is None
    assert quick(operation("arith.cmpi", ("i32", "i32"), "i1", predicate=6)) is None, "unsigned"
