"""A story as one JSON document: ms, shares of 1, times faster; null where there is none."""

from __future__ import annotations

from typing import Any

from ratchet.report import words
from ratchet.report.story import Experiment, Story, Track
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.text import kind_of, number

SCHEMA_VERSION = 1
"""Version of the JSON document that ``ratchet report --json`` prints."""


def document(story: Story) -> dict[str, Any]:
    """What the page says, as plain values. Texts of the author's are as they are in the ledger."""
    material, evidence = story.material, story.material.evidence
    timeline = evidence.timeline if evidence else None
    return {
        "schema_version": SCHEMA_VERSION,
        "kernel": material.kernel,
        "name": material.problem.name if material.problem else None,
        "head": material.head or None,
        "head_is_judged": bool(story.main and story.main.current) and not story.unjudged,
        "tracks": [_track(track) for track in story.tracks],
        "limits": losses_in_words(timeline) if timeline else [],
        "needed": words.needed(timeline) if timeline else {},
        "not_modelled": omissions_in_words(timeline) if timeline else [],
        "believe": words.believe(story),
        "evidence": evidence.id if evidence else None,
        "origins": {origin.value: count for origin, count in material.origins.items()},
        "other_kernels": dict(material.others),
    }


def _track(track: Track) -> dict[str, Any]:
    current, best = track.current, track.gains[0] if track.gains else None
    return {
        "evaluator": track.evaluator,
        "kind": kind_of(track.evaluator),
        "current": current.row.id if current else None,
        "latency_ms": current.latency_ms if current else None,
        "band_ms": [number(current.row.band_low_ms), number(current.row.band_high_ms)] if current else None,
        "score": number(current.row.score) if current else None,
        "share_of_roofline": _share(current) if current else None,
        "times_faster_than_first": track.factor if track.gains else None,
        "best": best.row.id if best else None,
        "experiments": [_experiment(one) for one in track.experiments],
    }


def _experiment(one: Experiment) -> dict[str, Any]:
    return {
        "number": one.number,
        "id": one.row.id,
        "time": one.row.time,
        "commit": one.row.commit,
        "note": one.row.note,
        "status": one.row.status,
        "outcome": one.outcome.value,
        "why": words.why(one),
        "reason": one.row.reason,
        "latency_ms": one.latency_ms,
        "floor_ms": one.floor_ms,
        "share_of_roofline": _share(one),
        "compared_with": one.against.id if one.against else None,
        "judged_again": one.again,
        "times_faster": one.times,
    }


def _share(one: Experiment) -> float | None:
    share = number(one.row.util_pct)
    return None if share is None else share / 100
