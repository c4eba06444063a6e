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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.calibrate.fit import STARTS, Fit, fit
from benchmarks.lib.command import command, say
from benchmarks.lib.published import chip_fit, evaluate, timed, widths
from benchmarks.lib.published.accuracy import Tables, accuracy, by_regime, by_sweep
from benchmarks.lib.published.cases import DEFAULT_FILES, add_cases, read_all
from benchmarks.lib.published.evaluate import Prediction
from benchmarks.lib.published.programs import outcomes, published_programs
from benchmarks.lib.published.timed import MOST_EVENTS, PARAMETERS, Chips, Timed
from benchmarks.lib.table import show_all
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS, V5E, fitted
from ratchet.tpu.compiler.environment import compiler_version

AGREES = 1.1
"""Up to this ratio two published timings of one program agree."""


def compiled_rows(files: Sequence[Path]) -> tuple[list[Timed], int]:
    """The timings of ``files`` whose programs are compiled here, with tapes; and the number of those that are not."""
    rows, missing = [], 0
    sure = [case for case in read_all(files) if case.measured_ms and not case.doubtful]
    for one in outcomes(published_programs(), sure):
        if one.timed:
            rows.append(one.timed)
        elif one.case.status == "ok":
            missing += not (one.program and one.program.error)
    return rows, missing


def agreeing(rows: Sequence[Timed]) -> list[Timed]:
    """Without timings of a program that is published with a much shorter one, too."""
    programs = timed.grouped(rows, lambda row: row.identity)
    least = {identity: min(row.measured_ms for row in own) for identity, own in programs.items()}
    return [row for row in rows if row.measured_ms <= AGREES * least[row.identity]]


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--write", action="store_true", help="keep the result as the machine's data")
    add_cases(parser, (), "timings of other chips, for the bands")
    parser.add_argument("--keep", action="store_true", help="keep the stored constants: bands and pairs alone")
    parser.add_argument("--starts", type=int, default=STARTS, metavar="N", help="points that every fit begins at")
    options = parser.parse_args()
    known, missing = compiled_rows([*DEFAULT_FILES, *options.cases])
    rows = [row for row in known if row.case.chip == V5E.name]
    more = agreeing([row for row in known if row.case.chip != V5E.name])
    if not rows:
        sys.exit("no published case is compiled here: run `python -m benchmarks.fidelity` first")
    say(f"{len(known)} timings; {missing} without a compiled program are left out")
    tables: Tables = {}
    chips: Chips = {name: chip.constants for name, chip in CHIPS.items()}
    left_out, kinds = timed.stored_fits("left_out"), timed.stored_fits("without_kind")
    if not options.keep:
        result = fit(rows, chips, say, starts=options.starts)
        chips, left_out, kinds = timed.with_values(chips, result.values), result.left_out, result.without_kind
        dispatch = [{"source": name, "ms": value} for name, value in result.dispatch_ms.items()]
        tables = {"constants": constant_rows(result), "dispatch of wall clocks, fitted beside them": dispatch}
        if options.write:
            _write_constants(result, rows)
    folds = evaluate.folds(rows, chips, left_out)
    without_kind = [p for fold in evaluate.folds(rows, chips, kinds, lambda row: row.kind) for p in fold.held_out]
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


def _elsewhere(rows: list[Timed], chips: Chips) -> list[Prediction]:
    """Rows of the other chips, each by values of its chip that were fitted without its sweep."""
    fitted_on = [row for row in rows if row.case.chip in chip_fit.FREE and len(row.tape.events) <= MOST_EVENTS]
    held_out = evaluate.predict([row for row in rows if row not in fitted_on], chips)
    for chip in sorted({row.case.chip for row in fitted_on}):
        own = [row for row in fitted_on if row.case.chip == chip]
        solved = chip_fit.fit(chip, own)
        known = zip(evaluate.predict(own, chips), solved.held_out_ms, solved.dispatch_ms, strict=True)
        held_out += [replace(p, device_ms=ms - dispatch, dispatch_ms=dispatch) for p, ms, dispatch in known]
    return held_out


def constant_rows(result: Fit) -> list[dict[str, Any]]:
    """Old and new value of each constant, with its spread."""
    stored = fitted.stored()["chips"][V5E.name]["constants"]
    rows: list[dict[str, Any]] = []
    for i, parameter in enumerate(PARAMETERS):
        held = [values[i] for values in result.left_out.values()]
        rows.append(
            {
                "constant": parameter.label,
                "old": float(stored[parameter.name]["value"]),
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
    data["chips"][V5E.name]["compiler"] = compiler_version()
    for i, parameter in enumerate(PARAMETERS):
        data["chips"][V5E.name]["constants"][parameter.name] = timed.entry(result.values[i], result.spread[i])
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
    """Sets the constants that were fitted on no timing of a chip to what follows from the v5e."""
    for name in (parameter.name for parameter in PARAMETERS):
        value = entries[V5E.name][name]["value"]
        for chip, known in entries.items():
            if chip != V5E.name and known[name]["spread"] is None:
                faster = CHIPS[chip].clock_hz / V5E.clock_hz
                wider = CHIPS[chip].hbm_bytes_per_s / V5E.hbm_bytes_per_s
                known[name] = timed.entry(value * chip_fit.followed(name, faster=faster, wider=wider))


if __name__ == "__main__":
    main()
