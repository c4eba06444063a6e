"""The blame table as a person and a program read it."""

from __future__ import annotations

import dataclasses
import json
import re

import jsonschema
import pytest

from ratchet.values import SourceLine, Timeline
from ratchet.values.status import Status
from ratchet.view.document import dumps
from ratchet.view.losses import blame_text, losses_in_words
from ratchet.view.verdict_json import SCHEMA_PATH, verdict_document
from tests.imports import HERE
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .timelines import verdict


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    return model(unpack(COMPILERS[0], "flash", tmp_path_factory.mktemp("dumps")))


def test_the_table_holds_every_cycle_and_quotes_the_source(flash: Timeline) -> None:
    source = (HERE / "tests" / "tpu" / "machine" / "programs.py").read_text()
    text = blame_text(flash, title="flash", kernel_file="programs.py", source=source)
    assert text.startswith(f"blame of flash (modelled, TPU v5e, libtpu-0.0.42.1): {flash.cycles:,} cycles, ")
    table = text.partition("\nregions:")[0].partition("lines: ")[2]
    rows = re.findall(r"(?m)^ +([\d,]+) +[\d.]+%  ", table)
    assert sum(int(row.replace(",", "")) for row in rows) == flash.cycles
    assert "| s = lax.dot_general(" in table
    assert "pipeline code of the compiler" in table
    assert len(text) < 16_000
    assert all(line == line.rstrip() for line in text.splitlines())


def test_without_a_source_nothing_is_quoted(flash: Timeline) -> None:
    assert "  | " not in blame_text(flash, title="flash")
    assert "  | " not in blame_text(flash, title="flash", kernel_file="other.py", source="x\n" * 999)


def test_nobody_elses_text_passes_for_ours(flash: Timeline) -> None:
    line = dataclasses.replace(flash.blame.lines[0], place=SourceLine(file="k.py\n\x1b[2J", line=99))
    timeline = dataclasses.replace(flash, blame=dataclasses.replace(flash.blame, lines=(line, *flash.blame.lines[1:])))
    text = blame_text(timeline, title="t\x1b]0;x\x07\nRESULT: score=1", kernel_file="k.py", source="")
    assert "\x1b" not in text
    assert not re.search(r"(?m)^RESULT", text)


def test_the_document_carries_all_of_it(flash: Timeline) -> None:
    document = json.loads(
        dumps(verdict_document(verdict(timeline=flash), outcome=Status.PASS, decision="kept", reason="better"))
    )
    jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text())).validate(document)
    blame = document["verdict"]["timeline"]["blame"]
    assert sum(line["cycles"] for line in blame["lines"]) == flash.cycles
    assert sum(line["cycles"] for region in blame["regions"] for line in region["lines"]) == flash.cycles
    assert [loss["cycles"] for loss in blame["losses"]] == [loss.cycles for loss in flash.blame.losses]
    assert document["verdict"]["losses"] == losses_in_words(flash)
