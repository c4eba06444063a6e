"""How a search on many nodes speeds up, and what saturates: task times measured here, up to 1,000 nodes simulated.

    python -m benchmarks.cluster [--json FILE] [--points N] [--trials N]

Measured, on this machine, for naive attention with four knobs (``benchmarks/lib/recorded.py``):

  model     contract, compile, memory and schedule of a point, on one lane that is kept
  values    the rest of a full verdict, for what could be kept; the problem's references are there already
  turn      commit, decision, row and refs of a trial whose verdict is settled, in a repository whose ledger has so many
            rows: the least of several
  look up   which candidates of a batch have a row already, in the same repositories: the least of several
  dispatch  making a question and reading its answer, without Ray: the median of 200

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
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.recorded import LOCKED, NAME, Recorded, kernel
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show_all
from benchmarks.lib.usage import cpu_seconds
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.history import History
from ratchet.loop.origin import sign
from ratchet.loop.refs import MACS, ROWS, tip_ref
from ratchet.process import key
from ratchet.search.candidates import Prejudged, known_rows
from ratchet.search.protocol import JudgeRequest, decode_answer, encode_answer, encode_request
from ratchet.tpu.chips import V5E
from ratchet.values import Conditions, Row, Verdict
from ratchet.wiring import RepositoryJudge
from tests.loop.stage import Stage

NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
LEDGERS = (100, 1000)
"""Rows of the ledgers in which a turn is timed; between them it is interpolated, beyond them extrapolated."""
LANES_PER_NODE = 2


@dataclass(frozen=True, kw_only=True)
class Times:
    """What one task takes, in seconds."""

    model: tuple[float, ...]
    values: float
    turn: tuple[float, float]
    """In each of ``LEDGERS``."""
    look_up: tuple[float, float]
    dispatch: float


# --- measured ---


def judged(points: int) -> tuple[list[float], float, Verdict]:
    """CPU seconds of modelling so many points and of one verdict's values; the last verdict."""
    from prepare import judge

    recorded = Recorded()
    fits = [one.point for one in recorded.results.values() if one.latency_ms is not None]
    chosen = random.Random(0).sample(fits, points + 1)  # the first makes what is there for all others
    conditions = RepositoryJudge.modelling(ROOT, judge, V5E).conditions(LOCKED)
    took = []
    with tempfile.TemporaryDirectory() as folder, Workers(V5E, keep=True) as workers:
        file = Path(folder, NAME)
        asked = Request(kernel=file, root=ROOT, kernel_rel=LOCKED, conditions=conditions, model_only=True)
        for point in chosen:
            file.write_text(edited(kernel(), **point))
            if not took:
                judge(dataclasses.replace(asked, model_only=False), workers=workers)
            before = cpu_seconds()
            verdict = judge(asked, workers=workers)
            took.append(cpu_seconds() - before)
        before = cpu_seconds()
        judge(dataclasses.replace(asked, model_only=False), workers=workers)
        full = cpu_seconds() - before
    return took[1:], max(0.0, full - took[-1]), verdict


def repository(root: Path, rows: int, conditions: Conditions) -> None:
    """One with a kernel, and a ledger of so many rows that this machine signed."""
    stage = Stage.new(root)
    stage.write(kernel())
    (root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n.ratchet/\n")
    stage.git("commit", "-q", "-a", "-m", "the kernel")
    history, own, commit = History(root), key.known(), stage.head()
    lines, refs = [ledger.HEADER], {}
    for number in range(rows):
        filled = {field.name: getattr(conditions, field.name, "") for field in fields(Row)}
        filled |= {"id": f"20260101-{number:06d}-0000", "commit": commit, "kernel": "kernel.py"}
        filled |= {"kernel_blob": f"{number:040x}", "status": "NOT_BETTER", "decision": "reverted"}
        lines.append(ledger.format_row(Row(**filled | {"previous": ledger.digest(lines[-1])})))
        refs[ROWS + filled["id"]] = history.objects.store(lines[-1].encode())
        refs[MACS + filled["id"]] = history.objects.store(sign(own, lines[-1]).encode())
    (root / ledger.NAME).write_text("".join(f"{line}\n" for line in lines))
    history.refs.point({**refs, tip_ref("main"): refs[ROWS + filled["id"]]})


def turns(rows: int, verdict: Verdict, repeats: int = 5) -> tuple[float, float]:
    """CPU seconds of a turn and of looking up a batch, in a repository with so many rows; the least of several."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        repository(root, rows, verdict.conditions)

        class Fixed(RepositoryJudge):
            """Under conditions that are known."""

            def conditions(self, kernel_rel: str) -> Conditions:
                return verdict.conditions

            def seal(self) -> str:
                return verdict.conditions.seal

            def protected_paths(self) -> tuple[str, ...]:
                return ()

        def passes(request: Request, **_others: object) -> Verdict:
            score = dataclasses.replace(verdict.score, score=50.0, latency_ms=1.0)  # type: ignore[type-var]
            return dataclasses.replace(verdict, score=score, status=verdict.status.PASS)

        judge = Fixed.modelling(root, passes)
        run_experiment(Idea(message="baseline"), root=root, kernel=Path("kernel.py"), judge=judge)
        slow = dataclasses.replace(verdict.score, score=1.0, latency_ms=50.0, band=None)  # type: ignore[type-var]
        settled = Prejudged(full=judge, verdict=dataclasses.replace(verdict, score=slow))
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


def dispatched(verdict: Verdict) -> tuple[float, int, int]:
    """CPU seconds of a question and its answer on the driver's side, and the bytes of both."""
    asked = JudgeRequest(
        text=kernel().encode(),
        kernel=NAME,
        lock=lock_path(ROOT / LOCKED).read_bytes(),
        conditions=verdict.conditions,
        chip=V5E.name,
        remember=True,
    )
    line, said = encode_request(asked), encode_answer(verdict)
    took = []
    for _ in range(200):
        began = time.process_time()
        encode_request(asked)
        decode_answer(said)
        took.append(time.process_time() - began)
    return statistics.median(took), len(line), len(said)


# --- simulated ---


def at(known: tuple[float, float], rows: int) -> float:
    """Linear between the measured ledgers, and beyond."""
    (low, high), (one, other) = LEDGERS, known
    return one + (other - one) * (rows - low) / (high - low)


def simulate(times: Times, latencies: Sequence[float], *, nodes: int, trials: int, batch: int) -> dict[str, float]:
    """Seconds of a search of so many trials, and the shares of it in which the driver and the lanes work."""
    drawn, lanes = random.Random(nodes), nodes * LANES_PER_NODE
    now = driver = busy = 0.0
    best, rows = latencies[0], 1
    while rows <= trials:
        count = min(batch, trials + 1 - rows)
        started = now
        now += at(times.look_up, rows)
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
            now += at(times.turn, rows) + (times.values if latency < best else 0.0)
            best, rows = min(best, latency), rows + 1
        driver += now - started - max(0.0, waited)
    return {"seconds": now, "driver": driver / now, "lanes": busy / (now * lanes)}


def speed_up(times: Times, latencies: Sequence[float], trials: int, *, turn: float = 1.0) -> list[dict[str, Any]]:
    """A row for each number of nodes; ``turn`` scales what the driver alone does for a trial."""
    own = {name: tuple(turn * one for one in getattr(times, name)) for name in ("turn", "look_up")}
    scaled = dataclasses.replace(times, **own)  # type: ignore[arg-type]
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
    options = parser.parse_args()
    model, values, verdict = judged(options.points)
    say(f"modelled {len(model)} points")
    turn, look_up = zip(*(turns(rows, verdict) for rows in LEDGERS), strict=True)
    dispatch, out, back = dispatched(verdict)
    times = Times(model=tuple(model), values=values, turn=turn, look_up=look_up, dispatch=dispatch)
    measured = [
        {"task": "model, median", "seconds": statistics.median(model)},
        {"task": "model, slowest", "seconds": max(model)},
        {"task": "values", "seconds": values},
        *({"task": f"turn, {rows} rows", "seconds": one} for rows, one in zip(LEDGERS, turn, strict=True)),
        *({"task": f"look up, {rows} rows", "seconds": one} for rows, one in zip(LEDGERS, look_up, strict=True)),
        {"task": f"dispatch, {out} bytes out, {back} back", "seconds": dispatch},
    ]
    latencies = [one.latency_ms for one in Recorded().results.values() if one.latency_ms is not None]
    latencies.sort(reverse=True)
    title = f"simulated: {options.trials} trials, {LANES_PER_NODE} lanes a node"
    tenth = speed_up(times, latencies, options.trials, turn=0.1)
    tables = {
        "measured here": measured,
        title: speed_up(times, latencies, options.trials),
        "the same, if the driver took a tenth of it for a trial": tenth,
    }
    show_all(tables, json_file=options.json)


if __name__ == "__main__":
    main()
