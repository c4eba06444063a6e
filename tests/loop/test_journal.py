"""A journal that is damaged is refused by name, whatever is wrong with it."""

import dataclasses
import json
from typing import Any

import pytest

from ratchet.loop import journal, ledger
from ratchet.loop.history import History
from ratchet.loop.journal import Plan
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage

ROW = Row(**dict.fromkeys(ledger.COLUMNS, "1"))
PLAN = Plan(branch="refs/heads/main", old="0" * 40, new="1" * 40, kernel="k.py", judged="2" * 40, lock="k.lock")
SOUND: dict[str, Any] = {
    "id": "1",
    "plan": dataclasses.asdict(PLAN),
    "added": dataclasses.asdict(ledger.addition(None, ROW)),
}


def unfinished(stage: Stage, text: str) -> str | None:
    history = History(stage.root)
    (history.state_dir / "pending.json").write_text(text)
    return journal.unfinished(history)


def test_a_sound_journal_is_read(stage: Stage) -> None:
    assert unfinished(stage, json.dumps(SOUND)) == "1"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {**SOUND, "id": None},
        {**SOUND, "id": "2"},
        {**SOUND, "plan": {**SOUND["plan"], "branch": None}},
        {**SOUND, "plan": {**SOUND["plan"], "move": "yes"}},
        {**SOUND, "plan": {**SOUND["plan"], "more": 1}},
        {**SOUND, "added": {**SOUND["added"], "size_bytes": {}}},
        {**SOUND, "added": {**SOUND["added"], "text": "no row"}},
        {"plan": SOUND["plan"], "added": SOUND["added"]},
    ],
)
def test_a_damaged_journal_is_refused(stage: Stage, document: object) -> None:
    with pytest.raises(Refusal, match=r"the journal .* is unreadable") as caught:
        unfinished(stage, json.dumps(document))
    assert caught.value.status is Status.LEDGER_BROKEN


def test_a_deeply_nested_journal_is_refused(stage: Stage) -> None:
    with pytest.raises(Refusal, match=r"the journal .* is unreadable"):
        unfinished(stage, "[" * 100_000)
