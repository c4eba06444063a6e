"""A search with a ledger: every trial is a row, and an interrupted search goes on as if it had not been."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.loop import log
from ratchet.loop.experiment import Idea
from ratchet.process import key
from ratchet.search.run import Ending
from ratchet.search.space import best
from ratchet.values.status import Refusal, Status
from tests.extras import needs
from tests.imports import HERE
from tests.loop.stage import Stage
from tests.search import fakes
from tests.tiers import slow_but

pytestmark = needs("optuna")  # the study of every search is Optuna's

BEST = {"BQ": 256, "BKV": 128, "SKIP": True}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = fakes.stage(tmp_path / "repository")
    made.run(idea=Idea(message="baseline"), judge=fakes.judge(made.root))
    return made


def test_a_grid_is_tried_whole(stage: Stage) -> None:
    result = fakes.search(stage.root, how="grid", budget=1000)
    assert result.ending is Ending.SPACE
    top = best(result.observations)
    assert top is not None
    assert (top.point, top.latency_ms) == (BEST, 1.0)
    assert len(result.observations) + result.left_out == 30
    rows = stage.rows()
    assert len(rows) == len(result.observations), "the baseline's row is that of the first point"
    assert {one.id for one in result.observations} == {row.id for row in rows}
    assert log.verify(stage.root) == ()
    assert stage.read() == fakes.KERNEL.replace("BQ = 64 ", "BQ = 256 ").replace("BKV = 64 ", "BKV = 128 ").replace(
        "SKIP = False ", "SKIP = True "
    )
    assert {row.status for row in rows} <= {"PASS", "UNCHECKED", "VMEM_OVERFLOW", "WRONG_VALUES", "NOT_BETTER"}
    note = next(row.note for row in rows if row.id == top.id)
    assert note.startswith("search: BQ 256, BKV 128, SKIP True")


def test_asked_again_it_judges_nothing(stage: Stage) -> None:
    first = fakes.search(stage.root)

    def never(request: object, **_others: object) -> None:
        raise AssertionError("judged again")

    again = fakes.search(stage.root, of=never)  # type: ignore[arg-type]
    assert again.observations == first.observations
    further = fakes.search(stage.root, budget=16)
    assert further.observations[:12] == first.observations
    assert len(further.observations) == 16


@pytest.mark.parametrize("strikes", slow_but(1, [(40, 75), (3, 90)]))
def test_killed_twice_it_ends_with_the_same_trials_and_one_row_each(
    tmp_path: Path, stage: Stage, strikes: tuple[int, int]
) -> None:
    whole = fakes.stage(tmp_path / "whole")
    whole.run(idea=Idea(message="baseline"), judge=fakes.judge(whole.root))
    expected = fakes.search(whole.root)
    for number in strikes:
        code = (
            "import pathlib, signal; from ratchet.process import key\n"
            f"key.path = lambda: pathlib.Path({str(key.path())!r})\n"
            f"from tests.search import fakes; fakes.arm({number}, signal.SIGKILL)\n"
            f"fakes.search(pathlib.Path({str(stage.root)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=HERE, check=False, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    stage.run(idea=Idea(message="baseline"), judge=fakes.judge(stage.root))
    result = fakes.search(stage.root)
    assert [(one.point, one.latency_ms, one.kept) for one in result.observations] == [
        (one.point, one.latency_ms, one.kept) for one in expected.observations
    ]
    assert len({row.kernel_blob for row in stage.rows()}) == len(stage.rows()) == len(result.observations)
    assert log.verify(stage.root) == ()
    assert stage.read() == whole.read()


@pytest.mark.slow
def test_trouble_of_the_machine_ends_it_and_is_tried_again(stage: Stage) -> None:
    calls = []

    def troubled(request, *, workers=None, progress=None):  # type: ignore[no-untyped-def]
        calls.append(request)
        if len(calls) == 9:
            raise Refusal(Status.NO_SPACE, "the disk is full")
        return fakes.function(request)

    with pytest.raises(Refusal, match="the disk is full"):
        fakes.search(stage.root, of=troubled)
    assert stage.status() == [" M results.tsv"]
    result = fakes.search(stage.root)
    assert len({row.kernel_blob for row in stage.rows()}) == len(stage.rows()) == len(result.observations)


def test_a_study_that_cannot_be_read_is_put_aside(stage: Stage) -> None:
    first = fakes.search(stage.root, budget=6)
    (journal,) = (stage.root / ".ratchet" / "search").glob("*.journal")
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"half": ')
    assert fakes.search(stage.root, budget=6).observations == first.observations
    assert journal.read_bytes().startswith(whole)
    assert b"half" not in journal.read_bytes()
    journal.write_bytes(b"nothing of Optuna's\n" + whole)
    assert len(fakes.search(stage.root, budget=6).observations) == 6
    assert journal.with_suffix(".unreadable").exists()


def test_optuna_reads_the_study(stage: Stage) -> None:
    optuna = pytest.importorskip("optuna")
    result = fakes.search(stage.root, budget=8)
    (path,) = (stage.root / ".ratchet" / "search").glob("*.journal")
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(study_name=path.stem, storage=optuna.storages.JournalStorage(backend))
    assert [trial.user_attrs["row"] for trial in study.trials] == [one.id for one in result.observations]
    top = best(result.observations)
    assert top is not None
    assert study.best_value == top.latency_ms
