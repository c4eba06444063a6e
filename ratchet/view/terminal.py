"""What a person reads when a verdict is there: a report of about twenty lines and the RESULT line.

Every line of a report but the first is indented, and all text that came from outside goes through
``clean``: nothing that a kernel, a note or a compiler says can pass for a line of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ratchet.values import (
    SCORED,
    Band,
    Copy,
    Footprint,
    Paired,
    Parity,
    ProblemCost,
    Row,
    Samples,
    Score,
    Step,
    Timeline,
    Verdict,
)
from ratchet.values.loss import Key, Refuted
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Status
from ratchet.values.verdict import MODELLED_STEPS
from ratchet.view.losses import losses_in_words, notes
from ratchet.view.text import (
    cause,
    clean,
    clean_lines,
    columns,
    fixed,
    kind_of,
    number,
    size,
    time_change,
    times,
    wrapped,
)
from ratchet.view.verdict_json import hint, reason_beyond, summary_beyond

_SHOWN_S = 0.05
"""Seconds below which a step that passed is not worth a word."""
WIDTH = 108
_LABEL = 12
_LOSSES = 3
_NOTES = 4
_PROBLEMS = 12

Lines = Iterator[tuple[str, str]]
"""Pairs of a label and what it says; an empty label goes on with the one before."""


def result_line(score: Score | None, *, decision: str, status: Status, why: str = "") -> str:
    """The last line of normal output, for shells and agents. The keys always come in this order:

    ``RESULT: score=1234.5 latency=2.5000ms util=30.25% tflops=59.50 decision=kept``

    The status follows where it is not PASS. Without a score the four numbers are ``none``:

    ``RESULT: score=63.156 latency=7.4321ms util=4.69% tflops=9.25 decision=reverted status=NOT_BETTER``
    ``RESULT: score=none latency=none util=none tflops=none decision=reverted status=WRONG_VALUES``

    The cause comes last, in double quotes, where ``why``, a reason, says anything: ``why="slower: …"``.
    """
    quoted = cause(why).replace('"', "'")
    end = "" if status is Status.PASS else f" status={status.name}"
    end += f' why="{quoted}"' if quoted else ""
    decision = "-".join(clean(decision).split()) or "none"
    if score is None:
        return f"RESULT: score=none latency=none util=none tflops=none decision={decision}{end}"
    return (
        f"RESULT: score={fixed(score.score)} latency={fixed(score.latency_ms)}ms "
        f"util={score.util_pct:.2f}% tflops={score.tflops:.2f} decision={decision}{end}"
    )


def report(  # noqa: PLR0913 - the verdict, and by keyword what the loop adds to it
    verdict: Verdict,
    *,
    decision: str,
    reason: str,
    id: str,
    commit: str = "",
    incumbent: Row | None = None,
    outcome: Status | None = None,
    refuted: Mapping[Key, Refuted] | None = None,
    changed: str = "",
    width: int | None = None,
) -> str:
    """The verdict in about twenty lines, without a final newline.

    ``decision`` and ``reason`` are the loop's. ``incumbent`` is the row that the kernel was compared with.
    ``outcome`` is the status of the whole experiment where it is not the verdict's: ``NOT_BETTER``.
    ``refuted`` are the losses that earlier experiments removed without a gain. ``changed`` says that the problem is
    another one than the kernel file had before, which is in the first line. ``width``: lines are no longer than that.
    """
    status = outcome or verdict.status
    why = reason if verdict.score is not None else _beyond(verdict, reason)
    made_in = f"commit {commit[:12]}" if commit else f"experiment {id}"
    pairs = (
        *_judged(verdict, incumbent, refuted),
        *_listed("stages", stages(verdict, incumbent), limit=2),
        ("evidence", f"hlo_dumps/{id} · profile_data/{id} · {made_in}"),
        ("decision", f"{decision}: {why}" if why else decision),  # last, beside the RESULT line
    )
    lines = [f"{status.name}: {status.meaning}" + (f" · {clean(changed)}" if changed else "")]
    for label, said in pairs:
        lines += wrapped(
            clean(said) or "-", max(40, min(WIDTH, width or WIDTH)), f"  {label:<{_LABEL}} ", " " * (_LABEL + 3)
        )
    return "\n".join(lines)


def _beyond(verdict: Verdict, reason: str) -> str:
    """The cause, and what the reason of a decision adds to the verdict's own, which is printed above in full."""
    return "; ".join(one for one in (cause(reason), reason_beyond(verdict, reason)) if one)


def _judged(verdict: Verdict, incumbent: Row | None, refuted: Mapping[Key, Refuted] | None) -> Lines:
    """What a verdict says by itself."""
    kind = kind_of(verdict.conditions.evaluator)
    if verdict.score is None:
        yield from _listed("why", clean_lines(verdict.reason), limit=6)
        if advice := hint(verdict.status, verdict.reason):
            yield "hint", advice
        failed = [step for step in verdict.steps if step.status is not Status.PASS]
        yield from _listed("failed step", [_failed(verdict, step) for step in failed], limit=2)
    yield from _by(verdict, kind)
    if verdict.score is not None:
        yield from _score(verdict, verdict.score, kind, incumbent)
    deciding_first = sorted(verdict.problems, key=lambda one: one.status in SCORED and not one.slower)
    yield from _listed("problems", columns(list(map(_problem, deciding_first))), limit=_PROBLEMS)
    if verdict.samples is not None:
        yield from _samples(verdict.samples, verdict.paired, verdict.timeline, verdict.score)
    if verdict.timeline is not None and verdict.timeline.chips:
        yield "chips", _chips(verdict.timeline, verdict.score)
    if verdict.footprint is not None:
        yield from _footprint(verdict.footprint, verdict.timeline)
        yield from _copies(verdict.copies)
    if verdict.parity is not None:
        yield "correctness", _parity(verdict.parity)
    elif verdict.status is Status.UNCHECKED and verdict.samples is None:
        yield "correctness", "not checked, because the kernel is too slow to be kept: --deep checks it all the same"
    if verdict.timeline is not None:
        sentences = losses_in_words(verdict.timeline, refuted)[:_LOSSES]
        yield from _listed("losses", [f"{rank}. {said}" for rank, said in enumerate(sentences, start=1)], limit=_LOSSES)
    wrong = [claim for claim in verdict.claims if not claim.agrees]
    yield from _listed("claims", [f"{c.what}: claimed {c.claimed}, found {c.found}" for c in wrong], limit=3)
    yield from _listed("notes", notes(verdict), limit=_NOTES)


def _by(verdict: Verdict, kind: str) -> Lines:
    """What was judged, by whom, and when that was where the verdict is remembered."""
    conditions, many = verdict.conditions, len(verdict.problems)
    at = f" at {many} problem{'s' if many > 1 else ''}" if many else ""
    yield "kernel", f"{verdict.kernel} · {verdict.kernel_name}{at} · sha256 {verdict.source_sha256[:12]}"
    how = "modelled: no device was timed" if kind == "modelled" else "measured on the device"
    device = conditions.chip if conditions.evaluator in ("cpu", "gpu") else f"TPU {conditions.chip}"
    yield "judged by", f"{conditions.evaluator} ({how}) · {device} · {conditions.compiler}"
    if verdict.remembered is not None:
        earlier = verdict.remembered
        who = f"experiment {earlier.experiment}" if earlier.experiment else "a sweep"
        yield "remembered", f"{who} judged the same program at {earlier.time}; --fresh judges it again"


def _failed(verdict: Verdict, step: Step) -> str:
    summary = summary_beyond(verdict, step)
    return f"{step.name} after {step.seconds:.1f} s" + (f": {summary}" if summary else "")


def _listed(label: str, lines: Sequence[str], *, limit: int) -> Lines:
    """One line each under one label; says how many were left out."""
    shown = list(lines[:limit])
    if len(lines) > limit:
        shown[-1] += f" (and {len(lines) - limit} more: see --json)"
    yield from ((label if place == 0 else "", line) for place, line in enumerate(shown))


def _score(verdict: Verdict, score: Score, kind: str, incumbent: Row | None) -> Lines:
    problems = len(verdict.problems)
    mean = f", geometric mean of {problems} problems, as are the other numbers here" if problems > 1 else ""
    flops = f" · {score.tflops:.2f} TFLOP/s" if score.tflops else ""
    yield "latency", f"{fixed(score.latency_ms)} ms {kind}{mean}{flops}"
    before = number(incumbent.median_ms) if incumbent else None
    if incumbent is not None and before and kind == "modelled":  # measured: see the speed-up
        faster = before / score.latency_ms
        yield (
            "",
            f"{times(faster)} as fast as the incumbent at {incumbent.commit[:9]}, {fixed(before)} ms: "
            f"time {time_change(faster)}",
        )
    if score.band is not None:
        yield (
            "band",
            f"{fixed(score.band.low_ms)} to {fixed(score.band.high_ms)} ms: {_rests_on(verdict, score.band)} · "
            f"{fixed(score.wait_ms)} ms of it is waiting",
        )
    yield "score", fixed(score.score)
    yield (
        "roofline",
        f"{score.util_pct:.2f} % reached · {score.regime} · compulsory bytes use {score.bw_util_pct:.2f} % of HBM",
    )


def _problem(one: ProblemCost) -> list[str]:
    """Name, chip, latency beside that of HEAD's file, and what became of it."""
    if one.latency_ms is None:
        return [one.name, one.chip, "", "", "", one.status.name]
    now = f"{fixed(one.latency_ms)} ms"
    before = f"{fixed(one.before_ms)} ->" if one.before_ms else ""
    moved = time_change(1 / one.ratio) if one.ratio else ""
    of = f"SLOWER than the {one.allowed_share * 100:g} % allowed" if one.slower else ""
    share = f"{one.util_pct:.2f} % of the roofline" if one.util_pct is not None else ""
    return [one.name, one.chip, before, now, moved, of or share]


def _rests_on(verdict: Verdict, band: Band) -> str:
    if verdict.timeline is not None and Unmodelled.STREAMS in verdict.timeline.not_modelled:
        return "a guess at three times the errors of the few published gathers of SparseCores"
    return f"9 of 10 published timings of programs bound by {band.bound_by} were this near"


def _samples(samples: Samples, paired: Paired | None, timeline: Timeline | None, score: Score | None) -> Lines:
    medians = sorted(samples.medians_ms)
    yield (
        "timing",
        f"{samples.calls} calls in {len(medians)} launches by the {samples.clock} clock, in {samples.seconds:.0f} s · "
        f"medians of the launches {fixed(medians[0], 4)} to {fixed(medians[-1], 4)} ms",
    )
    if timeline is not None:
        ratio = samples.latency_ms / timeline.latency_ms
        band = score.band if score is not None else None
        outside = band is not None and not band.low_ms <= samples.latency_ms <= band.high_ms
        yield (
            "model",
            f"{fixed(timeline.latency_ms)} ms modelled · measured over modelled {ratio:.3f}"
            + (", OUTSIDE the model's band" if outside else ""),
        )
    if paired is not None:
        interval = f"{paired.low:.4f} to {paired.high:.4f}" if paired.low > 0 else "too few launches for an interval"
        yield (
            "speed-up",
            f"{paired.speedup:.4f} over the incumbent, timed beside it (95 %: {interval}) · {paired.answer}",
        )


def _chips(timeline: Timeline, score: Score | None) -> str:
    us = 1e6 / timeline.clock_hz
    busiest = max(timeline.links, key=lambda link: link.bytes, default=None)
    said = [
        f"{len(timeline.chips)}, chip {timeline.chip_index} the slowest (place {timeline.place} in the mesh)",
        f"{timeline.launch_cycles * us:.1f} us of it are the launch barrier before the program",
        f"{timeline.ici_wait_cycles * us:.1f} us waiting for each other, the barrier included",
    ]
    if busiest is not None:
        share = f", {score.ici_util_pct:.2f} % of what it can carry" if score else ""
        said.append(f"busiest link {busiest.source_chip} to {busiest.target_chip}: {size(busiest.bytes)}{share}")
    return " · ".join(said)


def _footprint(memory: Footprint, timeline: Timeline | None) -> Lines:
    share = 100 * memory.vmem_bytes / max(1, memory.vmem_limit_bytes)
    largest = max(memory.vmem_buffers, key=lambda buffer: buffer.size_bytes, default=None)
    most = f" · largest: {largest.name} {size(largest.size_bytes)}" if largest else ""
    yield "VMEM", f"{size(memory.vmem_bytes)} of {size(memory.vmem_limit_bytes)} ({share:.0f} %){most}"
    moved = ""
    if timeline is not None:
        moved = f" · modelled traffic {size(timeline.hbm_read_bytes)} read, {size(timeline.hbm_write_bytes)} written"
    yield "HBM", f"{size(memory.hbm_bytes)} of {size(memory.hbm_limit_bytes)}{moved}"
    yield "spills", f"{memory.spill_stores} stores, {memory.spill_loads} loads (instructions in the kernels)"


def _copies(copies: Sequence[Copy]) -> Lines:
    """Prefetches only move what the kernel reads anyway, so they are counted apart."""
    real = [copy for copy in copies if copy.kind != "prefetch"]
    counts = []
    for said, chosen in (
        ("injected by the compiler", [copy for copy in real if copy.injected]),
        ("asked for by the program", [copy for copy in real if not copy.injected]),
        ("prefetched", [copy for copy in copies if copy.kind == "prefetch"]),
    ):
        if chosen:
            counts.append(f"{len(chosen)} {said} ({size(sum(copy.size_bytes for copy in chosen))})")
    yield "copies", " · ".join(counts) or "none"
    if real:
        worst = max(real, key=lambda copy: (copy.injected, copy.size_bytes))
        yield "", f"{worst.instruction}, {worst.kind}: {worst.cause}"


def _parity(parity: Parity) -> str:
    return (
        f"{len(parity.checks)} checks · worst error {fixed(parity.worst_error, 3)} of its allowance · "
        f"rms {parity.rms_error:.2e} (plain XLA {parity.floor_rms_error:.2e}) · "
        f"executed from Mosaic module v{parity.module_version} in {parity.seconds:.1f} s"
    )


def stages(verdict: Verdict, incumbent: Row | None = None) -> list[str]:
    """Of a verdict that did not take every stage: seconds of each, which refused; what was left out, seconds saved.

    Stages run beside each other, so their seconds add up to more than those of the verdict. Saved are the seconds by
    which the verdict was shorter than the incumbent's, whose row has them. Nothing where every stage ran and passed.
    """
    left_out = _left_out(verdict)
    if not left_out and all(step.status is Status.PASS for step in verdict.steps):
        return []
    said = [_stage(step) for step in verdict.steps if step.seconds >= _SHOWN_S or step.status is not Status.PASS]
    rest = [*([f"left out: {', '.join(left_out)}"] if left_out else []), *_saved(verdict, incumbent)]
    return [f"{verdict.seconds:.1f} s: " + " · ".join(said), *([" · ".join(rest)] if rest else [])]


def _stage(step: Step) -> str:
    match step.status:
        case Status.PASS:
            return f"{step.name} {step.seconds:.1f}"
        case Status.UNCHECKED:
            return f"{step.name} not checked, ended after {step.seconds:.1f}"
        case _:
            return f"{step.name} refused after {step.seconds:.1f}"


def _left_out(verdict: Verdict) -> Sequence[str]:
    """Stages of a modelled verdict that did not run; of a remembered one, when it was made."""
    ran = {step.name for step in verdict.steps}
    modelled = kind_of(verdict.conditions.evaluator) == "modelled"
    if not ran or not modelled:
        return []
    if not verdict.problems:
        return [name for name in MODELLED_STEPS if name not in ran]
    last = verdict.problems[-1].name  # all before it passed every stage
    missing = [name for name in MODELLED_STEPS if f"{last}: {name}" not in ran]
    return [f"{last}: {', '.join(missing)}"] if missing else []


def _saved(verdict: Verdict, incumbent: Row | None) -> list[str]:
    before = number(incumbent.seconds) if incumbent is not None else None
    if before is None or before - verdict.seconds < _SHOWN_S:
        return []
    return [f"{before - verdict.seconds:.1f} s less than the {before:.1f} s of the incumbent's verdict"]
