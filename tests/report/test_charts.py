"""Specifications of charts: what they hold, and that they can be drawn."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from ratchet.report import charts
from ratchet.report.charts import OUTCOMES
from ratchet.report.drawing import DARK, LIGHT, drawn, painted
from ratchet.report.story import story
from ratchet.report.tables import LIMITS, spent_table, stretch_kind
from ratchet.values.occupancy import Limit
from ratchet.values.status import Refusal
from tests.report.samples import HOSTILE, baseline, evidence, many, material, measured, reverted, row
from tests.view.timelines import occupancy, timeline


def values(spec: charts.Spec) -> list[dict[str, object]]:
    """All data of a chart."""
    layers = spec.get("layer", [spec])
    return [value for layer in layers for value in layer["data"]["values"]]


def test_failures_are_above_every_latency() -> None:
    overview = story(material([baseline(1, 4.0), row(2, None), row(3, 1.0)]))
    spec = charts.trajectory(overview.main)
    failed = next(value for value in values(spec) if value.get("outcome") == "failed")
    assert float(str(failed["ms"])) > 4.0
    assert failed["latency"] == "–"


def test_there_is_nothing_to_draw_of_nothing_nor_a_roofline_without_flops() -> None:
    overview = story(material([row(1, None)]))
    assert charts.trajectory(overview.main) is None
    assert charts.roofline(overview) is None
    assert charts.fidelity(overview) is None
    assert charts.roofline(story(material([baseline(1, 4.0, tflops="0.0")]))) is None


def test_no_point_is_above_the_roof() -> None:
    spec = charts.roofline(story(material(many(30))))
    roof = max(float(str(value["tflops"])) for value in values(spec) if "order" in value)
    assert all(float(str(value["tflops"])) <= roof * 1.001 for value in values(spec))


def test_the_cycles_of_the_bars_are_those_of_the_run() -> None:
    assert sum(sum(parts.values()) for parts in spent_table(timeline()).values()) == timeline().cycles


def test_the_stretches_of_a_program_are_beside_each_other() -> None:
    spec = charts.occupancy(occupancy())
    rows = spec["data"]["values"]
    assert [row["start"] for row in rows] == [0, *(row["end"] for row in rows[:-1])]
    assert rows[-1]["end"] == 1
    assert [row["kind"] for row in rows] == [
        "end of a turn", "its unit is full", "another slot is full", "its unit is full", "waits for DMAs or chips"
    ]  # fmt: skip
    assert {str(row["why"]) for row in rows} == {
        "end of a turn, no slot full", "matrix units full", "vector stores full", "waits for DMAs or chips"
    }  # fmt: skip
    empty = replace(occupancy().stretches[0], turn_end=False, limit=Limit(unit="XLU", empty=True))
    (row,) = charts.occupancy(replace(occupancy(), stretches=(empty,)))["data"]["values"]
    assert (row["kind"], row["why"]) == ("empty bundles wait", "empty bundles wait for cross-lane units")
    waits = replace(occupancy().stretches[-1], turn_end=True)
    assert stretch_kind(occupancy(), waits) == "waits for DMAs or chips"
    assert charts.occupancy(replace(occupancy(), stretches=())) is None
    for colour in LIMITS.values():
        assert colour.removeprefix("var(--").removesuffix(")") in LIGHT


def test_fidelity_is_measured_over_modelled() -> None:
    spec = charts.fidelity(story(material([measured(1, 9.0), measured(2, 6.0, "1.5")])))
    assert [round(float(str(v["ratio"])), 3) for v in values(spec) if "what" in v] == [1.111, 1.111]


def test_every_outcome_and_colour_has_both_schemes() -> None:
    assert set(LIGHT) == set(DARK)
    for colour, _ in OUTCOMES.values():
        assert colour.removeprefix("var(--").removesuffix(")") in LIGHT


def test_colours_go_into_a_file_and_texts_do_not_change() -> None:
    spec = {"mark": {"color": "var(--kept)"}, "data": {"values": [{"what": "var(--kept)"}]}}
    assert painted(spec) == {"mark": {"color": LIGHT["kept"]}, "data": {"values": [{"what": "var(--kept)"}]}}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_file_shows_texts_as_texts(text: str) -> None:
    kept = evidence(text)
    spec = charts.vmem(kept.vmem[0])
    root = ET.fromstring(drawn(spec, title="".join(one for one in text if one.isprintable()), suffix=".svg"))
    assert not [one for one in root.iter() if one.tag.endswith(("script", "image", "foreignObject"))]


def test_all_charts_are_json_and_become_files() -> None:
    overview, kept = story(material([*many(12), reverted(13, 9.0)])), evidence()
    made = [
        charts.trajectory(overview.main), charts.roofline(overview), charts.spent(kept.timeline),
        charts.needed(kept.timeline), charts.occupancy(occupancy()), charts.vmem(kept.vmem[0]), charts.step(kept.step),
    ]  # fmt: skip
    for spec in made:
        assert "var(--" not in drawn(json.loads(json.dumps(spec)), title="a title", suffix=".svg").decode()
    assert drawn(made[0], title="a title", suffix=".PNG").startswith(b"\x89PNG")


def test_another_format_is_refused() -> None:
    with pytest.raises(Refusal, match=r"wanted \.svg or \.png"):
        drawn({}, title="", suffix=".pdf")
