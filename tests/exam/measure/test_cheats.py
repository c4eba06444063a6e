"""Cheats against timers, by the whole judge in measured mode, on the CPU.

A file in ``cheats`` is put behind ``examples/cpu_attention/kernel.py``. What ends as PASS is harmless: no Python of a
kernel file lives where anything is timed or compared. ``test_rounds.py`` has the same cheats inside a program, as if
it could hold them; ``tests/loop/test_measured.py`` has number 25, which is no file's.
"""

import re
from pathlib import Path

import pytest

from prepare import judge
from ratchet.exam.judge.measured import Measured
from ratchet.exam.judge.request import Request
from ratchet.exam.measure import session
from ratchet.process.sandbox.child import PACKAGE_ROOT as ROOT
from ratchet.values import Against, Conditions
from ratchet.values.status import Status
from tests.kernels import edited
from tests.tiers import cases

CHEATS = {path.stem: path for path in sorted((Path(__file__).parent / "cheats").glob("*.py"))}
QUICK = ("c07_lazy", "c08_works_on_the_host")
"""Harmless, as ``c09_patched_waiting`` is: no Python of theirs lives where a program is timed."""
BASE = edited((ROOT / "examples" / "cpu_attention" / "kernel.py").read_text(), ("SEQ = 512", "SEQ = 128"))
CONDITIONS = Conditions(evaluator="cpu", chip="", compiler="", seal="", problem="")


@pytest.fixture(scope="module")
def honest(tmp_path_factory, workers):
    """A folder with the honest kernel's problem frozen in it, and the verdict that froze it."""
    root = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        briefly(patch)
        return root, judged(root, BASE, workers, capture=root / "trace")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    briefly(monkeypatch)


def briefly(monkeypatch):
    """One launch where five are usual, and as few calls as are allowed: values are checked here, not times."""
    monkeypatch.setattr(session, "ALONE", 1)
    monkeypatch.setitem(session.Session.__init__.__kwdefaults__, "launch_s", 0.01)


def judged(root, source, workers, **options):
    kernel = root / "kernel.py"
    kernel.write_text(source)
    return judge(
        Request(kernel=kernel, root=root, kernel_rel="kernel.py", conditions=CONDITIONS, **options), workers=workers
    )


def test_an_honest_kernel_is_timed_and_its_values_are_checked(honest):
    root, verdict = honest
    assert verdict.status is Status.PASS, verdict.reason
    assert [step.name for step in verdict.steps] == [
        "contract", "problem", "correctness", "measure", "roofline",
    ]  # fmt: skip
    assert verdict.samples.evaluator == "cpu"
    assert verdict.samples.clock == "wall"
    assert verdict.samples.calls >= 30
    assert 0 < verdict.score.util_pct <= 100
    assert verdict.score.latency_ms == verdict.samples.latency_ms
    assert verdict.paired is None
    assert verdict.timeline is None, "nothing was modelled"
    kinds = [check.partition(":")[0] for check in verdict.parity.checks]
    assert kinds == ["random", "probe", "mixed", "signed"]
    assert list((root / "trace").rglob("*.xplane.pb"))


@pytest.mark.slow
def test_the_incumbent_is_timed_beside_the_candidate(honest, workers, tmp_path):
    root, _ = honest
    incumbent = tmp_path / "kernel.py"
    incumbent.write_text(BASE)
    against = Against(kernel=incumbent, test=3)
    verdict = judged(root, edited(BASE, ("SKIP = False", "SKIP = True")), workers, against=against, budget_s=0.1)
    assert verdict.status is Status.PASS, verdict.reason
    assert (verdict.paired.launches, verdict.paired.test) == (session.FEWEST, 3)
    assert verdict.paired.answer == "cannot tell", "three launches are too few for any level"
    assert all(len(one.candidate_ms) == len(one.incumbent_ms) >= 30 for one in verdict.samples.launches)


@pytest.mark.parametrize("name", cases(QUICK, CHEATS))
def test_cheats_against_timers_are_rejected(name, honest, workers):
    root, _ = honest
    cheat = CHEATS[name].read_text()
    wanted = re.search(r"^# rejected as: (.+)$", cheat, re.MULTILINE)[1].split(", ")
    verdict = judged(root, BASE + "\n\n" + cheat, workers)
    assert verdict.status.name in wanted, verdict.reason
    assert (verdict.score is None) == ("PASS" not in wanted)
    if "PASS" in wanted:
        assert "harmless" in cheat.splitlines()[0]


def test_the_numbers_are_those_of_cheats_against_timers():
    numbers = {int(name[1:3]) for name in CHEATS}
    assert numbers == {1, 2, 3, 7, 8, 9, 13, 24}


def test_timed_values_that_are_wrong_are_refused(honest, workers, monkeypatch):
    """Had a program been right when it was checked and wrong when timed, its outputs would still be compared."""
    root, _ = honest

    def values(self, problem, artefact):
        return self.exam.check_problem(problem), ""

    monkeypatch.setattr(Measured, "values", values)
    verdict = judged(root, edited(BASE, ("rescale = jnp.exp(m - new)", "rescale = jnp.exp(m - new) * 0.9")), workers)
    assert verdict.status in (Status.WRONG_VALUES, Status.NOT_FINITE), verdict.reason
    assert "timed" in verdict.reason
