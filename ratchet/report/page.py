"""A story as one HTML page that needs nothing else: no request, no font, no script from elsewhere.

Whatever is not ours is text: the template escapes it, and charts are JSON in which no ``<`` is left. A content security
policy with the digests of our own scripts has the browser refuse all others.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ratchet.process.boot import home
from ratchet.report import charts, words
from ratchet.report.bundle import charts_library, inside_script
from ratchet.report.glossary import WORDS
from ratchet.report.palette import DARK, LIGHT, variables
from ratchet.report.story import Outcome, Story, diff_lines
from ratchet.report.tables import conditions, indented, source_lines
from ratchet.view.explain import allocation_in_words
from ratchet.view.losses import omissions_in_words
from ratchet.view.text import clean, clean_lines, fixed, size

FOLDER = Path(__file__).parent / "templates"
HOTTEST = 5
"""Lines of the source that are shown before all of it."""
DIFF_LINES = 120
"""Lines of one experiment's diff that are shown at most."""
DIFF_CHARACTERS = 700_000
"""Of all diffs together, what is around each line included; the newest come first."""
_ROW_CHARACTERS = 27


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its description in one sentence, for those who do not see it."""

    name: str
    said: str
    spec: charts.Spec


def page(story: Story, *, live: bool = False, index: str = "") -> str:
    """The whole document. ``live``: it reloads when something changed. ``index``: link to the page of all reports."""
    drawn = {chart.name: chart for chart in _charts(story)}
    script = (FOLDER / "page.js").read_text() + ((FOLDER / "live.js").read_text() if live else "")
    library = charts_library() if drawn else ""
    scripts = [text for text in (library, inside_script(script)) if text]
    return (
        environment()
        .get_template("page.html")
        .render(
            story=story,
            material=story.material,
            track=story.main,
            current=story.main.current if story.main else None,
            charts=drawn,
            data=_json({name: chart.spec for name, chart in drawn.items()}),
            scripts=[Markup(text) for text in scripts],
            policy=_policy(scripts, live=live),
            diffs=_diffs(story),
            notes={one.number: "\n".join(clean_lines(one.row.note)) for one in story.experiments},
            live=live,
            index=index,
            **styled(),
            **_words(story),
        )
    )


def environment() -> jinja2.Environment:
    """Templates in which every value is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(clean=clean, ms=words.ms, size=size, fixed=fixed, quoted=words.quoted, ticked=ticked)
    return made


def styled() -> Mapping[str, str]:
    """Our own style, for a template."""
    return {
        "light": variables(LIGHT),
        "dark": variables(DARK),
        "style": Markup((FOLDER / "style.css").read_text()),
    }


def _words(story: Story) -> Mapping[str, Any]:
    """What is said, and by which functions."""
    track, evidence = story.main, story.material.evidence
    timeline = evidence.timeline if evidence else None
    source = source_lines(story)
    return {
        "program": home.PROGRAM,
        "glossary": WORDS,
        "name": clean(story.material.problem.name if story.material.problem else "") or clean(story.material.kernel),
        "kind": words.kind(track) if track else "",
        "gained": words.gained(track) if track else "",
        "factor": words.factor(track) if track else "",
        "limits": words.limit(story),
        "limit": words.headline_limit(story),
        "believe": words.believe(story),
        "bands": words.bands(story),
        "asides": _asides(story),
        "why": words.why,
        "title": words.title,
        "times": words.times_in_words,
        "share": words.share_of_roofline,
        "needed": words.needed(timeline) if timeline else {},
        "units": words.UNITS,
        "parts": list(charts.PARTS),
        "spent": charts.spent_table(timeline) if timeline else {},
        "cycles": timeline.cycles if timeline else 0,
        "omissions": omissions_in_words(timeline) if timeline else [],
        "source": source,
        "hottest": sorted((row for row in source if row.number and row.cycles), key=lambda row: -row.cycles)[:HOTTEST],
        "conditions": conditions(story),
        "allocation": allocation_in_words,
        "lane": charts.step_lane,
        "reverted": next((one for one in reversed(story.experiments) if one.outcome is Outcome.REVERTED), None),
        "failed": next((one for one in reversed(story.experiments) if one.outcome is Outcome.FAILED), None),
    }


def _asides(story: Story) -> list[str]:
    """What a reader has to know of this page as a whole."""
    material, said = story.material, []
    if material.broken:
        said.append(f"The ledger cannot be read ({material.broken[0].name}): {clean(material.broken[1])}")
    if material.under_way:
        said.append(f"An experiment is under way: {clean(material.under_way, 120)}")
    if story.unjudged:
        said.append(f"HEAD has another {clean(material.kernel)} than the one shown here, and it has not been judged.")
    if not material.head_blob and material.rows:
        said.append(f"HEAD has no {clean(material.kernel)}: this is the history of a file that is not there any more.")
    if len(story.tracks) > 1:
        others = ", ".join(f"{len(one.experiments)} {words.kind(one)}" for one in story.tracks[1:])
        said.append(f"This page is about what was {words.kind(story.tracks[0])}; there are also rows {others}, apart.")
    return said


def _charts(story: Story) -> list[Chart]:
    made: list[tuple[str, str, charts.Spec | None]] = []
    for place, track in enumerate(story.tracks):
        said = f"Latency of each experiment, {words.kind(track)}. {words.gained(track)}."
        made.append((f"trajectory{place or ''}", said, charts.trajectory(track)))
    current = story.main.current if story.main else None
    if current is not None:
        reached = f"The roofline of the chip. The current kernel reaches {words.share_of_roofline(current)} of it."
        made.append(("roofline", reached, charts.roofline(story)))
    made.append(("fidelity", "Measured over modelled latency of each row that has both.", charts.fidelity(story)))
    evidence = story.material.evidence
    if evidence is not None and evidence.timeline is not None and evidence.timeline.blame.lines:
        limit = f"For what share of the run each unit is needed. Most: {words.most_needed(evidence.timeline)}."
        made.append(("needed", limit, charts.needed(evidence.timeline)))
        made.append(("spent", "Where each cycle went, by unit.", charts.spent(evidence.timeline)))
    for place, kernel in enumerate(evidence.vmem if evidence else ()):
        used = f"VMEM of {clean(kernel.op)} by buffer: {size(kernel.used_bytes)} of {size(kernel.limit_bytes)}."
        made.append((f"vmem{place}", used, charts.vmem(kernel)))
    if evidence is not None and evidence.step is not None:
        one = evidence.step
        made.append(("step", f"What goes on in grid step {one.number} of {one.of_steps}.", charts.step(one)))
    return [Chart(name=name, said=said, spec=spec) for name, said, spec in made if spec is not None]


def _diffs(story: Story) -> Mapping[int, tuple[Sequence[str], int]]:
    """Diffs by number of the experiment, as far as they fit: lines to show, and how many there are."""
    room, found = DIFF_CHARACTERS, {}
    for one in reversed(story.experiments):
        diff = diff_lines(one, story.material.sources, most=DIFF_LINES)
        if diff is None:
            continue
        shown = [indented(line) for line in diff[0]]
        room -= sum(len(line) + _ROW_CHARACTERS for line in shown)
        found[one.number] = (shown if room > 0 else [], diff[1])
    return found


def ticked(text: str) -> Markup:
    """A sentence in which what is between two backticks is code; everything is escaped."""
    parts = text.split("`") if text.count("`") % 2 == 0 else [text]
    shown = (Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts))
    return Markup("").join(shown)


def _json(specs: Mapping[str, charts.Spec]) -> Markup:
    text = json.dumps(specs, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _policy(scripts: Sequence[str], *, live: bool) -> str:
    """Nothing may be loaded, and of scripts only these run; a live page may ask its own server."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    connect = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; {connect}"
        "base-uri 'none'; form-action 'none'"
    )
