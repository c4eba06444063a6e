"""VMEM, spills and HBM, as the compiler reports them."""

import json

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.tpu import latency
from ratchet.tpu.chips import TPU7X, V5E
from ratchet.tpu.dump import memory
from ratchet.tpu.dump.files import OUTLINE_PASS, UTILISATION_PASS, load_hlo
from ratchet.tpu.dump.memory import allocations_by_op, buffers_of, heaviest_buffers, read_report, spills
from ratchet.values import Mesh, Program, VmemBuffer
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import artefact, blocked, double, examined
from tests.hlo_texts import hlo_of
from tests.kernels import ATTENTION, edited
from tests.refusals import refused

MIB = 1 << 20


def test_the_buffers_add_up_to_the_vmem(compiled):
    found = compiled(examined(ATTENTION)[0]).footprint
    assert found.vmem_bytes == sum(buffer.size_bytes for buffer in found.vmem_buffers)
    assert found.vmem_limit_bytes == 16 * MIB
    assert found.hbm_limit_bytes == V5E.hbm_bytes
    assert found.hbm_bytes >= 4 * 1024 * 128 * 2
    sizes = {buffer.name: buffer.size_bytes for buffer in found.vmem_buffers}
    assert sizes["input window input 1 bf16[256,128] x2"] == 2 * 256 * 128 * 2
    assert sizes["scratch f32[128,1]"] == 2 * 128 * 128 * 4, "a column occupies whole lane tiles, and there are two"
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)


@pytest.mark.slow
def test_spills_are_counted(compiled):
    small = compiled(examined(ATTENTION)[0]).footprint
    source = edited(ATTENTION, ("BQ = 128", "BQ = 1024"), ("BKV = 256", "BKV = 1024"))
    large = compiled(examined(source)[0]).footprint
    assert (small.spill_stores, small.spill_loads) < (large.spill_stores, large.spill_loads)
    assert large.spill_stores > 100
    assert any(buffer.name == "register spills" for buffer in large.vmem_buffers)


def test_a_raised_limit_is_reported(compiled):
    parameters = pltpu.CompilerParams(vmem_limit_bytes=64 * MIB)
    kernel = blocked(double, (8192, 1024), (2048, 1024), compiler_params=parameters)
    found = compiled(artefact(kernel, ((8192, 1024), jnp.float32))).footprint
    assert found.vmem_limit_bytes == 64 * MIB
    assert found.vmem_bytes >= 32 * MIB


def test_a_kernel_without_vmem(compiled):
    def body(x, o):
        for i in range(8):
            o[i] = x[i] + 1

    def kernel(x):
        scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, out_shape=shape, in_specs=[scalars], out_specs=scalars)(x)

    found = compiled(artefact(kernel, ((8,), jnp.int32))).footprint
    assert (found.vmem_bytes, found.vmem_buffers) == (0, ())


def test_what_an_unknown_compiler_writes_is_refused_and_not_read_as_zero(tmp_path):
    kernel = '%k = f32[8] custom-call(%x), custom_call_target="tpu_custom_call", backend_config={"used": []}'
    hlo = hlo_of(f"%x = f32[8] parameter(0)\n {kernel}")
    with refused(Status.INFRASTRUCTURE, "used_scoped_memory_configs"):
        memory.footprint(hlo, tmp_path, V5E, hbm_bytes=0)
    (tmp_path / f"1-{UTILISATION_PASS}.txt").write_text("== UTILIZATION:\n1 2 3\n")
    with refused(Status.INFRASTRUCTURE, "VLOAD:FILL"):
        memory.footprint(hlo_of("%x = f32[8] parameter(0)"), tmp_path, V5E, hbm_bytes=0)


def test_a_kernel_that_xla_fuses_an_operand_into(compiled):
    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    parameters = pltpu.CompilerParams(allow_input_fusion=[True, False], vmem_limit_bytes=64 * MIB)
    kernel = blocked(add, inputs=2, compiler_params=parameters)
    program = compiled(artefact(lambda x, y: kernel(x * 2, y), *[((1024, 128), jnp.float32)] * 2))
    (launch,) = load_hlo(program.dump_dir).launches
    assert load_hlo(program.dump_dir).ops[launch].opcode == "fusion", "otherwise this tests nothing"
    assert program.kernels == (launch.replace("kernel_0", "add"),)
    assert program.copies == ()
    assert program.footprint.vmem_bytes >= 2 * 3 * 256 * 128 * 4
    timeline, _ = latency.step(program, V5E, Mesh(), {})
    assert timeline.grid_steps == 4


def of_kernels(*configs):
    """A program with one kernel after another."""
    lines = ["%k0 = f32[8] parameter(0)"]
    for number, config in enumerate(configs, start=1):
        call = f'custom-call(%k{number - 1}), custom_call_target="tpu_custom_call"'
        lines.append(f"%k{number} = f32[8] {call}, backend_config={json.dumps(config)}")
    return hlo_of("\n ".join(lines))


def vmem(used, limit=None):
    def entries(size):
        return [{"memory_space": "0", "size": "999"}, {"memory_space": "1", "size": str(size)}]

    config = {"used_scoped_memory_configs": entries(used)}
    return config | ({"scoped_memory_configs": entries(limit)} if limit else {})


@pytest.mark.parametrize(
    ("configs", "used", "limit"),
    [
        ([vmem(100)], 100, V5E.default_scoped_vmem_bytes),
        ([vmem(100, 5000), vmem(50, 7000)], 100, 5000),
        ([vmem(50, 7000), vmem(100, 5000)], 100, 5000),
        ([vmem(100, 5000), vmem(100, 7000)], 100, 7000),
        ([vmem(0, 7000)], 0, 7000),
        ([], 0, V5E.default_scoped_vmem_bytes),
    ],
)
def test_the_kernel_that_needs_most_vmem_decides(tmp_path, configs, used, limit):
    found = memory.footprint(of_kernels(*configs), tmp_path, V5E, hbm_bytes=3)
    assert (found.vmem_bytes, found.vmem_limit_bytes) == (used, limit)
    assert (found.hbm_bytes, found.hbm_limit_bytes) == (3, V5E.hbm_bytes)
    assert (found.vmem_buffers, found.spill_stores, found.spill_loads) == ((), 0, 0)


@pytest.mark.parametrize("entries", [3, ["x"], [{"size": "1"}], [{"memory_space": "1", "size": "x"}]])
def test_vmem_in_another_form_is_refused(tmp_path, entries):
    with pytest.raises(Refusal, match="k1 has no used_scoped_memory_configs"):
        memory.footprint(of_kernels({"used_scoped_memory_configs": entries}), tmp_path, V5E, hbm_bytes=0)


def report(**kernels):
    """A VMEM report: (tag, shape, bytes) by kernel."""
    breakdowns = {
        name: {
            "blocks": [{"allocations": [{"tag": tag, "shape": shape, "size": str(size)} for tag, shape, size in own]}]
        }
        for name, own in kernels.items()
    }
    return f"<html>{{}} DATA = {json.dumps({'hlo_breakdowns': breakdowns})}; more {{"


OUTSIDE = {"<top-inlining-caller>": [("around", "", 100)]}


def test_reports_and_spills_of_all_kernels_count(tmp_path):
    counts = "MXU, VLOAD:FILL, VSTORE:SPILL\n== UTILIZATION:\n1 2 3\n0 10 20\n"
    for number, size in enumerate((5, 7, 6)):
        (tmp_path / f"{number}-{UTILISATION_PASS}.txt").write_text(counts)
        (tmp_path / f"{number}-vmem_report.html").write_text(report(k=[("a", "f32[8]", size), ("b", "", 1)]))
    found = memory.footprint(of_kernels(vmem(8)), tmp_path, V5E, hbm_bytes=0)
    assert found.vmem_buffers == (VmemBuffer(name="a f32[8]", size_bytes=7), VmemBuffer(name="b", size_bytes=1))
    assert (found.spill_stores, found.spill_loads) == (3 * 23, 3 * 12)
    program = Program(chip="v5e", compiler="", dump_dir=tmp_path, footprint=found, copies=(), kernels=(), seconds=0)
    assert memory.step(program) == (found, "VMEM 0.00 of 16 MiB, HBM 0 MiB, 69 spill stores")


def test_an_allocation_may_have_no_tag():
    text = report(k=[("a", "f32[8]", 64), ("", "s32[8]", 32)]).replace('"tag": "", ', "")
    assert text.count('"tag"') == 1
    read = read_report(text, file="f")
    assert [one.name for one in heaviest_buffers(read)] == ["a f32[8]", "without a name s32[8]"]
    assert [one.use.value for one in allocations_by_op(read)["k"]] == ["compiler", "compiler"]


def test_allocations_are_there_by_size_and_then_by_the_number_of_their_operand(tmp_path):
    windows = [(f"input window allocation for operator input {number} operand", "f32[8]", 8) for number in (2, 1)]
    text = report(k1=[*windows, ("a", "", 9)], k2=[("a", "", 90)], fusion=[("a", "", 99)])
    found = allocations_by_op(read_report(text, file="f"))["k1"]
    assert [(one.size_bytes, one.number) for one in found] == [(9, None), (8, 1), (8, 2)]
    (tmp_path / "1-vmem_report.html").write_text(text)
    vmems = memory.vmem_by_op(of_kernels({}, {}), tmp_path, V5E)
    assert [(one.op, one.used_bytes) for one in vmems] == [("k2", 90), ("k1", 25), ("fusion", 99)]


def test_what_is_outside_of_kernels_counts_where_there_is_none():
    def names(text):
        return [one.name for one in heaviest_buffers(read_report(text, file="f"))]

    assert names(report(**OUTSIDE)) == ["around"]
    assert names(report(**OUTSIDE, empty=[])) == ["around"]
    assert names(report(**OUTSIDE, k=[("a", "", 1)], heavy=[("b", "", 1), ("c", "", 1)])) == ["b", "c"]
    assert names('DATA {"hlo_breakdowns": null}') == []


@pytest.mark.parametrize("text", ["", "DATA", 'DATA {"hlo', "DATA {}", 'DATA {"hlo_breakdowns": {"a": {}}}', "{} DATA"])
def test_a_report_of_another_form_is_refused(text):
    with refused(Status.INFRASTRUCTURE, "f does not read as a VMEM report"):
        read_report(text, file="f")


def test_buffers_by_name():
    window = "input window allocation for operator input 1 operand"
    window += ". The window shape is f32[8,128], and has 2 buffering levels"
    found = buffers_of(
        [(window, "f32[16,128]", 10), ("SPILL", "", 3), ("b", "u8[1]", 3), ("SPILL", "", 4), ("a", "", 3)]
    )
    assert [(one.name, one.size_bytes) for one in found] == [
        ("input window input 1 f32[8,128] x2", 10), ("register spills", 7), ("a", 3), ("b u8[1]", 3),
    ]  # fmt: skip


COUNTS = "MXU, VLOAD:FILL, VSTORE:SPILL\n== UTILIZATION:\n1 2 {}\n"


@pytest.mark.parametrize("text", [
    COUNTS.format("9" * 19), COUNTS.format("9" * 5000), COUNTS.format("٣"), COUNTS.format("-1"), COUNTS.format(""),
    COUNTS.replace(":SPILL", ":S").format(3),
])  # fmt: skip
def test_damaged_counts_of_spills_are_refused(text):
    with refused(Status.INFRASTRUCTURE, "f "):
        spills(text, file="f")


def smem(shape, bytes_, tag, more=", scoped"):
    return f"#allocation1 [shape = '{shape}', space=smem, size = {bytes_:#x}, offset = 0x0{more}, tag = '{tag}']\n"


HEADER = (
    smem("u32[]", 4, "smem constant byte address 0x4 - core index", ", fixed_abs")
    + smem("s32[1000]{0:T(128)}", 4096, "scratch operand")
    + smem("u8[8192]{0}", 8192, "prefetched SMEM operand 1")
    + smem("u8[8192]{0}", 8192, "input window allocation for operator input 2. The window shape is s32[2000], while "
           "the full shape is s32[2000]. This allocation is single buffered.")
    + "#allocation9 [shape = 'u8[8]{0}', space=vmem, size = 0x8, offset = 0x0, scoped, tag = 'scratch operand']\n"
)  # fmt: skip


def test_smem_of_a_kernel_is_given_to_its_owners_without_what_the_runtime_keeps(tmp_path):
    (tmp_path / f"1-k1-03-{OUTLINE_PASS}.txt").write_text(HEADER)
    (tmp_path / f"1-TLP-03-{OUTLINE_PASS}.txt").write_text(HEADER)
    (found,) = memory.smem_by_kernel(of_kernels({}), tmp_path)
    assert (found.op, found.memory, found.used_bytes, found.fits) == ("k1", "SMEM", 4096 + 8192 + 8192, True)
    assert [(one.use.value, one.number, one.size_bytes) for one in found.allocations] == [
        ("input window", 2, 8192),
        ("prefetched operand", 1, 8192),
        ("scratch", None, 4096),
    ]


def test_vmem_that_no_allocation_names_is_said_to_be_so(tmp_path):
    (tmp_path / "1-vmem_report.html").write_text(report(k1=[("scratch operand", "f32[8]", 60)]))
    (found,) = memory.vmem_by_op(of_kernels(vmem(100)), tmp_path, V5E)
    assert found.used_bytes == 100 == sum(one.size_bytes for one in found.allocations)
    assert {one.use.value: one.size_bytes for one in found.allocations} == {
        "scratch": 60,
        "named by no allocation of the compiler's": 40,
    }


@pytest.mark.parametrize(
    ("chip", "said", "kept"),
    [
        (V5E, 4096, 4096), (V5E, 64 * MIB + 2048, 4096), (V5E, 3 * MIB, 4096), (V5E, 0, 0),
        (TPU7X, 4096, 4096), (TPU7X, 32 * MIB + 2048, 2048), (TPU7X, 3 * MIB, 4096), (TPU7X, 0, 0),
    ],
)  # fmt: skip
def test_what_is_reserved_for_kernels_is_not_counted_as_arrays(tmp_path, chip, said, kept):
    block = {"block_size": said, "block_type": "HLO_TEMPORARY", "allocations": []}
    data = {"hlo_breakdowns": {"<top-inlining-caller>": {"blocks": [block]}}}
    (tmp_path / "1-vmem_report.html").write_text(f"DATA = {json.dumps(data)}")
    hlo = hlo_of("%p = f32[8,128] parameter(0)\n ROOT %c = f32[8,128]{1,0:T(8,128)S(1)} copy(%p)")
    assert memory.kept_bytes(hlo, tmp_path, chip) == kept
