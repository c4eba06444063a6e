"""The benchmark of faults, small: what it strikes, and that it sees what is lost."""

import os
import random
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.faults import states, tracer
from benchmarks.faults.scene import KEPT, SCENES, State, Tally, aftermath, degrade
from benchmarks.faults.strikes import WAYS, Point, Striker, plan, strike_all
from benchmarks.faults.tracer import Call
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
def striker(tmp_path: Path) -> Striker:
    return Striker(folder=tmp_path, chance=random.Random(1))


@pytest.mark.slow
def test_strikes_spread_over_all_calls_lose_nothing(striker: Striker) -> None:
    points, calls = plan(striker, SCENES, 12, random.Random(2))
    assert calls > 400
    assert len({point.scene.name for point in points}) >= 4
    total = Tally()
    for tally in strike_all(striker, points).values():
        total.add(tally)
    assert total == Tally(strikes=12), total.said


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


def test_a_row_that_was_not_flushed_is_put_back(striker: Striker) -> None:
    """A ledger that trusts the system to write what it appended: after a power cut, git still has its rows."""
    template = striker.stage(KEPT)
    before = State.of(template)
    degrade(template.root, {"results.tsv": 0}, Mock(choice=min, randint=min))
    tally = aftermath(KEPT, template, before, where="here")
    assert before.rows
    assert tally.rows_lost == 0
    assert tally.said == []


@pytest.mark.parametrize(
    ("broken", "call", "way"),
    [
        ("locks stay", ("write", ".git/refs/heads/main.lock"), "all"),
        ("locks stay", ("write", ".git/refs/heads/main.lock"), "one"),
        ("no journal", ("rename", ".git/refs/heads/main"), "all"),
    ],
)
def test_a_loop_without_its_repairs_is_caught(
    striker: Striker, monkeypatch: pytest.MonkeyPatch, broken: str, call: tuple[str, str], way: str
) -> None:
    number = next(one.number for one in striker.calls(KEPT) if (one.name, one.path) == call)
    point = Point(scene=KEPT, number=number, way=way)
    assert striker.strike(point) == Tally(strikes=1)
    if broken == "locks stay":
        monkeypatch.setattr(plumbing, "clear", lambda **_: ())
    else:
        monkeypatch.setattr(journal, "recover", lambda _: ())
    # Which call has the number depends on how many folders of objects git makes, and that on the hashes of a run.
    assert any(striker.strike(point).said for _ in range(60))


def test_a_changed_file_of_the_users_is_seen(striker: Striker, monkeypatch: pytest.MonkeyPatch) -> None:
    real = WorkTree.sync_index

    def careless(self: WorkTree, **given: object) -> object:
        (self._git.root / "other.txt").write_text("")
        return real(self, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkTree, "sync_index", careless)
    last = striker.calls(KEPT)[-1].number
    assert striker.strike(Point(scene=KEPT, number=last, way="all")).files_changed


def test_locks_and_clocks_and_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is somebody's stays, a clock may go back, and three writers in two worktrees lose nothing."""
    small = {"LOCKS": ("HEAD.lock",), "SCENES": (KEPT,), "BACK": (86400,), "WRITERS": 3, "READ_ONLY": (".git/refs",)}
    for name, value in small.items():
        monkeypatch.setattr(states, name, value)
    locks, clocks = states.stale_locks(tmp_path), states.backwards(tmp_path)
    shut = states.read_only(tmp_path)
    crowd = states.at_once(tmp_path, worktrees=2, turns=1, chance=random.Random(1))
    for tally, strikes in ((locks, 2), (clocks, 1), (shut, 2), (crowd, 3)):
        assert tally == Tally(strikes=strikes), tally.said


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

    return calls, tracer.trace(work, watched=folder, look=look)


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
