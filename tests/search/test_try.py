"""``try`` and ``ablate``: several candidates from one parent, each with a row."""

import json
from pathlib import Path

import pytest

from ratchet.commands import options, search
from ratchet.loop import log
from ratchet.loop.experiment import Idea
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage
from tests.search import fakes


def text(**constants: object) -> str:
    changed = fakes.KERNEL
    for name, value in constants.items():
        old = next(line for line in changed.splitlines() if line.startswith(f"{name} = "))
        changed = changed.replace(old, f"{name} = {value}" + old[old.index("  #") :])
    return changed


def tried(stage: Stage, *words: str) -> int:
    given = options.ratchet(["try", *words])
    return search.try_command(
        given, root=stage.root, kernel=stage.root / "kernel.py", function=fakes.function, say=lambda _line: None
    )


def write(folder: Path, **texts: str) -> list[str]:
    for name, one in texts.items():
        (folder / f"{name}.py").write_text(one)
    return [str(folder / f"{name}.py") for name in texts]


def test_the_best_is_kept_and_all_are_in_the_ledger(fresh: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(fresh.root, a=text(BKV=256), b=text(BQ=128), c=text(BQ=512), d="def (", e=text(BKV=128))
    assert tried(fresh, *files) == Status.PASS.exit_code
    assert fresh.read() == text(BKV=128)
    rows = {row.note.splitlines()[0]: row for row in fresh.rows()}
    assert [row.decision for row in fresh.rows()].count("kept") == 1
    assert rows["try: e.py"].decision == "kept"
    assert rows["try: e.py"].reason.endswith("; changes one constant, BKV")
    assert set(rows) >= {"try: a.py", "try: b.py", "try: c.py", "try: d.py", "try: e.py"}
    assert log.verify(fresh.root) == ()
    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith("e.py")
    assert [line.split()[0] for line in out[1:]][-1] == "d.py"


def test_a_compound_one_is_refused_before_anything_is_judged(fresh: Stage) -> None:
    files = write(fresh.root, a=text(BQ=128), b=text(BQ=128, SKIP=True))
    with pytest.raises(Refusal, match=r"b\.py changes 2 at once: BQ, SKIP.*--compound") as caught:
        tried(fresh, *files)
    assert caught.value.status is Status.USAGE
    assert not fresh.ledger.exists()
    assert tried(fresh, *files, "--compound") == Status.PASS.exit_code
    assert fresh.read() == text(BQ=128, SKIP=True)


def test_a_file_that_is_not_there_is_refused(fresh: Stage) -> None:
    with pytest.raises(Refusal, match=r"none\.py cannot be read") as caught:
        tried(fresh, "none.py")
    assert caught.value.status is Status.NOT_FOUND


def ablated(stage: Stage, name: str, *words: str) -> int:
    given = options.ratchet(["ablate", name, *words])
    return search.ablate_command(given, root=stage.root, function=fakes.function, say=lambda _line: None)


def test_a_compound_gain_is_taken_apart(fresh: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    tried(fresh, *write(fresh.root.parent, both=text(BQ=128, SKIP=True)), "--compound")
    whole = next(row for row in fresh.rows() if row.decision == "kept")
    capsys.readouterr()
    assert ablated(fresh, whole.id, "--json") == Status.PASS.exit_code
    document = json.loads(capsys.readouterr().out)
    assert document["parts"] == ["BQ", "SKIP"]
    latencies = {one["name"]: one["latency_ms"] for one in document["trials"]}
    assert latencies == {"the parent": 5.5, "BQ": 4.5, "SKIP": 5.0, "the whole change": 4.0}
    assert len(fresh.rows()) == 4, "the parent and the whole have rows already"
    assert fresh.read() == text(BQ=128, SKIP=True)


def test_one_change_is_not_taken_apart(fresh: Stage) -> None:
    tried(fresh, *write(fresh.root.parent, one=text(BQ=128)))
    with pytest.raises(Refusal, match="changed BQ alone: there is nothing to take apart") as caught:
        ablated(fresh, fresh.rows()[-1].id)
    assert caught.value.status is Status.USAGE


def test_an_experiment_says_what_it_changes_and_may_be_held_to_one_thing(fresh: Stage) -> None:
    judge = fakes.judge(fresh.root)
    fresh.write(text(BQ=128, SKIP=True))
    with pytest.raises(Refusal, match="this changes 2 at once: BQ, SKIP") as caught:
        fresh.run(idea=Idea(message="two", compound=False), judge=judge)
    assert caught.value.status is Status.USAGE
    assert fresh.read() == text(BQ=128, SKIP=True)
    outcome = fresh.run("two", judge=judge)
    assert outcome.row.reason.endswith("; changes 2 at once: BQ, SKIP")
