"""What a number has to survive, and claims beside what was found."""

import dataclasses

import pytest

from ratchet.exam.judge import audit
from ratchet.values import ArraySpec, Footprint, Program, Timeline, VmemBuffer
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import examined, run_of
from tests.hlo_texts import write_hlo
from tests.kernels import LAYERNORM
from tests.refusals import refused

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
    return run_of(**{"hbm_read_bytes": PROBLEM_BYTES, "hbm_write_bytes": PROBLEM_BYTES, "grid_steps": 8, **values})


def program(tmp_path, hlo, kernels=("program.1",)):
    write_hlo(tmp_path, hlo)
    return Program(
        chip="v5e", compiler="", dump_dir=tmp_path, footprint=footprint(), copies=(), kernels=kernels, seconds=0.0
    )


HOST = {
    "xla_python_cpu_callback": '%c = f32[] custom-call(%x), custom_call_target="xla_python_cpu_callback"',
    "xla_ffi_partial_python_cpu_callback": (
        '%c = f32[] custom-call(%x), custom_call_target="xla_ffi_partial_python_cpu_callback"'
    ),
    "outfeed": "%o = token[] outfeed(%x, %t)",
}


@pytest.mark.parametrize(
    ("operand", "result", "said"),
    [
        ("2,1,0:T(8,128)", "2,0,1", None),  # a dimension of one element is anywhere
        ("0,1,2", "2,1,0", r"operand 0 of the compiled kernel k is f32\[8,1,128\]\{0,1,2\}, wanted row-major"),
        ("2,1,0", "0,2,1:T(8,128)", r"result 0 of the compiled kernel k is f32\[8,1,128\]\{0,2,1\}"),
    ],
)
def test_operands_and_results_of_kernels_are_row_major(tmp_path, operand, result, said):
    call = f'%k = f32[8,1,128]{{{result}}} custom-call(%x), custom_call_target="tpu_custom_call"'
    built = program(tmp_path, f"%x = f32[8,1,128]{{{operand}}} parameter(0)\n ROOT {call}", ("k",))
    if said is None:
        audit.program(built)
    else:
        with refused(Status.CANNOT_VERIFY, said):
            audit.program(built)


@pytest.mark.parametrize("what", HOST)
def test_a_program_that_talks_to_the_host_is_refused(tmp_path, what):
    hlo = f"%x = f32[] parameter(0)\n %t = token[] after-all()\n {HOST[what]}"
    with refused(Status.HOST_CALLBACK, f"calls the host \\({what}\\)"):
        audit.program(program(tmp_path, hlo))


def test_all_live_kernels_are_named_and_names_alone_do_not_make_a_callback(tmp_path):
    one = (
        "%send = f32[] parameter(0)\n "
        '%k = f32[8,128] custom-call(%send), custom_call_target="tpu_custom_call", metadata={op_name="callback"}'
    )
    assert audit.program(program(tmp_path, one)) == (("program.1",), "1 live kernel: program.1")
    two = ("program.1", "program.2")
    assert audit.program(program(tmp_path, one, kernels=two)) == (two, "2 live kernels: program.1, program.2")
    with refused(Status.NOT_A_KERNEL):
        audit.program(program(tmp_path, one, kernels=()))


BUFFERS = ("x", 1 << 20), ("o", 1 << 20)


@pytest.mark.parametrize("spilled", [(), (("register spills", 1 << 22),)], ids=["no spills", "spills"])
def test_claims_that_agree(layernorm, spilled):
    """Register spills are no claim of the author's."""
    artefact, problem = layernorm
    found, said = audit.step(artefact, problem, footprint(*BUFFERS, *spilled), timeline())
    assert [claim.what for claim in found] == [
        "grid steps",
        "VMEM buffers, bytes",
        "HBM reads, bytes",
        "HBM writes, bytes",
    ]
    assert all(claim.agrees for claim in found)
    assert said == "HBM traffic is 1.00 times the compulsory bytes; all claims agree"


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
    found, said = audit.step(artefact, problem, footprint(*BUFFERS), timeline(**values))
    (wrong,) = (claim for claim in found if not claim.agrees)
    assert wrong.what.startswith(named)
    assert wrong.what in said
    assert wrong.claimed != wrong.found == f"{next(iter(values.values())):,}"


def test_a_run_that_writes_less_than_its_outputs_is_invalid(layernorm):
    artefact, problem = layernorm
    with refused(Status.INVALID):
        audit.step(artefact, problem, footprint(), timeline(hbm_write_bytes=PROBLEM_BYTES - 1))
    assert problem.outputs == (ArraySpec(shape=(2048, 512), dtype="float32"),)


def claiming(layernorm, **meta):
    """The program with other claims."""
    return dataclasses.replace(layernorm[0], tiling_meta=meta)


@pytest.mark.parametrize(
    ("claimed", "found", "agrees"),
    [(94, 100, False), (95, 100, True), (105, 100, True), (106, 100, False), (0, 0, True), (1, 0, False)],
)
def test_a_claim_may_be_off_by_a_twentieth_of_what_is_found(layernorm, claimed, found, agrees):
    (claim,) = audit.claims(claiming(layernorm, grid=(1, claimed)), footprint(), timeline(grid_steps=found))
    assert (claim.claimed, claim.found, claim.agrees) == (f"{claimed}", f"{found}", agrees)


def test_what_is_not_claimed_is_not_compared(layernorm):
    assert audit.claims(claiming(layernorm, grid=()), footprint(), timeline()) == ()
    silent = claiming(layernorm)
    assert audit.step(silent, layernorm[1], footprint(), timeline())[1].endswith("; no claims")


def test_claimed_bytes_count_both_buffers_and_every_read(layernorm):
    buffers = [{"size_bytes": 1000, "double_buffered": True}, {"size_bytes": 300, "double_buffered": False}]
    entries = [{"size_bytes": 1000, "re_reads": 3}, {"size_bytes": 10, "re_reads": 1}]
    made = audit.claims(
        claiming(layernorm, buffers=buffers, inputs=entries, outputs=entries), footprint(("x", 2300)), timeline()
    )
    assert [claim.claimed for claim in made] == ["2,300", "3,010", "3,010"]


def test_claims_on_a_slice_leave_room_for_what_the_chips_exchange_first(layernorm):
    """8 KiB of a chip's traffic may be nobody's claim; steps and VMEM are all the program's."""
    meta = {"grid": (1,), "inputs": [{"size_bytes": 0, "re_reads": 1}], "outputs": [{"size_bytes": 0, "re_reads": 1}]}

    def agreeing(chips, **values):
        found = audit.claims(claiming(layernorm, **meta), footprint(), timeline(chips=chips, **values))
        return [claim.agrees for claim in found]

    chips = (timeline(),) * 4
    assert agreeing(chips, grid_steps=2, hbm_read_bytes=8192, hbm_write_bytes=8192) == [False, True, True]
    assert agreeing(chips, grid_steps=1, hbm_read_bytes=8193, hbm_write_bytes=8193) == [True, False, False]
    assert agreeing((), grid_steps=1, hbm_read_bytes=100, hbm_write_bytes=100) == [True, False, False]


def test_all_chips_together_write_the_outputs(layernorm):
    quarter = PROBLEM_BYTES // 4
    chips = tuple(timeline(hbm_read_bytes=quarter * place, hbm_write_bytes=quarter) for place in range(4))
    slowest = timeline(chips=chips, hbm_write_bytes=0)
    assert audit.work(layernorm[1], slowest) == "HBM traffic is 1.25 times the compulsory bytes"
    with pytest.raises(Refusal, match=f"writes {3 * quarter} bytes to HBM, wanted at least the {PROBLEM_BYTES}"):
        audit.work(layernorm[1], timeline(chips=chips[:3], hbm_write_bytes=PROBLEM_BYTES))
