"""Which points fit in VMEM, as a table and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.kernelfile.knobs import in_words
from ratchet.tune.fit import broken, largest
from ratchet.values.points import Fit
from ratchet.values.status import Status
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import size

_REASON = 100
_SHOWN = 8


def fit_line(fit: Fit) -> str:
    """One compiled point, as it is known."""
    return clean(f"{in_words(fit.point)} on {fit.chip}: {_outcome(fit)}")


def fit_table(fits: Sequence[Fit], names: Sequence[str], *, target: str, every: bool) -> str:
    """A row for each point, a column for each chip, and what is the largest that fits on each."""
    chips = list(dict.fromkeys(fit.chip for fit in fits))
    points = {tuple(fit.point.items()): fit.point for fit in fits}
    cells = {(fit.chip, tuple(fit.point.items())): _cell(fit) for fit in fits}
    rows = [[*names, *chips]]
    ordered = sorted(points, key=lambda key: [(str(type(value)), value is None, value or 0) for _, value in key])
    for key in ordered:
        rows.append([*(clean(str(value)) for _, value in key), *(cells.get((chip, key), "") for chip in chips)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for chip in chips:
        lines += ["", *_summary([fit for fit in fits if fit.chip == chip], chip, every=every)]
    return "\n".join([f"VMEM of {clean(target)}", *lines])


def _summary(fits: Sequence[Fit], chip: str, *, every: bool) -> list[str]:
    lines = []
    best = largest(fits)
    for fit in best[:_SHOWN]:
        lines.append(f"{chip}: largest that fits: {clean(in_words(fit.point))}, {_outcome(fit)}")
    if best[_SHOWN:]:
        lines.append(f"{chip}: and {len(best) - _SHOWN} more that are below no other point that fits")
    if not best:
        lines.append(f"{chip}: no point fits")
    compiled = sum(fit.compiled for fit in fits)
    if every:
        against = broken(fits)
        held = "never" if not against else f"{len(against)} times"
        lines.append(
            f"{chip}: all {compiled} points compiled; {held} does a point overflow that is below one that fits"
        )
        lines += [
            f"  {clean(in_words(a.point))} overflows, {clean(in_words(b.point))} fits" for a, b in against[:_SHOWN]
        ]
    else:
        lines.append(
            f"{chip}: {compiled} of {len(fits)} points compiled, {len(fits) - compiled} saved: every knob is taken to "
            "have one direction, as measured, which settles those in brackets (--all compiles them)"
        )
    odd = [fit for fit in fits if fit.fits is None]
    lines += [f"{chip}: not known: {clean(in_words(fit.point))}: {_outcome(fit)}" for fit in odd[:_SHOWN]]
    return lines


def _cell(fit: Fit) -> str:
    if not fit.compiled:
        return "(fits)" if fit.fits else "(overflows)"
    if fit.vmem is None:
        return "fits" if fit.fits else fit.status.name
    if fit.is_empty:
        return "uses no VMEM: no step?"
    return f"{'fits' if fit.fits else 'OVERFLOWS'} {size(fit.vmem.used_bytes)} of {size(fit.vmem.limit_bytes)}"


def _outcome(fit: Fit) -> str:
    if fit.fits is None:
        return f"{fit.status.name}: {(clean_lines(fit.reason) or [''])[0]:.{_REASON}}"
    if fit.vmem is None:
        return "fits" if fit.fits else clean(fit.reason, _REASON)
    return f"{'fits' if fit.fits else 'overflows'}: {size(fit.vmem.used_bytes)} of {size(fit.vmem.limit_bytes)}"


def fit_document(fits: Sequence[Fit], *, target: str) -> dict[str, Any]:
    """The same as JSON: bytes; ``fits`` is null where it is not known, ``compiled`` false where it follows."""
    chips = dict.fromkeys(fit.chip for fit in fits)
    return {
        "target": target,
        "points": [
            {
                "point": dict(fit.point),
                "chip": fit.chip,
                "fits": fit.fits,
                "status": fit.status.name,
                "reason": fit.reason,
                "compiled": fit.compiled,
                "used_bytes": fit.vmem.used_bytes if fit.vmem else None,
                "limit_bytes": fit.vmem.limit_bytes if fit.vmem else None,
            }
            for fit in fits
        ],
        "largest": {chip: [dict(fit.point) for fit in largest(_of(fits, chip))] for chip in chips},
        "compiled": sum(fit.compiled for fit in fits),
        "saved": sum(not fit.compiled for fit in fits),
        "overflows": sum(fit.status is Status.VMEM_OVERFLOW for fit in fits),
    }


def _of(fits: Sequence[Fit], chip: str) -> list[Fit]:
    return [fit for fit in fits if fit.chip == chip]
