"""What came of points, values for the knobs of a kernel: which fit in VMEM, which are fastest, what a search kept."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.kernelfile.knobs import in_words
from ratchet.process.boot import home
from ratchet.search.space import Observation
from ratchet.tpu.chips import CHIPS
from ratchet.tune.fit import broken, largest
from ratchet.values import Literal
from ratchet.values.points import Fit, Trial, Tuned
from ratchet.values.status import Status
from ratchet.view.document import BAND_MS, Tables, plain, same
from ratchet.view.searching import outcome
from ratchet.view.text import clean, columns, cut, first_line, fixed, size, time_change, times, wrapped

_REASON = 100
_FITS, _TRIALS, _RUNNERS_UP = 8, 10, 5
"""Points that are shown of each."""
_WHY, _NARROWEST = 76, 40
Candidate = tuple[str, Observation]
"""A candidate that was judged, with its name."""
_NEAR = "not ranked against the best reliably"


# --- which fit ---


def fit_line(fit: Fit) -> str:
    """One compiled point, as it is known."""
    return clean(f"{in_words(fit.point)} on {fit.chip}: {_fits(fit)}")


def fit_table(fits: Sequence[Fit], names: Sequence[str], *, target: str, every: bool) -> str:
    """A row for each point, a column for each chip, and what is the largest that fits on each."""
    chips = list(dict.fromkeys(fit.chip for fit in fits))
    cells = {(fit.chip, tuple(fit.point.items())): _cell(fit) for fit in fits}
    points = sorted({point for _, point in cells}, key=_in_order)
    rows = [[*names, *chips, ""]]
    rows += [
        [*(clean(str(value)) for _, value in point), *(cells.get((chip, point), "") for chip in chips), ""]
        for point in points
    ]
    lines = columns(rows, numbers=True)
    for chip in chips:
        lines += ["", *_summary([fit for fit in fits if fit.chip == chip], chip, every=every)]
    return "\n".join([f"VMEM of {clean(target)}", *lines])


def _in_order(point: tuple[tuple[str, Literal], ...]) -> list[Any]:
    return [(str(type(value)), value is None, value or 0) for _, value in point]


def _summary(fits: Sequence[Fit], chip: str, *, every: bool) -> list[str]:
    best = largest(fits)
    lines = [f"{chip}: largest that fits: {clean(in_words(fit.point))}, {_fits(fit)}" for fit in best[:_FITS]]
    if best[_FITS:]:
        lines.append(f"{chip}: and {len(best) - _FITS} more that are below no other point that fits")
    if not best:
        known = "is known to fit" if any(fit.fits is None for fit in fits) else "fits"
        lines.append(f"{chip}: no point {known}")
    compiled = sum(fit.compiled for fit in fits)
    if every:
        against = broken(fits)
        held = f"{len(against)} times" if against else "never"
        lines.append(
            f"{chip}: all {compiled} points compiled; {held} does a point overflow that is below one that fits"
        )
        lines += [
            f"  {clean(in_words(a.point))} overflows, {clean(in_words(b.point))} fits" for a, b in against[:_FITS]
        ]
    else:
        lines.append(
            f"{chip}: {compiled} of {len(fits)} points compiled, {len(fits) - compiled} saved: every knob is taken to "
            "have one direction, as measured, which settles those in brackets (--all compiles them)"
        )
    odd = [fit for fit in fits if fit.fits is None]
    return [*lines, *(f"{chip}: not known: {clean(in_words(fit.point))}: {_fits(fit)}" for fit in odd[:_FITS])]


def _cell(fit: Fit) -> str:
    if not fit.compiled:
        return "(fits)" if fit.fits else "(overflows)"
    if fit.vmem is None:
        return "fits" if fit.fits else fit.status.name
    if fit.is_empty:
        return "uses no VMEM: no step?"
    return f"{'fits' if fit.fits else 'OVERFLOWS'} {size(fit.vmem.used_bytes)} of {size(fit.vmem.limit_bytes)}"


def _fits(fit: Fit) -> str:
    if fit.fits is None:
        return _failure(fit)
    if fit.vmem is None:
        return "fits" if fit.fits else clean(fit.reason, _REASON)
    return f"{'fits' if fit.fits else 'overflows'}: {size(fit.vmem.used_bytes)} of {size(fit.vmem.limit_bytes)}"


def _failure(one: Fit | Trial) -> str:
    return f"{one.status.name}: {first_line(one.reason):.{_REASON}}"


def fit_document(fits: Sequence[Fit], *, target: str) -> dict[str, Any]:
    """The same as JSON: bytes; ``fits`` is null where it is not known, ``compiled`` false where it follows."""
    tables: Tables = {
        Fit: {**same("point", "chip", "fits"), ...: (), **same("used_bytes", "limit_bytes", of="vmem")},
    }
    chips = dict.fromkeys(fit.chip for fit in fits)
    return {
        "target": target,
        "points": plain(fits, tables),
        "largest": {
            chip: [dict(fit.point) for fit in largest([fit for fit in fits if fit.chip == chip])] for chip in chips
        },
        "compiled": sum(fit.compiled for fit in fits),
        "saved": sum(not fit.compiled for fit in fits),
        "overflows": sum(fit.status is Status.VMEM_OVERFLOW for fit in fits),
    }


# --- which are fastest ---


def trial_line(trial: Trial, *, chip: str) -> str:
    """One compiled point, as it is known."""
    said = _failure(trial) if trial.latency_ms is None else f"{fixed(trial.latency_ms)} ms"
    return clean(f"{in_words(trial.point)} on {chip}: {said}")


def tune_text(rows: Sequence[Tuned], names: Sequence[str], *, target: str) -> str:
    """A table for each call and chip: the fastest points, and the file as it is."""
    parts = [f"blocks of {clean(target)}: modelled, not measured, and no values checked"]
    return "\n\n".join([*parts, *("\n".join(_tuned(row, names)) for row in rows)])


def _tuned(row: Tuned, names: Sequence[str]) -> list[str]:
    often = f" (calls captured: {row.calls})" if row.calls else ""
    lines = [f"{row.chip}: {clean(_call(row))}{often}"]
    modelled = [trial for trial in row.trials if trial.latency_ms is not None]
    cells = [_cells(trial, names, _NEAR if trial in row.near_best else "") for trial in modelled[:_TRIALS]]
    if cells:
        cells[0][-1] = "best"
    if row.default is not None:
        cells.append(_cells(row.default, names, "the file as it is"))
    if cells:
        lines += columns([[*names, "ms", "measured 9 in 10", "VMEM", ""], *cells], numbers=True)
    if modelled[_TRIALS:]:
        lines.append(f"{len(modelled) - _TRIALS} slower ones are not shown (--json, --out)")
    compiled = sum(trial.compiled for trial in row.trials)
    overflows = sum(trial.status is Status.VMEM_OVERFLOW for trial in row.trials)
    lines.append(
        f"{compiled} of {len(row.trials)} points compiled, {len(modelled)} modelled; {overflows} overflow VMEM, "
        f"{len(row.trials) - compiled} of them by what was compiled"
    )
    odd = [trial for trial in row.trials if trial.latency_ms is None and trial.status is not Status.VMEM_OVERFLOW]
    return [*lines, *(f"not modelled: {clean(in_words(one.point))}: {_failure(one)}" for one in odd[:_TRIALS])]


def _call(row: Tuned) -> str:
    """``bfloat16[16,128], causal=True``."""
    inputs = map(str, row.inputs) if row.inputs else [row.generator]
    return ", ".join([*inputs, *(f"{name}={value!r}" for name, value in row.options.items())])


def _cells(trial: Trial, names: Sequence[str], said: str) -> list[str]:
    assert trial.latency_ms is not None
    band = f"{fixed(trial.band.low_ms, 4)} to {fixed(trial.band.high_ms, 4)}" if trial.band else ""
    vmem = size(trial.vmem.used_bytes) if trial.vmem else ""
    values = [clean(str(trial.point[name])) if name in trial.point else "" for name in names]
    return [*values, fixed(trial.latency_ms), band, vmem, said]


def shortlist_text(rows: Sequence[Tuned], *, attached: str, path: Path) -> str:
    """How many points are worth measuring, where they are, and what measures them."""
    count = sum(len(row.shortlist) for row in rows)
    todo = f"python -m ratchet.tune.shortlist {shlex.quote(str(path))}"
    where = f"a TPU {attached} is attached" if attached else "no TPU is attached here, so nothing was measured"
    return f"\n{count} points to measure are in {path}; {where}: run `{todo}` in the Python that has your JAX, on a TPU"


_TUNED: Tables = {
    **BAND_MS,
    Trial: {...: ("wait_ms",), "band_ms": "band", "vmem_bytes": "vmem.used_bytes"},
    Tuned: {
        "chip": "chip",
        "device_kind": lambda row: CHIPS[row.chip].device_kind,
        **same("inputs", "generator", "arguments", "options"),
        "captured": "calls",
        ...: ("trials", "default", "near_best", "shortlist", "constants"),
    },
}


def tune_document(rows: Sequence[Tuned], *, target: str) -> dict[str, Any]:
    """The same as JSON, all points; ms, bytes. ``latency_ms`` is null where a point was not modelled."""
    of_points: Tables = {
        **_TUNED,
        Tuned: {
            "best": "best.point",
            "near_best": lambda row: [trial.point for trial in row.near_best],
            "as_it_is": "default",
            "points": "trials",
        },
    }
    calls = [{**plain(row, _TUNED), **plain(row, of_points)} for row in rows]
    return {"target": target, "modelled": True, "calls": calls}


def shortlist_document(rows: Sequence[Tuned], *, target: str) -> dict[str, Any]:
    """What ``python -m ratchet.tune.shortlist`` measures; ``target`` as the user wrote it."""
    calls = [
        {
            **plain(row, _TUNED),
            "constants": sorted(row.constants),
            "points": [{**plain(one, _TUNED), "near_best": one in row.near_best} for one in row.shortlist],
        }
        for row in rows
        if row.shortlist
    ]
    return {"format": 1, "target": target, "calls": calls}


# --- what a search kept ---


def candidates_table(shown: Sequence[Candidate], *, most: int | None = None, width: int | None = None) -> str:
    """One line each, the fastest first: latency, VMEM, row, outcome. ``most`` leaves out what comes after so many.

    ``width``: outcomes are cut so that lines are no longer, where that leaves some of them.
    """
    lines = [["", "ms", "VMEM", "row", "outcome"]]
    lines += [
        [
            clean(name),
            "-" if one.latency_ms is None else fixed(one.latency_ms),
            "-" if one.vmem_bytes is None else size(one.vmem_bytes),
            one.id,
            outcome(one),
        ]
        for name, one in _fastest_first(shown)[:most]
    ]
    made = columns(lines)
    wide = _WHY + len(made[0].partition("outcome")[0]) if width is None else max(width, _NARROWEST)
    return "\n".join(cut(line, wide) for line in made)


def search_text(  # noqa: PLR0913 - the table, and by keyword what is said below it
    shown: Sequence[Candidate],
    *,
    ending: str,
    before_ms: float,
    left_out: int,
    seconds: float,
    new: int,
    how: str,
    width: int | None = None,
) -> str:
    """The best point and the runners-up, what was refused, and why the search ended. ``how``: modelled or measured."""
    lines = [f"{len(shown)} trials, {new} judged now, in {seconds:.0f} s; {ending}"]
    refused = Counter(one.status.name for _, one in shown if one.latency_ms is None)
    if refused:
        lines.append(f"refused: {', '.join(f'{count} {status}' for status, count in sorted(refused.items()))}")
    if left_out:
        lines.append(f"{left_out} points left out: they need no less VMEM than one that overflowed")
    top = next((one for _, one in _fastest_first(shown)), None)
    if top is not None and top.latency_ms is not None:
        faster = before_ms / top.latency_ms
        gain = f"{times(faster)} as fast as {fixed(before_ms, 4)} ms where it began: time {time_change(faster)}"
        lines.append(f"best {fixed(top.latency_ms, 4)} ms {how}, {gain}")
        if not top.kept:
            lines.append(f"not kept by this search: {outcome(top)}; `{home.PROGRAM} show {top.id}` says more")
    table = candidates_table(shown, most=_RUNNERS_UP + 1, width=width)
    return "\n".join([table, *(one for line in lines for one in wrapped(line, width or 10**6, "", "  "))])


def candidates_document(shown: Sequence[Candidate], **others: Any) -> dict[str, Any]:
    """The same as JSON: latencies in ms, sizes in bytes, null where there is none."""
    trials = [{"name": name, **plain(one)} for name, one in _fastest_first(shown)]
    return {"kind": "modelled", **others, "trials": trials}


def _fastest_first(shown: Sequence[Candidate]) -> list[Candidate]:
    return sorted(shown, key=lambda named: math.inf if named[1].latency_ms is None else named[1].latency_ms)
