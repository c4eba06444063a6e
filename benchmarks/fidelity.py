"""Modelled latencies beside published measurements: how far the schedule machine can be believed.

    python -m benchmarks.fidelity [--cases FILE.csv …] [--compiled] [--json FILE] [--svg FILE]

Builds every kernel that a row names, compiles it ahead of time, runs the schedule machine and prints measured and
modelled milliseconds: row by row; errors by chip, source, kind of kernel and what bounds it, with the share of rows in
the bands; and the rank correlation within each sweep. Compiled programs stay in ``.ratchet/fidelity``. Rows that the
constants were fitted on are apart from the others and predicted by constants fitted without their own kernel
(``cross-validated``). tokamax's kernels need the extra ``peers``. ``--compiled`` leaves out what is not compiled yet;
``--svg`` plots modelled against measured.

Programs on several chips have a table of their own: of each chip bandwidth and hop of the links were fitted on its two
rows in ``benchmarks/data``, one each. The last column predicts them without: v5p's by the links of v6e and the reverse,
v5e's by the advertised bandwidth and the hop of v6e.

Wall-clock rows carry one constant per source, the dispatch: fitted beside the machine's constants for the sources of
``benchmarks/data``, from the source's other rows elsewhere. Rows that must overflow VMEM are checked for that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.plots import plot_scatter
from benchmarks.lib.published import evaluate
from benchmarks.lib.published.accuracy import Rows, Tables, accuracy, by_regime, by_sweep
from benchmarks.lib.published.cases import DEFAULT_FILES, Case, add_cases, kind_of, read_all
from benchmarks.lib.published.evaluate import Prediction
from benchmarks.lib.published.programs import outcomes, published_programs
from benchmarks.lib.published.timed import Chips, Timed, grouped, stored_fits
from benchmarks.lib.table import show_all
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS, fitted
from ratchet.values import Timeline
from ratchet.values.status import Status

CROSS_VALIDATED, OTHER = "calibration rows, cross-validated", "other rows"


def main() -> None:
    parser = command(__doc__)
    add_cases(parser, DEFAULT_FILES)
    parser.add_argument("--compiled", action="store_true", help="leave out what is not compiled yet")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="plot modelled against measured there")
    options = parser.parse_args()
    cases, programs = read_all(options.cases), published_programs()
    if options.compiled:
        known = [case for case in cases if programs.find(case.recipe) is not None]
        say(f"{len(cases) - len(known)} of {len(cases)} rows are left out: their programs are not compiled")
        cases = known
    report = examine(cases, programs, say)
    show_all(report, json_file=options.json)
    if options.svg:
        plot_scatter(report[CROSS_VALIDATED] + report[OTHER], options.svg)


def examine(cases: Sequence[Case], programs: ProgramCache, say: Callable[[str], None]) -> Tables:
    """Everything that is printed: tables by their titles, each a list of rows with equal keys."""
    programs.fill((case.recipe for case in cases), say)
    notes: Rows = []
    timed: list[Timed] = []
    sliced: list[tuple[Case, Timeline, Timeline | None]] = []
    overflows: list[tuple[Case, bool]] = []

    def note(case: Case, what: str, why: str) -> None:
        notes.append({"row": case.number, "kernel": case.kernel, "case": case.label, "what": what, "why": why[:300]})

    for one in outcomes(programs, cases):
        case, program = one.case, one.program
        if program is None or program.not_built:
            note(case, "not built", program.not_built if program else "nothing was compiled")
            continue
        if case.status == "vmem_oom" or program.overflows:
            overflows.append((case, program.overflows))
        if one.timed:
            timed.append(one.timed)
        elif one.timeline:
            sliced.append((case, one.timeline, one.elsewhere))
        elif one.refusal:
            overflow = one.refusal.status is Status.VMEM_OVERFLOW
            note(case, "overflows" if overflow else "refused", one.refusal.message)
        elif program.error and not program.overflows:
            note(case, "failed", program.error)
    return _tables(timed, overflows, notes) | {"programs on several chips": _sliced(sliced)}


def _tables(timed: list[Timed], overflows: list[tuple[Case, bool]], notes: Rows) -> Tables:
    chips: Chips = {name: chip.constants for name, chip in CHIPS.items()}
    dispatch, left_out = fitted.stored().get("dispatch_ms", {}), stored_fits("left_out")
    doubtful = [row for row in timed if row.case.doubtful]
    sure = [row for row in timed if not row.case.doubtful]
    fitted_on = _calibration_recipes()
    calibration = [row for row in sure if _identity(row.case) in fitted_on and row.group in left_out]
    others = [row for row in sure if row not in calibration]
    folds = evaluate.folds(calibration, chips, left_out)
    held_out = [p for fold in folds for p in fold.held_out]
    fresh = evaluate.predict(others, chips, dispatch)
    tables: Tables = {
        CROSS_VALIDATED: _rows(held_out),
        OTHER: _rows(fresh),
        "doubtful rows, in no summary": _rows(evaluate.predict(doubtful, chips, dispatch)),
        "not built, failed or refused": notes,
        "VMEM overflows": _overflow_table(overflows),
    }
    in_sample = evaluate.predict(calibration, chips, dispatch)
    tables["summary of calibration rows, constants fitted on them"] = _summaries(in_sample)
    tables["rank correlation within each sweep, constants fitted on it"] = by_sweep([evaluate.fold_of(in_sample)])
    tables["summary of calibration rows, cross-validated"] = _summaries(held_out)
    tables["summary of other rows"] = _summaries(fresh)
    kinds = {CROSS_VALIDATED: folds, OTHER: [evaluate.fold_of(fresh)]}
    for title, own in kinds.items():
        predictions = [p for fold in own for p in fold.held_out]
        tables[f"{title}: by source, kind and what bounds it"] = by_regime(predictions, band.stored().width)
        tables[f"{title}: rank correlation within each sweep"] = by_sweep(own)
    everything = [fold for own in kinds.values() for fold in own]
    if sum(len({p.row.group for p in fold.held_out}) for fold in everything) > 1:
        tables |= accuracy(everything)
    return tables


def _calibration_recipes() -> set[str]:
    return {_identity(case) for case in read_all(DEFAULT_FILES)}


def _identity(case: Case) -> str:
    """Equal for the same timing of the same program, whichever file it came in."""
    return json.dumps([case.recipe, case.source, case.measured_ms], sort_keys=True)


def _rows(predictions: Iterable[Prediction]) -> Rows:
    return [
        {
            "row": p.row.case.number,
            "source": p.source,
            "kind": kind_of(p.row.case.kernel),
            "case": p.row.case.label,
            "measured ms": p.row.measured_ms,
            "modelled ms": p.modelled_ms,
            "of it dispatch": p.dispatch_ms,
            "error": f"{p.modelled_ms / p.row.measured_ms - 1:+.2%}",
            "bound by": p.regime,
            "in band": "yes" if p.error <= math.log1p(band.stored().width[p.key]) else "no",
        }
        for p in predictions
    ]


def _sliced(rows: Iterable[tuple[Case, Timeline, Timeline | None]]) -> Rows:
    fitted_on = _calibration_recipes()

    def error(case: Case, timeline: Timeline | None) -> str:
        return f"{_of_one(case, timeline) / case.measured_ms - 1:+.2%}" if timeline and case.measured_ms else ""

    return [
        {
            "row": case.number,
            "case": f"{case.kernel} {case.label}",
            "chip": case.chip,
            "chips": len(timeline.chips),
            "measured ms": case.measured_ms,
            "modelled ms": _of_one(case, timeline),
            "error": error(case, timeline),
            "links fitted on it": "yes" if _identity(case) in fitted_on else "no",
            "error with others' links": error(case, elsewhere),
        }
        for case, timeline, elsewhere in rows
        if case.measured_ms
    ]


def _of_one(case: Case, timeline: Timeline) -> float:
    """Of a program that repeats the collective that was timed, one of them, in ms."""
    if "group" in case.config:  # what is waited for after the launch
        return (timeline.ici_wait_cycles - timeline.launch_cycles) / timeline.clock_hz * 1e3
    if "repeats" not in case.config:
        return timeline.latency_ms
    cycles = sum(op.cycles for op in timeline.ops if op.opcode.startswith("collective"))
    return cycles / timeline.clock_hz * 1e3 / int(case.config["repeats"])


def _summaries(predictions: Sequence[Prediction]) -> Rows:
    table = []
    for source, same in sorted(grouped(predictions, lambda p: p.source).items()):
        long = [p for p in same if p.says_much]
        more = {f", {evaluate.LEAST_WALL_MS:g} ms and more": long} if 0 < len(long) < len(same) else {}
        for words, own in ({"": same} | more).items():
            table.append(
                {
                    "source": source + words,
                    **evaluate.summarised(own).columns("mean", "median", "largest", "bias"),
                    "rank": f"{evaluate.rank_correlation(own):.4f}",
                    "dispatch ms": f"{sorted(p.dispatch_ms for p in own)[len(own) // 2]:.3f}",
                }
            )
    return table


def _overflow_table(overflows: Sequence[tuple[Case, bool]]) -> Rows:
    if not overflows:
        return []
    published = [(case, reproduced) for case, reproduced in overflows if case.status == "vmem_oom"]
    invented = [case for case, reproduced in overflows if reproduced and case.status != "vmem_oom"]
    wrong = [case.number for case, reproduced in published if not reproduced] + [case.number for case in invented]
    return [
        {
            "published": len(published),
            "reproduced": sum(reproduced for _, reproduced in published),
            "invented": len(invented),
            "wrong rows": " ".join(wrong),
        }
    ]


if __name__ == "__main__":
    main()
