"""Reading ledger, git and evidence of a real repository, and what the commands make of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from ratchet.commands import report
from ratchet.loop import ledger, recorded
from ratchet.loop.history import History
from ratchet.loop.workspace import locked
from ratchet.report import page as page_room
from ratchet.report.gather import grid_step, kernels, material
from ratchet.report.live import LiveServer
from ratchet.report.story import diff_lines, story
from ratchet.values import Span, SpanKind
from ratchet.values.row import Origin
from ratchet.values.status import Refusal, Status
from ratchet.view.xspace import trace_path, write_xspace
from ratchet.wiring import JudgeFunction
from tests.loop.stage import Stage, kernel_text
from tests.view.timelines import row, timeline


@pytest.fixture(autouse=True)
def _small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_room, "charts_library", lambda: "window.vegaEmbed = 1;")


def stepped(steps: int = 8) -> tuple[Span, ...]:
    spans = []
    for number in range(steps):
        start, end = 3000 * number, 3000 * (number + 1)
        attributes = {"step": number, "wait_cycles": 100}
        copied = {"bytes": 4096, "source": "hbm", "target": "vmem"}
        spans += [
            Span(lane="Steps", kind=SpanKind.STEP, name="k", start_cycles=start, end_cycles=end, attributes=attributes),
            Span(lane="MXU", kind=SpanKind.BUSY, start_cycles=start, end_cycles=end, attributes={"busy_share": 0.5}),
            Span(lane="DMA in", kind=SpanKind.COPY, start_cycles=start + 9, end_cycles=end + 9, attributes=copied),
            Span(lane="DMA in", kind=SpanKind.COPY, start_cycles=start + 8, end_cycles=end + 8, attributes=copied),
            Span(lane="DMA wait", kind=SpanKind.WAIT, start_cycles=start, end_cycles=start + 100,
                 attributes={"for": "a flag"}),
        ]  # fmt: skip
    return tuple(spans)


@pytest.fixture(scope="module")
def worked(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline, one that is kept, one that is reverted, one that fails; with evidence of the one that is kept."""
    root = tmp_path_factory.mktemp("worked") / "my <b>work space"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(template.parent / "gitconfig"))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setattr("ratchet.process.key.path", lambda: root.parent / "key")
        shutil.copytree(template, root, symlinks=True)
        stage = Stage(root=root)
        for text, note in (
            (kernel_text(2000.0, "TIMES = 1.0, 0.1\n"), "experiment: <i>twice</i> as fast"),
            (kernel_text(1500.0, "TIMES = 1.5, 0.1\n"), "experiment: slower"),
            ('STATUS = "WRONG_VALUES"\n', "experiment: wrong"),
        ):
            stage.write(text)
            stage.run(note)
    kept = next(row for row in stage.rows() if row.decision == "kept")
    folder = root / "hlo_dumps" / kept.id
    folder.mkdir(parents=True)
    (folder / "timeline.json").write_bytes(recorded.to_bytes(recorded.without_spans(timeline())))
    checks = {"random": {"status": "PASS", "worst": 0.2}, "probe": {"status": "PASS", "worst": None}}
    (folder / "verification.json").write_text(json.dumps({"checks": checks}))
    run = dataclasses.replace(timeline(), spans=stepped(), cycles=25000)
    write_xspace(run, trace_path(root / "profile_data", kept.id), title="t")
    return root


@pytest.fixture
def repository(worked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in which the test is."""
    root = tmp_path / worked.name
    shutil.copytree(worked, root, symlinks=True)
    monkeypatch.chdir(root)
    monkeypatch.setattr("ratchet.process.key.path", lambda: worked.parent / "key")
    return root


def asked(**options: Any) -> Namespace:
    return Namespace(
        **{"file": None, "output": None, "json": False, "gallery": None, "kernel": None, "no_judge": False, **options}
    )


def silent(_line: str) -> None:
    """Says nothing."""


def test_everything_that_is_there_is_read(repository: Path) -> None:
    known = material(repository, "kernel.py")
    assert [row.decision for row in known.rows] == ["baseline", "kept", "reverted", "reverted"]
    assert known.head_blob == known.rows[1].kernel_blob
    assert known.origins == {Origin.HERE: 4}
    assert len(known.sources) == 4
    evidence = known.evidence
    assert (evidence.id, [one.name for one in evidence.instances]) == (known.rows[1].id, ["random"])
    assert evidence.timeline is not None
    assert evidence.step is not None
    assert (known.under_way, evidence.vmem) == ("", ())
    last = story(known).experiments[3]
    diff = diff_lines(last, known.sources, most=9)
    assert '+STATUS = "WRONG_VALUES"' in diff[0]


def test_what_is_under_way_is_known_while_it_is(repository: Path) -> None:
    with locked(History(repository), message="<b>now</b>", wait_s=0, progress=silent):
        assert material(repository, "kernel.py").under_way == "<b>now</b>"
    assert material(repository, "kernel.py").under_way == ""
    holder = repository / ".git" / "ratchet" / "holder.json"
    for left in ('{"pid": 4194999, "message": "killed"}', "no json", '{"pid": "x"}'):
        holder.write_text(left)
        assert material(repository, "kernel.py").under_way == ""


def test_a_clone_has_rows_but_neither_evidence_nor_reverted_kernels(repository: Path, tmp_path: Path) -> None:
    stage = Stage(root=repository)
    stage.git("add", "-f", ledger.NAME)
    stage.git("commit", "-q", "-m", "the ledger")
    stage.git("clone", "-q", "--no-local", str(repository), str(tmp_path / "clone"))
    known = material(tmp_path / "clone", "kernel.py")
    assert len(known.rows) == 4
    assert known.evidence is None
    assert len(known.sources) == 2
    assert page_room.page(story(known)).count("The change is not in this clone") == 2
    asked_for = []

    def model(row, source):
        asked_for.append((row.id, source))
        shutil.copytree(repository / "hlo_dumps" / row.id, tmp_path / "modelled" / "hlo_dumps")
        shutil.copytree(repository / "profile_data", tmp_path / "modelled" / "profile_data")
        return tmp_path / "modelled"

    whole = material(tmp_path / "clone", "kernel.py", model)
    assert asked_for == [(known.rows[1].id, kernel_text(2000.0, "TIMES = 1.0, 0.1\n").encode())]
    assert whole.evidence == dataclasses.replace(material(repository, "kernel.py").evidence, is_new=True)
    text = page_room.page(story(whole))
    assert "modelled again for this page: no values were executed" in text
    assert "No grid step is recorded here" not in text
    assert material(repository, "kernel.py", model).evidence.is_new is False
    assert len(asked_for) == 1, "what is on the disk is not modelled"


def test_a_kernel_that_cannot_be_modelled_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(report, "modelled_again", lambda _root, one, *_: tried.append(one.id))
    model = report._model(asked(), tmp_path, create_autospec(JudgeFunction), silent)
    assert [model(row(id=name), b"") for name in ("e1", "e1", "e2")] == [None] * 3
    assert tried == ["e1", "e2"]


def test_evidence_that_is_none_is_not_shown(repository: Path) -> None:
    for file in repository.glob("hlo_dumps/*/*"):
        file.write_text("<script>no json</script>")
    for file in repository.glob("profile_data/*/plugins/profile/*/*"):
        file.write_bytes(b"\xff\xff")
    assert material(repository, "kernel.py").evidence is None


def test_a_repository_without_ledger_or_commit(tmp_path: Path) -> None:
    Stage(root=tmp_path).git("init", "-q")
    known = material(tmp_path, "kernel.py")
    assert (known.rows, known.head, known.head_blob) == ((), "", "")
    assert kernels(tmp_path) == ()


def test_the_report_is_written_whole_and_says_where(repository: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert report.report_command(asked(), root=repository, say=said.append) == 0
    text = (repository / "report.html").read_text()
    assert "&lt;i&gt;twice&lt;/i&gt; as fast" in text
    assert "<i>" not in text
    assert "my &lt;b&gt;work space" in text
    assert said[0].startswith("wrote report.html")
    assert [path.name for path in repository.glob(".*.part")] == []
    for path in (tmp_path / "out.html", repository / "hlo_dumps" / "out.html"):
        report.report_command(asked(output=path), root=repository, say=said.append)
    assert len(said) == 3


def test_json_alone_writes_no_file(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.report_command(asked(json=True), root=repository, say=silent)
    made = json.loads(capsys.readouterr().out)
    assert made["tracks"][0]["times_faster_than_first"] == 2.0
    assert made["head_is_judged"] is True
    assert not (repository / "report.html").exists()


def test_a_kernel_is_meant_by_its_file_or_by_the_ledgers_name(repository: Path, tmp_path: Path) -> None:
    assert report.which(repository, None) == "kernel.py"
    assert report.which(repository, Path("kernel.py")) == "kernel.py"
    assert report.which(repository, repository / "kernel.py") == "kernel.py"
    assert report.which(repository, Path("other.txt")) == "other.txt"
    with pytest.raises(Refusal, match=r"nosuch\.py is no file, .* it has rows of kernel\.py") as refused:
        report.which(repository, Path("nosuch.py"))
    assert refused.value.status is Status.NOT_FOUND


@pytest.mark.parametrize("where", ["hlo_dumps", "nowhere/report.html"])
def test_a_place_that_cannot_be_written_is_refused(repository: Path, where: str) -> None:
    with pytest.raises(Refusal, match=r"wanted a file|there is no folder nowhere"):
        report.report_command(asked(output=Path(where)), root=repository, say=silent)


def test_a_gallery_has_a_page_for_each_kernel(repository: Path, tmp_path: Path) -> None:
    report.report_command(asked(gallery=tmp_path / "a" / "gallery"), root=repository, say=silent)
    assert sorted(path.name for path in (tmp_path / "a" / "gallery").iterdir()) == ["index.html", "kernel.py.html"]
    assert 'href="kernel.py.html"' in (tmp_path / "a" / "gallery" / "index.html").read_text()
    with pytest.raises(Refusal, match="takes no FILE"):
        report.report_command(asked(gallery=Path("a"), json=True), root=repository, say=silent)


def test_a_detached_head_has_its_kernel_too(repository: Path) -> None:
    Stage(root=repository).git("switch", "-q", "--detach")
    known = material(repository, "kernel.py")
    assert known.head_blob == known.rows[1].kernel_blob


def test_plots_become_files_or_say_why_not(repository: Path, tmp_path: Path) -> None:
    for what in ("trajectory", "units"):
        options = asked(what=what, output=tmp_path / f"{what}.svg")
        assert report.plot_command(options, root=repository, say=silent) == 0
        assert (tmp_path / f"{what}.svg").read_text().startswith("<svg")
    for what, why in (("fidelity", "both a measured and a modelled"), ("vmem", "not on this disk")):
        with pytest.raises(Refusal, match=why):
            report.plot_command(asked(what=what, output=tmp_path / "no.svg"), root=repository, say=silent)
    with pytest.raises(Refusal, match="wanted a name that ends in"):
        report.plot_command(asked(what="units", output=tmp_path / "units.pdf"), root=repository, say=silent)


def test_a_port_in_use_has_its_own_message(repository: Path) -> None:
    with LiveServer(0, page=str, version=str) as running, pytest.raises(Refusal, match="is in use: give another"):
        report.serve_command(asked(port=running.server_port), root=repository, say=silent)


def test_an_interrupt_ends_the_server_cleanly(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []

    def interrupted(server: LiveServer, poll_interval: float) -> None:
        shown.append(server.current())
        before = server.version()
        Stage(root=repository).git("commit", "-q", "--allow-empty", "-m", "news")
        assert server.version() != before
        (repository / ledger.NAME).write_text("broken")
        shown.append(server.current())
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveServer, "serve_forever", interrupted)
    said: list[str] = []
    assert report.serve_command(asked(port=0), root=repository, say=said.append) == 0
    assert (said[0].startswith("the report of kernel.py, live"), said[1]) == (True, "ended")
    assert b"Live: this page reloads" in shown[0]
    assert b"The ledger cannot be read (LEDGER_BROKEN)" in shown[1]


# --- one grid step out of a trace ---


def test_it_is_the_step_in_the_middle_with_what_overlaps_it(tmp_path: Path) -> None:
    run = dataclasses.replace(timeline(), spans=stepped(), cycles=25000)
    step = grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t"))
    assert (step.number, step.of_steps) in ((3, 8), (4, 8))
    assert step.end_us - step.start_us == pytest.approx(2.0)
    lanes = [bar.lane for bar in step.bars]
    assert (lanes.count("DMA in"), lanes.count("DMA wait"), lanes.count("MXU")) == (4, 1, 1)
    assert next(bar.share for bar in step.bars if bar.lane == "MXU") == 0.5
    assert {bar.bytes for bar in step.bars if bar.lane == "DMA in"} == {4096}


def test_steps_that_are_summarised_are_counted(tmp_path: Path) -> None:
    first = stepped(2)
    rest = Span(
        lane="Steps", kind=SpanKind.STEPS, name="k", start_cycles=6000, end_cycles=24000,
        attributes={"first_step": 2, "last_step": 7, "steps": 6, "mean_cycles": 3000.0, "wait_cycles": 0},
    )  # fmt: skip
    run = dataclasses.replace(timeline(), spans=(*first, rest), cycles=25000)
    step = grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t"))
    assert (step.number, step.of_steps) == (1, 8)


def test_what_is_no_trace_and_one_without_steps_has_no_step(tmp_path: Path) -> None:
    assert grid_step(tmp_path / "none" / "a.xplane.pb") is None
    for data in (b"", b"\x00\xff not a trace", b"\x0a\x03abc"):
        (tmp_path / "a.xplane.pb").write_bytes(data)
        assert grid_step(tmp_path / "a.xplane.pb") is None
    run = dataclasses.replace(timeline(), spans=())
    assert grid_step(write_xspace(run, tmp_path / "a.xplane.pb", title="t")) is None
