"""The examples for other devices: every value of every knob at least traces, lowers and is right."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from prepare import ROOT
from ratchet.candidate import worker
from ratchet.judge import measuring
from ratchet.values.status import Refusal, Status

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
    program = worker.export_kernel(names["kernel_fn"], avals, Path("kernel.py"), platform="cuda")
    text = str(program.mlir_module())
    assert "__gpu$xla.gpu.triton" in text
    assert f"num_warps = {names['NUM_WARPS']} " in text
    assert f"num_stages = {names['NUM_STAGES']} " in text


@pytest.mark.parametrize("knobs", GPU_KNOBS, ids=str)
def test_the_gpu_example_is_right_in_pallas_interpreter(knobs, monkeypatch):
    monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    assert worst(names_of(GPU, knobs, SEQ=512)) < 0.02


CALL = '%1 = f32[8]{0} custom-call(%0), custom_call_target="NAME", metadata={op_name="jit(f)/x"}'


def test_compiled_programs_are_asked_for_kernels_and_host_calls():
    for name in ("__gpu$xla.gpu.triton", "mosaic_gpu_v2"):
        assert measuring.check_program("cuda", CALL.replace("NAME", name)) == (name,)
    assert measuring.check_program("cpu", "ROOT %dot = f32[8]{0} dot(%a, %b)") == ()
    spoofed = CALL.replace("NAME", "__cublas$gemm").replace("/x", r"custom-call(custom_call_target=\"mosaic_gpu\"")
    for platform, text, status in (
        ("cuda", "ROOT %dot = f32[8]{0} dot(%a, %b)", Status.NOT_A_KERNEL),
        ("cuda", CALL.replace("NAME", "__cublas$gemm"), Status.NOT_A_KERNEL),
        ("cuda", spoofed, Status.NOT_A_KERNEL),
        ("cpu", CALL.replace("NAME", "xla_ffi_python_cpu_callback"), Status.HOST_CALLBACK),
        ("cpu", "%1 = (f32[8], token[]) infeed(%0)", Status.HOST_CALLBACK),
    ):
        with pytest.raises(Refusal) as caught:
            measuring.check_program(platform, text)
        assert caught.value.status is status, text
