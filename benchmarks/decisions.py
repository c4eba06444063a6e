"""Thousands of simulated histories from really recorded CPU timings: who keeps what, and how often it is noise.

    python -m benchmarks.decisions [--histories N] [--recording FILE] [--record N] [--json FILE]

The recording (``benchmarks/data/cpu_launches.npz``) holds launches of two copies of one program. A simulated experiment
takes launches from it, as they were recorded, makes the candidate's times shorter by its true gain, and lets a rule
decide:

  ours        ``ratchet/exam/measure/stats.py``: launch after launch until it is decided or the time budget is over, by
              the seconds that the recorded launches took; the level falls with every comparison of the history
  published   one launch, the median of 30 calls, kept if it is below the median in the last row of the ledger

Launches are drawn in two ways: at random with their roles by lot, and as recorded, one after the other from a random
place, which keeps whatever drifts. A history is 100 experiments. Gains are judged at the 30th comparison.

``--record N`` makes the recording anew, by N launches of ``examples/cpu_attention/kernel.py`` on this CPU and the
product's own timing code: each launch is a process of its own, which draws by lot which copy is compiled and timed
first, and times both round by round. The file holds the wall nanoseconds of every call, how long each launch took, and
what machine it was.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.command import command, say
from benchmarks.lib.launches import timed
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show_all
from ratchet.exam.measure import devices, stats
from ratchet.exam.measure.session import BUDGET_SECONDS, FEWEST, LAUNCH_SECONDS
from ratchet.values.samples import Launch

RECORDING = ROOT / "benchmarks" / "data" / "cpu_launches.npz"
EXPERIMENTS = 100
COMPARISON = 30
CALLS = 30
KERNEL = ROOT / "examples" / "cpu_attention" / "kernel.py"
ROUNDS = 200
"""At most so many rounds of a launch are recorded; where there were fewer, the rest is 0."""
CHOICES = {
    "fastest tenth (ours)": lambda times: stats.fastest(times.tolist()),
    "median": np.median,
    "fastest quarter": lambda times: np.sort(times)[: max(3, len(times) // 4)].mean(),
    "minimum": np.min,
    "mean": np.mean,
}


class Recording:
    """Launches of two copies of one program: nanoseconds, two by as many rounds as there were."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            raw = stored["wall_ns"].astype(float)
            self.seconds = stored["seconds"].astype(float)
            self.made = json.loads(str(stored["made"]))
        self.launches = [launch[:, launch[0] > 0] for launch in raw]
        self.differences = np.array([stats.difference(one[0].tolist(), one[1].tolist()) for one in self.launches])

    def drawn(self, generator: np.random.Generator, way: str) -> Iterator[int]:
        """Numbers of launches, without end."""
        count = len(self.launches)
        if way == "at random":
            while True:
                yield from generator.integers(count, size=64)
        place = int(generator.integers(count))
        while True:
            yield place % count
            place += 1


def ours(
    recording: Recording, generator: np.random.Generator, gain: float, test: int, budget: float, way: str
) -> tuple[str, int, float]:
    """One comparison by our rule: the answer, the launches and the seconds."""
    seen: list[float] = []
    spent, level = 0.0, stats.level(test)
    for number in recording.drawn(generator, way):
        sign = generator.choice((-1, 1)) if way == "at random" else 1
        seen.append(math.log1p(gain) + sign * recording.differences[number])
        spent += recording.seconds[number]
        if len(seen) < FEWEST:
            continue
        said = stats.answer(seen, level)
        if said != stats.CANNOT_TELL or spent + spent / len(seen) > budget:
            return said, len(seen), spent
    raise AssertionError("drawing launches has no end")


def published(recording: Recording, generator: np.random.Generator, way: str) -> float:
    """The number that the published rule compares: a median of 30 calls of one launch, ns."""
    number = next(recording.drawn(generator, way))
    return float(np.median(recording.launches[number][generator.integers(2), :CALLS]))


def equal_kernels(recording: Recording, histories: int, budget: float) -> list[dict[str, Any]]:
    """Histories of candidates that are equal to the incumbent."""
    rows = []
    for way in ("at random", "as recorded"):
        generator = np.random.default_rng(1)
        kept: dict[str, list[int]] = {"ours": [], "published": []}
        for _ in range(histories):
            tests = (ours(recording, generator, 0.0, test, budget, way)[0] for test in range(1, EXPERIMENTS + 1))
            kept["ours"].append(sum(said == stats.FASTER for said in tests))
        for _ in range(histories):
            numbers = [published(recording, generator, way) for _ in range(EXPERIMENTS + 1)]
            kept["published"].append(sum(b < a for a, b in itertools.pairwise(numbers)))
        for rule, counts in kept.items():
            rows.append(
                {
                    "rule": rule,
                    "launches drawn": way,
                    "histories": histories,
                    "experiments": histories * EXPERIMENTS,
                    "false keeps": sum(counts),
                    "per experiment %": 100 * np.mean(counts) / EXPERIMENTS,
                    "histories with any %": 100 * float(np.mean(np.array(counts) > 0)),
                    "promised at most %": 100 * stats.BUDGET if rule == "ours" else None,
                }
            )
    return rows


def gains(recording: Recording, runs: int, budget: float) -> list[dict[str, Any]]:
    """True gains and losses, one comparison each, late in a history."""
    rows = []
    for gain in (0.10, 0.03, 0.02, 0.01, 0.005, 0.0, -0.01, -0.03, -0.10):
        generator = np.random.default_rng(2)
        ended = [ours(recording, generator, gain, COMPARISON, budget, "at random") for _ in range(runs)]
        answers = [said for said, _, _ in ended]
        luck = [
            published(recording, generator, "at random") / (1 + gain) < published(recording, generator, "at random")
            for _ in range(runs)
        ]
        rows.append(
            {
                "true gain %": 100 * gain,
                "kept %": 100 * answers.count(stats.FASTER) / runs,
                "not faster %": 100 * answers.count(stats.NOT_FASTER) / runs,
                "cannot tell %": 100 * answers.count(stats.CANNOT_TELL) / runs,
                "launches, median": float(np.median([launches for _, launches, _ in ended])),
                "seconds, median": float(np.median([seconds for _, _, seconds in ended])),
                "seconds, 95 %": float(np.quantile([seconds for _, _, seconds in ended], 0.95)),
                "published: kept %": 100 * float(np.mean(luck)),
            }
        )
    return rows


def spreads(recording: Recording) -> list[dict[str, Any]]:
    """How launches differ, by what is taken from each."""
    rows = []
    for name, choice in CHOICES.items():
        differences = np.array([math.log(choice(one[1]) / choice(one[0])) for one in recording.launches])
        off = np.abs(differences - np.median(differences))
        rows.append(
            {
                "a launch's time is": name,
                "differences, centre %": 100 * float(np.median(differences)),
                "spread % (1.48 MAD)": 148.26 * float(np.median(off)),
                "standard deviation %": 100 * float(differences.std()),
                "off by over 5 %, % of launches": 100 * float((off > 0.05).mean()),
                "next launch's correlation": float(np.corrcoef(differences[:-1], differences[1:])[0, 1]),
            }
        )
    within = [np.log(one[0]).std() for one in recording.launches]
    calls = "single calls, within a launch"
    return [*rows, {"a launch's time is": calls, "standard deviation %": 100 * float(np.median(within))}]


def record(count: int, out: Path) -> None:
    """Run ``count`` launches and write what they timed to ``out``, after every tenth."""
    launches: list[Launch] = []
    source = KERNEL.read_text()
    with timed(source, source) as session:
        for number in range(count):
            launches.append(session.launch()[0])
            if number % 10 == 9 or number == count - 1:
                save(launches, out)
                say(f"{number + 1} launches")


def save(launches: Sequence[Launch], out: Path) -> None:
    rounds = min(ROUNDS, max(len(one.candidate_ms) for one in launches))
    nanoseconds = np.zeros((len(launches), 2, rounds))
    for number, one in enumerate(launches):
        for which, times in enumerate((one.candidate_ms, one.incumbent_ms)):
            nanoseconds[number, which, : len(times[:rounds])] = times[:rounds]
    made = {
        "how": "python -m benchmarks.decisions --record",
        "program": "examples/cpu_attention/kernel.py, two copies of it",
        "machine": devices.cpu(),
        "compiler": devices.compiler("cpu"),
        "seconds of timed calls asked for": LAUNCH_SECONDS,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "conditions": "other work was running on the same cores throughout",
    }
    np.savez_compressed(
        out,
        wall_ns=np.round(nanoseconds * 1e6).astype(np.uint32),
        candidate_first=np.array([one.candidate_first for one in launches]),
        seconds=np.array([one.seconds for one in launches], np.float32),
        made=np.array(json.dumps(made)),
    )


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1000, help="comparisons for each true gain")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds that a comparison may take")
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--record", type=int, metavar="N", help="make the recording anew first, of so many launches")
    options = parser.parse_args()
    if options.record:
        record(options.record, options.recording)
    recording = Recording(options.recording)
    for what, value in recording.made.items():
        print(f"{what}: {value}")
    print(f"{len(recording.launches)} launches of {recording.seconds.mean():.1f} s, at most {options.budget:.0f} s")
    equal = equal_kernels(recording, options.histories, options.budget)
    tables = {
        "two copies of one program, launch by launch": spreads(recording),
        "candidates equal to the incumbent: each keep is false": equal,
        f"true gains, at comparison {COMPARISON} of a history": gains(recording, options.runs, options.budget),
    }
    show_all(tables, json_file=options.json)


if __name__ == "__main__":
    main()
