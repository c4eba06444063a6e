"""Which seals are of one series, and which rows only repeat what was known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.loop import series
from ratchet.loop.decide import conditions_of
from ratchet.loop.rows import newest, repeats
from ratchet.values import Decision, Row
from tests.loop.stage import CONDITIONS, Stage, kernel_text
from tests.loop.test_decide import row


def proof(seal: str, equals: str) -> dict[str, object]:
    return {"seal": seal, "equals": equals, "programs": 2, "documents": "d" * 64, "date": "2026-11-27"}


def written(folder: Path, *proofs: dict[str, object]) -> Path:
    file = folder / "series.json"
    file.write_text(json.dumps(proofs))
    return file


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third seal that was shown to be equal to a second, and that to the first."""
    file = written(tmp_path, proof("third", "second"), proof("second", "5ea1"))
    monkeypatch.setattr(series, "PROOFS", series.proofs(file))


def test_the_file_of_the_tree_can_be_read() -> None:
    assert series.proofs() == series.PROOFS


def test_a_series_begins_with_its_first_seal(listed: None) -> None:
    assert [series.series_of(seal) for seal in ("5ea1", "second", "third", "another")] == ["5ea1"] * 3 + ["another"]


def test_a_circle_of_proofs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is proved by itself"):
        series.proofs(written(tmp_path, proof("a", "b"), proof("b", "a")))


def test_a_row_of_an_equal_judge_is_comparable(listed: None) -> None:
    older, other = row(1.0), dataclasses.replace(row(1.0), seal="another")
    now = dataclasses.replace(CONDITIONS, seal="third", series=series.series_of("third"))
    assert conditions_of(older) == now
    assert newest((older, other), kernel=older.kernel, blob=older.kernel_blob, conditions=now) == older


def test_an_equal_judge_does_not_judge_heads_kernel_again(stage: Stage, listed: None) -> None:
    stage.run("baseline")
    stage.conditions = dataclasses.replace(stage.conditions, seal="second", series=series.series_of("second"))
    stage.write(kernel_text(1500.0))
    outcome = stage.run("by the second judge")
    assert outcome.baseline is None
    assert [one.seal for one in stage.rows()] == ["5ea1", "second"]


def baseline(name: str, **fields: str) -> Row:
    return dataclasses.replace(row(1.0), **{"id": name, "decision": Decision.BASELINE, "median_ms": "2.5"} | fields)


def test_a_baseline_with_a_known_result_repeats() -> None:
    rows = [
        baseline("a"),
        baseline("b", seal="another"),
        baseline("lost", decision=Decision.REVERTED, kernel_blob="c", median_ms="3"),
        baseline("c", seal="third"),
        baseline("kept", decision=Decision.KEPT, kernel_blob="d", median_ms="2"),
        baseline("d", kernel_blob="d", median_ms="2"),
    ]
    assert repeats(rows) == {"b": "a", "c": "a", "d": "kept"}


@pytest.mark.parametrize(
    "changed",
    [
        {"median_ms": "2.4"},
        {"kernel_blob": "other"},
        {"problem": "other"},
        {"compiler": "libtpu 2"},
        {"chip": "v6e"},
        {"decision": Decision.JUDGED},
        {"evaluator": "cpu"},
    ],
    ids=str,
)
def test_what_says_something_new_is_no_repetition(changed: dict[str, str]) -> None:
    assert repeats([baseline("a"), baseline("b", **changed)]) == {}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("12"), st.sampled_from(["baseline", "kept"]))))
def test_what_is_repeated_was_said(made: list[tuple[str, str, str]]) -> None:
    rows = [
        baseline(str(number), kernel_blob=blob, median_ms=ms, decision=decision)
        for number, (blob, ms, decision) in enumerate(made)
    ]
    found = repeats(rows)
    by_id = {one.id: one for one in rows}
    for later, first in found.items():
        assert int(first) < int(later)
        assert first not in found
        assert (by_id[first].kernel_blob, by_id[first].median_ms) == (by_id[later].kernel_blob, by_id[later].median_ms)
