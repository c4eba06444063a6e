"""Programs on four chips through the judge: honest ones pass (test_cheats), and what leaves out a chip does not."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.lib.sources import edited as with_constants
from ratchet.exam.candidate import worker
from ratchet.exam.judge import correctness, roofline
from ratchet.exam.problem import instances
from ratchet.exam.problem.problem import check_unchanged, decode, encode
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline
from ratchet.values.status import Status
from tests.exam.judge.programs import examined
from tests.kernels import CANDIDATES, HONEST, edited
from tests.refusals import refused

SPLIT = HONEST["split_decode"]
PAGED = (CANDIDATES.parents[1] / "examples" / "paged_decode.py").read_text()
REMOTE = HONEST["remote_decode"]
SHIFT = HONEST["ppermute"]
"""One remote copy: three at once take ten times as long to compile for the CPU."""


@pytest.fixture(scope="module")
def problem():
    return examined(SPLIT)[1]


@pytest.fixture
def exam(workers, tmp_path_factory, problem):
    root = tmp_path_factory.getbasetemp() / "slice"
    root.mkdir(exist_ok=True)
    return correctness.Examiner(workers=workers, root=root)


LEFT_OUT = {
    "a chip's keys": ("scale = jnp.exp(", "scale = (jax.lax.axis_index('chip') != 2) * jnp.exp("),
    "the shared maximum": ("m - jax.lax.pmax(m, \"chip\")", "m * 0"),
    "the answer on all chips but the first": (
        "return (o / total)[:, 0, :].astype(q.dtype)",
        "return jnp.where(jax.lax.axis_index('chip') == 0, o / total, 0.0)[:, 0, :].astype(q.dtype)",
    ),
    "the sum over chips": ('jax.lax.psum(total * scale, "chip")', "4 * total * scale"),
}  # fmt: skip


@pytest.mark.parametrize("edit", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_leaves_out_a_chip_is_refused(edit, exam, problem):
    with refused((Status.WRONG_VALUES, Status.INSENSITIVE, Status.NOT_FINITE)):
        exam.check(problem, examined(edited(SPLIT, edit))[0])


def test_a_chips_probe_finds_what_random_inputs_do_not(exam, problem, monkeypatch):
    """A kernel for which a large key matters no more than another; normal inputs hold none that large."""
    monkeypatch.setattr(instances, "kinds", lambda *_: ("random", "probe-1"))
    edit = ("q_ref[0], k_ref[0], (((1,)", "q_ref[0], jnp.clip(k_ref[0], -6.0, 6.0), (((1,)")
    with refused((Status.WRONG_VALUES, Status.INSENSITIVE), "rows of chip 1 made large"):
        exam.check(problem, examined(edited(SPLIT, edit))[0])


def test_the_mesh_belongs_to_the_problem(problem):
    """Sharding the heads instead of the keys would spare the chips all communication."""
    assert decode(encode(problem), "lock") == problem
    other, _ = examined(edited(SPLIT, ('[None, "chip"], [None, "chip"]', '["chip"], ["chip"]')))
    with refused(Status.PROBLEM_CHANGED, "mesh and input_shardings"):
        check_unchanged(other, problem)


FORGED = {
    "input 1 is on the chips as .*'chip'.*, declared as PartitionSpec\\(\\)|declared as P\\(\\)": lambda own: {
        "mesh": dataclasses.replace(own.mesh, inputs=((), (), ()))
    },
    "its outputs are .*bfloat16.*, declared as .*float32": lambda own: {
        "outputs": tuple(dataclasses.replace(spec, dtype="float32") for spec in own.outputs)
    },
    "output 0 is left on the chips as .*, recorded as .*'chip'": lambda own: {"output_splits": ((("chip",), ()),)},
}


@pytest.mark.parametrize("said", FORGED)
def test_a_program_whose_arrays_lie_elsewhere_than_recorded_is_refused(compiled, said):
    """The record says where they lie and the program says it too: both come from the candidate's process."""
    artefact, _ = examined(SPLIT)
    assert artefact.output_splits == (((), ()),)
    with refused(Status.PROBLEM_CHANGED, said):
        compiled(dataclasses.replace(artefact, **FORGED[said](artefact)))


def test_a_mesh_that_is_no_slice_is_refused(compiled):
    source = edited(SPLIT, ("CHIPS, HEADS, CONTEXT, HEAD_DIM = 4,", "CHIPS, HEADS, CONTEXT, HEAD_DIM = 2,"))
    with refused(Status.CONTRACT, "declares a mesh of 2 devices; a slice of v5e has 4 or 8"):
        compiled(examined(source)[0])


def test_a_kernel_without_its_mesh_is_refused():
    source = edited(SPLIT, ('        "mesh": {"chip": CHIPS},\n', ""), ('[[], [None, "chip"], [None, "chip"]]', "[]"))
    with refused(Status.LOWERING_FAILED, "mesh"):
        examined(source)


def modelled(compiled, source) -> Timeline:
    artefact, problem = examined(source)
    return latency.step(compiled(artefact), V5E, problem.mesh, {})[0]


def test_the_slowest_chip_decides_and_the_launch_barrier_counts(compiled, problem):
    timeline = modelled(compiled, SPLIT)
    assert len(timeline.chips) == 4
    assert timeline.cycles == max(chip.cycles for chip in timeline.chips)
    assert 0 < timeline.launch_cycles < timeline.cycles
    score, said = roofline.step(problem, timeline, V5E)
    assert score.latency_ms == timeline.cycles / V5E.clock_hz * 1e3
    assert 0 < score.ici_util_pct < 100
    assert "on 4 chips" in said
    busiest = max(link.bytes for link in timeline.links)
    assert roofline.ici_ms(timeline, V5E) == pytest.approx(busiest / V5E.ici(4).link_bytes_per_s * 1e3)


def test_a_chip_that_does_not_send_is_a_deadlock(compiled, exam):
    source = edited(SHIFT, ("copy.start()", "pl.when(me != 2)(copy.start)"))
    with refused(Status.DEADLOCK):
        modelled(compiled, source)
    artefact, problem = examined(source)
    with refused(Status.DEADLOCK):
        exam.check(problem, artefact)


def test_what_another_chip_sends_is_not_there_before_the_wait_for_it(exam, monkeypatch):
    monkeypatch.setattr(instances, "kinds", lambda *_: ("random",))
    landing = [
        ("def _kernel(x, o,", "def _kernel(x, o, landed,"),
        ("_send(x, o,", "_send(x, landed,"),
        ("scratch_shapes=[", "scratch_shapes=[pltpu.VMEM((N, D), jnp.float32), "),
    ]
    late = edited(SHIFT, *landing, ("    copy.wait()\n", "    copy.wait()\n    o[...] = landed[...]\n"))
    assert exam.check(examined(late)[1], examined(late)[0]).worst_error <= 1
    early = edited(SHIFT, *landing, ("    copy.wait()\n", "    o[...] = landed[...]\n    copy.wait()\n"))
    artefact, problem = examined(early)
    with refused(Status.MEMORY_HAZARD, r"read_before_wait|chips_race"):
        exam.check(problem, artefact)


@pytest.mark.slow
def test_a_kernel_that_writes_into_chips_it_has_not_met_is_refused(exam):
    start = REMOTE.index("        barrier = pltpu")
    barrier = REMOTE[start : REMOTE.index("        copies = [", start)]
    skips = ("collective_id=0, has_side_effects=True", "has_side_effects=True, skip_device_barrier=True")
    artefact, problem = examined(edited(REMOTE, (barrier, ""), skips))
    with refused(Status.MEMORY_HAZARD, "skip_device_barrier"):
        exam.check(problem, artefact)


def test_both_programs_hold_the_declared_mesh():
    for source in (SPLIT, REMOTE):
        artefact, _ = examined(source)
        assert artefact.mesh.chips == 4
        assert worker.export.deserialize(bytearray(artefact.program)).nr_devices == 4


UNEVEN = """
    barrier = pltpu.get_barrier_semaphore()

    @pl.loop(0, me + 1)
    def _more(_):
        pl.semaphore_signal(barrier, 1, device_id=(others[0],), device_id_type=pl.DeviceIdType.MESH)

    pl.semaphore_wait(barrier, jax.lax.rem(me + CHIPS - 1, CHIPS) + 1)
"""


@pytest.mark.slow
def test_chips_may_turn_a_loop_unequally_often(exam):
    """What is sent to a chip that has left the loop arrives all the same."""
    begun = "    me, others = _everyone()\n"
    artefact, problem = examined(edited(SHIFT, (begun, begun + UNEVEN)))
    assert exam.check(problem, artefact).worst_error < 1
    short, _ = examined(edited(SHIFT, (begun, begun + UNEVEN.replace("CHIPS) + 1", "CHIPS) + 2"))))
    with refused(Status.DEADLOCK):
        exam.check(problem, short)


def test_lengths_and_page_tables_steer_each_chip_by_its_own_part(compiled):
    source = with_constants(PAGED, BATCH=2, CONTEXT=2048, PAGE=64, Q_HEADS=16, KV_HEADS=8, PAGES_AT_ONCE=2)
    artefact, problem = examined(source)
    program = compiled(artefact)
    table = np.arange(4 * 16, dtype=np.int32).reshape(4, 2, 8) % 16
    reads = []
    for lengths in ([2048, 2048], [512, 512], [700, 1]):
        steering = {3: np.array(lengths, np.int32), 4: table}
        timeline, _ = latency.step(program, V5E, problem.mesh, steering)
        reads.append([chip.hbm_read_bytes // (2 * 64 * 8 * 128 * 2) for chip in timeline.chips])
    # Pages of K and V that each chip reads, by its number; the second chip of the mesh is chip 1.
    assert reads == [[16, 16, 16, 16], [16, 0, 0, 0], [8 + 1, 3, 0, 0]]


@pytest.mark.slow
def test_four_chips_decode_as_one_does_and_as_float64():
    """Ragged lengths, permuted pages, empty chips, one key; behind the last key there is NaN."""
    command = [sys.executable, "-m", "tests.exam.judge.paged_values", "ragged", "three chips are empty"]
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        command, cwd=CANDIDATES.parents[1], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
