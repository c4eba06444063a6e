"""A story as one HTML page that needs nothing else, no request, font or script from elsewhere; and a page of all pages.

Whatever is not ours is text: the template escapes it, and charts are JSON in which no ``<`` is left. A content security
policy with the digests of our own scripts has the browser refuse all others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ratchet.loop.frozen import current
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.report import charts, words
from ratchet.report.drawing import DARK, LIGHT, charts_library, inside_script, variables
from ratchet.report.story import Outcome, Story, Track, diff_lines
from ratchet.report.tables import conditions, indented, source_lines, stretch_limit
from ratchet.view.explain import allocation_in_words
from ratchet.view.losses import omissions_in_words
from ratchet.view.occupancy import lines_in_words, loop_in_words
from ratchet.view.text import clean, clean_lines, fixed, size

FOLDER = Path(__file__).parent / "templates"
HOTTEST = 5
"""Lines of the source that are shown before all of it."""
DIFF_LINES = 120
"""Lines of one experiment's diff that are shown at most."""
DIFF_CHARACTERS = 700_000
"""Of all diffs together, what is around each line included; the newest come first."""
_ROW_CHARACTERS = 27
_WIDE, _HIGH = 120, 32
"""Of a sketched history, in pixels."""
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def page(story: Story, *, live: bool = False, index: str = "") -> str:
    """The whole document. ``live``: it reloads when something changed. ``index``: link to the page of all reports."""
    drawn = charts.of_page(story)
    script = paths.read(FOLDER / "page.js").decode() + (paths.read(FOLDER / "live.js").decode() if live else "")
    library = charts_library() if drawn else ""
    scripts = [text for text in (library, inside_script(script)) if text]
    return (
        _environment()
        .get_template("page.html")
        .render(
            story=story,
            material=story.material,
            track=story.main,
            current=story.current,
            charts=drawn,
            data=_json({name: chart.spec for name, chart in drawn.items()}),
            scripts=[Markup(text) for text in scripts],
            policy=_policy(scripts, live=live),
            diffs=_diffs(story),
            notes={one.number: "\n".join(clean_lines(one.row.note)) for one in story.experiments},
            live=live,
            index=index,
            **_styled(),
            **_words(story),
        )
    )


def _environment() -> jinja2.Environment:
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


def _styled() -> Mapping[str, str]:
    """Our own style, for a template."""
    return {
        "light": variables(LIGHT),
        "dark": variables(DARK),
        "style": Markup(paths.read(FOLDER / "style.css").decode()),
    }


def _words(story: Story) -> Mapping[str, Any]:
    """What is said, and by which functions."""
    track, timeline, source = story.main, story.timeline, source_lines(story)
    return {
        "program": home.PROGRAM,
        "glossary": words.GLOSSARY,
        "name": clean(story.material.problem.kernel_name if story.material.problem else "")
        or clean(story.material.kernel),
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
        "named": words.unit,
        "parts": list(charts.PARTS),
        "spent": charts.spent_table(timeline) if timeline else {},
        "cycles": timeline.cycles if timeline else 0,
        "occupancy": timeline.occupancy if timeline else (),
        "stretch_limit": stretch_limit,
        "lines": lines_in_words,
        "loop_of": loop_in_words,
        "slots": charts.SLOTS,
        "omissions": omissions_in_words(timeline) if timeline else [],
        "source": source,
        "hottest": sorted((row for row in source if row.number and row.cycles), key=lambda row: -row.cycles)[:HOTTEST],
        "conditions": conditions(story),
        "allocation": allocation_in_words,
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
    said += [clean(one.said) for one in current(material.rows)]
    if story.unjudged:
        said.append(f"HEAD has another {clean(material.kernel)} than the one shown here, and it has not been judged.")
    if not material.head_blob and material.rows:
        said.append(f"HEAD has no {clean(material.kernel)}: this is the history of a file that is not there any more.")
    if len(story.tracks) > 1:
        others = ", ".join(f"{len(one.experiments)} {words.kind(one)}" for one in story.tracks[1:])
        said.append(f"This page is about what was {words.kind(story.tracks[0])}; there are also rows {others}, apart.")
    return said


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


def _json(specs: Mapping[str, charts.Spec | None]) -> Markup:
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


# --- the page of all pages ---


def file_names(kernels: Sequence[str]) -> list[str]:
    """A file name for each kernel file, no two the same: ``examples-rope.py.html``."""
    made: list[str] = []
    for kernel in kernels:
        safe = "".join(one if one in _SAFE else "-" for one in kernel.replace("/", "-")).lstrip(".-") or "kernel"
        name, count = f"{safe}.html", 2
        while name.lower() in [one.lower() for one in (*made, "index.html")]:
            name, count = f"{safe}-{count}.html", count + 1
        made.append(name)
    return made


def index_page(stories: Sequence[Story], files: Sequence[str]) -> str:
    """The document."""
    entries = [_entry(story, file) for story, file in zip(stories, files, strict=True)]
    repository = stories[0].material.repository if stories else ""
    return _environment().get_template("index.html").render(entries=entries, repository=repository, **_styled())


def _entry(story: Story, file: str) -> Mapping[str, Any]:
    track, problem, current = story.main, story.material.problem, story.current
    return {
        "file": file,
        "kernel": clean(story.material.kernel),
        "name": clean(problem.kernel_name) if problem else "",
        "kind": words.kind(track) if track else "",
        "latency": words.ms(current.latency_ms if current else None),
        "gained": words.times_in_words(track.factor) if track and track.gains else "–",
        "share": words.share_of_roofline(current) if current else "–",
        "experiments": len(story.experiments),
        "sketch": _sketch(track) if track else "",
    }


def _sketch(track: Track) -> str:
    """Points of the line of the kernel in place, as SVG has them."""
    kept = [one for one in track.experiments if one.in_place and one.latency_ms]
    if len(kept) < 2:
        return ""
    levels = [math.log(one.latency_ms or 1.0) for one in kept]
    low, span = min(levels), max(max(levels) - min(levels), 1e-9)
    last = max(1, track.experiments[-1].number - track.experiments[0].number)
    points: list[tuple[float, float]] = []
    for one, level in zip(kept, levels, strict=True):
        x = (one.number - track.experiments[0].number) / last * (_WIDE - 4) + 2
        y = _HIGH - 3 - (level - low) / span * (_HIGH - 6)
        points += [(x, points[-1][1])] if points else []
        points.append((x, y))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
