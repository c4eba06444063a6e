"""Charts of a report, as Vega-Lite specifications: plain JSON values, in which every text is only a text.

Colours are names of CSS variables, so that one specification serves a light and a dark page; ``files.py`` puts the
light ones in where a chart becomes a file. A chart that there is nothing to draw of is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ratchet.report import words
from ratchet.report.material import GridStep
from ratchet.report.story import Experiment, Outcome, Story, Track
from ratchet.tpu.chips import CHIPS
from ratchet.values import Timeline, Vmem, VmemAllocation
from ratchet.values.program import VmemUse
from ratchet.view.explain import allocation_in_words
from ratchet.view.text import clean, number, size

Spec = dict[str, Any]
OUTCOMES = {
    Outcome.KEPT: ("var(--kept)", "circle"),
    Outcome.BASELINE: ("var(--baseline)", "diamond"),
    Outcome.REVERTED: ("var(--reverted)", "circle"),
    Outcome.FAILED: ("var(--failed)", "cross"),
    Outcome.JUDGED: ("var(--judged)", "square"),
}
PARTS = {
    "issues": "var(--issue)",
    "empty, waits for a result": "var(--stall)",
    "waits for DMAs or chips": "var(--wait)",
    "delay asked for": "var(--delay)",
}
_IN_PLACE = (Outcome.KEPT, Outcome.BASELINE)
_NOTE = 60
_HEIGHT = 300
_ROW = 22
"""Height of a bar with its gap, in pixels."""


def trajectory(track: Track) -> Spec | None:
    """Latency of every experiment, the kernel in place, and the roofline's floor."""
    known = [one for one in track.experiments if one.latency_ms]
    if not known:
        return None
    latencies = [one.latency_ms for one in known if one.latency_ms]
    floors = [one.floor_ms for one in known if one.floor_ms]
    low, high = min([*latencies, *floors]) / 1.25, max(latencies) * 1.15
    failed_at = high * (high / low) ** 0.07
    y = alt.Y(
        "ms:Q",
        title="latency, ms",
        scale=alt.Scale(type="log", domain=[low, failed_at * 1.08], nice=False),
        axis=alt.Axis(format=".3~r", tickCount=5),
    )
    x = alt.X("number:Q", title="experiment", axis=alt.Axis(format="d", tickMinStep=1), scale=_numbers(track))
    points = [_point(one, failed_at) for one in sorted(track.experiments, key=lambda one: one.outcome in _IN_PLACE)]
    best = [{"number": one.number, "ms": one.latency_ms} for one in known if one.outcome in _IN_PLACE]
    best += [{"number": track.experiments[-1].number, "ms": best[-1]["ms"]}] if best else []
    floor = [{"number": one.number, "ms": one.floor_ms} for one in known if one.floor_ms]
    layers = []
    if floor:
        floor += [{"number": track.experiments[-1].number, "ms": floor[-1]["ms"]}]
        line = alt.Chart(_data(floor)).mark_line(
            interpolate="step-after", strokeDash=[6, 4], color="var(--floor)", strokeWidth=1.5
        )
        layers.append(line.encode(x=x, y=y))
        label = {**floor[-1], "label": f"floor {words.ms(floor[-1]['ms'])}"}
        layers.append(_label(label, x, y, align="right", baseline="top", dy=4))
    if best:
        line = alt.Chart(_data(best)).mark_line(interpolate="step-after", color="var(--kept)", strokeWidth=2)
        layers.append(line.encode(x=x, y=y))
    names = [name for name in OUTCOMES if any(one.outcome is name for one in track.experiments)]
    colours, shapes = ([OUTCOMES[name][place] for name in names] for place in (0, 1))
    legend = alt.Legend(title=None, orient="top", symbolSize=80, columns=3)
    marks = alt.Chart(_data(points)).mark_point(filled=True, size=_dot(points), opacity=1)
    layers.append(
        marks.encode(
            x=x,
            y=y,
            color=alt.Color("outcome:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            shape=alt.Shape("outcome:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
            tooltip=[
                alt.Tooltip("number:Q", title="experiment", format="d"),
                alt.Tooltip("what:N", title="tried"),
                alt.Tooltip("latency:N", title="latency"),
                alt.Tooltip("why:N", title="outcome"),
            ],
        )
    )
    return _spec(alt.layer(*layers), height=_HEIGHT)


def _dot(points: Sequence[object]) -> int:
    """Area of a point: smaller where there are many."""
    return 65 if len(points) <= 60 else 28


def _numbers(track: Track) -> alt.Scale:
    numbers = [one.number for one in track.experiments]
    return alt.Scale(domain=[min(numbers) - 0.5, max(numbers) + 0.5], nice=False)


def _point(one: Experiment, failed_at: float) -> dict[str, object]:
    return {
        "number": one.number,
        "id": one.number,
        "ms": one.latency_ms or failed_at,
        "outcome": one.outcome.value,
        "what": clean(words.title(one), _NOTE),
        "latency": words.ms(one.latency_ms),
        "why": clean(words.why(one), 2 * _NOTE),
    }


def roofline(story: Story) -> Spec | None:
    """Useful FLOPs per second over FLOPs per compulsory byte: the roofs of the chip, and the way the kernel went."""
    track = story.main
    chip = CHIPS.get(track.experiments[-1].row.chip) if track else None
    if track is None or chip is None:
        return None
    chips = story.material.problem.chips if story.material.problem else 1
    bandwidth = chips * chip.hbm_bytes_per_s
    made = (_on_roofline(one, bandwidth) for one in track.experiments)
    points = [point for point in made if point is not None]
    if not points:
        return None
    compute = _compute_roof(track) or chips * chip.peak_bf16_flops / 1e12
    ridge = compute * 1e12 / bandwidth
    xs = [float(str(point["intensity"])) for point in points]
    left, right = min(*xs, ridge) / 8, max(*xs, ridge) * 8
    roof = [
        {"intensity": left, "tflops": left * bandwidth / 1e12, "order": 0},
        {"intensity": ridge, "tflops": compute, "order": 1},
        {"intensity": right, "tflops": compute, "order": 2},
    ]
    lowest = min(float(str(point["tflops"])) for point in points)
    x = alt.X(
        "intensity:Q",
        title="useful FLOPs per compulsory byte",
        scale=alt.Scale(type="log", domain=[left, right], nice=False),
        axis=alt.Axis(format="~s", tickCount=4, grid=False),
    )
    y = alt.Y(
        "tflops:Q",
        title="TFLOP/s",
        scale=alt.Scale(type="log", domain=[min(lowest, left * bandwidth / 1e12) / 2, compute * 1.5], nice=False),
        axis=alt.Axis(format=".3~r", tickCount=5),
    )
    kept = [point for point in points if point["outcome"] in _IN_PLACE]
    names = [name for name in OUTCOMES if any(point["outcome"] == name for point in points)]
    colours, shapes = ([OUTCOMES[name][place] for name in names] for place in (0, 1))
    legend = alt.Legend(title=None, orient="top", symbolSize=80, columns=3)
    layers = [
        alt.Chart(_data(roof)).mark_line(color="var(--floor)", strokeWidth=2).encode(x=x, y=y, order="order:Q"),
        alt.Chart(_data(kept)).mark_line(color="var(--kept)", strokeWidth=1.5).encode(x=x, y=y, order="number:Q"),
        alt.Chart(_data(points))
        .mark_point(filled=True, size=_dot(points), opacity=0.9)
        .encode(
            x=x,
            y=y,
            color=alt.Color("outcome:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            shape=alt.Shape("outcome:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
            tooltip=[
                alt.Tooltip("number:Q", title="experiment", format="d"),
                alt.Tooltip("what:N", title="tried"),
                alt.Tooltip("tflops:Q", title="TFLOP/s", format=".4~g"),
                alt.Tooltip("reached:N", title="of the roofline"),
            ],
        ),
    ]
    layers.append(
        _label({**roof[0], "label": f"{bandwidth / 1e9:.0f} GB/s"}, x, y, align="left", baseline="top", dx=10)
    )
    layers.append(_label({**roof[2], "label": f"{compute:.0f} TFLOP/s"}, x, y, align="right", dx=-4, dy=-8))
    current = track.current
    last = [point for point in kept if current and point["number"] == current.number]
    if last and current:
        here = {**last[0], "label": f"now: {words.share_of_roofline(current)}"}
        layers.append(_label(here, x, y, align="left", dx=10, color="var(--ink)", fontWeight="bold"))
    return _spec(alt.layer(*layers), height=_HEIGHT)


def _compute_roof(track: Track) -> float | None:
    """TFLOP/s at which the newest experiment that compute bounds would reach its roofline: products differ in peak."""
    for one in reversed(track.experiments):
        tflops, share = number(one.row.tflops), number(one.row.util_pct)
        if one.latency_ms and one.row.regime == "compute-bound" and tflops and share:
            return tflops / share * 100
    return None


def _on_roofline(one: Experiment, bandwidth: float) -> dict[str, object] | None:
    tflops, share = number(one.row.tflops), number(one.row.bw_util_pct)
    if not one.latency_ms or not tflops or not share:
        return None
    return {
        "number": one.number,
        "id": one.number,
        "intensity": tflops * 1e12 / (share / 100 * bandwidth),
        "tflops": tflops,
        "outcome": one.outcome.value,
        "what": clean(words.title(one), _NOTE),
        "reached": words.share_of_roofline(one),
    }


def needed(timeline: Timeline) -> Spec:
    """For what share of the run each unit is needed at least."""
    rows = [
        {"unit": words.UNITS.get(unit, clean(unit)), "share": share, "shown": f"{share:.1%}", "rank": rank}
        for rank, (unit, share) in enumerate(words.needed(timeline).items())
        if share >= 0.0005
    ]
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(color="var(--issue)", height={"band": 0.75})
        .encode(
            x=_share_axis("share of the run", whole=True),
            y=_named("unit", rows),
            tooltip=[alt.Tooltip("unit:N"), alt.Tooltip("shown:N", title="of the run")],
        )
    )
    return _spec(bars, height=_ROW * len(rows))


def spent(timeline: Timeline) -> Spec:
    """Where each cycle went: every one is in one part of one bar."""
    table = spent_table(timeline)
    order = sorted(table, key=lambda unit: -sum(table[unit].values()))
    cycles = max(1, timeline.cycles)
    rows = [
        {"unit": unit, "part": part, "share": count / cycles, "shown": f"{count / cycles:.1%}",
         "cycles": f"{count:,}", "rank": order.index(unit), "place": list(PARTS).index(part)}
        for unit in order
        for part, count in table[unit].items()
        if count
    ]  # fmt: skip
    used = [part for part in PARTS if any(row["part"] == part for row in rows)]
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(height={"band": 0.75})
        .encode(
            x=_share_axis("share of the run", stacked=True),
            y=_named("unit", rows),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=used, range=[PARTS[part] for part in used]),
                legend=alt.Legend(title=None, orient="top", columns=1, labelLimit=260),
            ),
            order="place:Q",
            tooltip=["unit:N", "part:N", "cycles:N", alt.Tooltip("shown:N", title="of the run")],
        )
    )
    return _spec(bars, height=_ROW * len(order))


def spent_table(timeline: Timeline) -> Mapping[str, Mapping[str, int]]:
    """Cycles by unit and part; they sum to those of the run."""
    issues, empty, waits, delay = PARTS
    table: dict[str, dict[str, int]] = {}

    def add(unit: str, part: str, cycles: int) -> None:
        if cycles:
            row = table.setdefault(words.UNITS.get(unit, clean(unit)), {})
            row[part] = row.get(part, 0) + cycles

    for line in timeline.blame.lines:
        for unit, cycles in line.issue_cycles.items():
            add(unit, issues, cycles)
        for unit, cycles in line.stall_cycles.items():
            add(unit, empty, cycles)
        add("waiting", waits, line.wait_cycles)
        add("delays", delay, line.delay_cycles)
    return table


def vmem(kernel: Vmem) -> Spec | None:
    """VMEM of a kernel by allocation, beside its limit."""
    if not kernel.allocations:
        return None
    rows = [
        {"buffer": _buffer(one, rank),
         "bytes": one.size_bytes / (1 << 20), "shown": size(one.size_bytes), "what": allocation_in_words(one),
         "use": one.use.value, "rank": rank}
        for rank, one in enumerate(kernel.allocations)
    ]  # fmt: skip
    limit = [{"bytes": kernel.limit_bytes / (1 << 20), "what": f"limit {size(kernel.limit_bytes)}"}]
    x = alt.X("bytes:Q", title="MiB", axis=alt.Axis(format=".3~r", tickCount=5), scale=alt.Scale(domainMin=0))
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(height={"band": 0.75}, color="var(--memory)")
        .encode(
            x=x,
            y=_named("buffer", rows),
            tooltip=[alt.Tooltip("what:N", title="buffer"), alt.Tooltip("shown:N", title="size")],
        )
    )
    rule = (
        alt.Chart(_data(limit))
        .mark_rule(color="var(--failed)", strokeDash=[5, 3], strokeWidth=1.5)
        .encode(x=x, tooltip=[alt.Tooltip("what:N", title="VMEM")])
    )
    return _spec(alt.layer(bars, rule), height=max(_ROW * len(rows), 2 * _ROW))


_USES = {VmemUse.INPUT: "input", VmemUse.OUTPUT: "output", VmemUse.OPERAND: "operand", VmemUse.SPILLS: "spills"}


def _buffer(one: VmemAllocation, rank: int) -> str:
    """A name that no other buffer of the chart has, short enough for a phone."""
    number_of = "" if one.number is None else f" {one.number}"
    return f"{rank + 1}. {_USES.get(one.use, one.use.value)}{number_of} {clean(one.block)}".rstrip()


def step(one: GridStep) -> Spec:
    """One grid step: copies and waits as they were under way, units by how busy they are."""
    lanes = list(dict.fromkeys(bar.lane for bar in one.bars))
    rows = [
        {"lane": step_lane(bar.lane), "start": max(bar.start_us, one.start_us) - one.start_us,
         "end": min(bar.end_us, one.end_us) - one.start_us, "kind": _kind(bar.lane), "share": max(bar.share, 0.04),
         "shown": f"{bar.share:.0%} of the step" if _kind(bar.lane) in _BUSY else size(bar.bytes) if bar.bytes
         else clean(bar.detail, _NOTE), "took": f"{bar.end_us - bar.start_us:.3f} µs", "rank": lanes.index(bar.lane)}
        for bar in one.bars
    ]  # fmt: skip
    used = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    bars = alt.Chart(_data(rows)).mark_bar(height={"band": 0.7}).encode(
        x=alt.X("start:Q", title="µs from the beginning of the step", axis=alt.Axis(format=".3~r", tickCount=5),
                scale=alt.Scale(domain=[0, one.end_us - one.start_us], nice=False)),
        x2="end:Q",
        y=_named("lane", rows),
        color=alt.Color("kind:N", scale=alt.Scale(domain=used, range=[_KINDS[kind] for kind in used]),
                        legend=alt.Legend(title=None, orient="top", columns=1, labelLimit=260)),
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.12, 1]), legend=None),
        tooltip=[alt.Tooltip("lane:N"), alt.Tooltip("shown:N", title="what"), alt.Tooltip("took:N", title="lasts")],
    )  # fmt: skip
    return _spec(bars, height=_ROW * max(2, len(lanes)))


_BUSY = ("unit is busy (stronger: more)", "empty bundles (stronger: more)")
_KINDS = {
    _BUSY[0]: "var(--issue)",
    _BUSY[1]: "var(--stall)",
    "DMA under way": "var(--memory)",
    "waiting": "var(--wait)",
}


def _kind(lane: str) -> str:
    if lane.endswith("wait"):
        return "waiting"
    if lane.startswith(("DMA", "ICI")):
        return "DMA under way"
    return _BUSY[1] if lane == "stalls" else _BUSY[0]


def step_lane(lane: str) -> str:
    """What a lane of a step is called."""
    return words.UNITS.get(lane, clean(lane))


def fidelity(story: Story) -> Spec | None:
    """Measured over modelled latency of every row that has both."""
    rows = [
        {"number": one.number, "ratio": one.latency_ms / modelled, "what": clean(words.title(one), _NOTE),
         "shown": f"{one.latency_ms / modelled:.3f}"}
        for one in story.experiments
        if one.latency_ms and (modelled := number(one.row.modelled_ms))
    ]  # fmt: skip
    if not rows:
        return None
    ratios = [float(str(row["ratio"])) for row in rows]
    reach = max(0.1, *(abs(ratio - 1) for ratio in ratios)) * 1.2
    x = alt.X("number:Q", title="experiment", axis=alt.Axis(format="d", tickMinStep=1))
    y = alt.Y("ratio:Q", title="measured over modelled", scale=alt.Scale(domain=[max(0, 1 - reach), 1 + reach]))
    one_line = alt.Chart(_data([{"ratio": 1.0}])).mark_rule(color="var(--floor)", strokeDash=[6, 4]).encode(y=y)
    points = alt.Chart(_data(rows)).mark_point(filled=True, size=65, color="var(--kept)", opacity=1).encode(
        x=x, y=y, tooltip=[alt.Tooltip("number:Q", title="experiment"), alt.Tooltip("what:N", title="tried"),
                           alt.Tooltip("shown:N", title="measured over modelled")],
    )  # fmt: skip
    return _spec(alt.layer(one_line, points), height=220)


def _label(row: Mapping[str, object], x: alt.X, y: alt.Y, **how: Any) -> alt.Chart:
    text = alt.Chart(_data([row])).mark_text(**{"color": "var(--floor)", "fontSize": 12, **how})
    return text.encode(x=x, y=y, text="label:N")


def _share_axis(title: str, *, stacked: bool = False, whole: bool = False) -> alt.X:
    return alt.X(
        "sum(share):Q" if stacked else "share:Q",
        title=title,
        axis=alt.Axis(format=".0%", tickCount=5),
        scale=alt.Scale(domain=[0, 1]) if whole else alt.Scale(domainMin=0),
    )


def _named(field: str, rows: Sequence[Mapping[str, object]]) -> alt.Y:
    names = list(dict.fromkeys(str(row[field]) for row in rows))
    return alt.Y(
        f"{field}:N", title=None, sort=names, axis=alt.Axis(labelLimit=170, ticks=False, domain=False, grid=False)
    )


def _data(rows: Sequence[Mapping[str, object]]) -> alt.Data:
    return alt.Data(values=list(rows))


def _spec(chart: Any, *, height: int) -> Spec:
    sized = chart.properties(
        width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )
    spec: Spec = sized.to_dict()
    spec["background"] = "transparent"
    spec["config"] = CONFIG
    return spec


CONFIG: Mapping[str, object] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--grid)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12, "titleFontSize": 12,
        "titleFontWeight": "normal", "gridDash": [2, 3], "labelOverlap": True,
    },
    "legend": {"labelColor": "var(--ink)", "labelFontSize": 12, "rowPadding": 4, "columnPadding": 14},
}  # fmt: skip
