"""What becomes of a request to the values child, however it ends. The child is a stand-in."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.exam.judge.asking import Asking
from ratchet.exam.judge.requests import CheckProblem, CountFlops
from ratchet.process.sandbox.child import Ending, Limits
from ratchet.values.status import Refusal, Status
from tests.exam.judge.programs import examined
from tests.kernels import LAYERNORM
from tests.refusals import refused


class Child:
    """Answers every request alike."""

    def __init__(self, directory: Path, how: str) -> None:
        self.directory, self.how, self.asked = directory, how, 0

    def request(self) -> Path:
        self.asked += 1
        folder = self.directory / str(self.asked)
        folder.mkdir(parents=True)
        return folder

    def ask(self, folder: Path, _limits: Limits) -> Ending:
        (folder / "answer.json").write_text(json.dumps({"status": "PASS", "message": ""}))
        return Ending(how=self.how, answer="", returncode=None, tail="its last words", seconds=0.0)

    def cancel(self) -> None:
        self.how = "cancelled"


class Workers:
    def __init__(self, folder: Path, how: str) -> None:
        self.values = Child(folder, how)
        self.asking = threading.Lock()

    def cancel_values(self) -> None:
        self.values.cancel()


def asking(folder: Path, how: str) -> Asking:
    return Asking(workers=Workers(folder, how), root=folder, limits=Limits(seconds=2, memory_bytes=3 << 30))


def test_verdicts_that_share_a_child_ask_it_one_after_the_other(tmp_path, monkeypatch):
    """What one began while its file was traced may not be answered yet when the next verdict asks."""
    first = asking(tmp_path, "answered")
    second = Asking(workers=first.workers, root=tmp_path, limits=first.limits)
    asked, go_on, under_way = threading.Event(), threading.Event(), []

    def ask(folder: Path, _limits: Limits) -> Ending:
        under_way.append(folder)
        asked.set()
        assert len(under_way) == 1
        assert go_on.wait(60)
        under_way.remove(folder)
        (folder / "answer.json").write_text(json.dumps({"status": "PASS", "message": ""}))
        return Ending(how="answered", answer="", returncode=None, tail="", seconds=0.0)

    monkeypatch.setattr(first.workers.values, "ask", ask)
    problem = examined(LAYERNORM)[1]
    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(first.ask, problem, CheckProblem())
        assert asked.wait(60)
        next_one = pool.submit(second.ask, problem, CountFlops())
        assert first.workers.asking.locked()
        go_on.set()
        assert [one.result()["status"] for one in (begun, next_one)] == ["PASS", "PASS"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("timeout", "did not finish in 2 s"),
        ("memory", "used more than 3 GiB"),
        ("disk", "wrote more than it may"),
        ("died", "died: its last words"),
        ("cancelled", "was stopped"),
    ],
)
def test_a_request_without_an_answer_is_refused(tmp_path, how, said):
    with refused(Status.CANNOT_VERIFY, said):
        asking(tmp_path, how).ask(examined(LAYERNORM)[1], CheckProblem())


def test_what_is_stopped_asks_nothing_more_until_it_may_go_on(tmp_path):
    problem, own = examined(LAYERNORM)[1], asking(tmp_path, "answered")
    assert own.ask(problem, CheckProblem())["status"] == "PASS"
    with own.stopped(), pytest.raises(Refusal, match="was stopped"):
        own.ask(problem, CheckProblem())
    assert (own.workers.values.asked, own.workers.values.how) == (1, "cancelled")
    own.workers.values.how = "answered"  # by a new child
    assert own.ask(problem, CheckProblem())["status"] == "PASS"
