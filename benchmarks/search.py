"""How many trials a search needs on a recorded space of four knobs, beside Optuna alone and kernel_tuner.

    python -m benchmarks.search [--json FILE] [--record]

The space is that of ``benchmarks/lib/recorded.py``, naive attention with two block sizes, the pieces of a key block and
a switch. Every point was modelled once (``--record`` does it again, which takes the better part of an hour).
A search may ask for a point once. What counts is how many it asked for until one was within 1 % of the grid's best.

  ours         ``ratchet/search``: from the naive kernel, and from four corners of the space. It is deterministic
  Optuna       ``TPESampler`` with its own settings, a point that was asked for before counted once; 20 seeds
  kernel_tuner its strategies in simulation mode, 20 runs each; left out where it is not installed
  random       without repeats; 20 seeds
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.recorded import LOCKED, NAME, SPACE, Recorded, kernel
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show_all
from ratchet.search.propose import Known, propose
from ratchet.search.run import BATCH
from ratchet.search.space import Observation, space_of
from ratchet.values import Point

BUDGET = 60
SEEDS = 20
STRATEGIES = ("random_sample", "genetic_algorithm", "bayes_opt", "greedy_ils", "simulated_annealing")
"""Of kernel_tuner."""


def ours(recorded: Recorded, how: str, start: Point, budget: int = BUDGET) -> list[Observation]:
    """What ``./ratchet.sh search`` tries, in order."""
    observations: list[Observation] = []
    while len(observations) < budget:
        known = Known(space=recorded.space, start=start, observations=tuple(observations))
        points = propose(how, known, min(BATCH, budget - len(observations)))
        if not points:
            break
        observations += map(recorded.of, points)
    return observations


def optuna_alone(recorded: Recorded, seed: int) -> list[Observation]:
    """Optuna as its documentation has it: categorical knobs, one trial at a time, repeats left out."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    observations: dict[object, Observation] = {}
    for _ in range(20 * BUDGET):
        trial = study.ask()
        point = {
            axis.name: axis.values[trial.suggest_categorical(axis.name, range(len(axis.values)))]
            for axis in recorded.space.axes
        }
        if not recorded.space.allows(point):
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        result = recorded.of(point)
        observations.setdefault(recorded.space.key(point), result)
        if result.latency_ms is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, result.latency_ms)
        if len(observations) == BUDGET:
            break
    return list(observations.values())


def at_random(recorded: Recorded, seed: int) -> list[Observation]:
    """Points in random order."""
    observations = list(recorded.results.values())
    random.Random(seed).shuffle(observations)
    return observations[:BUDGET]


def by_kernel_tuner(recorded: Recorded, strategy: str, seed: int) -> list[Observation]:
    """kernel_tuner in its simulation mode, on the same points."""
    import kernel_tuner
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    names = [axis.name for axis in recorded.space.axes]
    params = {axis.name: [int(value) for value in axis.values] for axis in recorded.space.axes}
    cache = {}
    for one in recorded.results.values():
        values = {name: int(one.point[name]) for name in names}  # type: ignore[arg-type]
        time: Any = one.latency_ms if one.latency_ms is not None else "RuntimeFailedConfig"
        cache[",".join(map(str, values.values()))] = {
            **values, "time": time, "compile_time": 0, "verification_time": 0, "benchmark_time": 0,
            "strategy_time": 0, "framework_time": 0, "timestamp": "2026-01-01 00:00:00+00:00",
            **({} if one.latency_ms is not None else {"__error__": "RuntimeFailedConfig"}),
        }  # fmt: skip
    document = {
        "device_name": "v5e", "kernel_name": "four_knobs", "problem_size": [1], "tune_params_keys": names,
        "tune_params": params, "objective": "time", "cache": cache,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cache.json")
        path.write_text(json.dumps(document))
        results, _ = kernel_tuner.tune_kernel(
            "four_knobs",
            "void four_knobs() {}",
            (1,),
            [],
            params,
            restrictions=lambda p: p["BKV"] // p["PIECES"] >= 128,
            strategy=strategy,
            strategy_options={"max_fevals": BUDGET},
            simulation_mode=True,
            cache=str(path),
            lang="C",
            quiet=True,
        )
    observations: dict[object, Observation] = {}
    for one in results:
        point = {**{name: one[name] for name in names}, "UNMASKED": bool(one["UNMASKED"])}
        observations.setdefault(recorded.space.key(point), recorded.of(point))
    return list(observations.values())


def summary(recorded: Recorded, name: str, runs: Sequence[Sequence[Observation]]) -> Mapping[str, Any]:
    """One row of the table."""
    counts = sorted(recorded.within(observations) for observations in runs)
    bests = [min((one.latency_ms or math.inf) for one in observations) / recorded.best - 1 for observations in runs]
    median = statistics.median_high(counts)
    return {
        "search": name,
        "runs": len(runs),
        "trials to 1 %, median": None if math.isinf(median) else median,
        "worst": None if math.isinf(counts[-1]) else counts[-1],
        "there within a third of the grid": sum(one <= len(recorded.results) / 3 for one in counts),
        "trials used": round(statistics.mean(map(len, runs))),
        "best found is above the grid's, median %": round(100 * statistics.median(bests), 2),
    }


def table(recorded: Recorded, *, seeds: int = SEEDS) -> list[Mapping[str, Any]]:
    """All searches that can be run here."""
    corners = [
        {"BQ": bq, "BKV": bkv, "PIECES": 1, "UNMASKED": unmasked}
        for bq, bkv, unmasked in ((64, 128, True), (2048, 128, False), (64, 2048, False), (2048, 2048, True))
    ]
    starts = {"the naive kernel": [recorded.naive], "four corners": corners}
    runs = {
        f"ours, {how}, from {where}": [ours(recorded, how, one) for one in own]
        for where, own in starts.items()
        for how in ("tpe", "neighbours")
    }
    runs["Optuna alone"] = [optuna_alone(recorded, seed) for seed in range(seeds)]
    runs["random"] = [at_random(recorded, seed) for seed in range(seeds)]
    runs["ours, grid, all of it"] = [ours(recorded, "grid", recorded.naive, 10**6)]
    if importlib.util.find_spec("kernel_tuner"):
        for strategy in STRATEGIES:
            name = f"kernel_tuner, {strategy}"
            runs[name] = [by_kernel_tuner(recorded, strategy, seed) for seed in range(seeds)]
    return [summary(recorded, name, own) for name, own in runs.items()]


def record() -> None:
    """Model every point, two at a time, and write the space."""
    from prepare import judge
    from ratchet.search.sweep import Sweep
    from ratchet.tpu.chips import V5E
    from ratchet.wiring import RepositoryJudge

    space = space_of(kernel().encode(), NAME, [], [])
    conditions = RepositoryJudge.modelling(ROOT, judge, V5E).conditions(LOCKED)
    points = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, NAME)
        file.write_text(kernel())
        sweep = Sweep(kernel=file, root=ROOT, kernel_rel=LOCKED, conditions=conditions, chip=V5E, judge=judge)
        for result in sweep.run(list(space.points())):
            verdict = result.verdict
            points.append(
                {
                    "point": dict(result.point),
                    "status": verdict.status.name,
                    "latency_ms": verdict.score.latency_ms if verdict.score else None,
                    "vmem_bytes": verdict.footprint.vmem_bytes if verdict.footprint else None,
                }
            )
            say(f"{len(points)}: {points[-1]}")
    points.sort(key=lambda one: tuple(one["point"].values()))
    made = {"kernel": NAME, "evaluator": conditions.evaluator, "compiler": conditions.compiler}
    lines = ",\n".join(map(json.dumps, points))
    SPACE.write_text(f'{json.dumps(made)[:-1]}, "points": [\n{lines}\n]}}\n')


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--record", action="store_true", help="model every point again first")
    options = parser.parse_args()
    if options.record:
        record()
    recorded = Recorded()
    title = (
        f"{len(recorded.results)} points, the best {recorded.best:.4f} ms, a third of them {len(recorded.results) // 3}"
    )
    show_all({title: table(recorded)}, json_file=options.json)


if __name__ == "__main__":
    main()
