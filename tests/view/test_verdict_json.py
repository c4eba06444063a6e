"""The JSON document and the schema that is shipped for it."""

import dataclasses
import json

import jsonschema
import pytest

from ratchet.values import SCHEMA_VERSION, Decision, Parity
from ratchet.values.status import Status
from ratchet.view.verdict_json import SCHEMA_PATH, dumps, verdict_document

from .timelines import row, verdict

SCHEMA = json.loads(SCHEMA_PATH.read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one_and_enumerates_the_code() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["status"]["enum"] == [status.name for status in Status]
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION
    decisions = {value for name, value in vars(Decision).items() if name.isupper()}
    assert set(SCHEMA["properties"]["outcome"]["properties"]["decision"]["enum"]) == decisions | {None}


def test_a_kept_kernel() -> None:
    kept = verdict()
    incumbent = row(id="e0", commit="c0", evaluator="v5e-model", score="1000.5", median_ms="2.9")
    document = json.loads(
        dumps(
            verdict_document(
                kept,
                outcome=Status.PASS,
                decision=Decision.KEPT,
                reason="better",
                id="e1",
                commit="c1",
                incumbent=incumbent,
            )
        )
    )
    VALIDATOR.validate(document)
    assert document["outcome"]["exit_code"] == 0
    assert document["outcome"]["incumbent"]["score"] == 1000.5
    assert document["verdict"]["score"]["kind"] == "modelled"
    assert document["verdict"]["timeline"]["kind"] == "modelled"
    assert document["verdict"]["timeline"]["span_count"] == len(kept.timeline.spans)
    assert "spans" not in document["verdict"]["timeline"]


def test_every_field_of_a_verdict_is_in_the_document() -> None:
    document = verdict_document(verdict(), outcome=Status.PASS, decision="kept", reason="")
    fields = {field.name for field in dataclasses.fields(verdict())}
    assert fields - {"kernel_name", "source_sha256"} == set(document["verdict"])  # these two are under kernel


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_valid_document(status: Status) -> None:
    judged = verdict(status)
    VALIDATOR.validate(verdict_document(judged, outcome=status, decision=Decision.REVERTED, reason="so", id="e1"))
    VALIDATOR.validate(verdict_document(None, outcome=status, decision=None, reason="refused"))


def test_a_measured_number_says_so() -> None:
    plain = verdict()
    conditions = dataclasses.replace(plain.conditions, evaluator="tpu")
    document = verdict_document(
        dataclasses.replace(plain, conditions=conditions), outcome=Status.PASS, decision="kept", reason=""
    )
    assert document["verdict"]["score"]["kind"] == "measured"
    assert document["verdict"]["timeline"]["evaluator"] == "v5e-model"


def test_numbers_that_json_lacks_become_null() -> None:
    parity = Parity(
        checks=(), worst_error=float("inf"), rms_error=float("nan"), floor_rms_error=0.1, module_version=9, seconds=1.0
    )
    document = verdict_document(
        verdict(Status.NOT_FINITE, parity=parity),
        outcome=Status.NOT_FINITE,
        decision="reverted",
        reason="\x1b[31m\ud800",
    )
    text = dumps(document)
    assert text.isascii()
    assert "\x1b" not in text
    VALIDATOR.validate(json.loads(text))
    assert json.loads(text)["verdict"]["parity"]["worst_error"] is None


def test_the_schema_refuses_a_wrong_document() -> None:
    document = verdict_document(verdict(), outcome=Status.PASS, decision="kept", reason="")
    for spoil in (
        lambda d: d.update(extra=1),
        lambda d: d["outcome"].update(status="FINE"),
        lambda d: d["verdict"].update(score=None),
        lambda d: d["verdict"]["score"].pop("kind"),
    ):
        spoiled = json.loads(dumps(document))
        spoil(spoiled)
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(spoiled)
