"""The files that agents look for are those that the protocol makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.commands.workspace import AGENTS, SKILL, guides, guides_command
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status
from tests.imports import HERE

PROTOCOL = (HERE / "program.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [AGENTS, SKILL])
def test_the_repositorys_files_are_made_from_the_protocol(name):
    assert (HERE / name).read_text(encoding="utf-8") == guides(PROTOCOL, program="./ratchet.sh")[name], (
        "run `./ratchet.sh guides`"
    )


def test_a_skill_begins_with_its_name_and_description_and_has_every_section():
    text = guides(PROTOCOL, program="ratchet")[SKILL]
    front = text.split("---\n")[1].splitlines()
    assert [line.partition(": ")[0] for line in front] == ["name", "description"]
    assert front[0] == f"name: {Path(SKILL).parent.name}"
    assert len(front[1].partition(": ")[2]) <= 1024
    assert ": " not in front[1].partition(": ")[2], "a colon would have to be quoted"
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        line for line in PROTOCOL.splitlines() if line.startswith("## ")
    ]


def test_a_protocol_without_its_rules_is_refused():
    with pytest.raises(ValueError, match="no section 'You cannot'"):
        guides(PROTOCOL.replace("## You cannot", "## Other"), program="ratchet")


def test_they_are_written_once_and_then_left_as_they_are(tmp_path, capsys):
    with pytest.raises(Refusal, match=r"there is no program\.md") as refused:
        guides_command(root=tmp_path)
    assert refused.value.status is Status.NOT_FOUND
    (tmp_path / "program.md").write_text(PROTOCOL)
    assert guides_command(root=tmp_path) == 0
    assert (tmp_path / AGENTS).read_text() == guides(PROTOCOL, program=home.PROGRAM)[AGENTS]
    assert "written" in capsys.readouterr().out
    guides_command(root=tmp_path)
    assert capsys.readouterr().out == f"{AGENTS}: as it was\n{SKILL}: as it was\n"
