"""Kernels on several cores: values in any order of cores, and what is found in wrong ones."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu import library
from ratchet.tpu.mosaic import run
from ratchet.tpu.mosaic.cores.core import Core
from ratchet.tpu.mosaic.cores.races import Access, Clocks
from ratchet.tpu.mosaic.findings import Kind, RunResult
from ratchet.values.status import Status
from tests.refusals import refused

plsc = pytest.importorskip("jax.experimental.pallas.tpu_sc")
SUBCORES, LANES = 16, 8
TABLE = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
VMEM, DMA = pltpu.VMEM, pltpu.SemaphoreType.DMA


def executed(function: Callable[..., Any], *arrays: np.ndarray) -> RunResult:
    """A program of v5p, checked."""
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    return run.load(library.export(function, *avals, chip="v5p")).check(arrays)


def found(result: RunResult) -> list[tuple[Kind, str]]:
    return [(one.kind, one.operation) for one in result.findings]


def on_subcores(body: Callable[..., None], shape: tuple[int, ...], *scratch: Any, cores: int = 1) -> Callable[..., Any]:
    def called(*arrays: jax.Array) -> Any:
        mesh = plsc.VectorSubcoreMesh(  # asks for the chip, which is known while it is traced
            core_axis_name="core", subcore_axis_name="subcore", num_cores=cores, num_subcores=SUBCORES
        )
        return pl.kernel(body, jax.ShapeDtypeStruct(shape, jnp.float32), mesh=mesh, scratch_types=scratch)(*arrays)

    return called


# --- subcores of a SparseCore ---------------------------------------------------------------------


def gathered(*, early: bool = False, past: int = 0, over: bool = False) -> Callable[..., Any]:
    each = 8

    def body(table: Any, index: Any, o: Any, mine: Any, rows: Any, sem: Any) -> None:
        at = (lax.axis_index("core") * SUBCORES + lax.axis_index("subcore")) * each
        pltpu.sync_copy(index.at[pl.ds(at, each)], mine)
        copy = pltpu.async_copy(table.at[pl.ds(past, 256 - past)].at[mine], rows, sem)
        if over:
            pltpu.sync_copy(index.at[pl.ds(0, each)], mine)
        if not early:
            copy.wait()
        pltpu.sync_copy(rows, o.at[pl.ds(at, each)])
        if early:
            copy.wait()

    scratch = VMEM((each,), jnp.int32), VMEM((each, 128), jnp.float32), DMA
    return on_subcores(body, (2 * SUBCORES * each, 128), *scratch, cores=2)


INDEX = np.random.default_rng(1).integers(0, 256, 2 * SUBCORES * 8).astype(np.int32)


def test_rows_by_index_are_those_of_the_table():
    result = executed(gathered(), TABLE, INDEX)
    assert found(result) == []
    np.testing.assert_array_equal(result.outputs[0], TABLE[INDEX])


def test_what_subcores_do_with_inputs_and_memory_is_not_kept(monkeypatch):
    """Otherwise a table of 32 MiB took 16 GiB on 64 subcores."""
    made: list[weakref.ref[Core]] = []
    noted: list[tuple[Access, tuple[int, ...]]] = []
    begin, access = Core.__init__, Clocks.access

    def begins(self: Core, *args: Any) -> None:
        made.append(weakref.ref(self))
        begin(self, *args)

    def accesses(self: Clocks, core: int, kind: Access, array: np.ndarray, *args: Any, **how: Any) -> Any:
        noted.append((kind, array.shape))
        return access(self, core, kind, array, *args, **how)

    monkeypatch.setattr(Core, "__init__", begins)
    monkeypatch.setattr(Clocks, "access", accesses)
    gc.disable()
    try:
        executed(gathered(), TABLE, INDEX)
        alive = [one for one in made if one() is not None]
    finally:
        gc.enable()
    assert made
    assert not alive
    assert noted
    assert (Access.READ, TABLE.shape) not in noted


def test_rows_that_are_used_before_they_are_waited_for_are_found():
    assert found(executed(gathered(early=True), TABLE, INDEX)) == [(Kind.READ_BEFORE_WAIT, "tpu.enqueue_dma")]


def test_a_list_of_rows_that_is_overwritten_before_they_are_there_is_found():
    assert found(executed(gathered(over=True), TABLE, INDEX)) == [(Kind.SOURCE_OVERWRITTEN, "tpu.enqueue_dma")]


def test_scratch_that_is_given_back_before_its_copy_is_there_is_found():
    def body(x: Any, o: Any, sem: Any) -> None:
        def begun(rows: Any) -> None:
            pltpu.async_copy(x.at[pl.ds(0, 8)], rows, sem)

        pl.run_scoped(begun, VMEM((8, 128), jnp.float32))

        def ended(rows: Any) -> None:
            pltpu.make_async_copy(x.at[pl.ds(0, 8)], rows, sem).wait()
            pltpu.sync_copy(x.at[pl.ds(0, 8)], o)

        pl.run_scoped(ended, VMEM((8, 128), jnp.float32))

    assert found(executed(on_subcores(body, (8, 128), DMA), TABLE)) == [(Kind.TARGET_OVERWRITTEN, "memref.alloca")]


def test_a_row_that_a_table_does_not_have_is_found():
    wrong = np.where(np.arange(INDEX.size) == 77, 256, INDEX).astype(np.int32)
    result = executed(gathered(), TABLE, wrong)
    assert found(result) == [(Kind.SLICE_OUT_OF_BOUNDS, "tpu.enqueue_indirect_dma")]
    assert "names row 256 of 256" in str(result.findings[0])


def one_row(*, own: bool = False) -> Callable[..., Any]:
    """All subcores write one row: the first of the table, or each its own."""

    def body(x: Any, o: Any, row: Any) -> None:
        pltpu.sync_copy(x.at[pl.ds(lax.axis_index("subcore") if own else 0, 1)], row)
        pltpu.sync_copy(row, o)

    return on_subcores(body, (1, 128), VMEM((1, 128), jnp.float32))


def test_what_all_write_alike_is_no_race():
    result = executed(one_row(), TABLE)
    assert found(result) == []
    np.testing.assert_array_equal(result.outputs[0], TABLE[:1])


def test_what_each_writes_in_its_own_way_is_one():
    assert found(executed(one_row(own=True), TABLE)) == [(Kind.CORES_RACE, "tpu.enqueue_dma")]


def through_shared_memory(*, barrier: bool = True, adds: bool = False) -> Callable[..., Any]:
    """Each subcore gives a row, and takes that of the next one; or all add to one."""

    def body(x: Any, o: Any, row: Any, places: Any, shared: Any) -> None:
        me = lax.axis_index("subcore")
        pltpu.sync_copy(x.at[pl.ds(me, 1)], row)
        if adds:
            places[...] = jnp.zeros((LANES,), jnp.int32)

            @pl.when(me == 0)
            def _() -> None:
                pltpu.sync_copy(x.at[pl.ds(SUBCORES, 1)], shared.at[pl.ds(0, 1)])

            plsc.subcore_barrier()
            pltpu.sync_copy(row, shared.at[places.at[pl.ds(0, 1)]], add=True)
        else:
            pltpu.sync_copy(row, shared.at[pl.ds(me, 1)])
        if barrier:
            plsc.subcore_barrier()
        source = 0 if adds else lax.rem(me + 1, SUBCORES)
        pltpu.sync_copy(shared.at[pl.ds(source, 1)], row)
        pltpu.sync_copy(row, o.at[pl.ds(me, 1)])

    scratch = VMEM((1, 128), jnp.float32), VMEM((LANES,), jnp.int32), pltpu.VMEM_SHARED((SUBCORES, 128), jnp.float32)
    return on_subcores(body, (SUBCORES, 128), *scratch)


def test_subcores_pass_rows_through_memory_that_they_share():
    result = executed(through_shared_memory(), TABLE)
    assert found(result) == []
    np.testing.assert_array_equal(result.outputs[0], np.roll(TABLE[:SUBCORES], -1, 0))


def test_without_a_barrier_what_a_subcore_takes_is_a_race():
    result = executed(through_shared_memory(barrier=False), TABLE)
    assert found(result) in ([(Kind.CORES_RACE, "tpu.enqueue_dma")], [(Kind.UNINITIALISED_MEMORY, "tpu.enqueue_dma")])


def test_what_all_add_has_one_sum_in_any_order_of_the_cores():
    result = executed(through_shared_memory(adds=True), TABLE)
    assert found(result) == []
    one = functools.reduce(np.add, TABLE[:SUBCORES], TABLE[SUBCORES])
    np.testing.assert_array_equal(result.outputs[0], np.broadcast_to(one, (SUBCORES, 128)))


# --- two TensorCores ------------------------------------------------------------------------------


def handed_over(*, signals: int = 1, waits: int = 1, first: bool = True) -> Callable[..., Any]:
    """The first core doubles rows into HBM, the second one takes them from there."""

    def body(x: Any, between: Any, o: Any, rows: Any, sem: Any, done: Any) -> None:
        me = lax.axis_index("core")

        def move(source: Any, target: Any) -> None:
            pltpu.async_copy(source, target, sem).wait()

        @pl.when(me == 0)
        def _() -> None:
            move(x, rows)
            rows[...] = rows[...] * 2
            if not first:
                pl.semaphore_signal(done, signals, core_index=1)
            move(rows, between)
            if first and signals:
                pl.semaphore_signal(done, signals, core_index=1)

        @pl.when(me == 1)
        def _() -> None:
            if waits:
                pl.semaphore_wait(done, waits)
            move(between, rows)
            move(rows, o)

    scratch = VMEM((8, 128), jnp.float32), DMA, pltpu.SemaphoreType.REGULAR
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)
    shape = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    both = pl.kernel(lambda *refs: pl.run_scoped(functools.partial(body, *refs), *scratch), (shape, shape), mesh=mesh)
    return lambda x: both(x)[1] + 1


def test_a_core_takes_what_the_other_one_made():
    result = executed(handed_over(), TABLE[:8])
    assert found(result) == []
    np.testing.assert_array_equal(result.outputs[0], TABLE[:8] * 2 + 1)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"first": False}, Kind.CORES_RACE),
        ({"waits": 2}, Kind.WAIT_WITHOUT_START),
        ({"signals": 2}, Kind.DMA_NEVER_WAITED),
    ],
)
def test_signals_that_come_too_early_too_seldom_or_too_often_are_found(how, kind):
    assert [one.kind for one in executed(handed_over(**how), TABLE[:8]).findings] == [kind]


def test_a_deadlock_names_who_waits_and_where():
    (finding,) = executed(handed_over(waits=2), TABLE[:8]).findings
    assert "1 of 2 cores wait for what nobody sends, core 1 first: tpu.sem_wait at " in str(finding)
    assert finding.operation == "tpu.sem_wait"


def test_a_kernel_on_several_cores_in_a_loop_is_refused_by_name():
    once = on_subcores(pltpu.sync_copy, (8, 128))

    def often(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, y: once(y), x)

    with refused(Status.CANNOT_VERIFY, "on several cores in a loop around it"):
        executed(often, TABLE[:8])


@pytest.mark.parametrize("taken", [False, True])
def test_a_kernel_in_a_branch_is_executed_where_that_is_taken(taken):
    def body(x: Any, o: Any) -> None:
        pltpu.sync_copy(x.at[pl.ds(8 + lax.axis_index("subcore"), 8)], o)

    once = on_subcores(body, (8, 128))

    def chosen(x: jax.Array, which: jax.Array) -> jax.Array:
        made: jax.Array = lax.cond(which[0] > 0, once, lambda x: x[:8], x)
        return made

    result = executed(chosen, TABLE, np.array([int(taken)], np.int32))
    wanted = [(Kind.CORES_RACE, "tpu.enqueue_dma")] if taken else []
    assert found(result) == wanted, "all subcores write other rows to one place"
    if not taken:
        np.testing.assert_array_equal(result.outputs[0], TABLE[:8])


def looped(*, carried_by_memory: bool) -> Callable[..., Any]:
    """A parallel loop whose iterations are independent, or add what the one before left."""

    def body(x: Any, o: Any, row: Any) -> None:
        pltpu.sync_copy(x.at[lax.axis_index("subcore")], row)

        @plsc.parallel_loop(LANES, 128, LANES)
        def _(at: Any) -> None:
            before = pl.ds(at - LANES, LANES) if carried_by_memory else pl.ds(at, LANES)
            row[pl.ds(at, LANES)] = row[pl.ds(at, LANES)] + row[before]

        pltpu.sync_copy(row, o.at[lax.axis_index("subcore")])

    return on_subcores(body, (SUBCORES, 128), VMEM((128,), jnp.float32))


def test_iterations_of_a_parallel_loop_may_not_use_what_others_left():
    assert found(executed(looped(carried_by_memory=False), TABLE)) == []
    ((kind, _),) = found(executed(looped(carried_by_memory=True), TABLE))
    assert kind is Kind.ORDER_OF_PARALLEL_STEPS
