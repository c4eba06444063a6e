"""Refs of a repository: read, pointed, removed and compared."""

import secrets

import pytest

from ratchet.loop.history import History
from ratchet.loop.refs import REPLACED, TIPS, tip_ref
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage


def test_refs_are_pointed_all_or_none_and_removed(stage: Stage) -> None:
    history = History(stage.root)
    one, two = history.objects.store(b"one"), history.objects.store("zwei ü".encode())
    history.refs.point({REPLACED + "a": one, REPLACED + "b": two})
    assert history.refs.under(REPLACED) == {"a": one, "b": two}
    assert history.refs.texts(REPLACED) == {"a": "one", "b": "zwei ü"}
    with pytest.raises(Refusal, match="git update-ref failed"):
        history.refs.point({REPLACED + "c": one, REPLACED + "d": "0123"})
    assert "c" not in history.refs.under(REPLACED)
    history.refs.delete(REPLACED + "a")
    history.refs.delete(REPLACED + "none")
    assert history.refs.under(REPLACED) == {"b": two}
    assert history.refs.texts(TIPS) == {}
    assert history.refs.resolve(REPLACED + "b") == two
    assert history.refs.resolve(REPLACED + "a") is None


def test_a_commit_is_an_ancestor_of_those_behind_it_and_of_itself(stage: Stage) -> None:
    first = stage.head()
    stage.git("commit", "-q", "--allow-empty", "-m", "second")
    refs, second = History(stage.root).refs, stage.head()
    assert refs.is_ancestor(first, second)
    assert refs.is_ancestor(first, first)
    assert not refs.is_ancestor(second, first)


def test_a_branch_moves_from_where_it_is_and_from_nowhere_else(stage: Stage) -> None:
    first = stage.head()
    stage.git("commit", "-q", "--allow-empty", "-m", "second")
    refs, second = History(stage.root).refs, stage.head()
    refs.move_branch("refs/heads/main", new=first, old=second, reason="back")
    assert refs.resolve("refs/heads/main") == first
    assert "back" in stage.git("reflog", "-1")
    for branch in ("main", "none"):
        with pytest.raises(Refusal, match=f"{branch} moved from {second[:10]} while") as caught:
            refs.move_branch(f"refs/heads/{branch}", new=second, old=second, reason="again")
        assert caught.value.status is Status.BRANCH_MOVED
    with pytest.raises(Refusal) as caught:
        refs.move_branch("refs/heads/main", new="0123", old=first, reason="nowhere")
    assert caught.value.status is Status.INFRASTRUCTURE


def test_an_id_is_nobody_elses(stage: Stage) -> None:
    refs = History(stage.root).refs
    one = refs.reserve_id("", stage.head())
    two = refs.reserve_id("", stage.head())
    three = refs.reserve_id("29991231-235959-0000", stage.head())
    assert one < two < three
    assert three.startswith("30000101-000000-")


def test_an_id_that_somebody_takes_just_then_is_left_to_them(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = History(stage.root).refs
    monkeypatch.setattr(secrets, "randbelow", lambda _: 0)
    taken = refs.reserve_id("29991231-235959-0000", stage.head())
    monkeypatch.setattr(refs, "under", lambda _: {})
    assert taken == "30000101-000000-0000"
    assert refs.reserve_id("29991231-235959-0000", stage.head()) == "30000101-000001-0000"
    with pytest.raises(Refusal, match="git update-ref failed") as caught:
        refs.reserve_id("", "1" * 40)
    assert caught.value.status is Status.INFRASTRUCTURE


def test_branches_have_flat_tips_of_limited_length() -> None:
    assert tip_ref("refs/heads/a/b") == TIPS + "a%2Fb"
    assert tip_ref("refs/heads/" + "a" * 200) == TIPS + "a" * 200
    assert len(tip_ref("refs/heads/" + "a" * 201)) == len(TIPS) + 64
