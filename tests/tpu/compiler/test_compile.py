"""What the compiler refuses, dies of, or never finishes: each has a status and a message with amounts."""

import importlib.metadata
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from benchmarks.lib.programs import modelled, of_function
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import artefact, blocked, double, scratch

F32 = jnp.float32
X = ((1024, 128), F32)


def nested(depth=600):
    """Branches in branches: from some depth on, another one in each version, the compiler overflows a stack."""

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]

        def inner(level):
            if level == 0:
                o_ref[...] = o_ref[...] + 1
            else:
                pl.when(o_ref[0, 0] > level)(lambda: inner(level - 1))

        inner(depth)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50 * depth)
    try:
        return artefact(blocked(body), X)
    finally:
        sys.setrecursionlimit(limit)


def too_large():
    return artefact(blocked(double, (8192, 1024), (2048, 1024)), ((8192, 1024), F32))


def test_vmem_overflow_names_used_limit_and_the_heaviest_window(not_compiled):
    refusal = not_compiled(too_large())
    assert refusal.status is Status.VMEM_OVERFLOW
    assert "needs 32.00MiB of VMEM, the limit is 16.00MiB" in refusal.message
    assert "input window input 0 f32[2048,1024] x2 weighs most (16.0 MiB)" in refusal.message
    assert "vmem_limit_bytes" in refusal.message


def kept_in_scratch(rows):
    def body(x_ref, o_ref, kept_ref):
        kept_ref[pl.ds(pl.program_id(0) * 256, 256)] = x_ref[...]
        o_ref[...] = kept_ref[:256] + kept_ref[rows - 256 :]

    return artefact(blocked(body, scratch_shapes=[scratch((rows, 128))]), X)


def test_vmem_overflow_by_scratch_names_it(not_compiled):
    refusal = not_compiled(kept_in_scratch(40960))
    assert refusal.status is Status.VMEM_OVERFLOW
    assert "scratch f32[40960,128] weighs most (20.0 MiB)" in refusal.message


def test_a_buffer_larger_than_the_chips_vmem(not_compiled):
    refusal = not_compiled(kept_in_scratch(400 << 10))
    assert refusal.status is Status.VMEM_OVERFLOW
    assert "needs 200.00MiB of VMEM for one buffer, the limit is 128.00MiB" in refusal.message
    assert "scratch f32[409600,128]" in refusal.message


def test_hbm_overflow_names_used_and_available(not_compiled):
    kernel = blocked(double, (4096, 1024, 1024), (1, 1024, 1024))
    big = artefact(lambda x: kernel(jnp.broadcast_to(x[None], (4096, 1024, 1024))), ((1024, 1024), F32))
    refusal = not_compiled(big)
    assert refusal.status is Status.HBM_OVERFLOW
    assert "needs 32.00GiB of HBM, a program may use 15.75GiB" in refusal.message


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="it ends the tracing at 350 branches")
def test_a_crash_of_the_compiler_is_a_verdict_and_the_next_request_works(not_compiled, compiled):
    refusal = not_compiled(nested())
    assert refusal.status is Status.COMPILER_CRASHED
    assert "signal" in refusal.message
    assert compiled(artefact(blocked(double), X)).kernels == ("double.3",)


def test_absurd_scratch_is_a_crash_or_an_overflow(not_compiled):
    parameters = pltpu.CompilerParams(internal_scratch_in_bytes=-5)
    refusal = not_compiled(artefact(blocked(double, compiler_params=parameters), X))
    assert refusal.status in (Status.COMPILER_CRASHED, Status.VMEM_OVERFLOW)


def long(x_ref, o_ref):
    """What takes the compiler more than three seconds."""
    carried = tuple(x_ref[...] + i for i in range(200))
    step = lambda _, c: tuple(a * 1.5 + b for a, b in zip(c, c[1:] + c[:1], strict=True))  # noqa: E731
    o_ref[...] = sum(jax.lax.fori_loop(0, 10, step, carried))


def test_a_compile_that_does_not_end_is_cut_off(not_compiled, compiled):
    refusal = not_compiled(artefact(blocked(long), X), seconds=3)
    assert refusal.status is Status.COMPILE_TIMEOUT
    assert "3 s" in refusal.message
    assert compiled(artefact(blocked(double), X)).kernels == ("double.3",)


def test_a_compile_that_eats_the_memory_is_cut_off(not_compiled):
    refusal = not_compiled(artefact(blocked(long), X), memory_bytes=1 << 20)
    assert refusal.status is Status.COMPILER_CRASHED
    assert "more than 1 MiB" in refusal.message


def test_unproven_alignment(not_compiled):
    def body(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[:, pl.ds(n_ref[0], 128)]

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(1,),
        in_specs=[pl.BlockSpec((256, 512), lambda i, n: (0, 0))],
        out_specs=pl.BlockSpec((256, 128), lambda i, n: (0, 0)),
    )
    shape = jax.ShapeDtypeStruct((256, 128), F32)
    kernel = artefact(pl.pallas_call(body, out_shape=shape, grid_spec=grid), ((1,), jnp.int32), ((256, 512), F32))
    refusal = not_compiled(kernel)
    assert refusal.status is Status.UNALIGNED_BLOCK
    assert "index in dimension 1 is a multiple of 128" in refusal.message
    assert "test_compile.py" in refusal.message, "the place in the kernel file"


def test_what_mosaic_cannot_compile(not_compiled):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...].reshape(-1, 3)[:256, :1] + x_ref[...]

    refusal = not_compiled(artefact(blocked(body, (1024, 384), (256, 384)), ((1024, 384), F32)))
    assert refusal.status is Status.COMPILE_FAILED
    assert "unsupported shape cast" in refusal.message
    assert "http" not in refusal.message


def test_a_damaged_artefact_does_not_reach_the_compiler(not_compiled):
    whole = artefact(blocked(double), X)
    for data in (whole.program[:200], b"", b"\0" * 5000):
        refusal = not_compiled(type(whole)(**{**vars(whole), "program": data}))
        assert refusal.status is Status.CANNOT_VERIFY
        assert "cannot be read" in refusal.message


def test_only_what_is_read_stays_after_a_compile(compiled):
    program = compiled(artefact(blocked(double), X))
    names = [path.name for path in (program.dump_dir / "schedule").iterdir()]
    assert any(name.endswith("packed-bundles-post-ra.txt") for name in names)
    assert not any("pre-finalize-registers-and-allocations" in name for name in names)


def test_two_compiles_of_one_program_are_the_same(compiled):
    programs = [compiled(artefact(blocked(double), X)) for _ in range(2)]
    assert programs[0].footprint == programs[1].footprint
    texts = [(program.dump_dir / "optimized.hlo").read_text() for program in programs]
    assert texts[0] == texts[1]
    names = [sorted(path.name for path in (program.dump_dir / "schedule").iterdir()) for program in programs]
    assert names[0] == names[1]


def test_a_program_without_arrays_is_compiled_for_the_tpu(compiled):
    def ones(o_ref):
        o_ref[...] = jnp.ones_like(o_ref)

    assert compiled(artefact(pl.pallas_call(ones, jax.ShapeDtypeStruct(*X)))).footprint.vmem_bytes == 1024 * 128 * 4


@pytest.mark.parametrize("missing", ["libtpu", "jax"])
def test_a_platform_without_the_compiler_says_what_works(monkeypatch, missing):
    real = importlib.metadata.version

    def version(name):
        if name == missing:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(Refusal) as caught:
        compiler_version()
    assert caught.value.status is Status.UNSUPPORTED_PLATFORM
    assert missing in caught.value.message
    assert all(word in caught.value.message for word in ("x86-64 Linux", "log", "show", "verify"))


IN_PLACE = blocked(double, input_output_aliases={0: 0})


@pytest.mark.parametrize(
    ("function", "aliases"),
    [
        (IN_PLACE, (((), 0),)),
        (jax.jit(IN_PLACE), (((), 0),)),
        (lambda x: IN_PLACE(x.reshape(1024, 128)), (((), 0),)),
        (blocked(double), ()),
        (lambda x: IN_PLACE(x) + 1, ()),
        (lambda x: (IN_PLACE(x), x + 1), (((0,), 0),)),
        (lambda x: IN_PLACE(x + 1), ()),
        (lambda x: IN_PLACE(IN_PLACE(x).reshape(1024, 128)), (((), 0),)),
        (lambda x: jax.lax.slice(IN_PLACE(jnp.pad(x, ((0, 0), (0, 0)))), (0, 0), (1024, 128)), (((), 0),)),
        (lambda x: IN_PLACE(jax.lax.pad(x, 0.0, ((1, -1, 0), (0, 0, 0)))), ()),
        (lambda x: IN_PLACE(jnp.pad(x[:512], ((0, 512), (0, 0)))), ()),
    ],
    ids=[
        *("direct", "in a function", "reshaped", "not in place", "result used", "read elsewhere", "computed", "twice"),
        *("padded by nothing", "shifted", "padded"),
    ],
)
def test_only_what_a_kernel_overwrites_itself_is_donated(compiled, function, aliases):
    program = compiled(artefact(function, X))
    assert load_hlo(program.dump_dir).aliases == aliases


def test_a_donated_parameter_is_not_copied(compiled):
    before = compiled(artefact(lambda x: IN_PLACE(x) + 1, X)).copies
    assert sum(copy.size_bytes for copy in before) == 1024 * 128 * 4
    assert compiled(artefact(IN_PLACE, X)).copies == ()


OVER_CHIPS = Mesh(axes=(("chip", 4),), inputs=((("chip",),),))


@pytest.mark.parametrize(
    ("split", "aliases"), [(("chip", None), (((), 0),)), ((None, "chip"), ())], ids=["as it lies", "sent first"]
)
def test_on_a_slice_what_stays_on_its_chip_is_donated(compiled, split, aliases):
    def shard(x):
        return blocked(double, x.shape, (128, 128), input_output_aliases={0: 0})(x)

    split = jax.sharding.PartitionSpec(*split)
    function = jax.shard_map(shard, in_specs=split, out_specs=split, check_vma=False)
    program = compiled(of_function(function, [jax.ShapeDtypeStruct((1024, 512), jnp.float32)], OVER_CHIPS))
    assert load_hlo(program.dump_dir).aliases == aliases


def test_a_kernel_in_place_is_modelled_without_the_copy_that_donation_avoids(workers):
    shape, block = (2048, 1024), (256, 1024)
    of = (shape, jnp.float32)
    inside = modelled(artefact(blocked(double, shape, block, input_output_aliases={0: 0}), of), workers)
    beside = modelled(artefact(blocked(double, shape, block), of), workers)
    assert abs(inside.latency_ms / beside.latency_ms - 1) < 0.02
