"""Explanations of compiled programs: every cycle and byte has a name."""

import dataclasses
import json
import xml.etree.ElementTree
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import ratchet
from ratchet.commands.cli import main
from ratchet.tpu import explain
from ratchet.tpu.explain import savings
from ratchet.values import Limit, OpCost, OpKind, Span, SpanKind, Vmem, VmemAllocation, VmemUse
from ratchet.values.blame import WAITS
from ratchet.values.place import Op
from ratchet.values.program import Remedy
from ratchet.values.status import Status
from ratchet.values.tokens import NO_TOKENS
from ratchet.view.explain import explain_document, explain_text, vmem_text
from tests.hlo_texts import hlo_of
from tests.refusals import refused
from tests.tune import blocks
from tests.tune.blocks import FLOATS, WEIGHTS, X, block, doubled, narrow
from tests.view.timelines import timeline

MIB = 1 << 20


@pytest.fixture(scope="module")
def explanation():
    return ratchet.explain(jax.jit(block), WEIGHTS, X)


@pytest.fixture(scope="module")
def overflow():
    return ratchet.explain(doubled, FLOATS)


def test_every_cycle_belongs_to_an_operation_and_to_a_limit(explanation):
    assert explanation.status is Status.PASS
    cycles = explanation.timeline.cycles
    assert sum(op.cycles for op in explanation.ops) == cycles
    assert sum(explanation.limits.values()) == cycles
    assert explanation.band.low_ms < explanation.timeline.latency_ms < explanation.band.high_ms
    assert 0 < explanation.launch_share < 1
    assert 0 <= explanation.edge_cycles <= cycles


def test_the_kernel_and_what_xla_made_are_told_apart_by_the_authors_names_and_lines(explanation):
    (kernel,) = (op for op in explanation.ops if op.kind is OpKind.KERNEL)
    assert kernel.name.startswith("attention")
    assert kernel.source.file == "blocks.py"
    products = [op for op in explanation.ops if op.kind is OpKind.XLA and "dot_general" in op.origin]
    assert products, [op.origin for op in explanation.ops]
    assert {op.source.file for op in products} == {"blocks.py"}
    assert any(op.busy.get("MXU", 0) > 0.1 for op in products)
    assert {op.limit for op in explanation.ops if op.kind is OpKind.LAUNCH} == {Limit.LAUNCH}


def test_text_and_json_say_the_same(explanation):
    text, document = explain_text(explanation), json.loads(json.dumps(explain_document(explanation)))
    assert "attention" in text
    assert "blocks.py:" in text
    assert "clock throttling" in text
    assert document["latency_ms"] == explanation.timeline.latency_ms
    assert [op["cycles"] for op in document["ops"]] == [op.cycles for op in explanation.ops]
    assert sum(line["cycles"] for line in document["lines"]) == explanation.timeline.cycles
    assert document["vmem"][0]["is_kernel"]


def test_a_program_that_does_not_fit_is_explained(overflow):
    assert overflow.status is Status.VMEM_OVERFLOW
    assert overflow.timeline is None
    (vmem,) = overflow.vmem
    assert (vmem.fits, vmem.limit_bytes, vmem.chip_bytes) == (False, MIB, 128 * MIB)
    block = 256 * 512 * 4
    named = {(one.use, one.number): one for one in vmem.allocations if one.use is not VmemUse.COMPILER}
    assert {key: one.size_bytes for key, one in named.items()} == {
        (VmemUse.INPUT, 0): 2 * block,
        (VmemUse.OUTPUT, 0): 2 * block,
        (VmemUse.SCRATCH, None): block,
    }
    window = named[VmemUse.INPUT, 0]
    assert (window.block, window.whole, window.levels) == ("f32[256,512]", (1024, 512), 2)
    assert sum(one.size_bytes for one in vmem.allocations) == pytest.approx(vmem.used_bytes, rel=0.01)
    assert "scratch f32[256,512] (0.5 MiB)" in overflow.reason
    assert "needs 2.5" in overflow.reason
    assert "(the chip has 128 MiB)" in overflow.reason


def test_what_would_make_it_fit_is_said(overflow):
    first = overflow.savings[0]
    assert first.change is Remedy.HALVE
    assert first.frees_bytes == 5 * 256 * 512 * 4 // 2
    text = vmem_text(overflow)
    assert "2.5" in text
    assert "1.00 MiB, " in text
    assert "too much" in text
    assert "input window 0: f32[256,512] of [1024,512], double buffered" in text
    assert "halve 256 to 128" in text
    assert "pl.Buffered(1) for output window 0" in text
    assert explain_document(overflow)["latency_ms"] is None


def test_smaller_blocks_fit(overflow):
    fits = ratchet.explain(narrow, FLOATS, modelled=False)
    assert fits.status is Status.PASS
    assert fits.timeline is None
    assert fits.vmem[0].fits
    assert fits.vmem[0].used_bytes < overflow.vmem[0].used_bytes
    assert "compiled, not modelled" in explain_text(fits)


def windowed(shape, *, use=VmemUse.INPUT, levels=2, dtype="f32", size):
    number = None if use is VmemUse.SCRATCH else 0
    return VmemAllocation(use=use, number=number, dtype=dtype, shape=shape, levels=levels, size_bytes=size)


def test_halving_counts_the_padding():
    narrow_lanes = windowed((256, 128), size=2 * 256 * 128 * 4)
    half_tile = windowed((8, 256), use=VmemUse.SCRATCH, levels=1, size=8 * 256 * 4)
    vmem = Vmem(
        op="k", is_kernel=True, allocations=(narrow_lanes, half_tile), used_bytes=1, limit_bytes=1, chip_bytes=1
    )
    halved = {one.side: one.frees_bytes for one in savings(vmem) if one.change is Remedy.HALVE}
    assert halved == {256: 256 * 128 * 4 + 8 * 128 * 4}, "8 rows and 128 lanes are one tile: half of it is no less"


def looping(n, x):
    """A loop whose length is an input."""

    def body(n_ref, x_ref, o_ref):
        o_ref[...] = jax.lax.fori_loop(0, n_ref[0], lambda _, a: jnp.sin(a) + x_ref[...], x_ref[...])

    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec()]
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=specs)(n, x)


@pytest.mark.slow
def test_scalars_that_are_given_steer_and_those_that_are_not_are_named():
    x = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    program = ratchet.export(looping, jax.ShapeDtypeStruct((1,), jnp.int32), x)
    unknown = ratchet.explain(program)
    assert unknown.status is Status.SCHEDULE_UNKNOWN
    assert "entry parameter 0" in unknown.reason
    assert unknown.vmem[0].is_kernel
    assert "not modelled, SCHEDULE_UNKNOWN" in explain_text(unknown)
    assert ratchet.explain(looping, np.array([9], np.int32), x).status is Status.PASS


def by_tables(turns, rows, x):
    """A kernel in a loop of XLA's: how often it turns, and what it copies, vector code slices out of tables."""

    def body(row_ref, x_ref, o_ref):
        o_ref[...] = jax.lax.fori_loop(0, row_ref[0], lambda _, a: jnp.sin(a), x_ref[...])

    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec()]
    kernel = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 128), x.dtype), in_specs=specs)

    def turn(number, x):
        row = rows[turns[number] % 4] + 1
        part = kernel(row[None], jax.lax.dynamic_slice(x, (row * 8, 0), (8, 128)))
        return jax.lax.dynamic_update_slice(x, part, (row * 8, 0))

    return jax.lax.fori_loop(0, turns[-1] - turns[0], turn, x)


@pytest.mark.slow
def test_what_xla_slices_out_of_tables_steers():
    x, rows = np.ones((64, 128), np.float32), np.arange(4, dtype=np.int32)
    exported = ratchet.export(by_tables, np.zeros(8, np.int32), rows, x)
    program = ratchet.compile(exported)
    cycles = []
    for last in (3, 6):
        turns = np.array([1, 0, 0, 0, 0, 0, 0, 1 + last], np.int32)
        cycles.append(ratchet.model(program, scalars=ratchet.steering(program, exported, turns, rows, x)).cycles)
    assert cycles[1] > 1.5 * cycles[0]
    with pytest.raises(ratchet.Refusal, match="control flow or an address depends on"):
        ratchet.model(program)


def on_sparse_cores(turns):
    """A kernel of the SparseCores between two operations of the TensorCore."""

    def body(x_ref, o_ref, buffer):
        rows = pl.ds((jax.lax.axis_index("c") * 16 + jax.lax.axis_index("s")) * 32, 32)
        pltpu.sync_copy(x_ref.at[rows], buffer)

        @pl.loop(0, turns)
        def _(_turn):
            buffer[0, pl.ds(0, 16)] = buffer[0, pl.ds(0, 16)] * 1.5 + 1.0

        pltpu.sync_copy(buffer, o_ref.at[rows])

    def function(x):
        mesh = plsc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2, num_subcores=16)
        kernel = pl.kernel(body, out_type=x, mesh=mesh, scratch_types=[pltpu.VMEM((32, 128), jnp.float32)])
        return kernel(x * 2) + 1

    return function


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["v5p", "tpu7x"])
def test_a_program_with_work_of_the_sparse_cores_has_no_price(chip):
    program = ratchet.export(on_sparse_cores(1000), jax.ShapeDtypeStruct((1024, 128), jnp.float32), chip=chip)
    explained = ratchet.explain(program, chip=chip)
    assert explained.status is Status.NOT_MODELLED
    assert "modelled are 2 of 3 operations" in explained.reason
    assert (explained.timeline, explained.band, explained.ops) == (None, None, ())
    assert "not modelled, NOT_MODELLED" in explain_text(explained)
    assert not explained.fullest, "nothing is said of a memory that is not known"
    unmodelled = ratchet.explain(program, chip=chip, modelled=False)
    assert unmodelled.status is Status.NOT_MODELLED
    assert "body" in unmodelled.reason
    assert not unmodelled.fullest
    with refused(Status.NOT_MODELLED, "the SparseCores"):
        ratchet.model(ratchet.compile(program, chip=chip))


@pytest.mark.slow
def test_tables_that_xla_computes_of_inputs_with_values_steer():
    x = np.ones((8, 128), np.float32)

    def counting(mask, x):
        return looping(jnp.sum(mask, keepdims=True, dtype=jnp.int32), x)

    few, many = np.arange(64) < 2, np.arange(64) < 50
    exported = ratchet.export(counting, few, x)
    program = ratchet.compile(exported)
    cycles = [
        ratchet.model(program, scalars=ratchet.steering(program, exported, mask, x)).cycles for mask in (few, many)
    ]
    assert cycles[1] > 2 * cycles[0]
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (few, x)]
    assert ratchet.steering(program, exported, *shapes) == {}
    with pytest.raises(ratchet.Refusal, match="give scalar_inputs"):
        ratchet.model(program)


def test_notebooks_show_values_as_html_with_units_and_names_as_data(explanation, overflow):
    for value in (explanation, overflow, explanation.timeline):
        xml.etree.ElementTree.fromstring(value._repr_html_())
    assert " ms modelled" in explanation._repr_html_()
    assert "along the programs of the kernels" in explanation._repr_html_()
    assert "MiB" in overflow._repr_html_()
    hostile = dataclasses.replace(overflow, title="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in hostile
    assert "&lt;script&gt;" in hostile


def test_the_command_names_the_constants_of_the_file_and_ends_with_the_status(tmp_path, monkeypatch, capsys):
    source = Path(blocks.__file__).read_text()
    (tmp_path / "mine.py").write_text(f"{source}\n\nSTEP = 256\n\n\ndef twice(x):\n    return doubled(x, STEP)\n")
    monkeypatch.chdir(tmp_path)
    code = main(["explain", "mine.py:twice", "--input", "f32[1024,512]", "--vmem"], _nothing_is_judged)
    assert code == Status.VMEM_OVERFLOW.exit_code
    assert "halve 256 to 128 (ROWS or WIDTH or STEP?)" in capsys.readouterr().out

    given = ["explain", "mine.py:narrow", "--input", "f32[1024,512]", "--json", "--trace", "traces"]
    assert main(given, _nothing_is_judged) == 0
    (document,) = json.loads(capsys.readouterr().out)["explanations"]
    assert (document["title"], document["status"]) == ("mine:narrow", "PASS")
    assert document["band_ms"][0] < document["latency_ms"] < document["band_ms"][1]
    assert [path.name for path in (tmp_path / "traces").rglob("*.pb")] == ["modelled.xplane.pb"]


def _nothing_is_judged(*_, **__):
    raise AssertionError("a verdict was asked for")


@pytest.mark.parametrize(
    ("busy", "limit"),
    [
        ({WAITS: 0.9, "HBM": 0.1}, Limit.LATENCY),
        ({WAITS: 0.9, "HBM": 0.6}, Limit.HBM),
        ({"HBM": 0.8, "MXU": 0.3}, Limit.HBM),
        ({WAITS: 0.9}, Limit.LATENCY),
        ({"HBM": 0.4, "MXU": 0.3}, Limit.MATRIX),
    ],
)
def test_waiting_while_hbm_is_idle_is_latency(busy, limit):
    """A 2 KB reshape waits for its own copy's latency; no byte less would make it faster."""
    assert explain._limit(OpKind.XLA, busy) is limit


def test_of_an_operation_of_xla_its_bytes_say_for_how_long_hbm_is_busy():
    """A sum over 16 MiB is bound by HBM; one over 4 KiB by the latency of its copy."""

    def limits(rows):
        array = jax.ShapeDtypeStruct((rows, 1024), jnp.float32)
        found = ratchet.explain(lambda x: jnp.exp(x).sum(axis=1), array)
        return max((op for op in found.ops if op.kind is OpKind.XLA), key=lambda op: op.cycles).limit

    assert limits(4096) is Limit.HBM
    assert limits(8) is Limit.LATENCY


QUEUED = """
%p = f32[2048,1024]{1,0:T(8,128)} parameter(0)
 %copy-start = (f32[2048,1024]{1,0:T(8,128)S(1)}, f32[2048,1024]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) copy-start(%p)
 %small = f32[8,128]{1,0:T(8,128)} negate(%p)
 ROOT %copy-done = f32[2048,1024]{1,0:T(8,128)S(1)} copy-done(%copy-start)
"""


def copied(begin, served, end, size):
    attributes = {"bytes": size, "source": "hbm", "target": "vmem", "service_start_cycles": served}
    return Span(lane="DMA in", name="", kind=SpanKind.COPY, start_cycles=begin, end_cycles=end, attributes=attributes)


def test_what_waits_behind_a_prefetch_is_the_prefetchs():
    """The small one's copy is issued at 150 and served at 17,000, when the large one's is through."""
    made = timeline()
    spans = (
        Span(lane="XLA Ops", name="small", kind=SpanKind.NAMED, start_cycles=140, end_cycles=17_500),
        copied(100, 300, 17_000, 8 << 20),
        copied(150, 17_000, 17_400, 4096),
    )
    ops = (
        OpCost(name="small", opcode="negate", executions=1, cycles=17_360),
        OpCost(name="copy-done", opcode="copy-done", executions=1, cycles=100),
    )
    place = Op(name="small", opcode="negate")
    waits = dataclasses.replace(made.blame.lines[0], place=place, cycles=17_360, wait_cycles=17_000)
    run = dataclasses.replace(
        made, spans=spans, ops=ops, chip="v5e", blame=dataclasses.replace(made.blame, lines=(waits,), regions=())
    )
    found = explain._Ops(timeline=run, hlo=hlo_of(QUEUED.strip()), tokens=NO_TOKENS, slots={}).all()
    spent = {op.name: op.cycles for op in found}
    late = 17_000 - 150 - (300 - 100)
    assert spent == {"copy-done": 100 + late, "small": 17_360 - late}
    assert sum(spent.values()) == sum(op.cycles for op in ops), "no cycle is lost"
    assert found[0].limit is Limit.COPIES
