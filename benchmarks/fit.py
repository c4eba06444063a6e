"""Whether `ratchet fit` finds the published VMEM overflows, and how many compiles it saves.

    python -m benchmarks.fit [--cases FILE.csv …] [--all] [--json FILE]

Every published sweep in which some point overflowed is searched as `ratchet fit` does it, with the real compiler.
Points that were not compiled are compared with what was published, too. ``--all`` compiles every point, and says how
often the assumption fails that every knob has one direction. A point takes a few seconds; what is known of it is kept
in ``.ratchet/fit``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.cache import ROOT, ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.published.cases import DATA, DEFAULT_FILES, Case, add_cases, read_all
from benchmarks.lib.published.kernels import NotBuilt, build
from benchmarks.lib.table import show_all
from ratchet.process.sandbox.child import Child
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.explain import explain_artefact
from ratchet.tpu.library import artefact_of, export
from ratchet.tune.fit import broken, search
from ratchet.values import Point, Vmem
from ratchet.values.points import Fit
from ratchet.values.status import Refusal, Status

OVERFLOW = "vmem_oom"
FILES = (*DEFAULT_FILES, *sorted((DATA / "chips").glob("*.csv")))

Sweep = tuple[str, Mapping[tuple[int, ...], Case]]


def main() -> None:
    parser = command(__doc__)
    add_cases(parser, FILES)
    parser.add_argument("--all", action="store_true", help="compile every point")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for label, sweep in sweeps(read_all(options.cases)):
        row, mistakes = searched(label, sweep, every=options.all)
        rows.append(row)
        wrong += mistakes
    tables = {"published sweeps with overflows of VMEM": [*rows, total(rows)]} | ({"wrong": wrong} if wrong else {})
    show_all(tables, json_file=options.json)


def sweeps(cases: Sequence[Case]) -> list[Sweep]:
    """Published sweeps of one kernel over numbers, of which some point overflowed; by label."""
    groups: dict[tuple[str, ...], dict[tuple[int, ...], Case]] = {}
    for case in cases:
        if all(value.isdigit() for value in case.config.values()) and case.config:
            key = (case.chip, case.family, case.kernel, *map(str, case.arrays), *case.config)
            groups.setdefault(key, {})[tuple(int(value) for value in case.config.values())] = case
    return [
        (f"{key[0]} {key[2].partition(' (')[0]} {key[3]}", points)
        for key, points in groups.items()
        if any(case.status == OVERFLOW for case in points.values())
    ]


def searched(
    label: str, sweep: Mapping[tuple[int, ...], Case], *, every: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A sweep searched as the command does it: its row of the table, and what it got wrong."""
    names = list(next(iter(sweep.values())).config)
    chip = next(iter(sweep.values())).chip
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-") as work,
        compiling.start(Path(work, "compiler"), CHIPS[chip]) as child,
    ):

        def compile_point(point: Point) -> Fit:
            folder = Path(tempfile.mkdtemp(dir=work))
            fit = fit_of(sweep[tuple(int(str(point[name])) for name in names)], point, folder, child)
            say(f"{label} {dict(point)}: {fit.status.name}")
            return fit

        points = [dict(zip(names, values, strict=True)) for values in sweep]
        fits = list(search(points, chip, compile_point, every=every))
    published = [sweep[tuple(int(str(fit.point[name])) for name in names)].status for fit in fits]
    pairs = list(zip(fits, published, strict=True))
    right = [fit for fit, said in pairs if fit.fits == (said != OVERFLOW)]
    row = {
        "sweep": label,
        "points": len(fits),
        "published overflows": published.count(OVERFLOW),
        "predicted": sum(fit.fits is False and said == OVERFLOW for fit, said in pairs),
        "right": len(right),
        "wrong": len(fits) - len(right),
        "compiled": sum(fit.compiled for fit in fits),
        "saved": sum(not fit.compiled for fit in fits),
        "assumption broken": len(broken(fits)),
    }
    mistakes = [
        {
            "sweep": label,
            "point": str(dict(fit.point)),
            "published": said,
            "here": fit.status.name,
            "why": fit.reason[:200],
        }
        for fit, said in pairs
        if fit not in right
    ]
    return row, mistakes


def fit_of(case: Case, point: Point, folder: Path, child: Child) -> Fit:
    """One published point: as it is known, or compiled now."""
    known = ProgramCache(ROOT / "fit", worker="", version=lambda _recipe: compiler_version())
    recipe = {**case.recipe, "asked": "fits"}
    record = known.find(recipe)
    if record is None:
        record = compiled(case, folder, child)
        known.put(recipe, record)
    sizes = {"used_bytes": record["used"], "limit_bytes": record["limit"], "chip_bytes": CHIPS[case.chip].vmem_bytes}
    vmem = Vmem(op="", is_kernel=True, allocations=(), **sizes) if record["limit"] else None
    status = Status[record["status"]]
    return Fit(point=point, chip=case.chip, status=status, reason=record["reason"], compiled=True, vmem=vmem)


def compiled(case: Case, folder: Path, child: Child) -> dict[str, Any]:
    """What the compiler says of a published point: status, reason, and VMEM of its kernel in bytes."""
    try:
        built = build(case)
        artefact = artefact_of(export(built.function, *built.avals, chip=case.chip))
        explained = explain_artefact(artefact, CHIPS[case.chip], folder, child, modelled=False)
    except (Refusal, NotBuilt) as error:
        status = error.status if isinstance(error, Refusal) else Status.CONTRACT
        return {"status": status.name, "reason": str(error), "used": 0, "limit": 0}
    kernel = next((vmem for vmem in explained.vmem if vmem.is_kernel), None)
    used, limit = (kernel.used_bytes, kernel.limit_bytes) if kernel else (0, 0)
    return {"status": explained.status.name, "reason": explained.reason, "used": used, "limit": limit}


def total(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All sweeps together."""
    return {name: "all" if name == "sweep" else sum(row[name] for row in rows) for name in (rows[0] if rows else {})}


if __name__ == "__main__":
    main()
