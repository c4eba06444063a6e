"""The benchmark of faults, small: what it strikes, and that it sees what is lost."""

import os
import random
import signal
from pathlib import Path

import pytest

from benchmarks.lib.faults import states, tracer
from benchmarks.lib.faults.scene import KEPT, SCENES, State, Tally, aftermath, degrade
from benchmarks.lib.faults.strikes import WAYS, Point, Striker, plan, strike_all
from benchmarks.lib.faults.tracer import Call
from ratchet.loop import journal, plumbing
from ratchet.loop.worktree import WorkTree
from ratchet.process import key

pytestmark = pytest.mark.skipif(not tracer.available(), reason="processes cannot be traced here")


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gitconfig").touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr(key, "path", lambda: tmp_path / "home" / "key")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def striker(tmp_path: Path, said: list[str]) -> Striker:
    return Striker(folder=tmp_path, complain=said.append, chance=random.Random(1))


@pytest.mark.slow
def test_strikes_spread_over_all_calls_lose_nothing(striker: Striker, said: list[str]) -> None:
    points, calls = plan(striker, SCENES, 12, random.Random(2))
    assert calls > 400
    assert len({point.scene.name for point in points}) >= 4
    total = Tally()
    for tally in strike_all(striker, points, lambda _: None).values():
        total.add(tally)
    assert said == []
    assert total == Tally(strikes=12)


def test_enough_strikes_reach_every_call_and_power_is_cut_before_every_flush(striker: Striker) -> None:
    calls = striker.calls(KEPT)
    points, count = plan(striker, (KEPT,), 2 * len(calls), random.Random(1))
    assert count == len(calls)
    assert {point.number for point in points} >= {call.number for call in calls}
    assert {point.way for point in points} == {*WAYS, "random"}
    for call in calls:
        if call.name == "fsync":
            assert Point(scene=KEPT, number=call.number, way="power") in points
    names = {call.path for call in calls}
    assert {"results.tsv", ".git/refs/heads/main", ".git/ratchet/pending.json", ".git/index"} <= names


def number_of(striker: Striker, name: str, path: str) -> int:
    return next(call.number for call in striker.calls(KEPT) if (call.name, call.path) == (name, path))


def test_a_row_that_was_not_flushed_is_missed(
    striker: Striker, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that trusts the system to write what it appended: after a power cut, rows can be gone."""
    template = striker.stage(KEPT)
    before = State.of(template)
    degrade(template.root, {"results.tsv": 0}, Always(0))
    assert aftermath(KEPT, template, before, said.append, where="here").rows_lost == len(before.rows)
    assert "a row is gone" in "".join(said)


class Always(random.Random):
    """Chooses the smallest."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return min(seq)


@pytest.mark.parametrize(
    ("broken", "call", "way"),
    [
        ("locks stay", ("write", ".git/refs/heads/main.lock"), "all"),
        ("locks stay", ("write", ".git/refs/heads/main.lock"), "one"),
        ("no journal", ("rename", ".git/refs/heads/main"), "all"),
    ],
)
def test_a_loop_without_its_repairs_is_caught(
    striker: Striker, said: list[str], monkeypatch: pytest.MonkeyPatch, broken: str, call: tuple[str, str], way: str
) -> None:
    number = number_of(striker, *call)
    assert striker.strike(Point(scene=KEPT, number=number, way=way)) == Tally(strikes=1)
    if broken == "locks stay":
        monkeypatch.setattr(plumbing, "clear", lambda **_: ())
    else:
        monkeypatch.setattr(journal, "recover", lambda _: ())
    # Which call has the number depends on how many folders of objects git makes, and that on the hashes of a run.
    tallies = (striker.strike(Point(scene=KEPT, number=number, way=way)) for _ in range(60))
    assert any(tally.faults for tally in tallies)
    assert said


def test_a_changed_file_of_the_users_is_seen(
    striker: Striker, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WorkTree.sync_index

    def careless(self: WorkTree, **given: object) -> object:
        (self._git.root / "other.txt").write_text("")
        return real(self, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkTree, "sync_index", careless)
    last = striker.calls(KEPT)[-1].number
    assert striker.strike(Point(scene=KEPT, number=last, way="all")).files_changed


def test_a_lock_that_is_somebodys_stays(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LOCKS", ("HEAD.lock",))
    monkeypatch.setattr(states, "SCENES", (KEPT,))
    assert states.stale_locks(tmp_path, said.append) == Tally(strikes=2), said


def test_a_clock_that_goes_back(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "SCENES", (KEPT,))
    monkeypatch.setattr(states, "BACK", (86400,))
    assert states.backwards(tmp_path, said.append) == Tally(strikes=1), said


def test_many_at_once(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "WRITERS", 3)
    tally = states.at_once(tmp_path, said.append, worktrees=2, turns=1, chance=random.Random(1))
    assert tally == Tally(strikes=3), said


# --- the tracer ---


def traced(folder: Path, strike_at: int = 0, how: str = "all") -> tuple[list[Call], int]:
    """Writes two files, in a process and in its child; the calls that were seen, and how it ended."""
    calls: list[Call] = []

    def look(call: Call) -> str:
        calls.append(call)
        return how if call.number == strike_at else ""

    def work() -> int:
        (folder / "one").write_bytes(b"0123456789")
        (folder / "elsewhere").exists()
        pid = os.fork()
        if not pid:
            os.rename(folder / "one", folder / "two")
            os._exit(0)
        os.waitpid(pid, 0)
        (folder / "three").touch()
        return 5

    return calls, tracer.trace(work, watched=folder, look=look).status


def test_calls_of_a_process_and_of_what_it_starts_are_seen(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    calls, status = traced(tmp_path / "watched")
    assert os.WEXITSTATUS(status) == 5
    assert [(call.name, call.path) for call in calls] == [
        ("openat", "one"),
        ("write", "one"),
        ("rename", "two"),
        ("openat", "three"),
    ]
    assert calls[1].size == 10
    assert len({call.pid for call in calls}) == 2


@pytest.mark.parametrize(
    ("number", "how", "left", "ended"),
    [
        (1, "all", set(), signal.SIGKILL),
        (2, "torn", {"one"}, signal.SIGKILL),
        (3, "all", {"one"}, signal.SIGKILL),
        (3, "one", {"one", "three"}, 0),
        (3, "main", {"two"}, signal.SIGKILL),
        (4, "all", {"two"}, signal.SIGKILL),
    ],
)
def test_a_strike_comes_before_its_call(tmp_path: Path, number: int, how: str, left: set[str], ended: int) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    _, status = traced(watched, number, how)
    assert (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0) == ended
    assert {path.name for path in watched.iterdir()} == left
    if how == "torn":
        assert (watched / "one").read_bytes() == b"01234"
