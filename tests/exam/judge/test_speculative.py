"""A kernel file that is traced while the judge is imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import speculative
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem
from ratchet.process.boot import home
from ratchet.process.sandbox import warm
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.values.status import Refusal, Status
from tests.kernels import ATTENTION

CHANGED = ATTENTION + "\n"


@pytest.fixture(scope="module")
def authors() -> Iterator[Warm]:
    process = Warm(warm.AUTHOR)
    yield process
    process.close()


@pytest.fixture
def begun(authors: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a kernel file, in which somebody types a command."""
    monkeypatch.setattr(warm, "_BEGUN", {warm.AUTHOR: authors})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(ATTENTION)
    yield tmp_path
    speculative.forget()


def begin(kernel: str | None = "kernel.py", on: str | None = "v5e-model", *, new_problem: bool = False) -> None:
    speculative.begin(Path(kernel) if kernel else None, on, new_problem=new_problem)


def wanted(**changed: object) -> tracer.TraceRequest:
    fields = {"source": ATTENTION.encode(), "name": "kernel.py", "freeze": True, "chip": V5E}
    return tracer.TraceRequest(**fields | changed)


def of_one_process(authors: Warm, monkeypatch: pytest.MonkeyPatch) -> Workers:
    """Workers that get that process, and leave it when they are closed."""
    monkeypatch.setattr(warm, "begun", lambda modules, _: authors if modules == warm.AUTHOR else None)
    monkeypatch.setattr(authors, "cancel", lambda: None)
    monkeypatch.setattr(authors, "close", lambda: None)
    return Workers(V5E, compiles=False)


def test_what_was_traced_early_is_not_traced_again(begun: Path, authors: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    (one,) = speculative._BEGUN
    with of_one_process(authors, monkeypatch) as workers:
        asked = workers.asked(wanted())
        assert asked is one.asked
        artefact, frozen = tracer.result(asked)
        assert workers.asked(wanted()).child is not asked.child  # it has run a kernel file
    assert frozen is not None
    assert artefact.kernel_name
    assert not one.place.root.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"source": CHANGED.encode()},
        {"freeze": False},
        {"chip": CHIPS["v6e"]},
        {"name": "other.py"},
        {"platform": "cpu"},
        {"limits": tracer.Limits(seconds=1, memory_bytes=1 << 30)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_is_wanted_otherwise_is_traced_by_another_child(
    begun: Path, authors: Warm, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    begin()
    (one,) = speculative._BEGUN
    with of_one_process(authors, monkeypatch) as workers:
        asked = workers.asked(wanted(**changed))
        assert asked.request == wanted(**changed)
        assert asked.child is not one.asked.child
        assert not one.asked.child.alive
        asked.child.close()


def test_a_child_of_another_process_does_not_count(begun: Path, authors: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    begin()
    (one,) = speculative._BEGUN
    assert speculative.begun(None) is None
    assert not one.asked.child.alive
    assert not one.place.root.exists()
    assert speculative.begun(authors) is None


def test_what_nobody_asks_for_is_ended(begun: Path) -> None:
    begin()
    (one,) = speculative._BEGUN
    speculative.forget()
    assert not one.asked.child.alive
    assert not one.place.root.exists()
    speculative.forget()


def test_a_file_that_is_no_kernel_is_refused_where_it_is_waited_for(
    begun: Path, authors: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (begun / "kernel.py").write_text("def kernel_fn(:\n")
    begin()
    with of_one_process(authors, monkeypatch) as workers:
        asked = workers.asked(wanted(source=b"def kernel_fn(:\n"))
        with pytest.raises(Refusal) as caught:
            tracer.result(asked)
        assert not asked.child.alive
    assert caught.value.status is Status.SYNTAX_ERROR


def test_a_problem_is_frozen_where_there_is_none_and_where_another_is_wanted(begun: Path) -> None:
    begin()
    problem.lock_path(begun / "kernel.py").write_text("{}")
    begin()
    begin(new_problem=True)
    assert [one.asked.request.freeze for one in speculative._BEGUN] == [True, False, True]


@pytest.mark.parametrize("on", ["v6e-model", None])
def test_it_is_traced_for_the_chip_that_is_modelled(begun: Path, monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    monkeypatch.setattr(speculative.devices, "preferred", lambda: "v5e-model")
    begin(on=on)
    assert [one.asked.request.chip for one in speculative._BEGUN] == [CHIPS["v6e"] if on else V5E]


@pytest.mark.parametrize(
    "given",
    [{"on": "cpu"}, {"on": "no device"}, {"kernel": "no file"}, {"kernel": "."}],
    ids=["another platform", "no evaluator", "no file", "a folder"],
)
def test_nothing_is_begun_that_a_model_does_not_judge(begun: Path, given: dict[str, str]) -> None:
    begin(**given)
    assert not speculative._BEGUN


def test_a_file_too_large_for_a_kernel_is_not_even_read(begun: Path) -> None:
    with (begun / "kernel.py").open("wb") as file:
        file.truncate(1 << 40)
    begin()
    assert not speculative._BEGUN


def test_nothing_is_begun_where_no_process_was(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_BEGUN", {})
    begin()
    assert not speculative._BEGUN


def test_a_file_is_found_as_the_command_line_finds_it(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, below = begun, begun / "below"
    below.mkdir()
    (below / "mine.py").write_text(CHANGED)
    monkeypatch.chdir(below)
    monkeypatch.setattr(home, "repository", lambda _: top)
    for kernel, found in (("mine.py", CHANGED), ("kernel.py", ATTENTION), (None, ATTENTION)):
        begin(kernel)
        assert speculative._BEGUN.pop().asked.request.source == found.encode()
    (below / "kernel.py").write_text(CHANGED)  # only where one works in a folder of one's own
    for installed, found in ((False, ATTENTION), (True, CHANGED)):
        monkeypatch.setattr(home, "INSTALLED", installed)
        begin(None)
        assert speculative._BEGUN.pop().asked.request.source == found.encode()
