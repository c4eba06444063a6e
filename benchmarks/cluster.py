"""How a search on many nodes speeds up, and what saturates: task times measured here, up to 1,000 nodes simulated.

    python -m benchmarks.cluster [--json FILE] [--points N] [--trials N] [--no-ray]

Measured, on this machine, for naive attention with four knobs (``benchmarks/data/search/four_knobs.py``):

  model     contract, compile, memory and schedule of a point, on one lane that is kept
  values    the rest of a full verdict, for what could be kept; the problem's references are there already
  turn      commit, decision, row and refs of a trial whose verdict is settled, in a repository whose ledger has so many
            rows: the least of several
  look up   which candidates of a batch have a row already, in the same repositories: the least of several
  dispatch  making a question and reading its answer: the median of 200; with Ray, what this process does for the call

All are CPU seconds of the processes that take part: other work on the machine does not count, nor does waiting for the
disk, and a node is taken to have a CPU for each lane.

Simulated: the driver hands out a batch, one question after the other; lanes take what is next; when all answers are
there, each trial has its turn. Latencies are drawn from the recorded space; who beats all before is judged in full by
the driver.
"""

from __future__ import annotations

import dataclasses
import heapq
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.recorded import KERNEL, Recorded
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show_all
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.loop import ledger
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.history import History
from ratchet.loop.origin import sign
from ratchet.loop.refs import MACS, ROWS, tip_ref
from ratchet.process import key
from ratchet.search.asked import Asked, answer, answered, question
from ratchet.search.candidates import Settled, known_rows
from ratchet.tpu.chips import V5E
from ratchet.values import Conditions, Row, Verdict
from ratchet.wiring import RepositoryJudge

NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
LEDGERS = (100, 1000)
"""Rows of the ledgers in which a turn is timed; between them it is interpolated, beyond them extrapolated."""
LANES_PER_NODE = 2
TICK = 100
"""Clock ticks in a second, of ``/proc/PID/stat``."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """What one task takes, in seconds."""

    model: tuple[float, ...]
    values: float
    turn: Mapping[int, float]
    """By rows of the ledger."""
    look_up: Mapping[int, float]
    dispatch: float


# --- measured ---


def descendants() -> list[int]:
    found = [int(Path("/proc/self").resolve().name)]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def cpu_seconds() -> float:
    """Of this process, all that it started, and all that those waited for."""
    total = 0.0
    for pid in descendants():
        with suppress(OSError):
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / TICK


def judged(points: int) -> tuple[list[float], float, Verdict, Conditions]:
    """CPU seconds of modelling so many points and of one verdict's values; the last verdict."""
    from prepare import judge

    recorded = Recorded()
    fits = [one.point for one in recorded.results.values() if one.latency_ms is not None]
    chosen = random.Random(0).sample(fits, points + 1)  # the first makes what is there for all others
    name = KERNEL.relative_to(ROOT).as_posix()
    conditions = RepositoryJudge.modelling(ROOT, judge, V5E).conditions(name)
    took = []
    with tempfile.TemporaryDirectory() as folder, Workers(V5E, keep=True) as workers:
        kernel = Path(folder, KERNEL.name)
        asked = Request(kernel=kernel, root=ROOT, kernel_rel=name, conditions=conditions, model_only=True)
        for point in chosen:
            kernel.write_text(edited(KERNEL.read_text(), **point))
            if not took:
                judge(dataclasses.replace(asked, model_only=False), workers=workers)
            before = cpu_seconds()
            verdict = judge(asked, workers=workers)
            took.append(cpu_seconds() - before)
        before = cpu_seconds()
        judge(dataclasses.replace(asked, model_only=False), workers=workers)
        full = cpu_seconds() - before
    return took[1:], max(0.0, full - took[-1]), verdict, conditions


def repository(root: Path, rows: int, conditions: Conditions) -> None:
    """One with a kernel, and a ledger of so many rows that this machine signed."""
    (root / "kernel.py").write_bytes(KERNEL.read_bytes())
    (root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n.ratchet/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "benchmark")
    git(root, "config", "user.email", "benchmark@example.invalid")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    history, own = History(root), key.known()
    commit = history.checks.head().commit
    lines, last = [ledger.HEADER], ""
    for number in range(rows):
        last = ledger.new_id(last)
        filled = dict.fromkeys((field.name for field in fields(Row)), "") | vars(conditions)
        filled |= {"id": last, "commit": commit, "kernel": "kernel.py", "kernel_blob": f"{number:040x}"}
        filled |= {"status": "NOT_BETTER", "decision": "reverted", "previous": ledger.digest(lines[-1])}
        lines.append(ledger.format_row(Row(**filled)))
    (root / ledger.NAME).write_text("".join(f"{line}\n" for line in lines))
    names = [ledger.parse_row(line).id for line in lines[1:]]
    refs = dict(zip((ROWS + name for name in names), stored(root, lines[1:]), strict=True))
    refs |= zip((MACS + name for name in names), stored(root, [sign(own, line) for line in lines[1:]]), strict=True)
    history.refs.point({**refs, tip_ref("main"): refs[ROWS + last]})


def stored(root: Path, texts: Sequence[str]) -> list[str]:
    """The blobs of many texts, by one command."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        names = "".join(f"{path}\n" for path in paths).encode()
        words = ["git", "hash-object", "-w", "--no-filters", "--stdin-paths"]
        return subprocess.run(words, cwd=root, input=names, capture_output=True, check=True).stdout.decode().split()


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


class Fixed(RepositoryJudge):
    """Under conditions that are known."""

    def conditions(self, kernel_rel: str) -> Conditions:
        return CONDITIONS[0]

    def seal(self) -> str:
        return CONDITIONS[0].seal

    def protected_paths(self) -> tuple[str, ...]:
        return ()


CONDITIONS: list[Conditions] = []


def turns(rows: int, verdict: Verdict, repeats: int = 5) -> tuple[float, float]:
    """CPU seconds of a turn and of looking up a batch, in a repository with so many rows; the least of several."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        repository(root, rows, verdict.conditions)
        CONDITIONS[:] = [verdict.conditions]

        def passes(request: Request, **_others: object) -> Verdict:
            score = dataclasses.replace(verdict.score, score=50.0, latency_ms=1.0)  # type: ignore[type-var]
            return dataclasses.replace(verdict, score=score, status=verdict.status.PASS)

        judge = Fixed.modelling(root, passes)
        run_experiment(Idea(message="baseline"), root=root, kernel=Path("kernel.py"), judge=judge)
        slow = dataclasses.replace(verdict.score, score=1.0, latency_ms=50.0, band=None)  # type: ignore[type-var]
        settled = Settled(full=judge, verdict=dataclasses.replace(verdict, score=slow))
        took, looked = [], []
        for number in range(repeats):
            text = (root / "kernel.py").read_bytes() + f"# {number}\n".encode()
            began = cpu_seconds()
            idea = Idea(message=f"trial {number}", text=text)
            run_experiment(idea, root=root, kernel=Path("kernel.py"), judge=settled)
            took.append(cpu_seconds() - began)
            began = cpu_seconds()
            known_rows(root, "kernel.py", verdict.conditions)
            looked.append(cpu_seconds() - began)
        return min(took), min(looked)


def dispatched(verdict: Verdict, *, ray: bool) -> tuple[float, int, int]:
    """CPU seconds of a question and its answer on the driver's side, and the bytes of both."""
    asked = Asked(
        text=KERNEL.read_bytes(),
        kernel=KERNEL.name,
        lock=KERNEL.with_name(f"{KERNEL.name}.lock.json").read_bytes(),
        conditions=verdict.conditions,
        chip=V5E.name,
        remember=True,
    )
    line, said = question(asked), answer(verdict)
    call: Callable[[], bytes] = (lambda: said) if not ray else through_ray(line, said)
    took = []
    for _ in range(200):
        began = time.process_time()
        question(asked)
        answered(call())
        took.append(time.process_time() - began)
    return statistics.median(took), len(line), len(said)


def through_ray(line: bytes, said: bytes) -> Callable[[], bytes]:
    import ray

    for left in range(4, -1, -1):  # on a busy machine Ray may take longer to start than it waits for itself
        try:
            ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
            break
        except Exception:
            ray.shutdown()
            if not left:
                raise

    class Echo:
        def ask(self, _line: bytes) -> bytes:
            return said

    actor = ray.remote(Echo).remote()
    ray.get(actor.ask.remote(line))
    return lambda: ray.get(actor.ask.remote(line))


# --- simulated ---


def between(known: Mapping[int, float], rows: int) -> float:
    """Linear between the measured ledgers, and beyond the last two as between them."""
    sizes = sorted(known)
    after = next((n for n in range(1, len(sizes)) if rows <= sizes[n]), len(sizes) - 1)
    low, high = sizes[after - 1], sizes[after]
    return known[low] + (known[high] - known[low]) * (rows - low) / (high - low)


def simulate(times: Times, latencies: Sequence[float], *, nodes: int, trials: int, batch: int) -> dict[str, float]:
    """Seconds of a search of so many trials, and the shares of it in which the driver and the lanes work."""
    drawn, lanes = random.Random(nodes), nodes * LANES_PER_NODE
    now = driver = busy = 0.0
    best, rows = latencies[0], 1
    while rows <= trials:
        count = min(batch, trials + 1 - rows)
        started = now
        now += between(times.look_up, rows)
        free = [now] * min(lanes, count)
        ends = now
        for number in range(count):
            sent = now + (number + 1) * times.dispatch
            took = drawn.choice(times.model)
            end = max(heapq.heappop(free), sent) + took
            heapq.heappush(free, end)
            busy += took
            ends = max(ends, end)
        waited = ends - (now + count * times.dispatch)
        now = ends
        for latency in sorted(drawn.choice(latencies) for _ in range(count)):
            now += between(times.turn, rows) + (times.values if latency < best else 0.0)
            best, rows = min(best, latency), rows + 1
        driver += now - started - max(0.0, waited)
    return {"seconds": now, "driver": driver / now, "lanes": busy / (now * lanes)}


def speed_up(times: Times, latencies: Sequence[float], trials: int, *, turn: float = 1.0) -> list[dict[str, Any]]:
    """A row for each number of nodes; ``turn`` scales what the driver alone does for a trial."""
    scaled = dataclasses.replace(
        times,
        turn={rows: one * turn for rows, one in times.turn.items()},
        look_up={rows: one * turn for rows, one in times.look_up.items()},
    )
    rows: list[dict[str, Any]] = []
    for nodes in NODES:
        batch = 2 * LANES_PER_NODE * nodes
        done = simulate(scaled, latencies, nodes=nodes, trials=trials, batch=batch)
        first = rows[0]["hours"] if rows else done["seconds"] / 3600
        rows.append(
            {
                "nodes": nodes,
                "batch": batch,
                "hours": done["seconds"] / 3600,
                "trials a minute": trials / done["seconds"] * 60,
                "speed-up": first / (done["seconds"] / 3600),
                "driver works, %": 100 * done["driver"],
                "a lane works, %": 100 * done["lanes"],
            }
        )
    return rows


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--points", type=int, default=6, help="so many are modelled; default 6")
    parser.add_argument("--trials", type=int, default=1000, help="of the simulated search; default 1000")
    parser.add_argument("--no-ray", dest="ray", action="store_false", help="leave Ray out of dispatch")
    options = parser.parse_args()
    model, values, verdict, _ = judged(options.points)
    print(f"modelled {len(model)} points", file=sys.stderr)
    timed = {rows: turns(rows, verdict) for rows in LEDGERS}
    dispatch, out, back = dispatched(verdict, ray=options.ray)
    times = Times(
        model=tuple(model),
        values=values,
        turn={rows: one for rows, (one, _) in timed.items()},
        look_up={rows: one for rows, (_, one) in timed.items()},
        dispatch=dispatch,
    )
    measured = [
        {"task": "model, median", "seconds": statistics.median(model)},
        {"task": "model, slowest", "seconds": max(model)},
        {"task": "values", "seconds": values},
        *({"task": f"turn, {rows} rows", "seconds": one} for rows, one in times.turn.items()),
        *({"task": f"look up, {rows} rows", "seconds": one} for rows, one in times.look_up.items()),
        {"task": f"dispatch, {out} bytes out, {back} back", "seconds": dispatch},
    ]
    latencies = [one.latency_ms for one in Recorded().results.values() if one.latency_ms is not None]
    latencies.sort(reverse=True)
    tables = {
        "measured here": measured,
        f"simulated: {options.trials} trials, {LANES_PER_NODE} lanes a node": speed_up(
            times, latencies, options.trials
        ),
        "the same, if the driver took a tenth of it for a trial": speed_up(times, latencies, options.trials, turn=0.1),
    }
    show_all(tables, json_file=options.json)


if __name__ == "__main__":
    main()
