"""What the compiler trusts and nobody checked is a finding where it is false; where it is true, there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu.mlir.bindings import mosaic_module, parse_kernel, stablehlo_of
from ratchet.tpu.mlir.calls import kernel_calls
from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic import run
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.rules import promise
from ratchet.values.status import Status
from tests.exam.judge.programs import artefact, blocked
from tests.refusals import refused
from tests.tpu.mosaic.kernels import ANY, DMA, VMEM, Kernel, X, findings, kernel_call, kinds, rows, with_scalars

EIGHTS = np.arange(8, dtype=np.int32) * 8

# --- promises ------------------------------------------------------------------------------------


def gather(where: str) -> Kernel:
    """Eight rows of ``x`` from each of eight places, which are promised to be multiples of eight."""

    def in_kernel(places: Any, x: Any, o: Any) -> None:
        o[...] = x[pl.ds(pl.multiple_of(places[pl.program_id(0)], 8), 8), :]

    def in_loop(places: Any, x: Any, o: Any) -> None:
        def add(n: Any, total: Any) -> Any:
            return total + x[pl.ds(pl.multiple_of(places[n], 8), 8), :]

        o[...] = jax.lax.fori_loop(0, 8, add, jnp.zeros((8, 128)))

    def in_map(places: Any, x: Any, o: Any) -> None:
        o[...] = x[...]

    whole = pl.BlockSpec((64, 128), lambda i, places: (0, 0))
    row = pl.BlockSpec((pl.Element(8), pl.Element(128)), lambda i, places: (pl.multiple_of(places[i], 8), 0))
    body = {"kernel": in_kernel, "loop": in_loop, "map": in_map}[where]
    ins, out = [row if where == "map" else whole], pl.BlockSpec((8, 128), lambda i, places: (i, 0))
    return with_scalars(body, grid=(8,), ins=ins, out=out)


@pytest.mark.parametrize("where", ["kernel", "loop", "map"])
def test_a_false_multiple_is_named_with_its_step_and_line(where: str) -> None:
    assert kinds(gather(where), EIGHTS, X) == []
    false = EIGHTS.copy()
    false[5] = 44
    (finding,) = findings(gather(where), false, X)
    assert finding.kind is Kind.FALSE_PROMISE
    assert finding.operation == "tpu.assume_multiple"
    assert finding.grid_step == ((0,) if where == "loop" else (5,))
    name, _, line = finding.location.rpartition(":")
    assert name.endswith("test_assumptions.py")
    assert "pl.multiple_of(places[" in Path(__file__).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(("amount", "wanted"), [(3, []), (0, []), (-3, [Kind.FALSE_PROMISE])])
def test_a_vector_is_not_rotated_by_a_negative_amount(amount: int, wanted: list[Kind]) -> None:
    def kernel(amount: Any, x: Any, o: Any) -> None:
        o[...] = pltpu.roll(x[...], amount[0], 1)

    call = kernel_call(kernel, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), VMEM])
    assert kinds(call, np.array([amount], np.int32), X) == wanted


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_gather_takes_from_outside_is_not_known(keep: bool) -> None:
    def kernel(x: Any, index: Any, o: Any) -> None:
        taken = jnp.take_along_axis(x[...], index[...], 1, mode="promise_in_bounds")
        o[...] = taken if keep else jnp.where(index[...] < 128, taken, 0.0)

    index = np.tile(np.arange(128, dtype=np.int32)[::-1] + 1, (8, 1))
    call = kernel_call(kernel, shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))
    assert kinds(call, X[:8], index) == ([Kind.UNINITIALISED_MEMORY] if keep else [])


def test_promises_of_arithmetic_are_refused() -> None:
    honest = Op(
        name="arith.addi", operands=(), results=(), regions=(), location="",
        attributes={"overflowFlags": "#arith.overflow<none>", "fastmath": "#arith.fastmath<none>"},
    )  # fmt: skip
    assert promise(honest) == ""
    for name, text in (("overflowFlags", "#arith.overflow<nsw>"), ("fastmath", "#arith.fastmath<nnan>")):
        made = Op(**{**vars(honest), "attributes": {**honest.attributes, name: text}})
        assert promise(made) == f"{name} = {text}"


@pytest.mark.parametrize("layout", ["strided<[256, 1]>", "strided<[128, 1], offset: 4>"])
def test_a_memref_with_a_layout_of_its_own_is_refused(layout: str) -> None:
    made = artefact(blocked(lambda x, o: o.__setitem__(..., x[...])), ((256, 128), jnp.float32))
    (call,) = kernel_calls(stablehlo_of(export.deserialize(bytearray(made.program))))
    text = str(mosaic_module(call.body))
    assert parse_kernel(text.encode()).functions
    plain = re.search(r"memref<\d+x\d+xf32(?=, #)", text)[0]
    with refused(Status.CANNOT_VERIFY, "a memref with the layout"):
        parse_kernel(text.replace(plain, f"{plain}, {layout}").encode())


SLICE = """
"builtin.module"() ({{
  "stable_mosaic.func.func"() ({{
  ^bb0(%at: i32, %x: memref<2x16x256xf32>):
    %zero = "stable_mosaic.arith.constant"() {{value = 0 : i32}} : () -> i32
    %one = "stable_mosaic.arith.constant"() {{value = 1 : i32}} : () -> i32
    %a = "stable_mosaic.tpu.memref_slice"(%x, {index}, %zero, %zero)
      {{operandSegmentSizes = array<i32: 1, 3, 0>}}
      : (memref<2x16x256xf32>, i32, i32, i32) -> memref<1x16x256xf32, {slice}>
    %b = "stable_mosaic.tpu.memref_squeeze"(%a) : (memref<1x16x256xf32, {slice}>) -> memref<16x256xf32, {squeezed}>
    "stable_mosaic.func.return"() : () -> ()
  }}) {{function_type = (i32, memref<2x16x256xf32>) -> (), sym_name = "main"}} : () -> ()
}}) {{stable_mosaic.version = 3 : i64}} : () -> ()
"""
ANYWHERE = "strided<[4096, 256, 1], offset: ?>"


@pytest.mark.parametrize(
    ("index", "sliced", "squeezed", "right"),
    [
        ("%at", ANYWHERE, "strided<[256, 1], offset: ?>", True),
        ("%one", "strided<[4096, 256, 1], offset: 4096>", "strided<[256, 1], offset: 4096>", True),
        ("%zero", "strided<[4096, 256, 1]>", "strided<[256, 1]>", True),
        ("%at", "strided<[4096, 256, 1]>", "strided<[256, 1]>", False),
        ("%one", "strided<[4096, 256, 1], offset: 256>", "strided<[256, 1], offset: 256>", False),
        ("%at", "strided<[4096, 512, 1], offset: ?>", "strided<[512, 1], offset: ?>", False),
        ("%at", ANYWHERE, "strided<[512, 1], offset: ?>", False),
        ("%at", ANYWHERE, "strided<[256, 1], offset: 8>", False),
    ],
)
def test_the_layout_of_a_view_is_that_of_what_it_is_of(index: str, sliced: str, squeezed: str, right: bool) -> None:
    text = SLICE.format(index=index, slice=sliced, squeezed=squeezed).encode()
    if right:
        assert parse_kernel(text).functions
        return
    with refused(Status.CANNOT_VERIFY, "a memref with the layout"):
        parse_kernel(text)


def test_a_program_that_jax_calls_expired_is_executed() -> None:
    """``2 * x`` of float32[8,128], exported by JAX 0.7.2. By default JAX 0.12 refuses exports so old."""
    kept = jax.config.values.copy()
    result = run.load((Path(__file__).parent / "golden" / "doubled-jax-0.7.2.bin").read_bytes()).check([X[:8, :128]])
    assert np.array_equal(result.outputs[0], 2 * X[:8, :128])
    assert jax.config.values == kept


# --- semaphores ----------------------------------------------------------------------------------


def counted(signals: int, waits: int, *, scoped: bool = False, barrier: bool = False) -> Kernel:
    """A semaphore that is signalled and waited for so often in every one of four steps."""

    def count(sem: Any) -> None:
        for _ in range(signals):
            pl.semaphore_signal(sem, 1)
        for _ in range(waits):
            pl.semaphore_wait(sem, 1)

    def kernel(x: Any, o: Any, sem: Any) -> None:
        o[...] = x[...]
        if barrier:
            count(pltpu.get_barrier_semaphore())
        elif scoped:
            pl.run_scoped(count, pltpu.SemaphoreType.REGULAR)
        else:
            count(sem)

    block = rows(16)
    return kernel_call(
        kernel,
        grid=(4,),
        in_specs=[block],
        out_specs=block,
        scratch_shapes=[pltpu.SemaphoreType.REGULAR],
        compiler_params=pltpu.CompilerParams(collective_id=0) if barrier else None,
    )


@pytest.mark.parametrize("where", [{}, {"scoped": True}, {"barrier": True}], ids=["scratch", "scoped", "barrier"])
def test_a_semaphore_is_at_zero_when_it_is_given_back(where: dict[str, bool]) -> None:
    assert kinds(counted(2, 2, **where), X) == []
    assert kinds(counted(2, 1, **where), X) == [Kind.DMA_NEVER_WAITED]
    assert Kind.WAIT_WITHOUT_START in kinds(counted(1, 2, **where), X)


def test_nobody_waits_for_less_than_nothing() -> None:
    def kernel(amounts: Any, x: Any, o: Any, sem: Any) -> None:
        pl.semaphore_signal(sem, amounts[0])
        pl.semaphore_wait(sem, amounts[1])
        o[...] = x[...]

    call = kernel_call(
        kernel, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), VMEM], scratch_shapes=[pltpu.SemaphoreType.REGULAR]
    )
    assert kinds(call, np.array([2, 2], np.int32), X) == []
    assert kinds(call, np.array([-1, -1], np.int32), X) == [Kind.NEGATIVE_AMOUNT]


def test_semaphores_of_an_array_are_within_it() -> None:
    def kernel(slots: Any, x: Any, o: Any, sems: Any) -> None:
        pltpu.async_copy(x, o, sems.at[slots[0]]).wait()

    call = kernel_call(
        kernel, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), ANY], out_specs=ANY, scratch_shapes=[DMA((2,))]
    )
    assert kinds(call, np.array([1], np.int32), X) == []
    assert kinds(call, np.array([2], np.int32), X) == [Kind.SLICE_OUT_OF_BOUNDS]
