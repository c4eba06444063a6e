"""Fits the schedule machine's constants anew to published timings, from programs compiled before.

    python -m benchmarks.calibrate [--write] [--json FILE]

Reads what ``python -m benchmarks.fidelity`` compiled and recompiles nothing. Prints the old and the new value of each
constant with its spread (a jackknife over the kernels and sources), the bands with their coverage, and how often pairs
of one kernel are ranked right, by the kinds of pairs that the decision rule distinguishes. ``--write`` puts them into
``ratchet/chips/constants.json`` and ``bands.json``.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command
from benchmarks.lib.published import evaluate
from benchmarks.lib.published.accuracy import accuracy
from benchmarks.lib.published.cases import DEFAULT_FILES, Case, read
from benchmarks.lib.published.fit import PARAMETERS, Fit, Timed, fit, with_values
from benchmarks.lib.published.kept import program_of, published_programs
from benchmarks.lib.published.modelled import tape_of
from benchmarks.lib.table import show_all
from ratchet.account import band
from ratchet.chips import CHIPS, constants


def calibration_rows(programs: ProgramCache) -> tuple[list[Timed], list[Case]]:
    """The cases that constants are fitted on, with their tapes; and those that were never compiled here."""
    rows, missing = [], []
    for case in (case for file in DEFAULT_FILES for case in read(file)):
        if case.status != "ok" or case.doubtful:
            continue
        program = program_of(programs, case)
        if program is None or program.not_built:
            missing.append(case)
        elif not program.error:
            rows.append(Timed(case=case, tape=tape_of(case, program), identity=program.identity))
    return rows, missing


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--write", action="store_true", help="keep the result as the machine's data")
    options = parser.parse_args()
    rows, missing = calibration_rows(published_programs())
    if missing or not rows:
        sys.exit(f"{len(missing)} published cases are not compiled here: run `python -m benchmarks.fidelity` first")
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731 progress, not the result
    chips = {name: chip.constants for name, chip in CHIPS.items()}
    result = fit(rows, chips, say)
    held_out = evaluate.cross_validated(rows, lambda group: with_values(chips, result.left_out[group]))
    factors = evaluate.inflation(held_out)
    table = evaluate.band_table(held_out, factors)
    dispatch = [{"source": name, "ms": value} for name, value in result.dispatch_ms.items()]
    tables = {"constants": constant_rows(result), "dispatch constants of wall clocks, fitted beside them": dispatch}
    show_all(tables | accuracy(held_out, factors, table), json_file=options.json)
    if options.write:
        _write(result, rows, table, factors)
        print(f"written: {constants.FILE.name}, {band.FILE.name}")


def constant_rows(result: Fit) -> list[dict[str, Any]]:
    """Old and new value of each constant, with its spread."""
    chips = constants.stored()["chips"]
    rows: list[dict[str, Any]] = []
    for i, parameter in enumerate(PARAMETERS):
        held = [values[i] for values in result.left_out.values()]
        rows.append(
            {
                "constant": parameter.label,
                "old": float(chips[parameter.chips[0]][parameter.name]["value"]),
                "new": result.values[i],
                "spread": result.spread[i],
                "least held-out": min(held),
                "largest held-out": max(held),
                "prior": f"{parameter.prior:g} ± {parameter.prior_sigma:g}",
            }
        )
    return rows


def _write(result: Fit, rows: list[Timed], table: dict[str, tuple[float, int]], factors: dict[str, float]) -> None:
    data = copy.deepcopy(dict(constants.stored()))
    for i, parameter in enumerate(PARAMETERS):
        for chip in parameter.chips:
            data["chips"][chip][parameter.name] = {
                "value": float(f"{result.values[i]:.5g}"),
                "spread": float(f"{result.spread[i]:.2g}"),
            }
    _assume(data["chips"])
    data["dispatch_ms"] = {name: round(value, 4) for name, value in result.dispatch_ms.items()}
    data["left_out"] = {
        group: {p.label: float(f"{v:.5g}") for p, v in zip(PARAMETERS, values, strict=True)}
        for group, values in result.left_out.items()
    }
    data["fitted_on"] = sorted({f"{row.case.source}: {row.case.kernel}" for row in rows})
    constants.FILE.write_text(json.dumps(data, indent=1) + "\n")
    bands = {
        "about": "Relative half-widths of 90 % bands by what bounds a program: the conformal quantile of held-out "
        "errors on published timings, times the factor with which kernels held out are covered.",
        "regimes": {
            name: {"width": round(width, 4), "count": count, "factor": factors[name]}
            for name, (width, count) in table.items()
        },
    }
    band.FILE.write_text(json.dumps(bands, indent=1) + "\n")


def _assume(entries: dict[str, Any]) -> None:
    """Sets the constants that were fitted on no timing of a chip to those of the v5e.

    Shares are the same, times are equal in seconds. Bytes grow with the bandwidth, because a faster memory has more
    channels and so more room for what waits; a narrow piece takes one channel, so its time shrinks by as much.
    """
    fitted = {(chip, parameter.name) for parameter in PARAMETERS for chip in parameter.chips}
    for name in {parameter.name for parameter in PARAMETERS}:
        value = entries["v5e"][name]["value"]
        for chip, entry in entries.items():
            if (chip, name) not in fitted and entry[name]["spread"] is None:
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
