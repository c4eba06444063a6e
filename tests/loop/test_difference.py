"""What explains the difference between two experiments, and which experiment a name means."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ratchet.loop import recorded
from ratchet.loop.difference import difference
from ratchet.values import Timeline
from ratchet.values.blame import LineCost
from ratchet.values.difference import Part, Side
from ratchet.values.loss import CrowdedUnit, Loss, MatrixBound
from ratchet.values.occupancy import Limit
from ratchet.values.place import Code, Place, SourceLine
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, kernel_text
from tests.view.timelines import occupancy, row, timeline

OLD = "import x\nBQ = 1\n\ndef f(x):\n    y = x + 1\n    return y\n"
NEW = "import x\nBQ = 2\n\n# new\ndef f(x):\n    y = x + 1\n    return y\n"


def cost(place: Place, wait: int = 0, delay: int = 0, spills: int = 0, **units: int) -> LineCost:
    """Units in capitals issue; ``stall_`` before a unit is for empty bundles."""
    stalls = {name.removeprefix("stall_"): n for name, n in units.items() if name.startswith("stall_")}
    issues = {name: n for name, n in units.items() if not name.startswith("stall_")}
    return LineCost(
        place=place,
        cycles=sum(units.values()) + wait + delay,
        issue_cycles=issues,
        stall_cycles=stalls,
        wait_cycles=wait,
        delay_cycles=delay,
        issues={},
        empty_slots=0,
        spill_stores=spills,
        spill_loads=2 * spills,
    )


def at(line: int) -> SourceLine:
    return SourceLine(file="kernel.py", line=line)


def run(*lines: LineCost, losses: tuple[Loss, ...] = ()) -> Timeline:
    made = timeline()
    blame = dataclasses.replace(made.blame, lines=lines, losses=losses)
    return dataclasses.replace(made, cycles=sum(line.cycles for line in lines), blame=blame)


def side(made: Timeline | None, source: str | None, **columns: str) -> Side:
    return Side(row=row(**({"kernel": "kernel.py"} | columns)), timeline=made, source=source)


BEFORE = run(
    cost(at(5), MXU=100, stall_MXU=900), cost(at(6), VSTORE=50, wait=400, spills=3), cost(Code.PIPELINE, SALU=7)
)
AFTER = run(cost(at(6), MXU=100, stall_MXU=200), cost(at(7), VSTORE=50, wait=500, EUP=11), cost(Code.PIPELINE, SALU=7))


def test_the_parts_sum_to_the_whole_difference_largest_first():
    differs = difference(side(BEFORE, OLD), side(AFTER, NEW))
    assert sum(one.change for one in differs.spent) == AFTER.cycles - BEFORE.cycles == -589
    assert [(one.part, one.unit, one.change) for one in differs.spent if one.change] == [
        (Part.STALL, "MXU", -700),
        (Part.WAIT, "", 100),
        (Part.ISSUE, "EUP", 11),
    ]
    assert [one.place for one in differs.spent if one.change] == [at(5), at(7), at(7)]


def test_lines_that_moved_are_the_same_lines():
    differs = difference(side(BEFORE, OLD), side(AFTER, NEW))
    assert [(one.before, one.after, one.change, one.text) for one in differs.lines] == [
        (at(5), at(6), -700, "y = x + 1"),
        (at(6), at(7), 111, "return y"),
    ]
    assert sum(one.change for one in differs.lines) == AFTER.cycles - BEFORE.cycles


def test_a_line_edited_in_its_place_is_the_same_line_and_others_are_gone_or_new():
    old, new = run(cost(at(2), VALU=5), cost(at(5), VALU=100)), run(cost(at(2), VALU=9))
    edited = "import x\nBQ = 7\n\ndef f(x):\n    return x\n"
    differs = difference(side(old, OLD), side(new, edited))
    assert [(one.before, one.after, one.change) for one in differs.lines] == [
        (at(5), None, -100),
        (at(2), at(2), 4),
    ]
    back = difference(side(new, edited), side(old, OLD))
    assert [(one.before, one.after, one.change) for one in back.lines] == [(None, at(5), 100), (at(2), at(2), -4)]


def test_lines_of_another_kernel_file_are_matched_too():
    renamed = run(*(dataclasses.replace(line, place=SourceLine(file="b.py", line=line.place.line))
                    if isinstance(line.place, SourceLine) else line for line in AFTER.blame.lines))  # fmt: skip
    differs = difference(side(BEFORE, OLD), side(renamed, NEW, kernel="sub/b.py"))
    assert [one.change for one in differs.lines] == [-700, 111]
    assert differs.conditions == ("kernel",)


def test_losses_spills_and_source():
    def crowded(cycles: int, unit: str) -> Loss:
        return CrowdedUnit(
            cycles=cycles,
            ceiling_cycles=9,
            unit=unit,
            full_share=0.3,
            busy_share=0.5,
            place=at(5),
            without_spills=False,
        )

    bound = MatrixBound(cycles=0, ceiling_cycles=5)
    old = dataclasses.replace(BEFORE, blame=dataclasses.replace(BEFORE.blame, losses=(crowded(50, "EUP"), bound)))
    new = dataclasses.replace(AFTER, blame=dataclasses.replace(AFTER.blame, losses=(crowded(90, "VALU"), bound)))
    differs = difference(side(old, OLD), side(new, NEW))
    assert [(one.before and one.before.cycles, one.after and one.after.cycles) for one in differs.losses] == [
        (None, 90),
        (50, None),
        (0, 0),
    ]
    assert [(one.stores, one.loads) for one in differs.spilled] == [(3, 6), (0, 0)]
    assert [line for line in differs.source if line[:1] in "+-"][2:] == ["-BQ = 1", "+BQ = 2", "+# new"]


def test_limits_of_all_kernels_together():
    stores = Limit(unit="VSTORE", empty=False)
    kernel = occupancy()
    faster = dataclasses.replace(kernel, limits=tuple(one for one in kernel.limits if one.limit != stores))
    old = dataclasses.replace(BEFORE, occupancy=(kernel, kernel))
    new = dataclasses.replace(AFTER, occupancy=(faster, kernel))
    differs = difference(side(old, OLD), side(new, NEW))
    assert [(one.limit, one.before, one.after, one.change) for one in differs.limits] == [(stores, 2000, 1000, -1000)]
    assert difference(side(old, OLD), side(AFTER, NEW)).limits[0].change == -16_000


@pytest.mark.parametrize("missing", ["before", "after"])
def test_without_a_recorded_run_only_the_rows_and_the_source_are_there(missing):
    sides = {"before": side(BEFORE, OLD), "after": side(AFTER, None)}
    sides[missing] = dataclasses.replace(sides[missing], timeline=None)
    differs = difference(**sides)
    assert not differs.modelled
    assert (differs.spent, differs.lines, differs.losses, differs.limits, differs.spilled) == ((), (), (), (), None)
    assert differs.source is None


def test_a_run_is_kept_without_its_spans(tmp_path):
    path = tmp_path / "timeline.json"
    whole = timeline()
    path.write_bytes(recorded.to_bytes(recorded.without_spans(whole)))
    read = recorded.from_file(Timeline, path)
    assert read == dataclasses.replace(whole, spans=(), ops=())
    for other in (b"", b"[]", b"[1", b'["Timeline"]'):
        path.write_bytes(other)
        assert recorded.from_file(Timeline, path) is None
    assert recorded.from_file(Timeline, tmp_path / "nothing") is None


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    """A baseline, one kept, one reverted."""
    stage = Stage.new(tmp_path_factory.mktemp("stage") / "repository")
    stage.run("baseline")
    stage.write(kernel_text(1100.0))
    stage.run("better")
    stage.write(kernel_text(900.0))
    stage.run("worse")
    return stage


def named(stage: Stage, name: str) -> str:
    return recorded.experiment(stage.root, name, kernel=stage.root / stage.kernel).note


def test_which_experiment_a_name_means(stage, tmp_path):
    ids = [one.id for one in stage.rows()]
    assert [named(stage, name) for name in (*ids, "HEAD", str(stage.root / "kernel.py"))] == [
        "baseline",
        "better",
        "worse",
        "better",
        "better",
    ]
    other = tmp_path / "other.py"
    other.write_text(kernel_text(900.0))
    assert named(stage, str(other)) == "worse"
    assert recorded.source(stage.root, stage.rows()[2]) == kernel_text(900.0)


@pytest.mark.parametrize("text", [None, kernel_text(7.0)])
def test_what_was_not_judged_is_refused(stage, tmp_path, text):
    path = Path(tmp_path, "new.py")
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refusal, match="was not judged as it is" if text else "no row has the id") as refused:
        named(stage, str(path))
    assert refused.value.status is Status.NOT_FOUND
