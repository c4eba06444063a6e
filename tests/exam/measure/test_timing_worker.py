"""The device's own times from a profile. The profiles are written here: no TPU was at hand."""

from types import SimpleNamespace

import jax

from ratchet.exam.measure import timing_worker
from ratchet.values.status import Status
from tests.refusals import refused


def profile(*lines):
    """A profile with one device plane; ``lines`` are (name, [(event name, start ns, duration ns)])."""
    of_device = [
        SimpleNamespace(
            name=name,
            events=[SimpleNamespace(name=event, start_ns=start, duration_ns=ns) for event, start, ns in events],
        )
        for name, events in lines
    ]
    planes = {"/host:CPU": [], "/device:TPU:0": of_device}
    return SimpleNamespace(planes=[SimpleNamespace(name=name, lines=held) for name, held in planes.items()])


def test_runs_are_distinguished_by_module_and_ordered_by_time():
    found = timing_worker.of_profile(
        profile(
            ("XLA Ops", [("jit_candidate(1)", 0, 99)]),
            (
                "XLA Modules",
                [
                    ("jit_incumbent(7)", 50, 20),
                    ("jit_candidate(3)", 30, 11),
                    ("jit_candidate(3)", 10, 10),
                    ("jit__lambda(9)", 40, 5),
                ],
            ),
        ),
        ["candidate", "incumbent"],
    )
    assert found == {"candidate": [10, 11], "incumbent": [20]}


def test_our_own_trace_of_a_modelled_run_reads_the_same_way(tmp_path):
    """The trace writer's file has a TPU's planes and lines, and JAX itself reads it."""
    from ratchet.view.xspace import write_xspace
    from tests.view.timelines import timeline

    path = tmp_path / "modelled.xplane.pb"
    modelled = timeline()
    write_xspace(modelled, path, title="candidate", flops=1, hlo_module=None)
    read = jax.profiler.ProfileData.from_file(str(timing_worker.newest(tmp_path)))
    names = {line.name for plane in read.planes for line in plane.lines}
    assert timing_worker.MODULES in names


def test_no_capture_is_an_error_with_a_name(tmp_path):
    with refused(Status.INFRASTRUCTURE, "left no"):
        timing_worker.newest(tmp_path)


def test_a_cpu_tells_no_times_of_its_own(tmp_path):
    assert timing_worker.durations(tmp_path, ["candidate"], "cpu", 30) == {}
