"""What a number has to survive, and claims beside what was found."""

import dataclasses

import pytest

from ratchet.judge import audit
from ratchet.values import ArraySpec, Footprint, Program, Timeline, VmemBuffer
from ratchet.values.status import Refusal, Status
from tests.hlo_texts import write_hlo
from tests.judge.programs import examined
from tests.kernels import LAYERNORM

PROBLEM_BYTES = 2048 * 512 * 4


@pytest.fixture(scope="module")
def layernorm():
    return examined(LAYERNORM)


def footprint(*buffers: tuple[str, int]) -> Footprint:
    return Footprint(
        vmem_bytes=sum(size for _, size in buffers),
        vmem_limit_bytes=16 << 20,
        vmem_buffers=tuple(VmemBuffer(name=name, size_bytes=size) for name, size in buffers),
        hbm_bytes=2 * PROBLEM_BYTES,
        hbm_limit_bytes=1 << 34,
        spill_stores=0,
        spill_loads=0,
    )


def timeline(**values: object) -> Timeline:
    """A timeline of the honest layernorm, with ``values`` changed."""
    fields = dict.fromkeys(field.name for field in dataclasses.fields(Timeline)) | {
        "hbm_read_bytes": PROBLEM_BYTES,
        "hbm_write_bytes": PROBLEM_BYTES,
        "grid_steps": 8,
    }
    return Timeline(**(fields | values))  # type: ignore[arg-type]


def program(tmp_path, hlo, kernels=("program.1",)):
    write_hlo(tmp_path, hlo)
    return Program(
        chip="v5e", compiler="", dump_dir=tmp_path, footprint=footprint(), copies=(), kernels=kernels, seconds=0.0
    )


def test_a_program_without_a_kernel_is_none(tmp_path):
    with pytest.raises(Refusal) as caught:
        audit.program(program(tmp_path, "%x = f32[] parameter(0)", kernels=()))
    assert caught.value.status is Status.NOT_A_KERNEL


@pytest.mark.parametrize(
    "line",
    [
        '%c = f32[] custom-call(%x), custom_call_target="xla_python_cpu_callback"',
        '%c = f32[] custom-call(%x), custom_call_target="xla_ffi_partial_python_cpu_callback"',
        "%o = token[] outfeed(%x, %t)",
    ],
)
def test_a_program_that_talks_to_the_host_is_refused(tmp_path, line):
    with pytest.raises(Refusal) as caught:
        audit.program(program(tmp_path, f"%x = f32[] parameter(0)\n %t = token[] after-all()\n {line}"))
    assert caught.value.status is Status.HOST_CALLBACK


def test_names_alone_do_not_make_a_callback(tmp_path):
    hlo = (
        "%send = f32[] parameter(0)\n "
        '%k = f32[8,128] custom-call(%send), custom_call_target="tpu_custom_call", metadata={op_name="callback"}'
    )
    assert audit.program(program(tmp_path, hlo))[0] == ("program.1",)


def test_claims_that_agree(layernorm):
    artefact, problem = layernorm
    found, said = audit.step(artefact, problem, footprint(("x", 1 << 20), ("o", 1 << 20)), timeline())
    assert [claim.what for claim in found] == [
        "grid steps",
        "VMEM buffers, bytes",
        "HBM reads, bytes",
        "HBM writes, bytes",
    ]
    assert all(claim.agrees for claim in found)
    assert said == "HBM traffic is 1.00 times the compulsory bytes; all claims agree"


def test_register_spills_are_no_claim_of_the_authors(layernorm):
    artefact, _ = layernorm
    found = audit.claims(artefact, footprint(("x", 1 << 20), ("o", 1 << 20), ("register spills", 1 << 22)), timeline())
    assert all(claim.agrees for claim in found)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"grid_steps": 16}, "grid steps"),
        ({"hbm_read_bytes": 2 * PROBLEM_BYTES}, "HBM reads"),
        ({"hbm_write_bytes": 2 * PROBLEM_BYTES}, "HBM writes"),
    ],
)
def test_a_claim_that_disagrees_is_reported_with_both_numbers(layernorm, values, named):
    artefact, problem = layernorm
    found, said = audit.step(artefact, problem, footprint(("x", 1 << 20), ("o", 1 << 20)), timeline(**values))
    wrong = [claim for claim in found if not claim.agrees]
    assert len(wrong) == 1
    assert wrong[0].what.startswith(named)
    assert wrong[0].what in said
    assert wrong[0].claimed != wrong[0].found == f"{next(iter(values.values())):,}"


def test_a_run_that_writes_less_than_its_outputs_is_invalid(layernorm):
    artefact, problem = layernorm
    with pytest.raises(Refusal) as caught:
        audit.step(artefact, problem, footprint(), timeline(hbm_write_bytes=PROBLEM_BYTES - 1))
    assert caught.value.status is Status.INVALID
    assert problem.outputs == (ArraySpec(shape=(2048, 512), dtype="float32"),)
