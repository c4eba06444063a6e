"""Vector operations of a SparseCore, against numpy: values, and what its documentation leaves open."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.tpu.mosaic.findings import Kind
from tests.imports import OLDER_JAX
from tests.tpu.mosaic.modules import TENSOR_CORE, Executed, execute, module

DRAW = np.random.default_rng(0)
KEYS = np.array([5, -3, 5, 0, 7, -3, 2, 5], np.int32)
FLOATS = np.array([1.5, -2, 0, 1.5, 9, -7, 3, 3], np.float32)
MASK = np.array([0, 1, 1, 0, 1, 0, 1, 1], np.int32)
LOAD = (
    '"tpu.vector_load"(%{0}, %c0) <{{operandSegmentSizes = array<i32: 1, 1, 0>, strides = array<i32>}}> : '
    "(M{0}, index) -> vector<{1}>"
)
STORE = (
    '"tpu.vector_store"({1}, %{0}, %c0) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>, strides = array<i32>, '
    "add = false}}> : (vector<{2}>, M{0}, index) -> ()"
)


def computed(operation: str, *arrays: np.ndarray, out: str = "i32", mask: np.ndarray | None = MASK) -> Executed:
    """An operation on whole vectors of 8: ``%v0`` … are the arrays, ``%p`` the mask, and ``%r`` is stored last."""
    kinds = {"int32": "i32", "float32": "f32"}
    operands = [f"8x{kinds[str(array.dtype)]}" for array in arrays] + ["8xi32", f"8x{out}"]
    lines = ["%c0 = arith.constant 0 : index", "%zero = arith.constant dense<0> : vector<8xi32>"]
    lines += [f"%v{number} = {LOAD.format(number, operands[number])}" for number in range(len(arrays) + 1)]
    lines += [f"%p = arith.cmpi ne, %v{len(arrays)}, %zero : vector<8xi32>", operation]
    lines += [STORE.format(len(arrays) + 1, "%r", operands[-1])]
    given_mask = np.ones(8, np.int32) if mask is None else mask
    return execute(module(operands, "\n".join(lines)), *arrays, given_mask, np.zeros(8, jnp.dtype(_numpy(out))))


def _numpy(element: str) -> Any:
    return {"i32": np.int32, "f32": np.float32}[element]


def order(keys: np.ndarray, mask: np.ndarray, descending: bool) -> np.ndarray:
    """Of a stable sort of unsigned keys, those of the mask first."""
    wide = keys.view(np.uint32).astype(np.int64) if keys.dtype == np.int32 else keys
    wide = -wide if descending else wide
    return np.array(sorted(range(len(keys)), key=lambda lane: (not mask[lane], wide[lane] if mask[lane] else 0)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("keys", [KEYS, FLOATS], ids=["integers", "floats"])
def test_sort_is_stable_reads_integers_as_unsigned_and_puts_the_rest_last(keys: np.ndarray, descending: bool) -> None:
    kind, values = "i32" if keys.dtype == np.int32 else "f32", np.arange(8, dtype=np.int32)
    sort = (
        f'%om, %k, %x = "tpu.sort"(%v0, %v1, %p) <{{descending = {str(descending).lower()}}}> : (vector<8x{kind}>, '
        f"vector<8xi32>, vector<8xi1>) -> (vector<8xi1>, vector<8x{kind}>, vector<8xi32>)\n"
    )
    wanted = order(keys, MASK, descending)
    taken = computed(sort + "%r = arith.addi %x, %zero : vector<8xi32>", keys, values)
    np.testing.assert_array_equal(taken.memory[-1], values[wanted])
    mask = computed(sort + "%r = arith.extui %om : vector<8xi1> to vector<8xi32>", keys, values)
    np.testing.assert_array_equal(mask.memory[-1], np.arange(8) < MASK.sum())
    assert taken.findings == []


def test_a_sort_of_nan_is_a_finding() -> None:
    keys = np.where(np.arange(8) == 2, np.nan, FLOATS).astype(np.float32)
    sort = (
        '%om, %k, %r = "tpu.sort"(%v0, %v1, %p) <{descending = false}> : (vector<8xf32>, vector<8xi32>, '
        "vector<8xi1>) -> (vector<8xi1>, vector<8xf32>, vector<8xi32>)"
    )
    assert [one.kind for one in computed(sort, keys, KEYS).findings] == [Kind.UNDEFINED_VECTOR]
    assert computed(sort, keys, KEYS, mask=1 - (np.arange(8) == 2).astype(np.int32)).findings == []


def scan(kind: str, element: str) -> str:
    """As either version of JAX writes it."""
    newer = {"max": "maxui", "min": "minui"} if element == "i32" else {"max": "maxf", "min": "minf"}
    named = kind if OLDER_JAX else newer.get(kind, kind)
    dimension = "" if OLDER_JAX else ", dimension = 0 : i64"
    return (
        f'%r = "tpu.scan"(%v0, %p) <{{kind = #tpu.reduction_kind<{named}>{dimension}}}> : (vector<8x{element}>, '
        f"vector<8xi1>) -> vector<8x{element}>"
    )


@pytest.mark.parametrize("element", ["i32", "f32"])
@pytest.mark.parametrize(("kind", "function"), [("sum", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_a_scan_is_of_what_takes_part(kind: str, function: Any, element: str) -> None:
    x = KEYS if element == "i32" else FLOATS
    got = computed(scan(kind, element), x, out=element).memory[-1]
    read = x if kind == "sum" or element == "f32" else x.view(np.uint32)
    for lane in range(8):
        part = read[: lane + 1][MASK[: lane + 1] == 1]
        if len(part):
            assert got.view(read.dtype)[lane] == function.reduce(part)
        elif kind == "sum":
            assert got[lane] != 0, "what a sum is before it begins is not documented"
        else:
            assert got[lane] == x[lane]


def test_equal_elements_are_counted_and_the_last_is_marked() -> None:
    count = '%last, %n = "tpu.scan_count"(%p, %v0) : (vector<8xi1>, vector<8xi32>) -> (vector<8xi1>, vector<8xi32>)\n'
    counter: Counter[int] = Counter()
    counts, last = [], []
    for lane, key in enumerate(KEYS):
        counter[key] += int(MASK[lane])
        counts.append(counter[key] if MASK[lane] else 1)
        last.append(bool(MASK[lane]) and not any(KEYS[i] == key and MASK[i] for i in range(lane + 1, 8)))
    np.testing.assert_array_equal(
        computed(count + "%r = arith.addi %n, %zero : vector<8xi32>", KEYS).memory[-1], counts
    )
    marked = computed(count + "%r = arith.extui %last : vector<8xi1> to vector<8xi32>", KEYS)
    np.testing.assert_array_equal(marked.memory[-1], last)


@pytest.mark.parametrize(("kind", "mask", "wanted"), [
    ("sum", MASK, 5), ("sum", 0 * MASK, 0), ("find_first_set", MASK, 1), ("find_first_set", 0 * MASK, 8),
])  # fmt: skip
def test_masks_are_counted_and_their_first_is_found(kind: str, mask: np.ndarray, wanted: int) -> None:
    reduce = (
        f'%r = "tpu.all_reduce"(%p) <{{dim = 0 : i64, kind = #tpu.reduction_kind<{kind}>}}> : (vector<8xi1>) -> '
        "vector<8xi32>"
    )
    np.testing.assert_array_equal(computed(reduce, mask=mask).memory[-1], np.full(8, wanted))


# --- indexed memory -------------------------------------------------------------------------------


def gathered(places: np.ndarray, mask: np.ndarray, x: np.ndarray) -> Executed:
    """``x`` at ``places``, into the last operand."""
    body = f"""
      %c0 = arith.constant 0 : index
      %zero = arith.constant dense<0> : vector<8xi32>
      %i = {LOAD.format(0, "8xi32")}
      %q = {LOAD.format(1, "8xi32")}
      %p = arith.cmpi ne, %q, %zero : vector<8xi32>
      %r = "tpu.vector_load_idx"(%2, %i, %p) <{{operandSegmentSizes = array<i32: 1, 1, 1>}}> : (M2, vector<8xi32>,
           vector<8xi1>) -> vector<8xf32>
      {STORE.format(3, "%r", "8xf32")}
    """
    kernel = module(["8xi32", "8xi32", f"{len(x)}xf32", "8xf32"], body)
    return execute(kernel, places, mask, x, np.zeros(8, np.float32))


def scattered(places: np.ndarray, mask: np.ndarray, values: np.ndarray, x: np.ndarray, add: bool) -> Executed:
    """``x`` is the last operand, and ``values`` are stored there or added."""
    body = f"""
      %c0 = arith.constant 0 : index
      %zero = arith.constant dense<0> : vector<8xi32>
      %i = {LOAD.format(0, "8xi32")}
      %q = {LOAD.format(1, "8xi32")}
      %p = arith.cmpi ne, %q, %zero : vector<8xi32>
      %v = {LOAD.format(2, "8xi32")}
      "tpu.vector_store_idx"(%v, %3, %i, %p)
           <{{operandSegmentSizes = array<i32: 1, 1, 1, 1>, add = {str(add).lower()}}}> :
           (vector<8xi32>, M3, vector<8xi32>, vector<8xi1>) -> ()
    """
    return execute(module(["8xi32", "8xi32", "8xi32", f"{len(x)}xi32"], body), places, mask, values, x)


def test_a_gather_takes_what_indices_say_and_reads_nothing_for_the_other_lanes() -> None:
    x, places = DRAW.normal(size=24).astype(np.float32), np.array([3, 23, 0, 99, 3, -7, 8, 1], np.int32)
    result = gathered(places, MASK, x)
    assert result.findings == []
    np.testing.assert_array_equal(result.memory[-1][MASK == 1], x[places[MASK == 1]])
    assert np.isnan(result.memory[-1][MASK == 0]).all()


def test_a_gather_outside_of_its_buffer_is_a_finding() -> None:
    result = gathered(np.array([3, 24, 0, 0, 0, 0, 0, 0], np.int32), MASK, np.ones(24, np.float32))
    assert [one.kind for one in result.findings] == [Kind.SLICE_OUT_OF_BOUNDS]


def test_a_scatter_adds_for_every_lane_and_stores_the_highest() -> None:
    places, values = np.array([2, 2, 9, 0, 2, 4, 9, 11], np.int32), np.arange(8, dtype=np.int32) + 1
    x = np.arange(12, dtype=np.int32)
    wanted = x.copy()
    np.add.at(wanted, places[MASK == 1], values[MASK == 1])
    added = scattered(places, MASK, values, x, add=True)
    np.testing.assert_array_equal(added.memory[-1], wanted)
    assert added.findings == []
    stored = scattered(places, MASK, values, x, add=False)
    for lane in np.flatnonzero(MASK):
        x[places[lane]] = values[lane]
    np.testing.assert_array_equal(stored.memory[-1], x, "the highest lane wins")
    outside = scattered(np.where(places == 11, 12, places).astype(np.int32), MASK, values, x, add=True)
    assert [one.kind for one in outside.findings] == [Kind.SLICE_OUT_OF_BOUNDS]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.permutations(range(12)), st.lists(st.integers(0, 1), min_size=8, max_size=8))
def test_what_is_scattered_is_gathered_again(permutation: list[int], mask: list[int]) -> None:
    places, part = np.array(permutation[:8], np.int32), np.array(mask, np.int32)
    values, x = np.arange(8, dtype=np.int32) + 100, np.zeros(12, np.int32)
    result = scattered(places, part, values, x, add=False)
    x[places[part == 1]] = values[part == 1]
    np.testing.assert_array_equal(result.memory[-1], x)
    back = gathered(places, part, result.memory[-1].astype(np.float32))
    np.testing.assert_array_equal(back.memory[-1][part == 1], values[part == 1])
    assert result.findings == back.findings == []


# --- lanes with consecutive elements ----------------------------------------------------------------

EXPAND = {
    "vector_load": '"tpu.vector_load"(%1, %at, %p) <{operandSegmentSizes = array<i32: 1, 1, 1>, strides = array<i32>}>',
    "vector_expand_load": '"tpu.vector_expand_load"(%1, %at, %p) <{expand_dim = 0 : i32}>',
    "expand_load_vreg": '"tpu.expand_load_vreg"(%1, %at, %p)',
}
COMPRESS = {
    "vector_store": '"tpu.vector_store"(%v, %2, %at, %p) <{operandSegmentSizes = array<i32: 1, 1, 1, 1>, strides = '
    "array<i32>, add = ADD}>",
    "vector_compress_store": '"tpu.vector_compress_store"(%v, %2, %at, %p) <{compress_dim = 0 : i32, add = ADD}>',
    "compress_store_vreg": '"tpu.compress_store_vreg"(%v, %2, %at, %p) <{add = ADD}>',
}
MINE = [name for name in (*EXPAND, *COMPRESS) if not OLDER_JAX or name in ("vector_load", "vector_store")]


def _masked(core: str = "sc_vector_subcore", at: int = 2, **lines: str) -> Any:
    body = f"""
      %c0 = arith.constant 0 : index
      %at = arith.constant {at} : index
      %zero = arith.constant dense<0> : vector<8xi32>
      %q = {LOAD.format(0, "8xi32")}
      %p = arith.cmpi ne, %q, %zero : vector<8xi32>
      {lines["line"]}
    """
    return module(["8xi32", "12xi32", "12xi32"], body, core)


def expanded(name: str, core: str = "sc_vector_subcore", at: int = 2) -> Executed:
    line = f"%r = {EXPAND[name]} : (M1, index, vector<8xi1>) -> vector<8xi32>\n{STORE.format(2, '%r', '8xi32')}"
    x = np.arange(12, dtype=np.int32) * 10
    return execute(_masked(core, at, line=line), MASK, x, np.zeros(12, np.int32))


def compressed(name: str, core: str = "sc_vector_subcore", at: int = 2, add: bool = False) -> Executed:
    store = COMPRESS[name].replace("ADD", str(add).lower())
    line = f"%v = {LOAD.format(1, '8xi32')}\n{store} : (vector<8xi32>, M2, index, vector<8xi1>) -> ()"
    x = np.arange(12, dtype=np.int32) * 10
    return execute(_masked(core, at, line=line), MASK, x, np.full(12, 7, np.int32))


@pytest.mark.parametrize("name", [name for name in MINE if name in EXPAND])
def test_lanes_of_a_masked_load_have_consecutive_elements(name: str) -> None:
    result = expanded(name)
    np.testing.assert_array_equal(result.memory[-1][:8][MASK == 1], [20, 30, 40, 50, 60])
    assert result.findings == []
    assert expanded(name, at=7).findings == [], "five are read"
    assert [one.kind for one in expanded(name, at=8).findings] == [Kind.SLICE_OUT_OF_BOUNDS]


@pytest.mark.parametrize("name", [name for name in MINE if name in COMPRESS])
def test_a_masked_store_leaves_no_gaps(name: str) -> None:
    stored = 10 * np.flatnonzero(MASK)
    result = compressed(name)
    np.testing.assert_array_equal(result.memory[-1], [7, 7, *stored, 7, 7, 7, 7, 7])
    np.testing.assert_array_equal(compressed(name, add=True).memory[-1], [7, 7, *(stored + 7), 7, 7, 7, 7, 7])
    assert result.findings == []
    assert compressed(name, at=7).findings == [], "five are written"
    assert [one.kind for one in compressed(name, at=8).findings] == [Kind.SLICE_OUT_OF_BOUNDS]


def test_on_the_tensor_core_a_mask_leaves_gaps() -> None:
    loaded = expanded("vector_load", TENSOR_CORE).memory[-1][:8]
    np.testing.assert_array_equal(loaded, MASK * (np.arange(2, 10) * 10))
    stored = compressed("vector_store", TENSOR_CORE).memory[-1]
    np.testing.assert_array_equal(stored[2:10], np.where(MASK, np.arange(8) * 10, 7))


# --- narrow types, and loops ------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "packed"), [("interleaved", "16"), ("compressed", "8x2")])
@pytest.mark.parametrize(("wide", "narrow"), [("f32", "bf16"), ("i32", "i16")])
def test_packed_vectors_come_back(form: str, packed: str, wide: str, narrow: str) -> None:
    one, other = np.arange(8).astype(_numpy(wide)), -np.arange(8).astype(_numpy(wide))
    pair = f"vector<8x{wide}>"
    body = f"""
      %c0 = arith.constant 0 : index
      %v = {LOAD.format(0, f"8x{wide}")}
      %w = {LOAD.format(1, f"8x{wide}")}
      %u = "tpu.pack_subelements"(%v, %w) <{{positions = array<i32: 0, 1>, pack_format = #tpu.pack_format<{form}>}}> :
           ({pair}, {pair}) -> vector<{packed}x{narrow}>
      %a = "tpu.unpack_subelements"(%u) <{{index = 0 : i32, pack_format = #tpu.pack_format<{form}>}}> :
           (vector<{packed}x{narrow}>) -> {pair}
      %b = "tpu.unpack_subelements"(%u) <{{index = 1 : i32, pack_format = #tpu.pack_format<{form}>}}> :
           (vector<{packed}x{narrow}>) -> {pair}
      {STORE.format(1, "%a", f"8x{wide}")}
      {STORE.format(0, "%b", f"8x{wide}")}
    """
    b, a = execute(module([f"8x{wide}", f"8x{wide}"], body), one, other).memory
    np.testing.assert_array_equal(a, one)
    np.testing.assert_array_equal(b, other)


@pytest.mark.parametrize(("form", "wanted"), [
    ("interleaved", np.stack([np.arange(8), -np.arange(8)], -1).ravel()),
    ("compressed", np.concatenate([np.arange(8), -np.arange(8)])),
])  # fmt: skip
def test_the_order_of_packed_elements(form: str, wanted: np.ndarray) -> None:
    body = f"""
      %c0 = arith.constant 0 : index
      %v = {LOAD.format(0, "8xi32")}
      %w = {LOAD.format(1, "8xi32")}
      %u = "tpu.pack_subelements"(%v, %w) <{{positions = array<i32: 0, 1>, pack_format = #tpu.pack_format<{form}>}}> :
           (vector<8xi32>, vector<8xi32>) -> vector<16xi16>
      {STORE.format(2, "%u", "16xi16")}
    """
    x = np.arange(8, dtype=np.int32)
    got = execute(module(["8xi32", "8xi32", "16xi16"], body), x, -x, np.zeros(16, np.int16)).memory[-1]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("wide", "narrow", "count"), [("8xi32", "16xi16", 2), ("8xi32", "32xi8", 4), ("8xi32", "8xf32", 1)]
)
def test_a_vector_read_as_another_type_has_the_same_bits_along_its_last_dimension(
    wide: str, narrow: str, count: int
) -> None:
    body = f"""
      %c0 = arith.constant 0 : index
      %v = {LOAD.format(0, wide)}
      %n = vector.bitcast %v : vector<{wide}> to vector<{narrow}>
      {STORE.format(1, "%n", narrow)}
      %w = vector.bitcast %n : vector<{narrow}> to vector<{wide}>
      {STORE.format(2, "%w", wide)}
    """
    x = DRAW.integers(-(2**31), 2**31 - 1, 8).astype(np.int32)
    dtype = {1: np.float32, 2: np.int16, 4: np.int8}[count]
    kernel = module([wide, narrow, wide], body)
    _, got, back = execute(kernel, x, np.zeros(8 * count, dtype), np.zeros(8, np.int32)).memory
    np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))
    np.testing.assert_array_equal(back, x)


def test_a_parallel_loop_is_executed_in_order() -> None:
    body = """
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %one = arith.constant 1 : i32
      %out = scf.for %i = %c0 to %c8 step %c1 iter_args(%a = %one) -> (i32) {
        memref.store %a, %0[%i] : M0
        %b = arith.addi %a, %a : i32
        scf.yield %b : i32
      } {sc.loop_unroll_factor = 4 : i64, sc.parallel_access}
    """
    (got,) = execute(module(["8xi32 smem"], body), np.zeros(8, np.int32)).memory
    np.testing.assert_array_equal(got, 2 ** np.arange(8))
