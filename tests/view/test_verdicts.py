"""Several verdicts in one table: of a sweep, whose names and values are data, and of one kernel on several chips."""

import json
import shlex
from dataclasses import replace

import pytest

from ratchet.tpu.chips import fitted
from ratchet.tpu.chips.fitted import Checked
from ratchet.values import Band, Conditions, SweepResult
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Status
from ratchet.view import verdicts
from ratchet.view.verdicts import across_document, across_table, best_of, near, offer, sweep_table
from tests.view import timelines
from tests.view.timelines import verdict


def result(**point):
    return SweepResult(point=point, verdict=verdict(), seconds=1.0)


def words(text):
    return [shlex.split(line.removeprefix("To try the best:")) for line in text.splitlines()]


def test_an_offer_can_be_pasted():
    assert offer([result(BQ=256)], kernel="kernel.py").splitlines() == [
        "To try the best: ./ratchet.sh sweep kernel.py BQ=256 --apply",
        "                 ./ratchet.sh --kernel kernel.py 'experiment: BQ 256'",
    ]


def test_what_an_offer_names_is_no_command():
    kernel, value = "a b;touch $(c)'.py", 'x`y` "z" $HOME'
    sweep, experiment = words(offer([result(MODE=value)], kernel=kernel))
    assert sweep == ["./ratchet.sh", "sweep", kernel, f"MODE={value!r}", "--apply"]
    assert experiment == ["./ratchet.sh", "--kernel", kernel, f"experiment: MODE {value}"]
    assert "\x1b" not in offer([result(MODE="\x1b[2J")], kernel="k\x1b[2J.py")


def test_nothing_is_offered_where_the_file_is_the_best():
    assert offer([result()], kernel="kernel.py") == "No point is faster than the file as it is."


def run_of(cycles, latency_ms, **point):
    made = verdict()
    timed = replace(made.score, latency_ms=latency_ms, band=None, wait_ms=0.0)
    run = replace(made.timeline, cycles=cycles)
    return SweepResult(point=point, verdict=replace(made, score=timed, timeline=run), seconds=1.0)


def test_points_that_compile_to_one_program_are_said_to_be_so():
    base, twin, other, again = (
        run_of(9000, 2.0),
        run_of(9000, 2.0, BQ=128),
        run_of(8000, 1.0, BQ=256),
        run_of(8000, 1.0, BQ=512),
    )
    moved = replace(again.verdict.timeline, blame=timelines.blame(8000, "renamed.py"))
    again = replace(again, verdict=replace(again.verdict, timeline=moved))
    lines = sweep_table([other, again, base, twin], ["BQ"], kernel="kernel.py").splitlines()
    assert lines[2].endswith("the same program as BQ 256")
    assert lines[4].endswith("the same program as the file as it is")
    assert offer([twin, base], kernel="kernel.py") == "No point is faster than the file as it is."
    assert offer([other, base], kernel="kernel.py").startswith("To try the best: ")


def test_a_point_too_near_to_be_ranked_is_not_offered():
    def timed(latency_ms, wait_ms, cycles, **point):
        one = run_of(cycles, latency_ms, **point)
        band = Band(bound_by="bandwidth", low_ms=latency_ms * 0.9, high_ms=latency_ms * 1.1)
        score = replace(one.verdict.score, wait_ms=wait_ms, band=band)
        return replace(one, verdict=replace(one.verdict, score=score))

    base, waits_less = timed(2.0, 1.0, 9000), timed(1.99, 0.99, 8990, BQ=256)
    assert near(waits_less, [waits_less, base]) == "counts as the same as the file: a change of waiting under 1%"
    assert offer([waits_less, base], kernel="kernel.py") == "No point is faster than the file as it is."
    assert near(base, [waits_less, base]) == ""
    issues_less = timed(1.995, 1.0, 8900, BQ=512)
    assert best_of([waits_less, issues_less, base]) is issues_less, "the fastest that counts"
    assert "BQ=512" in offer([waits_less, issues_less, base], kernel="kernel.py")
    assert best_of([waits_less, base, timed(2.5, 1.0, 9900, BQ=64)]) is None
    as_fast = timed(2.0, 1.0, 8900, BQ=64)
    assert best_of([as_fast, base]) is None, "as fast is not faster"
    assert near(as_fast, [as_fast, base]) == "counts as the same as the file: the same latency to the last digit"


def test_numbers_of_a_sweep_are_under_one_another():
    head, first, last, said = sweep_table([result(BQ=8), result(BQ=1024)], ["BQ"], kernel="kernel.py").splitlines()
    assert head.startswith("  BQ  ")
    assert first.startswith("   8  ")
    assert last.startswith("1024  ")
    assert said.startswith("2 points of kernel.py")


# --- on several chips ---


CHECKED = Checked(rows=40, mean=0.021, largest=0.07, bias=0.001, compiler="libtpu 7", held_out=True)


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
    assert v6e.endswith("held out, with libtpu 7")
    assert v4.split() == ["v4", "VMEM_OVERFLOW", "no", "published", "timing"]
    assert why.startswith("v4: compile: needs")
    assert "\x1b" not in why


def test_latencies_of_sparse_cores_are_said_to_rest_on_little():
    one = on("v6e")
    streamed = replace(one, timeline=replace(one.timeline, not_modelled=(Unmodelled.STREAMS,)))
    assert across_table((streamed,)).split("\n")[2].startswith("v6e: kernels of the SparseCores: ")
    assert len(across_table((one,)).split("\n")) == 2


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
    errors = vars(CHECKED).copy()
    known = {"compiler": errors.pop("compiler"), "errors": {"all": errors}}
    file.write_text(json.dumps({"chips": {"v6e": known, "v4": {}}}))
    monkeypatch.setattr(fitted, "FILE", file)
    monkeypatch.setattr(fitted, "stored", fitted.stored.__wrapped__)
    assert fitted.checked("v6e") == CHECKED
    assert fitted.checked("v4") is None
