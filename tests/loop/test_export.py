"""Modules made from ratcheted kernel files."""

import pytest

from ratchet.loop.export import LINE, export, header
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text

KERNEL = "kernels/one.py"


def text(score: float) -> str:
    return f'"""A kernel."""\n\nKNOB = {score}\n\n\n{LINE}\n\n{kernel_text(score)}KERNEL_NAME = "one"\n'


@pytest.fixture
def stage(tmp_path) -> Stage:
    stage = Stage.new(tmp_path / "repository", kernel=KERNEL)
    stage.write(text(1000.0))
    stage.git("commit", "-qam", "a kernel in two parts")
    stage.run("baseline")
    return stage


def test_the_part_above_the_line_is_exported_under_the_row_that_judged_it(stage: Stage) -> None:
    made = export(stage.root, KERNEL).decode()
    row = stage.rows()[-1]
    assert made == header(KERNEL, row) + '"""A kernel."""\n\nKNOB = 1000.0\n'
    for told in (KERNEL, row.commit, row.score, row.evaluator, row.compiler, row.problem):
        assert told in made


def test_exporting_again_gives_the_same_bytes(stage: Stage) -> None:
    once = export(stage.root, KERNEL)
    stage.write(text(10.0))
    stage.run("a worse idea")
    stage.write("broken, and not judged")
    assert export(stage.root, KERNEL) == once


def test_a_better_kernel_gives_another_module(stage: Stage) -> None:
    once = export(stage.root, KERNEL)
    stage.write(text(2000.0))
    stage.run("a better idea")
    assert b"KNOB = 2000.0" in export(stage.root, KERNEL) != once


def test_what_was_never_judged_is_not_exported(stage: Stage) -> None:
    stage.write(text(3000.0))
    stage.git("commit", "-qam", "by hand")
    with pytest.raises(Refusal, match="judge it first") as refused:
        export(stage.root, KERNEL)
    assert refused.value.status is Status.NOT_FOUND
    assert b"no row of the ledger has judged it" in export(stage.root, KERNEL, draft=True)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (kernel_text(1000.0), "has no line"),
        (f"def body():\n    return kernel_fn\n\n{LINE}\n\n{kernel_text(1000.0)}", "kernel_fn"),
    ],
)
def test_a_file_that_cannot_be_parted_is_refused(stage: Stage, source: str, told: str) -> None:
    stage.write(source)
    stage.git("commit", "-qam", "another")
    stage.run("baseline")
    with pytest.raises(Refusal, match=told) as refused:
        export(stage.root, KERNEL)
    assert refused.value.status is Status.CONTRACT


@pytest.mark.parametrize(
    ("data", "told"),
    [(f"x = 1\ndef broken(:\n\n{LINE}\n\n".encode(), "one.py:2: "), (b"# caf\xe9\n", "is not UTF-8")],
)
def test_a_draft_that_is_not_python_is_refused(stage: Stage, data: bytes, told: str) -> None:
    (stage.root / KERNEL).write_bytes(data)
    stage.git("commit", "-qam", "by hand")
    with pytest.raises(Refusal, match=told) as refused:
        export(stage.root, KERNEL, draft=True)
    assert refused.value.status is Status.SYNTAX_ERROR
