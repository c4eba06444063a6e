"""Charts of a report, as Vega-Lite specifications: plain JSON values, in which every text is only a text.

Colours are names of CSS variables, so that one specification serves a light and a dark page; ``drawing.py`` puts the
light ones in where a chart becomes a file. A chart that there is nothing to draw of is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import altair as alt

from ratchet.report import words
from ratchet.report.drawing import (
    Rows,
    Spec,
    bars_of,
    colours_of,
    drawing_of,
    label_of,
    log_scale,
    name_axis,
    share_axis,
    spec_of,
    tip,
)
from ratchet.report.story import KEPT, Experiment, GridStep, Outcome, Story, Track
from ratchet.report.tables import (
    KINDS,
    LIMITS,
    PARTS,
    buffer_name,
    compute_roof,
    on_roofline,
    spent_table,
    step_bar,
    stretch_bars,
)
from ratchet.tpu.chips import CHIPS
from ratchet.values import Timeline, Vmem
from ratchet.values.occupancy import Occupancy
from ratchet.view.explain import allocation_in_words
from ratchet.view.occupancy import occupancy_in_words
from ratchet.view.text import clean, size

OUTCOMES = {
    Outcome.KEPT: ("var(--kept)", "circle"),
    Outcome.BASELINE: ("var(--baseline)", "diamond"),
    Outcome.REVERTED: ("var(--reverted)", "circle"),
    Outcome.FAILED: ("var(--failed)", "cross"),
    Outcome.JUDGED: ("var(--judged)", "square"),
}
SLOTS = ("VPOP", "VALU", "EUP", "XLU", "VLOAD", "VSTORE", "SPILL")
"""Whose use is in the table of stretches."""
_NOTE = 60
_HEIGHT = 300
_ROW = 22
"""Height of a bar with its gap, in pixels."""
_NO_LATENCY = "no experiment on it has a latency"
_NO_EVIDENCE = "its modelled run is not on this disk: judge it again with --fresh"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its description in one sentence, for those who do not see it."""

    said: str
    spec: Spec | None
    section: str = ""
    """Id of the section that ends with it; ``""`` where the template says where it is."""
    more: str = ""
    """What its caption says besides."""


def of_page(story: Story) -> dict[str, Chart]:
    """The charts of a page by name, those that there is something to draw of."""
    return {name: chart for name, chart in _named(story) if chart.spec is not None}


def _named(story: Story) -> Iterator[tuple[str, Chart]]:
    for place, track in enumerate(story.tracks):
        said = f"Latency of each experiment, {words.kind(track)}. {words.gained(track)}."
        yield f"trajectory{place or ''}", Chart(said=said, spec=trajectory(track))
    evidence, timeline = story.material.evidence, story.timeline
    if story.current is not None:
        reached = words.share_of_roofline(story.current)
        said = f"The roofline of the chip. The current kernel reaches {reached} of it."
        yield "roofline", Chart(said=said, spec=roofline(story))
    said = "Measured over modelled latency of each row that has both."
    yield "fidelity", Chart(said=said, spec=fidelity(story), section="believe", more="Dashed: the two agree.")
    if evidence is None:
        return
    if timeline is not None and timeline.blame.lines:
        most = f"For what share of the run each unit is needed. Most: {words.most_needed(timeline)}."
        yield "needed", Chart(said=most, spec=needed(timeline))
        yield "spent", Chart(said="Where each cycle went, by unit.", spec=spent(timeline))
    for place, each in enumerate(timeline.occupancy if timeline is not None else ()):
        said = occupancy_in_words(each)
        yield f"occupancy{place}", Chart(said=f"{said[:1].upper()}{said[1:]}.", spec=occupancy(each))
    for place, kernel in enumerate(evidence.vmem):
        used = f"VMEM of {clean(kernel.op)} by buffer: {size(kernel.used_bytes)} of {size(kernel.limit_bytes)}."
        yield f"vmem{place}", Chart(said=used, spec=vmem(kernel))
    if evidence.step is not None:
        one = evidence.step
        said = f"What goes on in grid step {one.number} of {one.of_steps}."
        yield "step", Chart(said=said, spec=step(one))


# --- what was tried ---


def trajectory(track: Track) -> Spec | None:
    """Latency of every experiment, the kernel in place, and the roofline's floor."""
    known = [one for one in track.experiments if one.latency_ms]
    if not known:
        return None
    latencies = [one.latency_ms for one in known if one.latency_ms]
    floors = [one.floor_ms for one in known if one.floor_ms]
    low, high = min([*latencies, *floors]) / 1.25, max(latencies) * 1.15
    failed_at = high * (high / low) ** 0.07
    numbers = [one.number for one in track.experiments]
    x = alt.X(
        "number:Q",
        title="experiment",
        axis=alt.Axis(format="d", tickMinStep=1),
        scale=alt.Scale(domain=[min(numbers) - 0.5, max(numbers) + 0.5], nice=False),
    )
    y = log_scale(alt.Y, "ms:Q", "latency, ms", low, failed_at * 1.08)
    best = [{"number": one.number, "ms": one.latency_ms} for one in known if one.in_place]
    best += [{"number": numbers[-1], "ms": best[-1]["ms"]}] if best else []
    floor = [{"number": one.number, "ms": one.floor_ms} for one in known if one.floor_ms]
    layers = []
    if floor:
        floor += [{"number": numbers[-1], "ms": floor[-1]["ms"]}]
        line = drawing_of(floor).mark_line(
            interpolate="step-after", strokeDash=[6, 4], color="var(--floor)", strokeWidth=1.5
        )
        layers.append(line.encode(x=x, y=y))
        label = {**floor[-1], "label": f"floor {words.ms(floor[-1]['ms'])}"}
        layers.append(label_of(label, x, y, align="right", baseline="top", dy=4))
    if best:
        line = drawing_of(best).mark_line(interpolate="step-after", color="var(--kept)", strokeWidth=2)
        layers.append(line.encode(x=x, y=y))
    points = [
        _point(one)
        | {
            "ms": one.latency_ms or failed_at,
            "latency": words.ms(one.latency_ms),
            "why": clean(words.why(one), 2 * _NOTE),
        }
        for one in sorted(track.experiments, key=lambda one: one.in_place)
    ]
    tips = [tip("latency", "latency"), tip("why", "outcome")]
    layers.append(_outcomes(points, x, y, tips, opacity=1))
    return spec_of(alt.layer(*layers), height=_HEIGHT)


def roofline(story: Story) -> Spec | None:
    """Useful FLOPs per second over FLOPs per compulsory byte: the roofs of the chip, and the way the kernel went."""
    track = story.main
    chip = CHIPS.get(track.experiments[-1].row.chip) if track else None
    if track is None or chip is None:
        return None
    chips = story.material.problem.mesh.chips if story.material.problem else 1
    bandwidth = chips * chip.hbm_bytes_per_s
    reached = {one.number: at for one in track.experiments if (at := on_roofline(one, bandwidth)) is not None}
    if not reached:
        return None
    compute = compute_roof(track) or chips * chip.peak_bf16_flops / 1e12
    ridge = compute * 1e12 / bandwidth
    intensities = [intensity for intensity, _ in reached.values()]
    left, right = min(*intensities, ridge) / 8, max(*intensities, ridge) * 8
    roof = [
        {"intensity": left, "tflops": left * bandwidth / 1e12, "order": 0},
        {"intensity": ridge, "tflops": compute, "order": 1},
        {"intensity": right, "tflops": compute, "order": 2},
    ]
    lowest = min(tflops for _, tflops in reached.values())
    x = log_scale(
        alt.X, "intensity:Q", "useful FLOPs per compulsory byte", left, right, format="~s", tickCount=4, grid=False
    )
    y = log_scale(alt.Y, "tflops:Q", "TFLOP/s", min(lowest, left * bandwidth / 1e12) / 2, compute * 1.5)
    points = [
        _point(one)
        | {
            "intensity": reached[one.number][0],
            "tflops": reached[one.number][1],
            "reached": words.share_of_roofline(one),
        }
        for one in track.experiments
        if one.number in reached
    ]
    kept = [point for point in points if point["outcome"] in KEPT]
    tips = [tip("tflops", "TFLOP/s", kind="Q", format=".4~g"), tip("reached", "of the roofline")]
    layers = [
        drawing_of(roof).mark_line(color="var(--floor)", strokeWidth=2).encode(x=x, y=y, order="order:Q"),
        drawing_of(kept).mark_line(color="var(--kept)", strokeWidth=1.5).encode(x=x, y=y, order="number:Q"),
        _outcomes(points, x, y, tips, opacity=0.9),
        label_of({**roof[0], "label": f"{bandwidth / 1e9:.0f} GB/s"}, x, y, align="left", baseline="top", dx=10),
        label_of({**roof[2], "label": f"{compute:.0f} TFLOP/s"}, x, y, align="right", dx=-4, dy=-8),
    ]
    current = track.current
    last = [point for point in kept if current and point["number"] == current.number]
    if last and current:
        here = {**last[0], "label": f"now: {words.share_of_roofline(current)}"}
        place = {"align": "left", "baseline": "top", "dx": 10, "dy": 6}  # below a roof that it may be at
        layers.append(label_of(here, x, y, **place, color="var(--ink)", fontWeight="bold"))
    return spec_of(alt.layer(*layers), height=_HEIGHT)


def fidelity(story: Story) -> Spec | None:
    """Measured over modelled latency of every row that has both."""
    rows = [
        {"number": one.number, "ratio": one.ratio, "what": clean(words.title(one), _NOTE), "shown": f"{one.ratio:.3f}"}
        for one in story.experiments
        if one.ratio is not None
    ]
    if not rows:
        return None
    reach = max(0.1, *(abs(one.ratio - 1) for one in story.experiments if one.ratio is not None)) * 1.2
    x = alt.X("number:Q", title="experiment", axis=alt.Axis(format="d", tickMinStep=1))
    y = alt.Y("ratio:Q", title="measured over modelled", scale=alt.Scale(domain=[max(0, 1 - reach), 1 + reach]))
    one_line = drawing_of([{"ratio": 1.0}]).mark_rule(color="var(--floor)", strokeDash=[6, 4]).encode(y=y)
    tips = [tip("number", "experiment", kind="Q"), tip("what", "tried"), tip("shown", "measured over modelled")]
    points = drawing_of(rows).mark_point(filled=True, size=65, color="var(--kept)", opacity=1)
    return spec_of(alt.layer(one_line, points.encode(x=x, y=y, tooltip=tips)), height=220)


def _point(one: Experiment) -> dict[str, object]:
    what = clean(words.title(one), _NOTE)
    return {"number": one.number, "id": one.number, "outcome": one.outcome.value, "what": what}


def _outcomes(points: Rows, x: alt.X, y: alt.Y, tips: list[alt.Tooltip], *, opacity: float) -> alt.Chart:
    """Points of experiments, by outcome; smaller where there are many."""
    names = [name for name in OUTCOMES if any(point["outcome"] == name for point in points)]
    colours, shapes = ([OUTCOMES[name][place] for name in names] for place in (0, 1))
    legend = alt.Legend(title=None, orient="top", symbolSize=80, columns=3)
    marks = drawing_of(points).mark_point(filled=True, size=65 if len(points) <= 60 else 28, opacity=opacity)
    return marks.encode(
        x=x,
        y=y,
        color=alt.Color("outcome:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
        shape=alt.Shape("outcome:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
        tooltip=[tip("number", "experiment", kind="Q", format="d"), tip("what", "tried"), *tips],
    )


# --- where the time and the memory go ---


def needed(timeline: Timeline) -> Spec:
    """For what share of the run each unit is needed at least."""
    rows = [
        {"unit": words.unit(unit), "share": share, "shown": f"{share:.1%}", "rank": rank}
        for rank, (unit, share) in enumerate(words.needed(timeline).items())
        if share >= 0.0005
    ]
    bars = bars_of(rows, color="var(--issue)").encode(
        x=share_axis("share", alt.Scale(domain=[0, 1])),
        y=name_axis("unit", rows),
        tooltip=[alt.Tooltip("unit:N"), tip("shown", "of the run")],
    )
    return spec_of(bars, height=_ROW * len(rows))


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
    bars = bars_of(rows).encode(
        x=share_axis("sum(share)", alt.Scale(domainMin=0)),
        y=name_axis("unit", rows),
        color=colours_of("part", rows, PARTS),
        order="place:Q",
        tooltip=["unit:N", "part:N", "cycles:N", tip("shown", "of the run")],
    )
    return spec_of(bars, height=_ROW * len(order))


def occupancy(kernel: Occupancy) -> Spec | None:
    """How much a kernel's unit is in use along its program, and what keeps it from more."""
    rows = stretch_bars(kernel)
    if not rows:
        return None
    of_time = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X(
        "start:Q",
        title="share of the kernel's time",
        axis=alt.Axis(format=".0%", tickCount=5, grid=False),
        scale=of_time,
    )
    in_use = alt.Axis(format=".0%", tickCount=3)
    y = alt.Y("use:Q", title=f"{words.unit(kernel.unit)} in use", axis=in_use, scale=alt.Scale(domain=[0, 1]))
    drawn = drawing_of(rows)
    coloured = {
        "color": colours_of("kind", rows, LIMITS),
        "tooltip": [tip("share", "of the kernel"), tip("shown", "in use"), tip("why", "limit"), tip("lines", "lines")],
    }
    lost = drawn.mark_rect(opacity=0.4).encode(x=x, x2="end:Q", y=alt.Y("full:Q"), y2=alt.value("height"), **coloured)
    used = drawn.mark_rect().encode(x=x, x2="end:Q", y=y, y2=alt.value("height"), **coloured)
    return spec_of(alt.layer(lost, used), height=_HEIGHT // 2)


def vmem(kernel: Vmem) -> Spec | None:
    """VMEM of a kernel by allocation, beside its limit."""
    if not kernel.allocations:
        return None
    rows = [
        {"buffer": buffer_name(one, rank),
         "bytes": one.size_bytes / (1 << 20), "shown": size(one.size_bytes), "what": allocation_in_words(one),
         "use": one.use.value, "rank": rank}
        for rank, one in enumerate(kernel.allocations)
    ]  # fmt: skip
    limit = [{"bytes": kernel.limit_bytes / (1 << 20), "what": f"limit {size(kernel.limit_bytes)}"}]
    x = alt.X("bytes:Q", title="MiB", axis=alt.Axis(format=".3~r", tickCount=5), scale=alt.Scale(domainMin=0))
    bars = bars_of(rows, color="var(--memory)").encode(
        x=x,
        y=name_axis("buffer", rows),
        tooltip=[tip("what", "buffer"), tip("shown", "size")],
    )
    rule = drawing_of(limit).mark_rule(color="var(--failed)", strokeDash=[5, 3], strokeWidth=1.5)
    rule = rule.encode(x=x, tooltip=[tip("what", "VMEM")])
    return spec_of(alt.layer(bars, rule), height=max(_ROW * len(rows), 2 * _ROW))


def step(one: GridStep) -> Spec:
    """One grid step: copies and waits as they were under way, units by how busy they are."""
    lanes = list(dict.fromkeys(bar.lane for bar in one.bars))
    rows = [step_bar(bar, one) | {"rank": lanes.index(bar.lane)} for bar in one.bars]
    bars = bars_of(rows, band=0.7).encode(
        x=alt.X(
            "start:Q",
            title="µs from the beginning of the step",
            axis=alt.Axis(format=".3~r", tickCount=5),
            scale=alt.Scale(domain=[0, one.end_us - one.start_us], nice=False),
        ),
        x2="end:Q",
        y=name_axis("lane", rows),
        color=colours_of("kind", rows, KINDS),
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.12, 1]), legend=None),
        tooltip=[alt.Tooltip("lane:N"), tip("shown", "what"), tip("took", "lasts")],
    )
    return spec_of(bars, height=_ROW * max(2, len(lanes)))


# --- charts that can be files ---


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A chart that can be a file."""

    title: str
    draw: Callable[[Story], Spec | None]
    missing: str
    """Why there may be nothing to draw."""


def _spent(story: Story) -> Spec | None:
    return spent(story.timeline) if story.timeline and story.timeline.blame.lines else None


def _occupancy(story: Story) -> Spec | None:
    kernels = story.timeline.occupancy if story.timeline else ()
    return occupancy(max(kernels, key=lambda one: one.cycles)) if kernels else None


def _vmem(story: Story) -> Spec | None:
    kernels = story.material.evidence.vmem if story.material.evidence else ()
    return next((vmem(one) for one in kernels if one.allocations), None)


PLOTS = {
    "trajectory": Plot(
        title="latency of each experiment",
        draw=lambda story: trajectory(story.main) if story.main else None,
        missing=_NO_LATENCY,
    ),
    "roofline": Plot(
        title="roofline",
        draw=roofline,
        missing=f"{_NO_LATENCY}, or its FLOPs or the limits of its device are not known",
    ),
    "units": Plot(title="where each cycle went", draw=_spent, missing=_NO_EVIDENCE),
    "occupancy": Plot(title="use along the program", draw=_occupancy, missing=_NO_EVIDENCE),
    "vmem": Plot(title="VMEM by buffer", draw=_vmem, missing=_NO_EVIDENCE),
    "fidelity": Plot(
        title="measured over modelled latency",
        draw=fidelity,
        missing="no row of it has both a measured and a modelled latency",
    ),
}
"""By the name that ``ratchet plot`` takes."""
