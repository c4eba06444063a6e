"""One kernel on several chips, as a table and as JSON."""

import json
from dataclasses import replace

import pytest

from ratchet.tpu.chips import fitted
from ratchet.tpu.chips.fitted import Checked
from ratchet.values import Band, Conditions
from ratchet.values.status import Status
from ratchet.view import verdicts
from ratchet.view.verdicts import across_document, across_table
from tests.view.timelines import verdict

CHECKED = Checked(rows=40, mean=0.021, largest=0.07, bias=0.001, held_out=True)


def on(chip: str, status: Status = Status.PASS, **changes):
    made = verdict(status, **changes)
    conditions = Conditions(evaluator=f"{chip}-model", chip=chip, compiler="libtpu 1", seal="5ea1", problem="90b1")
    band = Band(bound_by="dma latency", low_ms=2.4, high_ms=2.6)
    return replace(made, conditions=conditions, score=made.score and replace(made.score, band=band))


@pytest.fixture(autouse=True)
def one_chip_checked(monkeypatch):
    monkeypatch.setattr(verdicts, "checked", lambda chip: CHECKED if chip == "v6e" else None)


VERDICTS = (on("v6e"), on("v4", Status.VMEM_OVERFLOW, reason="compile: needs\x1b[2J 20 MiB", footprint=None))


def test_a_line_for_each_chip_and_why_one_has_no_latency():
    heading, v6e, v4, why = across_table(VERDICTS).split("\n")
    assert heading.startswith("chip  latency")
    assert v6e.split("  ")[0] == "v6e"
    for part in (
        "2.5000 ms",
        "2.400 to 2.600",
        "30.25 %",
        "9.00 MiB of 16.00 MiB",
        "dma latency",
        "40 timings, 2.1% off",
    ):
        assert part in v6e
    assert v6e.endswith("held out")
    assert v4.split() == ["v4", "VMEM_OVERFLOW", "no", "published", "timing"]
    assert why.startswith("v4: compile: needs")
    assert "\x1b" not in why


def test_the_document_has_null_where_there_is_nothing():
    document = across_document(VERDICTS, Status.VMEM_OVERFLOW)
    assert json.loads(json.dumps(document)) == document
    assert document["outcome"]["exit_code"] == Status.VMEM_OVERFLOW.exit_code
    v6e, v4 = document["chips"]
    assert (v6e["chip"], v6e["latency_ms"], v6e["band"]) == ("v6e", 2.5, {"low_ms": 2.4, "high_ms": 2.6})
    assert v6e["checked"]["mean"] == CHECKED.mean
    assert {name for name, value in v4.items() if value is None} == {
        "latency_ms", "band", "bound_by", "util_pct", "vmem_bytes", "vmem_limit_bytes", "checked",
    }  # fmt: skip


def test_what_was_checked_is_read_from_its_file(tmp_path, monkeypatch):
    file = tmp_path / "fitted.json"
    file.write_text(json.dumps({"chips": {"v6e": {"errors": {"all": vars(CHECKED)}}, "v4": {}}}))
    monkeypatch.setattr(fitted, "FILE", file)
    monkeypatch.setattr(fitted, "stored", fitted.stored.__wrapped__)
    assert fitted.checked("v6e") == CHECKED
    assert fitted.checked("v4") is None
