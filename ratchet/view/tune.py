"""Blocks for the shapes of a program: a table for each call and chip, the shortlist for a TPU, and both as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.kernelfile.knobs import in_words
from ratchet.tpu.chips import CHIPS
from ratchet.values.points import Trial, Tuned
from ratchet.values.status import Status
from ratchet.view.columns import columns
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import fixed, size

_SHOWN = 10
_REASON = 100
_NEAR = "not ranked against the best reliably"


def trial_line(trial: Trial, *, chip: str) -> str:
    """One compiled point, as it is known."""
    return clean(f"{in_words(trial.point)} on {chip}: {_outcome(trial)}")


def tune_text(rows: Sequence[Tuned], names: Sequence[str], *, target: str) -> str:
    """A table for each call and chip: the fastest points, and the file as it is."""
    parts = [f"blocks of {clean(target)}: modelled, not measured, and no values checked"]
    parts += ["\n".join(_table(row, names)) for row in rows]
    return "\n\n".join(parts)


def _table(row: Tuned, names: Sequence[str]) -> list[str]:
    often = f" (calls captured: {row.calls})" if row.calls else ""
    lines = [f"{row.chip}: {clean(call_of(row))}{often}"]
    modelled = [trial for trial in row.trials if trial.latency_ms is not None]
    head = [*names, "ms", "measured 9 in 10", "VMEM", ""]
    cells = [_cells(trial, names, _NEAR if trial in row.near_best else "") for trial in modelled[:_SHOWN]]
    if cells:
        cells[0][-1] = "best"
    if row.default is not None:
        cells.append(_cells(row.default, names, "the file as it is"))
    if cells:
        lines += columns([head, *cells], numbers=True)
    if modelled[_SHOWN:]:
        lines.append(f"{len(modelled) - _SHOWN} slower ones are not shown (--json, --out)")
    compiled = sum(trial.compiled for trial in row.trials)
    overflows = sum(trial.status is Status.VMEM_OVERFLOW for trial in row.trials)
    lines.append(
        f"{compiled} of {len(row.trials)} points compiled, {len(modelled)} modelled; {overflows} overflow VMEM, "
        f"{len(row.trials) - compiled} of them by what was compiled"
    )
    odd = [trial for trial in row.trials if trial.latency_ms is None and trial.status is not Status.VMEM_OVERFLOW]
    lines += [f"not modelled: {clean(in_words(trial.point))}: {_outcome(trial)}" for trial in odd[:_SHOWN]]
    return lines


def call_of(row: Tuned) -> str:
    """``bfloat16[16,128], causal=True``."""
    inputs = [f"{spec.dtype}[{','.join(map(str, spec.shape))}]" for spec in row.inputs] or [row.generator]
    return ", ".join([*inputs, *(f"{name}={value!r}" for name, value in row.options.items())])


def _cells(trial: Trial, names: Sequence[str], said: str) -> list[str]:
    assert trial.latency_ms is not None
    band = f"{fixed(trial.band.low_ms, 4)} to {fixed(trial.band.high_ms, 4)}" if trial.band else ""
    vmem = size(trial.vmem.used_bytes) if trial.vmem else ""
    values = [clean(str(trial.point[name])) if name in trial.point else "" for name in names]
    return [*values, fixed(trial.latency_ms), band, vmem, said]


def _outcome(trial: Trial) -> str:
    if trial.latency_ms is not None:
        return f"{fixed(trial.latency_ms)} ms"
    return f"{trial.status.name}: {(clean_lines(trial.reason) or [''])[0]:.{_REASON}}"


def shortlist_text(rows: Sequence[Tuned], *, attached: str, path: Path) -> str:
    """How many points are worth measuring, where they are, and what measures them."""
    count = sum(len(row.shortlist) for row in rows)
    todo = f"python -m ratchet.tune.shortlist {shlex.quote(str(path))}"
    where = f"a TPU {attached} is attached" if attached else "no TPU is attached here, so nothing was measured"
    return f"\n{count} points to measure are in {path}; {where}: run `{todo}` in the Python that has your JAX, on a TPU"


def tune_document(rows: Sequence[Tuned], *, target: str) -> dict[str, Any]:
    """The same as JSON, all points; ms, bytes. ``latency_ms`` is null where a point was not modelled."""
    return {"target": target, "modelled": True, "calls": [{**_call(row), **_points(row)} for row in rows]}


def shortlist_document(rows: Sequence[Tuned], *, target: str) -> dict[str, Any]:
    """What ``python -m ratchet.tune.shortlist`` measures; ``target`` as the user wrote it."""
    return {
        "format": 1,
        "target": target,
        "calls": [
            {**_call(row), "constants": sorted(row.constants), "points": _listed(row)} for row in rows if row.shortlist
        ],
    }


def _listed(row: Tuned) -> list[dict[str, Any]]:
    return [{**_trial(trial), "near_best": trial in row.near_best} for trial in row.shortlist]


def _call(row: Tuned) -> dict[str, Any]:
    return {
        "chip": row.chip,
        "device_kind": CHIPS[row.chip].device_kind,
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in row.inputs],
        "generator": row.generator,
        "arguments": list(row.arguments),
        "options": dict(row.options),
        "captured": row.calls,
        "compiler": row.compiler,
    }


def _points(row: Tuned) -> dict[str, Any]:
    return {
        "best": dict(row.best.point) if row.best else None,
        "near_best": [dict(trial.point) for trial in row.near_best],
        "as_it_is": _trial(row.default) if row.default else None,
        "points": [_trial(trial) for trial in row.trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "point": dict(trial.point),
        "status": trial.status.name,
        "reason": trial.reason,
        "compiled": trial.compiled,
        "latency_ms": trial.latency_ms,
        "band_ms": [trial.band.low_ms, trial.band.high_ms] if trial.band else None,
        "vmem_bytes": trial.vmem.used_bytes if trial.vmem else None,
    }
