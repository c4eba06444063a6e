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
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.published import chip_fit, errors
from benchmarks.lib.published.cases import DATA, DEFAULT_FILES, Case, add_cases, read_all
from benchmarks.lib.published.chip_fit import FREE, Fitted
from benchmarks.lib.published.programs import outcomes, published_programs
from benchmarks.lib.published.timed import MOST_EVENTS, Timed, entry, modelled_ms, positions
from benchmarks.lib.table import show_all
from ratchet.tpu.chips import CHIPS, fitted
from ratchet.tpu.compiler.environment import compiler_version

HOME = "v5e"
CLOCK_STEP = 1e-3
"""A fitted clock may be as far from the one in ``ratchet/tpu/chips``: constants in cycles follow from both."""
FILES = (DATA / "v5p_published_attention.csv", *sorted((DATA / "chips").glob("*.csv")))


def main() -> None:
    parser = command(__doc__)
    add_cases(parser, FILES)
    parser.add_argument("--compile", action="store_true", help="compile what is not compiled yet; hours")
    parser.add_argument(
        "--alternatives", action="store_true", help="fit one constant more, and another instead; minutes"
    )
    parser.add_argument("--write", action="store_true", help="keep the values and their errors")
    options = parser.parse_args()
    cases = [case for case in read_all(options.cases) if case.chip in FREE]
    programs = published_programs()
    if options.compile:
        programs.fill((case.recipe for case in cases), say)
    rows, counts, refused = compiled_rows(cases, programs)
    own = {name: mine for name in FREE if (mine := fitted_rows(rows, name))}
    fits = {name: chip_fit.fit(name, mine) for name, mine in own.items()}
    tables = {
        "values": value_rows(fits),
        "published rows": counts,
        "refused or failed": refused,
        "rows": [row for name, fit in fits.items() for row in error_rows(own[name], fit)],
        "summary, each sweep held out": summaries(own, fits),
    }
    if options.alternatives:
        tables["fits with other constants"] = [
            row for name, fit in fits.items() for row in alternatives(name, own[name], fit)
        ]
    show_all(tables, json_file=options.json)
    if options.write:
        home, _, _ = compiled_rows(read_all(DEFAULT_FILES), programs)
        write(own, fits, fitted_rows(home, HOME))
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
    words = ("rows", "compiled", "published overflows", "reproduced", "invented")
    for one in outcomes(programs, cases):
        case, program = one.case, one.program
        file = case.number.partition(":")[0]
        count = counts.setdefault(file, {"file": file, **dict.fromkeys(words, 0)})
        count["rows"] += 1
        count["published overflows"] += case.status == "vmem_oom"
        if program is None or program.not_built:
            continue
        count["compiled"] += 1
        count["reproduced" if case.status == "vmem_oom" else "invented"] += program.overflows
        why = one.refusal.message if one.refusal else "" if program.overflows else program.error
        if one.timed:
            rows.append(one.timed)
        elif why:
            refused.append({"row": case.number, "why": why[:200]})
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


def summaries(rows: Mapping[str, Sequence[Timed]], fits: Mapping[str, Fitted]) -> list[dict[str, Any]]:
    """Errors per chip and kind of kernel, rows held out."""
    table = []
    for name, fit in fits.items():
        for what, which in sorted(positions([kind(row.case) for row in rows[name]]).items()):
            measured = [rows[name][i].measured_ms for i in which]
            modelled = [fit.held_out_ms[i] for i in which]
            in_sample = errors.summarise(measured, [fit.ms[i] for i in which])
            table.append(
                {
                    "chip": name,
                    "kind": what,
                    **errors.summarise(measured, modelled).columns("mean", "largest", "bias"),
                    "rank": f"{errors.rank_correlation(measured, modelled):.4f}",
                    "mean, in sample": f"{in_sample.mean:.2%}",
                    "largest, in sample": f"{in_sample.largest:.2%}",
                }
            )
    return table


def alternatives(name: str, rows: Sequence[Timed], stored: Fitted) -> list[dict[str, Any]]:
    """What is fitted, and the same with one constant more or, where that is fitted, without it."""
    free = FREE[name]
    ways = [("as it is", stored)]
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


def write(rows: Mapping[str, Sequence[Timed]], fits: Mapping[str, Fitted], home: Sequence[Timed]) -> None:
    """Puts values and errors where the machine and ``across`` read them.

    ``home`` are rows of the v5e, whose constants ``benchmarks.calibrate`` fits: they are compared in sample.
    """
    data = copy.deepcopy(dict(fitted.stored()))
    chips = data["chips"]
    for name, fit in fits.items():
        own = rows[name]
        spreads = dict(zip((one.name for one in FREE[name]), fit.spread, strict=True))
        clock, solved = chip_fit.constants_with(name, fit.values)
        chips[name]["compiler"] = compiler_version()
        names = {"hbm_efficiency": spreads["hbm_efficiency"]}
        if "read latency beyond that of v5e" in spreads:
            names["read_latency_cycles"] = spreads["read latency beyond that of v5e"] * 1e-6 * clock
        if (turnaround := f"turnaround_cycles{chip_fit.TIMES_V5E}") in spreads:
            share = spreads[turnaround]
            names["turnaround_cycles"] = share * CHIPS[HOME].constants.turnaround_cycles * clock / CHIPS[HOME].clock_hz
        for field, known in chips[name]["constants"].items():
            if isinstance(known, dict) and not field.startswith("local"):
                chips[name]["constants"][field] = entry(getattr(solved, field), names.get(field))
        count = len(own)
        chips[name]["constants"]["source"] = (
            f"{' and '.join(names)} fitted on {count} published timings ({timers(own)}); the rest is that of v5e: "
            "times equal in seconds, bytes in proportion to the bandwidth; local DMAs assumed"
        )
        chips[name]["constants"]["checked"] = f"see errors: {count} timings, each sweep held out in turn"
        kinds = positions([kind(row.case) for row in own])
        chips[name]["errors"] = {
            what: _errors([own[i] for i in which], [fit.held_out_ms[i] for i in which], held_out=True)
            for what, which in {"all": range(count), **dict(sorted(kinds.items()))}.items()
        }
    if own := [row for row in home if row.case.timer == "device"]:
        in_sample = modelled_ms(own, {HOME: CHIPS[HOME].constants}).tolist()
        chips[HOME]["errors"] = {"all": _errors(own, in_sample, held_out=False)}
    fitted.FILE.write_text(json.dumps(data, indent=1) + "\n")


def _errors(rows: Sequence[Timed], ms: Sequence[float], *, held_out: bool) -> dict[str, Any]:
    summary = errors.summarise([row.measured_ms for row in rows], ms)
    numbers = {name: round(getattr(summary, name), 4) for name in ("mean", "largest", "bias")}
    return {"rows": summary.count, **numbers, "held_out": held_out}


if __name__ == "__main__":
    main()
