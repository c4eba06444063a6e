"""VMEM, spills and HBM, as the compiler reports them."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ratchet.chips import V5E
from ratchet.dump import memory, overflow, utilisation
from ratchet.dump.files import load_hlo
from ratchet.judge import latency
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status
from tests.hlo_texts import hlo_of
from tests.judge.programs import artefact, blocked, double, examined
from tests.kernels import ATTENTION, edited

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


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("512", 512), ("1K", 1024), ("16.12M", int(16.12 * MIB)), ("18.94G", int(18.94 * 1024 * MIB))],
)
def test_amounts(text, amount):
    assert overflow.parse_amount(text) == amount


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "E1001: CompileTimeScopedVmemOom: Ran out of memory in memory space vmem while allocating.\n"
            "Scoped allocation with size 16.12M and limit 16.00M exceeded by 123.0K.",
            "needs 16.12MiB of VMEM, the limit is 16.00MiB",
        ),
        (
            "Ran out of memory in memory space vmem. Used 156.25M of 128.00M vmem. Exceeded by 28.25M",
            "needs 156.25MiB of VMEM, the limit is 128.00MiB; use smaller blocks",
        ),
        ("CompileTimeScopedVmemOom: in words that are new", "needs too much VMEM: "),
    ],
)
def test_overflows_of_vmem_in_one_line(error, said, tmp_path):
    for schedule in (None, tmp_path):
        message = overflow.overflow_message(error, schedule)
        assert said in message
        assert "\n" not in message


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "Ran out of memory on HBM, the total memory required (18.94G) exceeds available HBM (15.75G)",
            "needs 18.94GiB of HBM, a program may use 15.75GiB",
        ),
        ("Ran out of memory in memory space hbm. Used 32.00G of 15.75G hbm.", "needs 32.00GiB of HBM"),
        ("HBM capacity, in words that are new", "needs too much HBM"),
    ],
)
def test_overflows_of_hbm_in_one_line(error, said):
    assert said in overflow.hbm_message(error)


def test_what_an_unknown_compiler_writes_is_refused_and_not_read_as_zero(tmp_path):
    kernel = '%k = f32[8] custom-call(%x), custom_call_target="tpu_custom_call", backend_config={"used": []}'
    hlo = hlo_of(f"%x = f32[8] parameter(0)\n {kernel}")
    with pytest.raises(Refusal, match="used_scoped_memory_configs") as caught:
        memory.footprint(hlo, tmp_path, V5E, hbm_bytes=0)
    assert caught.value.status is Status.INFRASTRUCTURE
    (tmp_path / f"1-{utilisation.SUFFIX}.txt").write_text("== UTILIZATION:\n1 2 3\n")
    with pytest.raises(Refusal, match="VLOAD:FILL") as caught:
        memory.footprint(hlo_of("%x = f32[8] parameter(0)"), tmp_path, V5E, hbm_bytes=0)
    assert caught.value.status is Status.INFRASTRUCTURE


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
    assert program.footprint.vmem_limit_bytes == 16 * MIB, "XLA fuses what the default limit has room for"
    timeline, _ = latency.step(program, V5E, Mesh(), {})
    assert timeline.grid_steps == 4
