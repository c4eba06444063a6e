"""The examples for other devices: every value of every knob at least traces, lowers and is right."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from ratchet.exam.candidate import worker
from ratchet.exam.judge.measured import check_program
from ratchet.process.sandbox.child import PACKAGE_ROOT as ROOT
from ratchet.values.status import Status
from tests.hlo_texts import hlo_of
from tests.refusals import refused

CPU = (ROOT / "examples" / "cpu_attention" / "kernel.py").read_text()
GPU = (ROOT / "examples" / "gpu_attention" / "kernel.py").read_text()
CPU_KNOBS = [
    {},
    {"BQ": 16, "BKV": 512},
    {"BQ": 512, "BKV": 16, "SKIP": True},
    {"BQ": 128, "BKV": 32, "SKIP": True, "TRANSPOSE": True},
    {"UNROLL": 8, "SCALE_Q": True},
    {"BQ": 32, "TRANSPOSE": True, "SCALE_Q": True},
]
GPU_KNOBS = [
    {},
    {"BQ": 128, "BKV": 32, "NUM_WARPS": 8},
    {"BQ": 32, "BKV": 64, "SPLIT_DIAGONAL": True},
    {"BQ": 128, "BKV": 64, "SPLIT_DIAGONAL": True, "NUM_STAGES": 3},
]


def names_of(source, knobs, **more):
    """What the example defines with other knobs."""
    for name, value in {**knobs, **more}.items():
        source, count = re.subn(rf"(?m)^{name} = .*", f"{name} = {value}", source)
        assert count == 1, name
    names = {}
    exec(compile(source, "kernel.py", "exec"), names)
    return names


def worst(names):
    inputs = names["generate_inputs"](jax.random.key(1))
    got, wanted = names["kernel_fn"](*inputs), names["reference_fn"](*inputs)
    return float(jnp.max(jnp.abs(got.astype(jnp.float32) - wanted.astype(jnp.float32))))


@pytest.mark.parametrize("knobs", CPU_KNOBS, ids=str)
def test_the_cpu_example_is_right_with_other_knobs(knobs):
    assert worst(names_of(CPU, knobs)) < 1e-4


@pytest.mark.parametrize("knobs", GPU_KNOBS, ids=str)
def test_the_gpu_example_lowers_for_cuda_with_other_knobs(knobs):
    """No GPU was ever at hand: that it lowers is all that can be said of it here, and the next test."""
    names = names_of(GPU, knobs)
    avals = [jax.ShapeDtypeStruct((8192, 128), jnp.bfloat16)] * 3
    program, _ = worker.traced_kernel(names["kernel_fn"], avals, Path("kernel.py"), platform="cuda")
    text = str(program.mlir_module())
    assert "__gpu$xla.gpu.triton" in text
    assert f"num_warps = {names['NUM_WARPS']} " in text
    assert f"num_stages = {names['NUM_STAGES']} " in text


@pytest.mark.parametrize("knobs", GPU_KNOBS, ids=str)
def test_the_gpu_example_is_right_in_pallas_interpreter(knobs, monkeypatch):
    monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    assert worst(names_of(GPU, knobs, SEQ=512)) < 0.02


CALL = '%x = f32[8]{0} parameter(0)\n %y = f32[8]{0} custom-call(%x), custom_call_target="NAME", METADATA'
DOT = "%a = f32[8]{0} parameter(0)\n ROOT %dot = f32[] dot(%a, %a), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def call(name: str, op_name: str = "jit(f)/x") -> str:
    return CALL.replace("NAME", name).replace("METADATA", f'metadata={{op_name="{op_name}"}}')


def test_compiled_programs_are_asked_for_kernels_and_host_calls():
    for name in ("__gpu$xla.gpu.triton", "mosaic_gpu_v2"):
        assert check_program("cuda", hlo_of(call(name))) == (name,)
    assert check_program("cpu", hlo_of(DOT)) == ()
    spoofed = call("__cublas$gemm", r"custom-call(custom_call_target=\"mosaic_gpu\"")
    for platform, text, status in (
        ("cuda", DOT, Status.NOT_A_KERNEL),
        ("cuda", call("__cublas$gemm"), Status.NOT_A_KERNEL),
        ("cuda", spoofed, Status.NOT_A_KERNEL),
        ("cpu", call("xla_ffi_python_cpu_callback"), Status.HOST_CALLBACK),
        ("cpu", "%t = token[] after-all()\n %y = ((f32[8]), token[]) infeed(%t)", Status.HOST_CALLBACK),
    ):
        with refused(status):
            check_program(platform, hlo_of(text))
