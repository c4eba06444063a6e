"""Reads what a report is made of: ledger, git, evidence, the trace. Only this module reads files of a repository."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.exam.problem import problem as problems
from ratchet.exam.problem.problem import Problem
from ratchet.loop import log, recorded
from ratchet.loop.history import History
from ratchet.loop.ledger import MERGED
from ratchet.loop.workspace import under_way
from ratchet.process import paths
from ratchet.report.story import Evidence, GridStep, Instance, Material, StepBar
from ratchet.search import progress
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.dump import memory
from ratchet.tpu.dump.files import load_hlo, tokens_in
from ratchet.values import Row, Timeline, Vmem
from ratchet.values.status import Refusal
from ratchet.view.searching import words_of
from ratchet.view.xplane import new_message
from ratchet.wiring import DUMPS, TIMELINE, TRACES, trace_of

_VERIFICATION = "verification.json"
_MOST_BYTES = 16 << 20
_TRACE_BYTES = 256 << 20
_STEPS, _UNITS = "Grid steps", ("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls")
_COPIES, _WAITS = ("DMA in", "DMA out", "DMA local", "ICI out", "ICI in"), ("DMA wait", "ICI wait")
_DEVICE = "/device:"
MOST_BARS = 400
"""Copies and waits of a step that are shown; the longest."""


def kernels(root: Path) -> tuple[str, ...]:
    """The kernel files of the ledger, in the order in which they first occur.

    Raises:
        Refusal: LEDGER_BROKEN.
    """
    return tuple(dict.fromkeys(row.kernel for row in log.rows(root) if row.decision != MERGED))


Model = Callable[[Row, bytes], Path | None]
"""Gives a folder with the modelled run of a row's kernel: its evidence in ``hlo_dumps``, traces as in a repository."""


def material(root: Path, kernel: str, model: Model = lambda _row, _source: None) -> Material:
    """Everything known of one kernel file of the repository at ``root``; no rows where the ledger has none of it.

    ``model`` is asked where the current kernel has no evidence on this disk.

    Raises:
        Refusal: LEDGER_BROKEN, NOT_A_REPOSITORY.
    """
    history = History(root)
    every = log.rows(root)
    rows = tuple(row for row in every if row.kernel == kernel)
    counts = Counter(row.kernel for row in every if row.kernel != kernel and row.decision != MERGED)
    origins = log.origins_of(history, every)
    commit, blob = _head(history, kernel)
    return Material(
        repository=root.name,
        kernel=kernel,
        rows=rows,
        others=dict(counts),
        head=commit,
        head_blob=blob,
        sources=_sources(history, {blob, *(row.kernel_blob for row in rows)} - {""}),
        problem=_problem(root / kernel),
        evidence=_evidence(history, rows, blob, model),
        origins={} if origins.no_key else Counter(origins.by_id[row.id] for row in rows),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        under_way=words_of(progress.under_way(root)) or under_way(history),
    )


def _head(history: History, kernel: str) -> tuple[str, str]:
    commit = history.refs.resolve("HEAD")
    if commit is None:  # no commit yet
        return "", ""
    entry = history.objects.entry(commit, kernel)
    return commit, entry.blob if entry else ""


def _sources(history: History, blobs: set[str]) -> Mapping[str, str]:
    here = sorted(blobs - history.objects.unresolved(blobs))
    return {blob: data.decode(errors="replace") for blob, data in zip(here, history.objects.blobs(here), strict=True)}


def _problem(kernel: Path) -> Problem | None:
    try:
        return problems.read(problems.lock_path(kernel))
    except (Refusal, OSError):
        return None


def _evidence(history: History, rows: tuple[Row, ...], blob: str, model: Model) -> Evidence | None:
    """Of the newest row that has the current kernel's bytes and evidence here, else of that kernel modelled anew."""
    current = [row for row in rows if row.median_ms and row.in_place]
    wanted = blob if any(row.kernel_blob == blob for row in current) else current[-1].kernel_blob if current else ""
    of_it = [
        row for row in reversed(rows) if row.kernel_blob == wanted and row.median_ms and Path(row.id).name == row.id
    ]
    for row in of_it:
        one = _of_row(row, history.root / DUMPS / row.id, history.root / TRACES)
        if one.timeline is not None or one.instances:
            return one
    for row in of_it[:1]:
        if not history.objects.unresolved([wanted]) and (folder := model(row, history.objects.blob(wanted))):
            return replace(_of_row(row, folder / DUMPS, folder / TRACES), is_new=True)
    return None


def _of_row(row: Row, folder: Path, traces: Path) -> Evidence:
    return Evidence(
        id=row.id,
        timeline=recorded.from_file(Timeline, folder / TIMELINE),
        vmem=tuple(_vmem(folder, row.chip)),
        step=grid_step(trace_of(traces, row.id)),
        instances=tuple(_instances(folder / _VERIFICATION)),
    )


def _vmem(folder: Path, chip: str) -> Iterator[Vmem]:
    if chip not in CHIPS or not paths.is_folder(folder / "schedule"):
        return
    with contextlib.suppress(Refusal, OSError):  # evidence that somebody changed shows nothing
        tokens = tokens_in(folder / "schedule")
        every: Iterable[Vmem] = memory.vmem_by_op(load_hlo(folder), folder / "schedule", CHIPS[chip])
        yield from [replace(one, op=tokens.name(one.op)) for one in every if one.is_kernel]


def _instances(path: Path) -> Iterator[Instance]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        checks = json.loads(paths.read(path, _MOST_BYTES))["checks"]
        made = [
            Instance(name=str(name), status=str(one["status"]), worst=float(one["worst"]))
            for name, one in checks.items()
            if one.get("worst") is not None
        ]
        yield from made


# --- the trace ---


@dataclass(frozen=True, kw_only=True)
class _Event:
    lane: str
    name: str
    start_us: float
    end_us: float
    stats: dict[str, Any]


def grid_step(path: Path) -> GridStep | None:
    """The step of the trace at ``path`` (``*.xplane.pb``); None where there is no trace, or no single step in it."""
    space = new_message("XSpace")
    try:
        space.ParseFromString(paths.read(path, _TRACE_BYTES))
    except Exception:  # not there, or no such message: the reader of protocol buffers raises errors of its own
        return None
    plane = next((plane for plane in space.planes if plane.name.startswith(_DEVICE)), None)
    return None if plane is None else _representative(list(_events(plane)))


def _events(plane: Any) -> Iterator[_Event]:
    names = {number: entry.name for number, entry in plane.stat_metadata.items()}
    for line in plane.lines:
        lane, _, number = line.name.rpartition(" ")
        lane = lane if number.isdigit() else line.name
        for event in line.events:
            stats = {
                names.get(stat.metadata_id, ""): getattr(stat, stat.WhichOneof("value"))
                for stat in event.stats
                if stat.WhichOneof("value")
            }
            start = event.offset_ps / 1e6
            yield _Event(
                lane=lane,
                name=plane.event_metadata[event.metadata_id].name,
                start_us=start,
                end_us=start + event.duration_ps / 1e6,
                stats=stats,
            )


def _representative(events: list[_Event]) -> GridStep | None:
    steps = [event for event in events if event.lane == _STEPS]
    single = [event for event in steps if "step" in event.stats]
    if not single:
        return None
    middle = (min(step.start_us for step in steps) + max(step.end_us for step in steps)) / 2
    step = min(single, key=lambda one: (max(one.start_us - middle, middle - one.end_us, 0.0), one.start_us))
    during = [one for one in events if one.start_us < step.end_us and one.end_us > step.start_us]
    moving = [one for one in during if one.lane in _COPIES + _WAITS and "count" not in one.stats]
    longest = sorted(moving, key=lambda event: event.start_us - event.end_us)[:MOST_BARS]
    same = (step.start_us, step.end_us)
    inside = [one for one in events if one.lane in _UNITS and (one.start_us, one.end_us) == same]
    return GridStep(
        number=int(step.stats["step"]),
        of_steps=sum(int(one.stats.get("steps", 1)) for one in steps),
        start_us=step.start_us,
        end_us=step.end_us,
        bars=tuple(_bar(event) for event in [*inside, *sorted(longest, key=lambda event: event.start_us)]),
    )


def _bar(event: _Event) -> StepBar:
    return StepBar(
        lane=event.lane,
        start_us=event.start_us,
        end_us=event.end_us,
        share=float(event.stats.get("busy_share", 1.0)),
        bytes=int(event.stats.get("bytes", 0)),
        detail=str(event.stats.get("for", "")),
    )
