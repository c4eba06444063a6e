"""The JSON document and the schema that is shipped for it."""

import dataclasses
import json

import jsonschema
import pytest

from ratchet.values import SCHEMA_VERSION, Decision, Parity, Step
from ratchet.values.loss import LossKind
from ratchet.values.omission import LinkModel, UndecidedBranches, Unmodelled
from ratchet.values.status import Status
from ratchet.view.document import dumps
from ratchet.view.verdict_json import SCHEMA_PATH, verdict_document

from .timelines import row, timeline, verdict

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
    # Two are under kernel; the losses are sentences about the timeline, the hint one about the reason.
    assert (fields - {"kernel_name", "source_sha256"}) | {"losses", "hint"} == set(document["verdict"])


def test_every_kind_of_loss_and_omission_has_its_numbers_and_a_sentence() -> None:
    spare = (
        Unmodelled.LAUNCH_CHECK,
        UndecidedBranches(fast_cycles=1, slow_cycles=2),
        LinkModel(link_bytes_per_s=45e9, hop_s=1e-6),
    )
    judged = verdict(timeline=dataclasses.replace(timeline(), not_modelled=spare))
    document = json.loads(dumps(verdict_document(judged, outcome=Status.PASS, decision="kept", reason="")))
    VALIDATOR.validate(document)
    losses = document["verdict"]["timeline"]["blame"]["losses"]
    assert {loss["kind"] for loss in losses} == {kind.value for kind in LossKind}
    assert losses[0]["where"] == "waits for window input 1"
    assert losses[1]["units"] == [{"unit": "XLU", "cycles": 656, "where": "kernel.py:3"}]
    assert len(document["verdict"]["losses"]) == len(losses)
    assert document["verdict"]["losses"][3].startswith("3 of 8 grid steps do no matrix work")
    assert [omission["kind"] for omission in document["verdict"]["timeline"]["not_modelled"]] == [
        "launch check", "undecided branches", "link model",
    ]  # fmt: skip
    assert len(document["verdict"]["notes"]) == len(judged.notes) + len(spare)


def test_a_reason_is_there_once() -> None:
    steps = (Step(name="compile", status=Status.VMEM_OVERFLOW, seconds=1.0, summary="used 40 MiB"),)
    judged = verdict(Status.VMEM_OVERFLOW, reason="compile: used 40 MiB", steps=steps)
    reason = "VMEM_OVERFLOW: compile: used 40 MiB"
    for given, left in ((reason, ""), (f"{reason}; the judge is to blame", "the judge is to blame"), ("slow", "slow")):
        document = verdict_document(judged, outcome=Status.VMEM_OVERFLOW, decision=Decision.REVERTED, reason=given)
        VALIDATOR.validate(document)
        assert document["outcome"]["reason"] == left
        assert dumps(document).count("used 40 MiB") == 1


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
