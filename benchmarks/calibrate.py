"""Fits the schedule machine's constants anew to published timings, from programs compiled before.

    python -m benchmarks.calibrate [--cases FILE.csv …] [--starts N] [--keep] [--write] [--json FILE]

Reads what ``python -m benchmarks.fidelity`` compiled and recompiles nothing: a timing whose program is not compiled is
left out, and counted. Prints the old and the new value of each constant with its spread (a jackknife over kernels,
sources and widths of streaming blocks) and the kind of kernel that pins it down; errors without the row's own kernel
and without its kind; the bands with their coverage; and how often pairs of one sweep are ranked right. ``--write``
puts the constants and bands into ``ratchet/tpu/chips/fitted.json``.

Timings of other chips than the fit is of, by ``--cases``, count for the bands and the pairs where a profiler timed
them, each predicted by a fit of its chip without its sweep. ``--keep`` fits no constant of the v5e anew: the bands and
the pairs are those of the stored ones. Every other fit begins at ``--starts`` points and at no stored value.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command
from benchmarks.lib.published import chip_fit, evaluate, widths
from benchmarks.lib.published.accuracy import Tables, accuracy, by_regime, by_sweep
from benchmarks.lib.published.cases import DEFAULT_FILES, read
from benchmarks.lib.published.evaluate import Fold, Prediction
from benchmarks.lib.published.fit import MOST_EVENTS, PARAMETERS, STARTS, Chips, Fit, Fits, Timed, fit, with_values
from benchmarks.lib.published.kept import program_of, published_programs
from benchmarks.lib.published.modelled import tape_of
from benchmarks.lib.table import show_all
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS, fitted
from ratchet.values.status import Refusal

AGREES = 1.1
"""Up to this ratio two published timings of one program agree."""


def compiled_rows(programs: ProgramCache, files: Sequence[Path]) -> tuple[list[Timed], int]:
    """The timings of ``files`` whose programs are compiled here, with tapes; and the number of those that are not."""
    rows, missing = [], 0
    for case in (case for file in files for case in read(file)):
        if case.status != "ok" or case.doubtful or not case.measured_ms:
            continue
        program = program_of(programs, case)
        if program is None or program.not_built:
            missing += 1
        elif not program.error:
            try:
                rows.append(Timed(case=case, tape=tape_of(case, program), identity=program.identity))
            except Refusal:
                missing += 1
    return rows, missing


def agreeing(rows: Sequence[Timed]) -> list[Timed]:
    """Without timings of a program that is published with a much shorter one, too."""
    least: dict[str, float] = {}
    for row in rows:
        least[row.identity] = min(row.measured_ms, least.get(row.identity, row.measured_ms))
    return [row for row in rows if row.measured_ms <= AGREES * least[row.identity]]


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--write", action="store_true", help="keep the result as the machine's data")
    parser.add_argument(
        "--cases", type=Path, nargs="+", metavar="FILE.csv", default=[], help="timings of other chips, for the bands"
    )
    parser.add_argument("--keep", action="store_true", help="keep the stored constants: bands and pairs alone")
    parser.add_argument("--starts", type=int, default=STARTS, metavar="N", help="points that every fit begins at")
    options = parser.parse_args()
    programs = published_programs()
    timed, missing = compiled_rows(programs, [*DEFAULT_FILES, *options.cases])
    fitted = {chip for parameter in PARAMETERS for chip in parameter.chips}
    rows = [row for row in timed if row.case.chip in fitted]
    more = agreeing([row for row in timed if row.case.chip not in fitted])
    if not rows:
        sys.exit("no published case is compiled here: run `python -m benchmarks.fidelity` first")
    say(f"{len(timed)} timings; {missing} without a compiled program are left out")
    tables: Tables = {}
    chips: Chips = {name: chip.constants for name, chip in CHIPS.items()}
    left_out, kinds = _stored_fits("left_out"), _stored_fits("without_kind")
    if not options.keep:
        result = fit(rows, chips, say, starts=options.starts)
        chips, left_out, kinds = with_values(chips, result.values), result.left_out, result.without_kind
        dispatch = [{"source": name, "ms": value} for name, value in result.dispatch_ms.items()]
        tables = {"constants": constant_rows(result), "dispatch of wall clocks, fitted beside them": dispatch}
        if options.write:
            _write_constants(result, rows)
    folds = _folds(rows, chips, left_out, lambda row: row.group)
    without_kind = [p for fold in _folds(rows, chips, kinds, lambda row: row.kind) for p in fold.held_out]
    if more:
        folds.append(evaluate.fold_of(_elsewhere(more, chips)))
    held_out = [p for fold in folds for p in fold.held_out]
    tables |= {
        "errors, constants fitted without the row's own kernel": by_regime(held_out),
        "errors, constants fitted without any kernel of the row's kind": by_regime(without_kind),
        "rank correlation within sweeps": by_sweep(folds),
    }
    show_all(tables | accuracy(folds), json_file=options.json)
    if options.write:
        _write_bands(widths.widths(held_out))
        print(f"written: {fitted.FILE.name}")


def _stored_fits(name: str) -> Fits:
    return {
        group: tuple(own[parameter.label] for parameter in PARAMETERS)
        for group, own in fitted.stored().get(name, {}).items()
    }


def _folds(rows: list[Timed], chips: Chips, fits: Fits, group_of: Callable[[Timed], str]) -> list[Fold]:
    """Rows by the constants of fits without their group; of a group that no fit left out by ``chips``."""

    def without(group: str) -> Chips:
        return with_values(chips, fits[group]) if group in fits else chips

    return evaluate.folds(rows, without, group_of)


def _elsewhere(rows: list[Timed], chips: Chips) -> list[Prediction]:
    """Rows of the other chips, each by values of its chip that were fitted without its sweep."""
    fitted = [row for row in rows if row.case.chip in chip_fit.FREE and len(row.tape.events) <= MOST_EVENTS]
    held_out = evaluate.predict([row for row in rows if row not in fitted], chips)
    for chip in sorted({row.case.chip for row in fitted}):
        own = [row for row in fitted if row.case.chip == chip]
        solved = chip_fit.fit(chip, own)
        known = zip(evaluate.predict(own, chips), solved.held_out_ms, solved.dispatch_ms, strict=True)
        held_out += [replace(p, device_ms=ms - dispatch, dispatch_ms=dispatch) for p, ms, dispatch in known]
    return held_out


def say(text: str) -> None:
    """Progress, which is not the result."""
    print(text, file=sys.stderr, flush=True)


def constant_rows(result: Fit) -> list[dict[str, Any]]:
    """Old and new value of each constant, with its spread."""
    chips = fitted.stored()["chips"]
    rows: list[dict[str, Any]] = []
    for i, parameter in enumerate(PARAMETERS):
        held = [values[i] for values in result.left_out.values()]
        rows.append(
            {
                "constant": parameter.label,
                "old": float(chips[parameter.chips[0]]["constants"][parameter.name]["value"]),
                "new": result.values[i],
                "spread": result.spread[i],
                "least held-out": min(held),
                "largest held-out": max(held),
                "prior": f"{parameter.prior:g} ± {parameter.prior_sigma:g}",
                "pinned by": result.pinned[i],
            }
        )
    return rows


def _write_constants(result: Fit, rows: list[Timed]) -> None:
    data = copy.deepcopy(dict(fitted.stored()))
    for i, parameter in enumerate(PARAMETERS):
        for chip in parameter.chips:
            data["chips"][chip]["constants"][parameter.name] = {
                "value": float(f"{result.values[i]:.5g}"),
                "spread": float(f"{result.spread[i]:.2g}"),
            }
    _assume({name: chip["constants"] for name, chip in data["chips"].items()})
    data["dispatch_ms"] = {name: round(value, 4) for name, value in result.dispatch_ms.items()}
    for name, fits in (("left_out", result.left_out), ("without_kind", result.without_kind)):
        data[name] = {
            group: {p.label: float(f"{v:.5g}") for p, v in zip(PARAMETERS, values, strict=True)}
            for group, values in fits.items()
        }
    data["fitted_on"] = sorted({f"{row.case.source}: {row.case.kernel}" for row in rows})
    fitted.FILE.write_text(json.dumps(data, indent=1) + "\n")


def _write_bands(table: Mapping[widths.Key, widths.Width]) -> None:
    data = json.loads(fitted.FILE.read_text())
    for chip in CHIPS:
        data["chips"][chip]["bands"] = {
            name: {
                "width": round(table[chip, name].width, 4),
                "count": table[chip, name].count,
                "kernels": table[chip, name].kernels,
            }
            for name in band.REGIMES
        }
    fitted.FILE.write_text(json.dumps(data, indent=1) + "\n")


def _assume(entries: dict[str, Any]) -> None:
    """Sets the constants that were fitted on no timing of a chip to those of the v5e.

    Shares are the same, times are equal in seconds. Bytes grow with the bandwidth, because a faster memory has more
    channels and so more room for what waits; a narrow piece takes one channel, so its time shrinks by as much.
    """
    solved = {(chip, parameter.name) for parameter in PARAMETERS for chip in parameter.chips}
    for name in {parameter.name for parameter in PARAMETERS}:
        value = entries["v5e"][name]["value"]
        for chip, entry in entries.items():
            if (chip, name) not in solved and entry[name]["spread"] is None:
                entry[name] = {"value": float(f"{value * _scale(name, chip):.5g}"), "spread": None}


def _scale(name: str, chip: str) -> float:
    """A chip's constant over that of the v5e."""
    wider = CHIPS[chip].hbm_bytes_per_s / CHIPS["v5e"].hbm_bytes_per_s
    faster = CHIPS[chip].clock_hz / CHIPS["v5e"].clock_hz
    if name == "write_piece_cycles":
        return faster / wider
    if name.endswith("_bytes"):
        return wider
    return faster if name.endswith("_cycles") else 1


if __name__ == "__main__":
    main()
