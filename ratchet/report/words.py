"""The sentences of a report, and its glossary. Everything that is not ours is cleaned; nothing here is HTML."""

from __future__ import annotations

import shlex
from typing import assert_never

from ratchet.process.boot import home
from ratchet.report.story import Evidence, Experiment, Material, Outcome, Story, Track
from ratchet.tpu.account.band import regime, stored
from ratchet.values import Status, Timeline
from ratchet.values.blame import OUTSIDE
from ratchet.values.loss import (
    CrowdedUnit,
    FormBound,
    IdleSteps,
    LinkWaits,
    Loss,
    MatrixBound,
    NothingLeft,
    Outside,
    Spills,
    Stalls,
    Waits,
)
from ratchet.view.ledger import ORIGINS
from ratchet.view.losses import losses_in_words
from ratchet.view.occupancy import UNITS as SLOTS_AND_CAUSES
from ratchet.view.text import clean, clean_lines, fixed, kind_of, number

UNITS = {
    **SLOTS_AND_CAUSES,
    "VLOAD": "vector loads",
    "VSTORE": "vector stores",
    "SALU": "scalar unit",
    "HBM": "HBM",
    "links": "links between chips",
    OUTSIDE: "operations outside of the kernels",
    "stalls": "empty bundles",
}
"""What a unit is called."""
_REGIMES = {
    "compute": "bound by the matrix units",
    "vector units": "bound by the vector units",
    "dma latency": "bound by the latency of DMAs",
    "bandwidth": "bound by HBM bandwidth",
}
_LIMITS = {
    "compute-bound": "the matrix units",
    "memory-bound": "HBM bandwidth",
    "ici-bound": "the links between chips",
}
GLOSSARY = {
    "modelled": "Computed from the compiler's own schedule for the chip. No device was timed.",
    "measured": "Timed on a device, in several processes.",
    "latency": "Time of one run of the compiled program, from its first instruction to its last.",
    "band": "Where the measured latency is nine times in ten, by the model's errors on published timings.",
    "roofline": "The least time that the problem's floating-point operations at peak rate, or its inputs and outputs "
    "at full memory bandwidth, take on this chip. Nothing can be faster.",
    "floor": "The roofline's least time for this problem, in milliseconds.",
    "regime": "What bounds a program: the matrix units, the vector units, the latency of DMAs or memory bandwidth.",
    "kept": "The experiment was better, so its commit is on the branch.",
    "reverted": "The experiment was correct but not better, so the kernel file was reverted.",
    "failed": "The experiment has no latency: it does not compile, computes something wrong, or could not be judged.",
    "baseline": "The kernel that was in place, judged as it is: the first one, or again after the judge changed.",
    "series": "Experiments whose latencies may be compared: same evaluator, chip, compiler, judge and problem.",
    "seal": "A digest of every file that a verdict follows from. Another seal means another judge.",
    "evidence": "What the judge left on the disk of one experiment: compiled program, timeline, trace.",
    "bundle": "The instructions that a TPU core issues in one cycle. An empty one waits for a result.",
    "DMA": "A copy between memories that runs beside the program.",
    "HBM": "The chip's main memory.",
    "VMEM": "The fast memory that the vector and matrix units work on.",
    "MXU": "A matrix unit: it multiplies matrices.",
    "grid step": "One iteration of a Pallas kernel's pipeline: it works on one block of each operand.",
    "window": "The block of an operand that a grid step works on, in VMEM.",
    "spill": "A vector register stored to memory because too many values are alive.",
    "allowance": "How far one element of the output may be from the float64 reference.",
}
"""The words that not every reader knows."""
_EMPTY, _WAITING = "empty bundles", "waiting"
_BOUND = 0.8
"""A resource that is needed for this share of the run bounds it, whatever else costs time."""


def unit(name: str) -> str:
    """What a unit is called."""
    return UNITS.get(name, clean(name))


def ms(latency_ms: float | None) -> str:
    """``0.3727 ms``; a dash where there is none."""
    return "–" if latency_ms is None else f"{fixed(latency_ms, 4)} ms"


def times_in_words(times: float | None) -> str:
    """``1.96× faster, 49.0 % less time``; ``1.08× slower, 8.5 % more time``; empty where there is nothing to relate."""
    if times is None:
        return ""
    share = abs(1 - 1 / times) * 100
    if share < 0.005:
        return "the same time"
    factor, way, less = (times, "faster", "less") if times > 1 else (1 / times, "slower", "more")
    return f"{_factor(factor)} {way}, {share:.{2 if share < 1 else 1}f} % {less} time"


def _factor(factor: float) -> str:
    if factor >= 1.1:
        return f"{fixed(factor, 3)}×"
    return f"{factor:.3f}×" if factor >= 1.001 else f"{factor:.5f}×"


def title(experiment: Experiment) -> str:
    """The first line of an experiment's note, without the word that begins most of them."""
    lines = clean_lines(experiment.row.note)
    first = lines[0] if lines else "(no note)"
    return first.removeprefix("experiment: ") or first


def kind(track: Track) -> str:
    """``modelled for TPU v5e`` or ``measured on NVIDIA H100``."""
    chip = clean(track.experiments[-1].row.chip)
    if kind_of(track.evaluator) == "modelled":
        return f"modelled for TPU {chip}"
    return f"measured on {chip or clean(track.evaluator)}"


def why(experiment: Experiment) -> str:
    """What became of an experiment and why, in one sentence."""
    status = clean(experiment.row.status)
    if experiment.outcome is Outcome.FAILED:
        return f"{status}: {_meaning(status)}"
    changed = times_in_words(experiment.times)
    if experiment.outcome is Outcome.KEPT:
        return changed or "the first kernel that passes under these conditions"
    if experiment.outcome is Outcome.BASELINE:
        return "HEAD's own kernel, judged as it is"
    if experiment.outcome is Outcome.JUDGED:
        return "judged, and git left alone"
    if not changed:
        return _meaning(status)
    if status == Status.UNCHECKED.name:
        how = "one node alone: reverted, as nobody timed it again"
        return f"{changed} by {how if experiment.measured else 'the model: reverted without checking its values'}"
    if experiment.times and experiment.times > 1 and not experiment.measured:
        return f"{changed}: too near to be ranked, so it counts as the same and was reverted"
    return f"{changed}: correct, but no better, so it was reverted"


def _meaning(status: str) -> str:
    return Status[status].meaning if status in Status.__members__ else "a status that this version does not know"


def gained(track: Track) -> str:
    """How much faster the kernel is than the first one."""
    first, kept = track.first, track.gains
    if first is None:
        return "no experiment has a latency yet"
    if not kept:
        return "no experiment has gained anything yet"
    many = "1 kept experiment" if len(kept) == 1 else f"{len(kept)} kept experiments"
    return f"{times_in_words(track.factor)} than the first kernel ({ms(first.latency_ms)}), by {many}"


def factor(track: Track) -> str:
    """``11.4× faster``; a dash where nothing was gained."""
    return times_in_words(track.factor).partition(",")[0] if track.gains else "–"


def share_of_roofline(experiment: Experiment) -> str:
    """``93.6 %``; a dash where it is not known."""
    share = number(experiment.row.util_pct)
    return "–" if share is None else f"{share:.1f} %"


def limit(story: Story) -> list[str]:
    """What limits the current kernel: sentences, the most important first."""
    current, timeline = story.current, story.timeline
    if current is None:
        return ["Nothing is known: no experiment has a latency."]
    if timeline is not None:
        bound = bound_by(timeline)
        first = [f"{bound[0]}: needed for {bound[1]:.0%} of the run, more than anything else"] if bound else []
        sentences = (*first, *losses_in_words(timeline))
        return [f"{one[:1].upper()}{one[1:].rstrip('.')}." for one in sentences]
    share, regime_of_row = number(current.row.util_pct), current.row.regime
    said = f"By the ledger alone: the roofline of this problem is {_LIMITS.get(regime_of_row, clean(regime_of_row))}"
    said += f", and the kernel reaches {share:.1f} % of it." if share is not None else "."
    wait, latency = number(current.row.wait_ms), current.latency_ms
    waits = f"{wait / latency:.1%} of the time waits for DMAs or other chips." if wait and latency else ""
    return [said, *filter(None, [waits]), no_evidence(story.material, current)]


def no_evidence(material: Material, current: Experiment) -> str:
    """Why there is nothing below the ledger's own numbers, and what to do."""
    if current.measured:
        return "Where cycles go is only known of modelled runs, and none of this kernel is on this disk."
    again = f"{home.PROGRAM} judge {quoted(material.kernel)} --fresh"
    return f"Where cycles go is not on this disk: evidence stays where it was judged. `{again}` judges it again."


def quoted(name: str) -> str:
    """A name as a word of a command that a reader copies."""
    return shlex.quote(clean(name))


def headline_limit(story: Story) -> str:
    """What limits the current kernel, in a few words."""
    current, timeline = story.current, story.timeline
    if timeline is None or not timeline.blame.losses:
        return _LIMITS.get(current.row.regime, clean(current.row.regime) or "–") if current else "–"
    if bound := bound_by(timeline):
        return f"{bound[0]}, {bound[1]:.0%} of the time"
    what, cycles = _loss(timeline.blame.losses[0])
    return f"{what}, {cycles / max(1, timeline.cycles):.0%} of the time"


def bound_by(timeline: Timeline) -> tuple[str, float] | None:
    """The resource that is needed nearly all the time, and its share; None where none is, or the losses say it."""
    resources = {unit: share for unit, share in needed(timeline).items() if unit not in (_EMPTY, _WAITING)}
    name, share = next(iter(resources.items()), ("", 0.0))
    said = any(isinstance(loss, NothingLeft) for loss in timeline.blame.losses)
    return (unit(name), share) if share >= _BOUND and not said else None


def _loss(loss: Loss) -> tuple[str, int]:  # noqa: PLR0911 - one return for each kind of loss
    """A loss in a few words, and the cycles that it takes."""
    match loss:
        case Waits():
            return "waiting for DMAs", loss.wait_cycles
        case Stalls():
            return "empty bundles, which wait for results", loss.stall_cycles
        case Spills():
            return "register spills", loss.cycles
        case IdleSteps():
            return "grid steps without matrix work", loss.cycles
        case CrowdedUnit():
            return unit(loss.unit), loss.cycles
        case Outside():
            return "work outside the kernel", loss.cycles
        case LinkWaits():
            return "traffic between chips", loss.wait_cycles
        case MatrixBound():
            return "matrix units", loss.ceiling_cycles
        case FormBound() | NothingLeft():
            return unit(loss.unit), loss.ceiling_cycles
    assert_never(loss)


def most_needed(timeline: Timeline) -> str:
    """The unit that is needed longest: ``matrix units, 95 % of the time``."""
    name, share = next(iter(needed(timeline).items()), ("–", 0.0))
    return f"{unit(name)}, {share:.0%} of the time"


def needed(timeline: Timeline) -> dict[str, float]:
    """For what share of the run each resource is needed at least, and waits and empty bundles take; largest first."""
    cycles = max(1, timeline.cycles)
    spent: dict[str, int] = {}
    for region in timeline.blame.regions:
        for unit, busy in region.busy_cycles.items():
            spent[unit] = spent.get(unit, 0) + busy
    spent |= {_EMPTY: timeline.empty_bundles, _WAITING: timeline.dma_wait_cycles}
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return {unit: busy / cycles for unit, busy in ordered if busy}


def believe(story: Story) -> list[str]:
    """Whether to believe the current latency, in sentences."""
    current, material = story.current, story.material
    if current is None:
        return []
    said = _measured(current) if current.measured else _modelled(current, story.timeline)
    if material.evidence is not None and material.evidence.instances:
        said.append(_checked(material.evidence))
    said.append(_paired_rows(story))
    if material.origins:
        parts = [f"{count} {ORIGINS[origin]}" for origin, count in material.origins.items() if count]
        said.append(f"Of the {len(material.rows)} rows of this kernel, {', '.join(parts)}.")
    else:
        said.append("Who made the rows is not known: this machine has no key.")
    return said


def _modelled(current: Experiment, timeline: Timeline | None) -> list[str]:
    chip = clean(current.row.chip)
    said = ["The latency is modelled from the compiler's own schedule; no device was timed for it."]
    low, high = number(current.row.band_low_ms), number(current.row.band_high_ms)
    if low and high and current.latency_ms:
        said.append(
            f"Nine times in ten a real TPU {chip} is expected between {fixed(low, 4)} and {fixed(high, 4)} ms "
            f"(up to {(high / current.latency_ms - 1) * 100:.1f} % off)."
        )
    if timeline is not None:
        name = regime(timeline)
        count = stored().count.get((timeline.chip, name), 0)
        rests = f"{count} published timings of {clean(timeline.chip)}"
        said.append(
            f"That band is for programs {_REGIMES[name]}, and rests on {rests} in this regime."
            if count
            else f"No published timing of {clean(timeline.chip)} is {_REGIMES[name]}: the band is the widest of others."
        )
    return said


def bands(story: Story) -> list[tuple[str, str, int, bool]]:
    """The bands of the current chip: what bounds a program, how far off it may be, timings, whether it is this one."""
    current = story.current
    if current is None or current.measured:
        return []
    here = regime(story.timeline) if story.timeline is not None else ""
    known = stored()
    return [
        (_REGIMES[name], f"{known.width[chip, name] * 100:.1f} %", count, name == here)
        for (chip, name), count in known.count.items()
        if chip == current.row.chip and name in _REGIMES
    ]


def _measured(current: Experiment) -> list[str]:
    row = current.row
    timed = f"{clean(row.samples) or '–'} timed calls in {clean(row.launches) or '–'} processes"
    said = [f"The latency is measured on {clean(row.chip) or clean(row.evaluator)}: the median of {timed}."]
    low, high, speedup = number(row.speedup_low), number(row.speedup_high), number(row.speedup)
    if low and high and speedup:
        said.append(
            f"Beside the kernel before, in paired launches, it is {fixed(speedup, 4)} times as fast, "
            f"between {fixed(low, 4)} and {fixed(high, 4)} with the confidence that keeping it asks for."
        )
    return said


def _checked(evidence: Evidence) -> str:
    worst = max(evidence.instances, key=lambda one: one.worst)
    names = ", ".join(clean(one.name) for one in evidence.instances)
    return (
        f"Its values were executed and compared with a float64 reference on {len(evidence.instances)} sets of inputs "
        f"({names}): the largest error is {fixed(worst.worst, 3)} of what is allowed."
    )


def _paired_rows(story: Story) -> str:
    ratios = sorted(one.ratio for one in story.experiments if one.ratio is not None)
    if not ratios:
        return "No row of this kernel has both a measured and a modelled latency, so the model was not tried on it."
    return (
        f"{len(ratios)} rows of this kernel were measured and modelled: measured over modelled is between "
        f"{ratios[0]:.3f} and {ratios[-1]:.3f}."
    )
