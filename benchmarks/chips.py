"""Fits the chips other than v5e to published timings of them, and says how far each one's model is from them.

    python -m benchmarks.chips [--cases FILE.csv …] [--compile] [--alternatives] [--write] [--json FILE]

Uses the programs that are compiled already, in ``.ratchet/fidelity``; ``--compile`` compiles the others, which takes
hours, and goes on where it was cut off. Each row is also predicted by values that were fitted without its sweep, one
kernel at one shape. A row by a wall clock carries one constant, the dispatch, from the other rows of its source.
``--alternatives`` says how much better each chip would fit with another constant of
its own. ``--write`` puts the values and the errors of the rows held out, which ``./ratchet.sh across`` prints, into
``ratchet/tpu/chips/fitted.json``. A clock and the SparseCores are only printed: they are in
``ratchet/tpu/chips``. tokamax's kernels need the extra ``peers``.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command
from benchmarks.lib.published import chip_fit, errors, evaluate
from benchmarks.lib.published.cases import DATA, DEFAULT_FILES, BadCases, Case, read
from benchmarks.lib.published.chip_fit import FREE, Fitted
from benchmarks.lib.published.fit import MOST_EVENTS, Timed, modelled_ms
from benchmarks.lib.published.kept import program_of, published_programs
from benchmarks.lib.published.modelled import tape_of
from benchmarks.lib.table import show_all
from ratchet.tpu.chips import CHIPS, fitted
from ratchet.values.status import Refusal

HOME = "v5e"
CLOCK_STEP = 1e-3
"""A fitted clock may be as far from the one in ``ratchet/tpu/chips``: constants in cycles follow from both."""
FILES = (DATA / "v5p_published_attention.csv", *sorted((DATA / "chips").glob("*.csv")))


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--cases", type=Path, nargs="+", metavar="FILE.csv", default=list(FILES), help="CSV files")
    parser.add_argument("--compile", action="store_true", help="compile what is not compiled yet; hours")
    parser.add_argument(
        "--alternatives", action="store_true", help="fit one constant more, and another instead; minutes"
    )
    parser.add_argument("--write", action="store_true", help="keep the values and their errors")
    options = parser.parse_args()
    try:
        cases = [case for file in options.cases for case in read(file) if case.chip in FREE]
    except (BadCases, OSError) as error:
        sys.exit(str(error))
    programs = published_programs()
    if options.compile:
        programs.fill((case.recipe for case in cases), lambda text: print(text, file=sys.stderr, flush=True))
    rows, counts, refused = compiled_rows(cases, programs)
    fits = {name: chip_fit.fit(name, fitted_rows(rows, name)) for name in FREE if fitted_rows(rows, name)}
    tables = {
        "values": value_rows(fits),
        "published rows": counts,
        "refused or failed": refused,
        "rows": [row for name, fit in fits.items() for row in error_rows(fitted_rows(rows, name), fit)],
        "summary, each sweep held out": summaries(rows, fits),
    }
    if options.alternatives:
        tables["fits with other constants"] = [
            row for name, fit in fits.items() for row in alternatives(name, fitted_rows(rows, name), fit)
        ]
    show_all(tables, json_file=options.json)
    if options.write:
        home, _, _ = compiled_rows([case for file in DEFAULT_FILES for case in read(file)], programs)
        write(rows, fits, [row for row in home if row.case.chip == HOME])
        print(f"written: {fitted.FILE.name}")
        for name, fit in fits.items():
            clock = chip_fit.constants_with(name, fit.values)[0]
            if abs(clock / CHIPS[name].clock_hz - 1) > CLOCK_STEP:
                print(f"set clock_hz of {name} in ratchet/tpu/chips to {clock:.4g}, and run this again")


def compiled_rows(
    cases: Sequence[Case], programs: ProgramCache
) -> tuple[list[Timed], list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows with tapes; how many rows of each file are compiled and overflow; and what could not be modelled."""
    rows: list[Timed] = []
    refused: list[dict[str, Any]] = []
    counts: dict[str, dict[str, Any]] = {}
    for case in cases:
        file = case.number.partition(":")[0]
        words = ("rows", "compiled", "published overflows", "reproduced", "invented")
        count = counts.setdefault(file, {"file": file, **dict.fromkeys(words, 0)})
        program = program_of(programs, case)
        count["rows"] += 1
        count["published overflows"] += case.status == "vmem_oom"
        if program is None or program.not_built:
            continue
        count["compiled"] += 1
        count["reproduced" if case.status == "vmem_oom" else "invented"] += program.overflows
        if program.error or case.status != "ok" or not case.measured_ms:
            if program.error and not program.overflows:
                refused.append({"row": case.number, "why": program.error[:200]})
            continue
        try:
            rows.append(Timed(case=case, tape=tape_of(case, program), identity=program.identity))
        except Refusal as refusal:
            refused.append({"row": case.number, "why": refusal.message[:200]})
    return rows, list(counts.values()), refused


def fitted_rows(rows: Sequence[Timed], chip: str) -> list[Timed]:
    """Rows of a chip that are fitted on."""
    own = [row for row in rows if row.case.chip == chip and not row.case.doubtful]
    return [row for row in own if len(row.tape.events) <= MOST_EVENTS]


def timers(rows: Sequence[Timed]) -> str:
    """By which clocks rows were timed: ``40 by profiler, 100 by wall clock``."""
    wall = sum(row.case.timer == "wall" for row in rows)
    return f"{len(rows) - wall} by profiler" + (f", {wall} by wall clock" if wall else "")


def kind(case: Case) -> str:
    """``attention``, ``grouped matmul`` or ``matmul``."""
    if "attention" in case.kernel:
        return "attention"
    return "grouped matmul" if case.group_sizes else "matmul"


def value_rows(fits: Mapping[str, Fitted]) -> list[dict[str, Any]]:
    """Every fitted value with its spread over the sweeps left out."""
    return [
        {
            "chip": name,
            "value of": one.name,
            "unit": one.unit,
            "fitted": value,
            "spread": spread,
            "prior": f"{one.prior:g} ± {one.sigma:g}",
        }
        for name, fit in fits.items()
        for one, value, spread in zip(FREE[name], fit.values, fit.spread, strict=True)
    ]


def error_rows(rows: Sequence[Timed], fit: Fitted) -> list[dict[str, Any]]:
    """Row by row: measured, modelled and held out."""
    return [
        {
            "row": row.case.number,
            "case": row.case.label[:90] + (" residuals" if row.case.options.get("residuals") else ""),
            "measured ms": row.measured_ms,
            "modelled ms": ms,
            "error": f"{ms / row.measured_ms - 1:+.2%}",
            "held out": f"{apart / row.measured_ms - 1:+.2%}",
            "of it dispatch": dispatch,
        }
        for row, ms, apart, dispatch in zip(rows, fit.ms, fit.held_out_ms, fit.dispatch_ms, strict=True)
    ]


def summaries(rows: Sequence[Timed], fits: Mapping[str, Fitted]) -> list[dict[str, Any]]:
    """Errors per chip and kind of kernel, rows held out, beside a model of FLOPs and bytes alone."""
    table = []
    for name, fit in fits.items():
        own = fitted_rows(rows, name)
        _, null = evaluate.simple_models(own)
        for what in sorted({kind(row.case) for row in own}):
            which = [i for i, row in enumerate(own) if kind(row.case) == what]
            measured = [own[i].measured_ms for i in which]
            modelled = [fit.held_out_ms[i] for i in which]
            summary = errors.summarise(measured, modelled)
            in_sample = errors.summarise(measured, [fit.ms[i] for i in which])
            simple = [(own[i].measured_ms, null[i]) for i in which if null[i] is not None]
            table.append(
                {
                    "chip": name,
                    "kind": what,
                    "rows": summary.count,
                    "mean": f"{summary.mean:.2%}",
                    "largest": f"{summary.largest:.2%}",
                    "bias": f"{summary.bias:+.2%}",
                    "rank": f"{errors.rank_correlation(measured, modelled):.4f}",
                    "mean, in sample": f"{in_sample.mean:.2%}",
                    "largest, in sample": f"{in_sample.largest:.2%}",
                    "null model": f"{errors.summarise(*zip(*simple, strict=True)).mean:.1%}" if simple else "",  # type: ignore[arg-type]
                }
            )
    return table


def alternatives(name: str, rows: Sequence[Timed], fitted: Fitted) -> list[dict[str, Any]]:
    """What is fitted, and the same with one constant more or, where that is fitted, without it."""
    free = FREE[name]
    ways = [("as it is", fitted)]
    for field in chip_fit.ALTERNATIVES:
        one = chip_fit.scale(field)
        own = [other for other in free if other.name != one.name]
        what = f"without {field}" if len(own) < len(free) else f"{field} too"
        ways.append((what, chip_fit.fit(name, rows, own if len(own) < len(free) else [*free, one])))
    table = []
    for what, fit in ways:
        summary = errors.summarise([row.measured_ms for row in rows], fit.held_out_ms)
        table.append(
            {
                "chip": name,
                "fitted": what,
                "cost": f"{fit.cost(rows):.1f}",
                "of the last": f"{fit.values[-1]:.3g} ± {fit.spread[-1]:.2g}",
                "mean, held out": f"{summary.mean:.2%}",
                "largest": f"{summary.largest:.2%}",
            }
        )
    return table


def write(rows: Sequence[Timed], fits: Mapping[str, Fitted], home: Sequence[Timed]) -> None:
    """Puts values and errors where the machine and ``across`` read them.

    ``home`` are rows of the v5e, whose constants ``benchmarks.calibrate`` fits: they are compared in sample.
    """
    data = copy.deepcopy(dict(fitted.stored()))
    chips = data["chips"]
    for name, fit in fits.items():
        own = fitted_rows(rows, name)
        spreads = dict(zip((one.name for one in FREE[name]), fit.spread, strict=True))
        clock, solved = chip_fit.constants_with(name, fit.values)
        names = {"hbm_efficiency": spreads["hbm_efficiency"]}
        if "read latency beyond that of v5e" in spreads:
            names["read_latency_cycles"] = spreads["read latency beyond that of v5e"] * 1e-6 * clock
        if (turnaround := f"turnaround_cycles{chip_fit.TIMES_V5E}") in spreads:
            share = spreads[turnaround]
            names["turnaround_cycles"] = share * CHIPS[HOME].constants.turnaround_cycles * clock / CHIPS[HOME].clock_hz
        for field, entry in chips[name]["constants"].items():
            if isinstance(entry, dict) and not field.startswith("local"):
                spread = names.get(field)
                chips[name]["constants"][field] = {
                    "value": float(f"{getattr(solved, field):.5g}"),
                    "spread": spread and float(f"{spread:.2g}"),
                }
        count = len(own)
        chips[name]["constants"]["source"] = (
            f"{' and '.join(names)} fitted on {count} published timings ({timers(own)}); the rest is that of v5e: "
            "times equal in seconds, bytes in proportion to the bandwidth; local DMAs assumed"
        )
        chips[name]["constants"]["checked"] = f"see errors: {count} timings, each sweep held out in turn"
        chips[name]["errors"] = {
            what: _errors([i for i, row in enumerate(own) if what in ("all", kind(row.case))], own, fit)
            for what in ("all", *sorted({kind(row.case) for row in own}))
        }
    if own := [row for row in fitted_rows(home, HOME) if row.case.timer == "device"]:
        known = modelled_ms(own, {HOME: CHIPS[HOME].constants}).tolist()
        summary = errors.summarise([row.measured_ms for row in own], known)
        chips[HOME]["errors"] = {"all": _rounded(summary, held_out=False)}
    fitted.FILE.write_text(json.dumps(data, indent=1) + "\n")


def _errors(which: Sequence[int], rows: Sequence[Timed], fit: Fitted) -> dict[str, Any]:
    summary = errors.summarise([rows[i].measured_ms for i in which], [fit.held_out_ms[i] for i in which])
    return _rounded(summary, held_out=True)


def _rounded(summary: errors.Summary, *, held_out: bool) -> dict[str, Any]:
    numbers = {name: round(getattr(summary, name), 4) for name in ("mean", "largest", "bias")}
    return {"rows": summary.count, **numbers, "held_out": held_out}


if __name__ == "__main__":
    main()
