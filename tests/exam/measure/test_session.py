"""Launch after launch, with a device that answers from a script: when it ends, and what is verified."""

from pathlib import Path

import pytest

from ratchet.exam.measure import session
from ratchet.exam.measure.session import CANDIDATE, INCUMBENT, KINDS, Device, Session
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status
from tests.refusals import refused


class Scripted:
    """A device on which a candidate takes ``ms`` and the incumbent 2 ms, and that notes what it was asked."""

    evaluator = "cpu"

    def __init__(self, folder, ms=1.0, digests=("d",), refuse_at=0):
        self.folder, self.ms, self.digests, self.refuse_at = folder, ms, digests, refuse_at
        self.asked = []

    def ask(self, request):
        self.asked.append(request)
        if len(self.asked) == self.refuse_at:
            raise Refusal(Status.NON_DETERMINISTIC, "on the cpu: other values")
        digest = self.digests[min(len(self.asked), len(self.digests)) - 1]
        programs = {
            entry["name"]: {
                "wall_ns": [round((self.ms if entry["name"] == CANDIDATE else 2.0) * 1e6)] * 30,
                "device_ns": [],
                "digests": [digest] * len(KINDS),
            }
            for entry in request["programs"]
        }
        return {"programs": programs, "device": "scripted"}, self.folder


def timing(device, verified=None, *, beside=True, **options):
    names = (CANDIDATE, INCUMBENT) if beside else (CANDIDATE,)
    seen = verified if verified is not None else []
    return Session(
        device=device,
        inputs=Path("inputs"),
        specs=[ArraySpec(shape=(4,), dtype="float32")],
        verify=lambda name, kind, outputs: seen.append((name, kind, outputs.name)),
        programs={name: Path(name) for name in names},
        **options,
    )


def test_it_ends_as_soon_as_it_is_known(tmp_path):
    device = Scripted(tmp_path, ms=1.0)
    samples, paired = timing(device, test=1).run()
    assert paired.answer == "faster"
    assert paired.launches == len(samples.launches) == len(device.asked) == 6, "1.9 to the sixth is above 1/0.025"
    assert paired.speedup == pytest.approx(2.0)
    assert timing(Scripted(tmp_path, ms=1.0), test=30).run()[1].launches == 16
    assert timing(Scripted(tmp_path, ms=4.0), test=30).run()[1].answer == "not faster"


def test_it_ends_when_the_time_is_over(tmp_path):
    _, paired = timing(Scripted(tmp_path, ms=1.0), test=1, budget_s=0.0).run()
    assert (paired.answer, paired.launches) == ("cannot tell", session.FEWEST)


def test_both_places_are_drawn(tmp_path):
    device = Scripted(tmp_path, ms=1.0)
    samples, _ = timing(device, test=10**6).run()
    orders = [tuple(entry["name"] for entry in request["programs"]) for request in device.asked]
    assert set(orders) == {(CANDIDATE, INCUMBENT), (INCUMBENT, CANDIDATE)}
    assert [one.candidate_first for one in samples.launches] == [order[0] == CANDIDATE for order in orders]


def test_a_kernel_alone_is_timed_a_fixed_number_of_times(tmp_path):
    device = Scripted(tmp_path)
    samples, paired = timing(device, beside=False, capture=tmp_path / "trace").run()
    assert paired is None
    assert len(samples.launches) == session.ALONE
    assert [bool(request["capture"]) for request in device.asked] == [True] + [False] * (session.ALONE - 1)


def test_values_are_verified_whenever_they_are_new(tmp_path):
    verified = []
    device = Scripted(tmp_path, digests=("d", "d", "other", "d"))
    timing(device, verified).run()
    assert len(verified) == 2 * 2 * len(KINDS), "for two programs, the first values and the others"
    assert {(name, kind) for name, kind, _ in verified} == {(n, k) for n in (CANDIDATE, INCUMBENT) for k in KINDS}
    known = {entry["name"]: entry["known"] for entry in device.asked[-1]["programs"]}
    assert known[CANDIDATE] == [["d"] * len(KINDS), ["other"] * len(KINDS)]


def test_wrong_values_end_it(tmp_path):
    def wrong(name, kind, outputs):
        raise Refusal(Status.WRONG_VALUES, f"the {name}, timed: wrong")

    one = timing(Scripted(tmp_path))
    one.verify = wrong
    with refused(Status.WRONG_VALUES, "timed: wrong"):
        one.run()


def test_a_refusal_in_a_later_launch_ends_it(tmp_path):
    device = Scripted(tmp_path, refuse_at=4)
    with refused(Status.NON_DETERMINISTIC):
        timing(device).run()
    assert len(device.asked) == 4


def test_a_launch_that_crashes_is_reported(tmp_path):
    """A real process: the program is no program."""
    count = iter(range(10))
    device = Device(evaluator="cpu", folder=lambda name: tmp_path / f"{next(count)}-{name}")
    (tmp_path / "inputs" / "random").mkdir(parents=True)
    (tmp_path / "inputs" / "random" / "input0.bin").write_bytes(bytes(16))
    (tmp_path / "program").write_bytes(b"no program")
    request = {
        "inputs": str(tmp_path / "inputs"),
        "kinds": ["random"],
        "specs": [{"shape": [4], "dtype": "float32"}],
        "programs": [{"name": CANDIDATE, "path": str(tmp_path / "program"), "known": []}],
        "seconds": 0,
    }
    try:
        with pytest.raises(Refusal) as caught:
            device.ask(request)
    finally:
        device.close()
    assert caught.value.status is Status.CANNOT_VERIFY
    assert "\n" not in caught.value.message
