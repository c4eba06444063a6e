"""Each copy of a compiled kernel is one that was made when its values were computed, and a difference is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import ratchet
from ratchet.exam.judge import control, copies
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.mosaic.run import Options, translated
from ratchet.values import Artefact, Mesh, Program
from ratchet.values.control import ControlFlow, decode, encode
from ratchet.values.copies import COLUMNS, MOST_COPIES, packed, unpacked
from ratchet.values.status import Status
from ratchet.values.tokens import NO_TOKENS
from tests.exam.judge.programs import artefact, run_of
from tests.refusals import refused

Compile = Callable[[Artefact], Program]
F32 = jnp.float32


class Both(NamedTuple):
    """The copies of one program, as executed and as issued."""

    executed: ControlFlow
    issued: ControlFlow
    hlo: HloModule

    def compared(self) -> copies.Compared:
        return copies.compare(self.executed, self.issued.issued, self.hlo, NO_TOKENS)

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> copies.Compared:
        """With the rows of the only kernel's DMAs changed."""
        (one,) = self.issued.issued
        rows = np.frombuffer(unpacked(one.copies, 1 << 30), np.int64).reshape(-1, COLUMNS).copy()
        issued = replace(one, copies=packed(change(rows)))
        return copies.compare(self.executed, [issued], self.hlo, NO_TOKENS)


def both(function: Callable[..., Any], compiled: Compile, *arrays: np.ndarray) -> Both:
    """Executed on these inputs, and modelled with their integers."""
    made = artefact(function, *((array.shape, array.dtype) for array in arrays))
    program = compiled(made)
    result = translated(tokenise(made.program)[0], Options()).check(list(arrays))
    assert result.findings == ()
    given = {number: array for number, array in enumerate(arrays) if array.dtype == np.int32}
    modelled = latency.step(program, V5E, Mesh(), given)[0].control
    assert modelled is not None
    return Both(result.control, modelled, load_hlo(program.dump_dir))


def chosen(buffers: int, *, changes: bool, ids: jax.Array, x: jax.Array) -> jax.Array:
    """Blocks that an index chooses, which the kernel changes."""

    def kernel(ids, x, o):
        if changes:
            for i in range(1, 6):
                ids[i] = 3
        o[...] = x[...]

    blocks = pl.BlockSpec((None, 8, 128), lambda i, ids: (ids[i], 0, 0), pipeline_mode=pl.Buffered(buffers))
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(6,),
        in_specs=[blocks],
        out_specs=pl.BlockSpec((None, 8, 128), lambda i, ids: (i, 0, 0)),
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(ids, x)


IDS, BLOCKS = np.array([0, 1, 2, 2, 4, 5], np.int32), np.arange(6 * 1024, dtype=np.float32).reshape(6, 8, 128)


def test_blocks_that_are_fetched_again_or_stay_are_no_difference(compiled: Compile) -> None:
    for buffers in (1, 2):
        found = both(lambda ids, x, n=buffers: chosen(n, changes=False, ids=ids, x=x), compiled, IDS, BLOCKS).compared()
        assert not found.apart
        assert found.copies >= 11


def test_an_index_that_is_changed_after_its_prefetch_is_a_difference(compiled: Compile) -> None:
    assert not both(lambda ids, x: chosen(1, changes=True, ids=ids, x=x), compiled, IDS, BLOCKS).compared().apart
    made = both(lambda ids, x: chosen(2, changes=True, ids=ids, x=x), compiled, IDS, BLOCKS)
    (what,) = made.compared().apart
    assert "blocks of operand 1: number 2" in what
    assert "byte 12,288 for the values, 4,096, 12,288 when modelled" in what
    timeline = run_of(control=made.issued)
    with refused(Status.COPIES_DIFFER, match="blocks of operand 1"):
        control.step(made.executed, timeline, NO_TOKENS, made.hlo)


def test_an_index_that_is_changed_has_to_be_read_by_copies(compiled: Compile) -> None:
    for function in (
        lambda ids, x: chosen(2, changes=True, ids=ids, x=2.0 * x),
        lambda ids, x: jax.lax.fori_loop(0, 3, lambda _, y: chosen(1, changes=True, ids=ids, x=y), x),
    ):
        made = both(function, compiled, IDS, BLOCKS)
        (what,) = made.compared().apart
        assert "follow from an index that the kernel changes" in what
        with refused(Status.COPIES_DIFFER, match="wanted an index that stays"):
            control.step(made.executed, run_of(control=None), NO_TOKENS, made.hlo)


def added(space: Any, x: jax.Array, m: jax.Array) -> jax.Array:
    """A copy of the kernel's own from what XLA computes beside it."""

    def kernel(x, m, o, here, semaphore):
        copy = pltpu.make_async_copy(m, here, semaphore)
        copy.start()
        copy.wait()
        o[...] = x[...] + here[...]

    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        kernel,
        in_specs=[vmem, pl.BlockSpec(memory_space=space)],
        out_specs=vmem,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM(m.shape, F32), pltpu.SemaphoreType.DMA],
    )(x, 2.0 * m)


TILE = np.ones((64, 256), np.float32)


def test_a_copy_of_an_operand_in_vmem_is_vector_code(compiled: Compile) -> None:
    made = both(functools.partial(added, pl.ANY), compiled, TILE, TILE)
    found = made.compared()
    assert not found.apart
    assert found.moved == made.executed.copies
    assert control.differences(made.executed, made.issued)
    assert control.differences(made.executed, made.issued, found.moved) == ()
    assert control.step(made.executed, run_of(control=made.issued), NO_TOKENS, made.hlo)


def passed_on(x: jax.Array) -> jax.Array:
    """A block, copied to the kernel's own memory and from there to the result."""

    def kernel(x, o, here, semaphore):
        for i in range(2):
            for source, target in ((x.at[pl.ds(8 * i, 8)], here), (here, o.at[pl.ds(8 * i, 8)])):
                copy = pltpu.make_async_copy(source, target, semaphore)
                copy.start()
                copy.wait()

    any_ = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        kernel,
        in_specs=[any_],
        out_specs=any_,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA],
    )(x)


def test_copies_into_a_slice_of_a_loops_result(compiled: Compile) -> None:
    blocks = np.ones((3, 16, 128), np.float32)
    made = both(lambda x: jax.lax.map(lambda block: passed_on(0.5 * block), x), compiled, blocks)
    found = made.compared()
    assert not found.apart
    assert list(found.moved.values()) == [3, 3], "what is read is in VMEM, in each of three turns"
    assert control.differences(made.executed, made.issued, found.moved) == ()
    assert control.differences(made.executed, made.issued, dict.fromkeys(found.moved, 2))
    (what,) = made.changed(lambda rows: moved(rows, 6, 4096)).apart
    assert "in result 0" in what


def test_the_same_kernel_in_two_branches_and_two_calls(compiled: Compile) -> None:
    def function(n: jax.Array, x: jax.Array) -> jax.Array:
        again = jax.jit(passed_on)
        x = jax.lax.cond(n[0] > 0, lambda x: again(jnp.sin(x)), lambda x: jnp.cos(again(x)), x)
        return again(x + jnp.tanh(again(x)))

    made = both(function, compiled, np.ones(1, np.int32), np.ones((16, 128), np.float32))
    found = made.compared()
    assert not found.apart
    assert set(made.executed.copies.values()) == {3}
    assert control.differences(made.executed, made.issued, found.moved) == ()


def test_an_operand_in_another_memory_is_a_difference(compiled: Compile) -> None:
    (what,) = both(functools.partial(added, pltpu.HBM), compiled, TILE, TILE).compared().misplaced
    assert "operand 1 is in HBM for the kernel" in what
    assert "XLA put it in VMEM" in what


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_windows_behind_an_array_of_one_element_have_their_numbers(is_dynamic: bool, compiled: Compile) -> None:
    """It is passed by its value, as a bound of the grid is."""

    def kernel(a, x, y, o):
        o[...] = a[0] * x[...] + y[...]

    def scaled(n, a, x, y):
        smem, each, first = pl.BlockSpec(memory_space=pltpu.SMEM), (lambda i: (i, 0)), (lambda i: (0, 0))
        return pl.pallas_call(
            kernel,
            grid=(n[0] if is_dynamic else 8,),
            in_specs=[smem, pl.BlockSpec((8, 128), each), pl.BlockSpec((8, 128), first)],
            out_specs=pl.BlockSpec((8, 128), each),
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        )(a, x, y)

    x = np.ones((64, 128), np.float32)
    found = both(scaled, compiled, np.array([8], np.int32), np.ones(1, np.float32), x, x).compared()
    assert not found.apart
    assert found.copies == 8 + 1 + 8


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["v5p", "v6e", "tpu7x"])
def test_so_it_is_on_other_chips(chip: str) -> None:
    function, tile = functools.partial(added, pltpu.HBM), jax.ShapeDtypeStruct(TILE.shape, F32)
    program = ratchet.export(function, tile, tile, chip=chip)
    executed = translated(tokenise(program)[0], Options()).check([TILE, TILE]).control
    built = ratchet.compile(program, chip=chip)  # its folder is removed with it
    (what,) = copies.compare(executed, (), load_hlo(built.dump_dir), NO_TOKENS).misplaced
    assert "XLA put it in VMEM" in what


def gathered(ids: jax.Array, x: jax.Array) -> jax.Array:
    """Rows that are copied one by one into two slots in turn, and from there to their place."""

    def kernel(ids, x, o, slots, semaphores):
        def copy(i, slot):
            return pltpu.make_async_copy(x.at[pl.ds(ids[i] * 8, 8)], slots.at[slot], semaphores.at[slot])

        def body(i, carry):
            slot = jax.lax.rem(i, 2)

            @pl.when(i + 1 < 6)
            def _():
                copy(i + 1, 1 - slot).start()

            copy(i, slot).wait()
            out = pltpu.make_async_copy(slots.at[slot], o.at[pl.ds(i * 8, 8)], semaphores.at[2])
            out.start()
            out.wait()
            return carry

        copy(0, 0).start()
        jax.lax.fori_loop(0, 6, body, 0)

    any_ = pl.BlockSpec(memory_space=pl.ANY)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(1,),
        in_specs=[any_],
        out_specs=any_,
        scratch_shapes=[pltpu.VMEM((2, 8, 128), F32), pltpu.SemaphoreType.DMA((3,))],
    )
    return pl.pallas_call(kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(ids, x)


def scattered(places: jax.Array, rows: jax.Array, x: jax.Array) -> jax.Array:
    """Rows of an operand in VMEM that are copied to their places in another one."""

    def kernel(places, rows, x, o, semaphore):
        del x
        copies = [pltpu.make_async_copy(rows.at[i], o.at[places[i]], semaphore) for i in range(3)]
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()

    smem, vmem, any_ = (pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pltpu.VMEM, pl.ANY))
    return pl.pallas_call(
        kernel,
        in_specs=[smem, vmem, any_],
        out_specs=any_,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
        input_output_aliases={2: 0},
    )(places, rows, x)


def test_an_operand_that_is_brought_to_vmem_is_read_in_the_same_order(compiled: Compile) -> None:
    made = both(scattered, compiled, np.array([4, 0, 2], np.int32), BLOCKS[:3], BLOCKS)
    assert not made.compared().apart

    def turned(rows: np.ndarray) -> np.ndarray:
        to_result = rows[:, 5] >= 0
        rows[to_result, 3] = rows[to_result, 3][::-1]
        return rows

    for change in (turned, lambda rows: np.where((np.arange(COLUMNS) == 3) & (rows[:, [5]] >= 0), 0, rows)):
        (what,) = made.changed(change).apart
        assert "copies in operand 1, which is in the kernel's own memory" in what


def test_copies_of_all_grid_steps_are_compared(compiled: Compile) -> None:
    def kernel(x, o, here, semaphore):
        step = pl.program_id(0)
        for source, target in ((x.at[pl.ds(8 * step, 8)], here), (here, o.at[pl.ds(8 * step, 8)])):
            copy = pltpu.make_async_copy(source, target, semaphore)
            copy.start()
            copy.wait()

    def copied(x):
        any_ = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(
            kernel,
            grid=(6,),
            in_specs=[any_],
            out_specs=any_,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            scratch_shapes=[pltpu.VMEM((8, 128), F32), pltpu.SemaphoreType.DMA],
        )(x)

    made = both(copied, compiled, BLOCKS.reshape(48, 128))
    assert made.compared().copies == 12
    assert not made.compared().apart
    (what,) = made.changed(lambda rows: moved(rows, 6, -4096)).apart
    assert "in result 0" in what


@pytest.fixture(scope="module")
def gather(compiled: Compile) -> Both:
    return both(gathered, compiled, np.array([5, 3, 1, 0, 2, 4], np.int32), BLOCKS.reshape(48, 128))


def test_copies_of_the_kernels_own_are_compared(gather: Both) -> None:
    found = gather.compared()
    assert not found.apart
    assert found.copies == 12
    assert decode(encode(gather.executed)) == gather.executed


def moved(rows: np.ndarray, column: int, by: int) -> np.ndarray:
    """The last DMA with a known place, somewhere else."""
    last = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, column - 1] >= 0))[-1]
    rows[last, column] += by
    return rows


@pytest.mark.parametrize(("change", "what"), [
    (lambda rows: moved(rows, 3, 4096), "in operand 1"),
    (lambda rows: moved(rows, 6, -4096), "in result 0"),
    (lambda rows: rows[:-1], "is made 6 times for the values, 5 when modelled"),
    (lambda rows: np.where(np.arange(COLUMNS) == 1, 512, rows), "4,096 bytes for the values, 512 when modelled"),
    (lambda rows: np.where(np.arange(COLUMNS) == 1, rows * 2, rows), "4,096 bytes for the values, 8,192 when modelled"),
    (lambda rows: np.where((rows[:, [2]] == 1) & (np.arange(COLUMNS) == 2), 2, rows), "in result 0 when modelled"),
    (lambda rows: np.where((rows[:, [2]] == 1) & (np.arange(COLUMNS) == 2), -2, rows), "in memory outside of it"),
    (lambda rows: np.where((rows[:, [5]] == -1) & (np.arange(COLUMNS) == 6), 1 << 24, rows), "of the kernel's own"),
    (lambda rows: rows[::-1], "comes after another of the same bytes"),
])  # fmt: skip
def test_a_copy_that_is_another_is_a_difference(
    change: Callable[[np.ndarray], np.ndarray], what: str, gather: Both
) -> None:
    found = gather.changed(lambda rows: np.ascontiguousarray(change(rows)))
    assert any(what in one for one in found.apart), found.apart


def test_more_copies_than_are_followed_are_refused(gather: Both) -> None:
    (one,) = gather.executed.executed
    many = replace(gather.executed, executed=(replace(one, count=MOST_COPIES + 1),))
    with refused(Status.CANNOT_VERIFY, match=f"{MOST_COPIES + 1:,} copies or grid steps"):
        gather._replace(executed=many).compared()


def test_logs_that_do_not_read_are_refused(gather: Both) -> None:
    (one,) = gather.executed.executed
    for damage in (
        {"copies": b"no rows"},
        {"blocks": packed(np.zeros(3, np.int8))},
        {"copies": packed(np.zeros(3, np.int32))},
    ):
        broken = replace(gather.executed, executed=(replace(one, **damage),))
        with refused(Status.CANNOT_VERIFY, match="do not read"):
            gather._replace(executed=broken).compared()
