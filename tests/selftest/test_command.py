"""`./ratchet.sh selftest`: what it prints, its exit code, and the file that it writes."""

import dataclasses
import json

import pytest

from ratchet.commands import cli
from ratchet.selftest import run
from ratchet.values.status import Status
from ratchet.values.trial import Trial

CAUGHT = Trial(
    name="c12_exit", group="cheat", kind="raises anything", expected=("IMPORT_FAILED",), got="IMPORT_FAILED",
    defence="complete record", wanted=("complete record",), seconds=1.0,
)  # fmt: skip


def judge(*_, **__):
    raise AssertionError("nothing is judged here")


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, Status.PASS), ({"got": "PASS"}, Status.SELFTEST_FAILED), ({"got": "", "reason": "no wall"}, Status.PASS)],
)
def test_the_exit_code_says_whether_all_ended_as_they_have_to(changes, status, monkeypatch, capsys, tmp_path):
    trial = dataclasses.replace(CAUGHT, **changes)

    def runs(_corpus, chosen, *, done, **_):
        assert [one.name for one in chosen.entries] == ["c12_exit"]
        done(trial)
        return (trial,)

    monkeypatch.setattr(run, "run", runs)
    out = tmp_path / "trials.json"
    assert cli.main(["selftest", "--only", "c12_exit", "--json", str(out)], judge) == status.exit_code
    assert json.loads(out.read_text())["trials"][0]["name"] == "c12_exit"
    printed = capsys.readouterr()
    assert "honest kernels passed: 0 of 0" in printed.out
    assert "1/1 c12_exit" in printed.err


def test_what_is_not_in_the_corpus_is_not_found(capsys):
    assert cli.main(["selftest", "--only", "nonsense"], judge) == Status.NOT_FOUND.exit_code
    assert "no entry of the corpus matches nonsense" in capsys.readouterr().err
