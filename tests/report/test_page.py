"""The page as text: what is said, and that nothing of the author's is more than text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from html.parser import HTMLParser

import pytest

from ratchet.report import page as page_room
from ratchet.report.page import page
from ratchet.report.story import story
from ratchet.report.tables import document
from ratchet.tpu.account.band import stored
from tests.report.samples import HOSTILE, baseline, evidence, many, material, measured, reverted, row

LIBRARY = "window.vegaEmbed = 1;"
REGIMES = {"bound by the matrix units": "compute", "bound by HBM bandwidth": "bandwidth"}


@pytest.fixture(autouse=True)
def _small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundling takes seconds; the browser's tests have the real one."""
    monkeypatch.setattr(page_room, "charts_library", lambda: LIBRARY)


class Reader(HTMLParser):
    """Elements with their attributes, the text outside of scripts, and the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data


def read(*rows: object, **changes: object) -> Reader:
    return Reader(page(story(material(list(rows), **changes))))  # type: ignore[arg-type]


def hostile_everywhere(text: str) -> Reader:
    rows = [
        baseline(1, note=text, reason=text, compiler=text, seal=text, chip="v5e"),
        reverted(2, 3.0, note=text, reason=text, id=text, commit=text, time=text),
        row(3, None, note=text, status=text, kernel_blob="c" * 40),
        row(4, 1.0, note=text, spills=text, regime=text),
    ]
    known = material(rows, repository=text, kernel=text, others={text: 2}, under_way=text, evidence=evidence(text))
    problem = dataclasses.replace(known.problem, kernel_name=text, description=text)  # type: ignore[type-var]
    sources = {one.kernel_blob: f"{text}\n{place}\n" for place, one in enumerate(rows)}
    return Reader(page(story(dataclasses.replace(known, problem=problem, sources=sources))))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_an_element_or_a_script_and_the_policy_names_those_that_run(text: str) -> None:
    plain, hostile = hostile_everywhere("plain"), hostile_everywhere(text)
    kinds = [[tag for tag, _ in one.elements] for one in (plain, hostile)]
    assert sorted(kinds[0]) == sorted(kinds[1])
    names = [{name for _, attributes in one.elements for name in attributes} for one in (plain, hostile)]
    assert names[0] == names[1]
    assert len(hostile.scripts) == len(plain.scripts) == 3
    assert hostile.scripts[1:] == plain.scripts[1:]
    assert not set("\x1b\u202e\x00") & set(hostile.text)
    policy = next(one["content"] for tag, one in hostile.elements if one.get("http-equiv"))
    assert policy is not None
    assert [one.get("type") for tag, one in hostile.elements if tag == "script"] == ["application/json", None, None]
    for script in hostile.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert json.loads(hostile.scripts[0])["trajectory"]["layer"]


def test_texts_are_shown_as_they_are() -> None:
    shown = hostile_everywhere("</script><b>bold</b> & {{ 7*7 }}")
    assert shown.text.count("</script><b>bold</b> & {{ 7*7 }}") > 15


def test_links_lead_to_a_place_in_the_page_and_nothing_is_asked_of_another() -> None:
    shown = read(*many(20), evidence=evidence())
    ids = [str(one["id"]) for _, one in shown.elements if "id" in one]
    assert len(ids) == len(set(ids))
    for tag, attributes in shown.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            target = attributes.get(name) or "#"
            assert target in ("#", "data:,") or (target.startswith("#") and target[1:] in ids), (tag, target)


def test_the_four_questions_are_answered() -> None:
    shown = read(baseline(1, 4.0), row(2, 2.0), reverted(3, 3.0), row(4, None), evidence=evidence())
    for said in ("2. idea 2", "2.00× faster, 50.0 % less time", "3. idea 3", "1.50× slower, 50.0 % more time",
                 "4. idea 4", "WRONG_VALUES", "Nine times in ten", "modelled for TPU v5e"):  # fmt: skip
        assert said in shown.text, said


def test_use_along_the_program_is_a_chart_with_its_words_and_a_table() -> None:
    shown = read(baseline(1, 4.0), evidence=evidence())
    (place,) = [one for _, one in shown.elements if one.get("id") == "chart-occupancy0"]
    assert str(place["aria-label"]).startswith("Matrix units in use 84.4% of 10,000 cycles: full for 80.0%;")
    assert "Matrix units along the program" in shown.text
    for cell in ("end of a turn, no slot full", "vector stores full", "210,212", "grid steps", "kernel.py:97"):
        assert cell in shown.text, cell


def test_the_bands_of_the_chip_are_shown_with_what_they_rest_on() -> None:
    shown = read(baseline(1, 4.0), evidence=evidence())
    assert shown.text.count(", as this one") == 1
    for said, regime in REGIMES.items():
        width, timings = stored().width["v5e", regime], stored().count["v5e", regime]
        assert f"{said}{', as this one' * shown.text.count(said + ', as')}{width * 100:.1f} %{timings}" in shown.text
    assert "as this one" not in read(baseline(1, 4.0)).text
    assert "How far the model is off" not in read(measured(1, 9.0)).text


def test_without_evidence_the_ledger_alone_speaks() -> None:
    shown = read(baseline(1, 4.0), row(2, 2.0))
    assert "By the ledger alone" in shown.text
    assert "judges it again" in shown.text
    assert "1.00 MiB in all, by the ledger" in shown.text


def test_an_empty_ledger_and_failures_alone_say_so() -> None:
    failures = read(row(1, None), row(2, None))
    assert "None of its 2 experiments has a latency" in failures.text
    assert "no experiment has a latency yet" in failures.text
    shown = read(others={"other.py": 3})
    assert "No experiments yet" in shown.text
    assert "report other.py" in shown.text
    assert "report 'my other.py'" in read(others={"my other.py": 3}).text


def test_backticks_are_code_and_nothing_more() -> None:
    assert page_room.ticked("say `a <b>` & on") == "say <code>a &lt;b&gt;</code> &amp; on"
    assert page_room.ticked("one ` <i>") == "one ` &lt;i&gt;"


def test_measured_and_modelled_are_apart() -> None:
    shown = read(baseline(1, 4.0), measured(2, 9.0), measured(3, 5.0, "1.5"))
    assert "The latency is measured on cpu" in shown.text
    assert "there are also rows 1 modelled for TPU v5e, apart" in shown.text
    assert "2 rows of this kernel were measured and modelled" in shown.text


def test_changes_that_are_not_here_or_long_say_so() -> None:
    rows = [baseline(1, 4.0), row(2, 2.0)]
    assert "The change is not in this clone" in read(*rows, sources={}).text
    sources = {rows[0].kernel_blob: "", rows[1].kernel_blob: "x\n" * 500}
    assert f"{501 - page_room.DIFF_LINES} more lines of this change are not shown" in read(*rows, sources=sources).text


def test_two_hundred_experiments_fit() -> None:
    rows = many(200)
    sources = {one.kernel_blob: "\n".join(f"{one.id} line {line}" for line in range(400)) for one in rows}
    overview = story(material(rows, sources=sources, evidence=evidence()))
    assert len(page(overview).encode()) < 2_000_000, "with the library, which takes less than one million more"


def test_the_document_has_the_same_numbers() -> None:
    overview = story(material([baseline(1, 4.0), row(2, 2.0), row(3, None)], evidence=evidence()))
    made = json.loads(json.dumps(document(overview), allow_nan=False))
    track = made["tracks"][0]
    assert (track["latency_ms"], track["times_faster_than_first"], track["kind"]) == (2.0, 2.0, "modelled")
    assert [one["times_faster"] for one in track["experiments"]] == [None, 2.0, None]
    assert track["best"] == track["current"] == "20260101-000002-abcd"
    assert made["head_is_judged"] is False
    (kernel,) = made["occupancy"]
    assert sum(one["cycles"] for one in kernel["stretches"]) == kernel["cycles"]
