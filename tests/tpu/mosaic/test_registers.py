"""What the compiler takes and Pallas hardly writes: whole vector registers, casts of memrefs, assertions, elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ratchet.tpu.mosaic.findings import Kind
from ratchet.values.status import Status
from tests.imports import OLDER_JAX
from tests.refusals import refused
from tests.tpu.mosaic.modules import TENSOR_CORE, Executed, execute, module

X = np.arange(32 * 128, dtype=np.int32).reshape(32, 128)
ZERO = np.zeros((8, 128), np.int32)
ALL = "sublane_mask = array<i1: true, true, true, true, true, true, true, true>"
OFFSETS = [7, 0, 3, 3, 9, 1, 2, 20]


def run(body: str, *, core: str = TENSOR_CORE, scalar: int = 0) -> Executed:
    """A kernel over ``%0`` (32x128), ``%1`` (8x128) and ``%2`` (8 scalars, the first of which is ``%i``)."""
    begin = """
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %zero = arith.constant 0 : i32
      %i = memref.load %2[%c0] : M2
      %x = vector.load %0[%c4, %c0] : M0, vector<8x128xi32>
      %y = vector.load %0[%c0, %c0] : M0, vector<8x128xi32>
    """
    kernel = module(["32x128xi32", "8x128xi32", "8xi32 smem"], begin + body, core)
    return execute(kernel, X, ZERO, np.full(8, scalar, np.int32))


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ('%r = "tpu.gather"(%x) <{indices = array<i32: 3, 0, 0, 7, 1, 2, 5, 4>, dimension = 0 : i32}> : '
         "(vector<8x128xi32>) -> vector<8x128xi32>", X[4:12][[3, 0, 0, 7, 1, 2, 5, 4]]),
        ('%r = "tpu.sublane_shuffle"(%x, %y) <{pattern = array<i32: 7, 6, 5, 4, 11, 10, 9, 8>}> : '
         "(vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>", np.concatenate([X[11:7:-1], X[3::-1]])),
        ("%r = vector.insert %i, %x [2, 5] : i32 into vector<8x128xi32>",
         np.where(np.arange(1024).reshape(8, 128) == 2 * 128 + 5, -3, X[4:12])),
        ("%e = vector.from_elements %i, %zero : vector<2xi32>\n%v = vector.extract %e[0] : i32 from vector<2xi32>\n"
         "%r = vector.broadcast %v : i32 to vector<8x128xi32>", np.full((8, 128), -3)),
        ('%m = "tpu.create_subelement_mask"() <{from = 2 : i32, to = 5 : i32}> : () -> vector<8x128xi1>\n'
         "%r = arith.select %m, %x, %y : vector<8x128xi1>, vector<8x128xi32>",
         np.where((np.arange(8) >= 2)[:, None] & (np.arange(8) < 5)[:, None], X[4:12], X[:8])),
        ('%m = "tpu.create_subelement_mask"() <{from = 5 : i32, to = 2 : i32}> : () -> vector<8x128xi1>\n'
         "%r = arith.select %m, %x, %y : vector<8x128xi1>, vector<8x128xi32>",
         np.where((np.arange(8) >= 2)[:, None] & (np.arange(8) < 5)[:, None], X[:8], X[4:12])),
        ('%r = "tpu.broadcast_in_sublanes"(%x) <{lane = 3 : i32}> : (vector<8x128xi32>) -> vector<8x128xi32>',
         np.broadcast_to(X[4 + np.arange(8), 3 + np.arange(8)][:, None], (8, 128))),
        (f'%r = "tpu.load"(%0, %c4, %c0) <{{{ALL}, sublane_stride = 1 : i32}}> : (M0, index, index) -> '
         "vector<8x128xi32>", X[4:12]),
        (f'%r = "tpu.shuffled_load"(%0, %c4, %c0) <{{{ALL}, sublane_offsets = array<i32: '
         f'{", ".join(map(str, OFFSETS))}>}}> : (M0, index, index) -> vector<8x128xi32>', X[4:][OFFSETS]),
        ("%r = scf.execute_region -> vector<8x128xi32> {\nscf.yield %x : vector<8x128xi32>\n}", X[4:12]),
        ("%r = memref.alloca_scope -> (vector<8x128xi32>) {\nmemref.alloca_scope.return %x : vector<8x128xi32>\n}",
         X[4:12]),
        ("%d = vector.broadcast %i : i32 to vector<8x128xi32>\n%r = arith.ceildivsi %x, %d : vector<8x128xi32>",
         -(X[4:12] // 3)),
        ("%d = vector.broadcast %i : i32 to vector<8x128xi32>\n%r = arith.ceildivui %d, %x : vector<8x128xi32>",
         -((-(2**32 - 3)) // X[4:12].astype(np.int64))),
        ("%a = arith.sitofp %x : vector<8x128xi32> to vector<8x128xf32>\n%f = arith.sitofp %i : i32 to f32\n"
         "%b = vector.broadcast %f : f32 to vector<8x128xf32>\n%c = math.copysign %a, %b : vector<8x128xf32>\n"
         "%r = arith.fptosi %c : vector<8x128xf32> to vector<8x128xi32>", -X[4:12]),
        ('%r = "vector.shuffle"(%x, %y) <{mask = array<i64: 15, 0, 3, 8, 9, 7, 1, 2>}> : '
         "(vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>",
         np.concatenate([X[4:12], X[:8]])[[15, 0, 3, 8, 9, 7, 1, 2]]),
        ("%k = arith.constant 3 : index\n%m = vector.create_mask %k, %c4 : vector<8x128xi1>\n"
         "%r = arith.select %m, %x, %y : vector<8x128xi1>, vector<8x128xi32>",
         np.where((np.arange(8) < 3)[:, None] & (np.arange(128) < 4), X[4:12], X[:8])),
        ("%m = vector.constant_mask [3, 4] : vector<8x128xi1>\n"
         "%r = arith.select %m, %x, %y : vector<8x128xi1>, vector<8x128xi32>",
         np.where((np.arange(8) < 3)[:, None] & (np.arange(128) < 4), X[4:12], X[:8])),
        ("%n = memref.dim %0, %c1 : M0\n%s = arith.index_cast %n : index to i32\n"
         "%r = vector.broadcast %s : i32 to vector<8x128xi32>", np.full((8, 128), 128)),
        ("%n = memref.rank %0 : M0\n%s = arith.index_cast %n : index to i32\n"
         "%r = vector.broadcast %s : i32 to vector<8x128xi32>", np.full((8, 128), 2)),
    ],
    ids=[
        "gather", "sublane_shuffle", "insert", "from_elements", "subelements", "all-other-subelements",
        "broadcast_in_sublanes", "load", "shuffled_load", "execute_region", "alloca_scope", "ceildivsi", "ceildivui",
        "copysign", "shuffle", "create_mask", "constant_mask", "dim", "rank",
    ],
)  # fmt: skip
def test_a_vector_is_computed(operation: str, wanted: Any) -> None:
    result = run(f"{operation}\nvector.store %r, %1[%c0, %c0] : M1, vector<8x128xi32>", scalar=-3)
    np.testing.assert_array_equal(result.memory[1], wanted)
    assert result.findings == []


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        (f'"tpu.store"(%x, %1, %c0, %c0) <{{{ALL}, operandSegmentSizes = array<i32: 1, 1, 2, 0>, sublane_stride = 1 : '
         "i32, add = true}> : (vector<8x128xi32>, M1, index, index) -> ()", X[4:12] + 0),
        (f'"tpu.shuffled_store"(%x, %1, %c0, %c0) <{{{ALL}, sublane_offsets = array<i32: 7, 6, 5, 4, 3, 2, 1, 0>}}> : '
         "(vector<8x128xi32>, M1, index, index) -> ()", X[4:12][::-1]),
        ("%s = \"tpu.memref_slice\"(%0, %i, %zero) <{operandSegmentSizes = array<i32: 1, 2, 0>}> : (M0, i32, i32) -> "
         "memref<8x128xi32, #tpu.memory_space<vmem>>\n%t = memref.memory_space_cast %s : memref<8x128xi32, "
         "#tpu.memory_space<vmem>> to memref<8x128xi32>\n%u = memref.memory_space_cast %t : memref<8x128xi32> to M1\n"
         "memref.copy %u, %1 : M1 to M1", X[8:16]),
    ],
    ids=["store", "shuffled_store", "copy-of-a-cast"],
)  # fmt: skip
def test_memory_is_written(operation: str, wanted: Any) -> None:
    result = run(operation, scalar=8)
    np.testing.assert_array_equal(result.memory[1], wanted)
    assert result.findings == []


def test_registers_in_part_are_refused() -> None:
    some = ALL.replace("true, true", "false, true", 1)
    with refused(Status.CANNOT_VERIFY, "tpu.load of some sublanes"):
        run(f'%r = "tpu.load"(%0, %c0, %c0) <{{{some}, sublane_stride = 1 : i32}}> : (M0, index, index) -> '
            "vector<8x128xi32>")  # fmt: skip


@pytest.mark.parametrize("scalar", [-1, 5])
def test_an_assertion_that_does_not_hold_is_a_finding(scalar: int) -> None:
    result = run('%t = arith.cmpi sge, %i, %zero : i32\ncf.assert %t, "at least zero"', scalar=scalar)
    assert [one.kind for one in result.findings] == ([Kind.FALSE_PROMISE] if scalar < 0 else [])


@pytest.mark.skipif(OLDER_JAX, reason="JAX 0.10 has no such operation")
def test_a_reduction_keeps_its_dimensions() -> None:
    result = run("""
      %a = arith.sitofp %x : vector<8x128xi32> to vector<8x128xf32>
      %e = "tpu.reduce"(%a) <{dimensions = array<i64: 1>, kind = #tpu.reduction_kind<maxf>}> :
           (vector<8x128xf32>) -> vector<8x1xf32>
      %b = vector.broadcast %e : vector<8x1xf32> to vector<8x128xf32>
      %r = arith.fptosi %b : vector<8x128xf32> to vector<8x128xi32>
      vector.store %r, %1[%c0, %c0] : M1, vector<8x128xi32>
    """)
    np.testing.assert_array_equal(result.memory[1], np.broadcast_to(X[4:12].max(1, keepdims=True), (8, 128)))
