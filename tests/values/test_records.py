"""Records of other processes, read field by field."""

import json

import pytest

from ratchet.values import control, records, tokens
from ratchet.values.encoding import decode
from ratchet.values.status import Refusal, Status

KINDS = {
    "status": records.is_status,
    "refused": records.is_refused,
    "count": records.is_count,
    "counts": records.is_counts,
    "seconds": records.is_seconds,
    "real": records.is_real,
    "texts": records.is_texts,
    "yes": records.is_truth,
}
SOUND = {
    "status": "PASS",
    "refused": ["CONTRACT", "why"],
    "count": 3,
    "counts": [1, 2],
    "seconds": 0.5,
    "real": float("inf"),
    "texts": ["a"],
    "yes": True,
}


def refuse(why: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"no record: {why}")


def read(document: object) -> records.Record:
    return records.read(json.dumps(document).encode(), KINDS, refuse)


def test_a_sound_record_is_read_without_what_nobody_asked_for() -> None:
    assert read({**SOUND, "more": 1}) == SOUND


def test_a_field_that_is_missing_is_refused_when_it_is_wanted() -> None:
    record = read({"count": 1})
    assert record["count"] == 1
    with pytest.raises(Refusal, match="no record: it lacks seconds"):
        record["seconds"]


@pytest.mark.parametrize(("key", "value"), [
    ("status", "NO_SUCH"), ("status", 3), ("refused", ["CONTRACT"]), ("refused", ["NO_SUCH", "x"]),
    ("refused", ["CONTRACT", 1]), ("count", -1), ("count", 1 << 63), ("count", True), ("count", 1.0),
    ("counts", [1, None]), ("counts", 1), ("seconds", float("nan")), ("seconds", -1.0), ("seconds", "1"),
    ("real", True), ("real", 1 << 63), ("texts", [1]), ("texts", "a"), ("yes", 1),
])  # fmt: skip
def test_a_field_of_another_kind_is_refused(key: str, value: object) -> None:
    with pytest.raises(Refusal, match=f"no record: {key} is"):
        read({**SOUND, key: value})


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"count": ' + b"9" * 5000 + b"}"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="no record: "):
        records.read(data, KINDS, refuse)


def test_the_largest_count_is_one() -> None:
    assert read({"count": (1 << 63) - 1})["count"] == (1 << 63) - 1
    assert read({"count": 0})["count"] == 0


@pytest.mark.parametrize("kind", [int, float])
def test_no_integer_of_many_digits_is_a_value(kind: type) -> None:
    with pytest.raises(ValueError, match="bits"):
        decode(kind, 10**400)
    assert decode(kind, (1 << 63) - 1) > 0


@pytest.mark.parametrize("text", [
    "{}", "[]", '{"sources": [], "around": [null], "names": {}}', '{"sources": [[]], "around": [], "names": []}',
    '{"sources": [["a"]], "around": [], "names": {}}', '{"sources": [], "around": [1e999], "names": {}}',
    '{"sources": [], "around": [0], "names": {}}', '{"sources": [], "around": [1, -1], "names": {}}',
])  # fmt: skip
def test_a_damaged_table_of_tokens_is_no_table(text: str) -> None:
    """Operations that are inside of each other would be looked up for ever."""
    with pytest.raises(ValueError, match=r"\w"):
        tokens.decode(text)


@pytest.mark.parametrize("record", [
    [], {}, {"branches": {"a": [1]}, "loops": {}, "copies": {}}, {"branches": {}, "loops": [], "copies": {}},
    {"branches": {}, "loops": {"a": None}, "copies": {}}, {"branches": {}, "loops": {"a": float("inf")}, "copies": {}},
])  # fmt: skip
def test_a_damaged_control_flow_is_none(record: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        control.decode(record)  # type: ignore[arg-type]
