"""Where the cycles of a modelled run went, in words: its losses and omissions in sentences, the blame table as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from ratchet.tpu.account.reasons import reasons
from ratchet.values import Copy, Timeline, Verdict
from ratchet.values.blame import (
    BRANCH,
    OTHER,
    OUTSIDE,
    RESULTS,
    STALLS,
    STORES,
    WAITS,
    WEIGHTS,
    Blame,
    LineCost,
    RegionCost,
    StepKind,
)
from ratchet.values.loss import (
    CrowdedUnit,
    FormBound,
    IdleSteps,
    Key,
    LinkWaits,
    Loss,
    MatrixBound,
    NothingLeft,
    Outside,
    Refuted,
    Spills,
    Stalls,
    UnitStall,
    WaitCause,
    Waits,
    key_of,
)
from ratchet.values.omission import (
    LinkModel,
    LocalCopies,
    Omission,
    OpenSemaphore,
    UndecidedBranches,
    Unmodelled,
)
from ratchet.values.place import SourceLine
from ratchet.values.reason import Reason, Use
from ratchet.view.occupancy import UNITS, occupancy_section
from ratchet.view.text import clean, waited, where

_BARE = ("FILL", "SPILL", BRANCH, RESULTS, STORES, OTHER)
_UNITS = {
    **{unit: name if unit in _BARE else f"the {name}" for unit, name in UNITS.items()},
    "HBM": "HBM",
    "links": "the links between chips",
    OUTSIDE: "the operations outside of the kernels",
}

_WAIT_CAUSES = {
    WaitCause.BANDWIDTH: "HBM bandwidth: read less, or read it once",
    WaitCause.LATENCY: "latency, not bandwidth: fewer, larger or more deeply buffered copies would hide it",
}
_MORE = "larger blocks or more independent work per step would fill them"
_FILLED = {
    RESULTS: "products keep the order of the source, so begin the next one before the result of this one is used",
    WEIGHTS: "weights are pushed anew for few rows: more rows for each block of weights would fill them",
    "XLU": "what crosses lanes takes long: sum lane by lane and across once, or reduce several tiles side by side",
    STORES: "loads wait for stores to the same memory: keep the values in registers, or load them later",
    BRANCH: "nothing is scheduled across an end of a turn: fewer, longer turns or steps would fill them",
    "SALU": "scalar code waits for itself: fewer addresses, conditions and copies in a step would fill them",
}
"""What would fill empty bundles, by what most of them wait for."""
_RESOURCES = {
    "HBM": ("HBM", "fewer bytes from and to it"),
    "MXU": ("the matrix units", "fewer or cheaper products"),
    "VSTORE": ("the vector-store slot", "fewer stores"),
    "links": ("the busiest link between chips", "fewer bytes on it"),
}
"""By ``NothingLeft.unit``: its name, and what would relieve it."""
_LINK_CAUSES = {
    WaitCause.BANDWIDTH: "bandwidth of the links",
    WaitCause.LATENCY: "hops and the other chips' pace",
}


def losses_in_words(timeline: Timeline, refuted: Mapping[Key, Refuted] | None = None) -> list[str]:
    """One sentence per loss of ``timeline.blame``, largest first. ``refuted``: those removed before without a gain."""
    words, known = _Words(timeline), refuted or {}
    return [words.of(loss) + words.in_vain(known.get(key_of(loss))) for loss in timeline.blame.losses]


_UNITS_NAMED = 2
"""Of those that empty bundles wait for; all of the time has every one."""
_WORTH = 200
"""What is at least one part in so many of the run has its words."""


def copy_in_words(copy: Copy) -> str:
    """What a copy is for, and of a relayout which layout there is and which is wanted."""
    said = clean(copy.cause.replace("jit(call)/call_exported/", "").replace("jit(program)/", "").replace("/call/", "/"))
    if not copy.has:
        return said
    named = "" if copy.parameter is None else f"input {copy.parameter}, "
    return f"{named}{clean(copy.has)} there, {clean(copy.wants)} wanted: {said}"


def form_in_words(bound: FormBound, timeline: Timeline) -> str:
    """What a kernel's form needs, and what is left above it."""
    least, left = bound.ceiling_cycles / timeline.clock_hz * 1e3, bound.cycles / max(1, timeline.cycles)
    return (
        f"in this form no less than {least:.4g} ms, mostly for {_UNITS.get(bound.unit, bound.unit)}: "
        f"at most {_percent(left)} is left without changing the work that it does"
    )


def reasons_in_words(timeline: Timeline, most: int | None = None) -> list[str]:
    """All of the time by what it goes to, largest first; ``most`` rows, the rest of it in one more."""
    every, cycles = reasons(timeline.blame.regions), max(1, timeline.cycles)
    shown = [one for one in every if one.cycles * _WORTH >= cycles][:most]
    rest = timeline.cycles - sum(one.cycles for one in shown)
    said = [f"{one.cycles / cycles:6.1%}  {_reason(one)}" for one in shown]
    return [*said, f"{rest / cycles:6.1%}  less than {1 / _WORTH:.1%} each"] if rest and most is None else said


def _reason(one: Reason) -> str:
    unit = _UNITS.get(one.unit, one.unit)
    at = f", most {waited(one.place)}"
    match one.use:
        case Use.ISSUE:
            return f"{unit}{at}"
        case Use.EMPTY:
            return f"empty, waiting for {unit}{at}"
        case Use.OUTSIDE:
            return f"outside the kernels: {where(one.place)}"
        case Use.DELAY:
            return f"delays that the compiler asks for{at}"
        case Use.LINKS:
            return f"waiting for other chips{at}"
        case Use.WAIT:
            return f"waiting for DMAs{at}"
        case Use.FIRST | Use.LAST:
            return f"waiting for the {one.use.value}{at}"
    assert_never(one.use)


class _Words:
    """Sentences about one run: shares are of its cycles."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def of(self, loss: Loss) -> str:
        match loss:
            case Waits():
                return self._waits(loss)
            case Stalls():
                return self._stalls(loss)
            case Spills():
                return self._spills(loss)
            case IdleSteps():
                return self._idle_steps(loss)
            case CrowdedUnit():
                return self._crowded(loss)
            case Outside():
                return self._outside(loss)
            case LinkWaits():
                return self._link_waits(loss)
            case MatrixBound() | FormBound() | NothingLeft():
                return self._bound(loss)
        assert_never(loss)

    def in_vain(self, refuted: Refuted | None) -> str:
        if refuted is None:
            return ""
        before, after = self._ms(refuted.before_cycles), self._ms(refuted.after_cycles)
        return f"; REFUTED by {refuted.id}, which brought it from {before} to {after} and was no faster"

    def _waits(self, loss: Waits) -> str:
        return (
            f"{self._share(loss.wait_cycles)} of cycles wait for DMAs, most of it {waited(loss.place)} "
            f"(HBM {_percent(loss.hbm_busy_share)} busy: {_WAIT_CAUSES[loss.cause]}){self._ends(loss)}; "
            f"without the waits {self._at_best(loss)}"
        )

    def _ends(self, loss: Waits) -> str:
        """What is waited for where nothing can hide it."""
        parts = ((loss.first_cycles, "the first blocks"), (loss.last_cycles, "the last results"))
        said = [
            f"{self._share(cycles)} for {what}" for cycles, what in parts if cycles * _WORTH > self._timeline.cycles
        ]
        return f", of it {' and '.join(said)}, beside which nothing runs" if said else ""

    def _stalls(self, loss: Stalls) -> str:
        units = "; ".join(self._unit_stall(stall) for stall in loss.units[:_UNITS_NAMED])
        return (
            f"{self._share(loss.stall_cycles)} of cycles are empty bundles that wait for results"
            f"{f' ({units})' if units else ''}: {_FILLED.get(loss.units[0].unit if loss.units else '', _MORE)}; "
            f"all filled {self._at_best(loss)}"
        )

    def _unit_stall(self, stall: UnitStall) -> str:
        return f"{self._share(stall.cycles)} for {_UNITS.get(stall.unit, stall.unit)}, most at {where(stall.place)}"

    def _spills(self, loss: Spills) -> str:
        return (
            f"{loss.stores:,} spill stores and {loss.loads:,} loads: the store slot is "
            f"{_percent(loss.store_slot_share)} busy, without them {_percent(loss.store_slot_share_without)}; "
            "more than 64 vector registers are alive in a step, smaller pieces of work need fewer; "
            f"then bound by {_UNITS[loss.next_unit]} ({_percent(loss.next_unit_share)} busy): {self._at_best(loss)}"
        )

    def _idle_steps(self, loss: IdleSteps) -> str:
        return (
            f"{loss.steps:,} of {loss.of_steps:,} grid steps do no matrix work and take {self._share(loss.cycles)} of "
            f"cycles ({_percent(loss.wait_share)} of that waiting for DMAs): a grid or an index map without them "
            f"would be {self._at_best(loss)}"
        )

    def _crowded(self, loss: CrowdedUnit) -> str:
        name = _UNITS[loss.unit]
        return (
            f"{name} {'have' if name.endswith('s') else 'has'} no free place in {_percent(loss.full_share)} of the "
            f"kernels' cycles ({_percent(loss.busy_share)} busy in all"
            f"{', spills left out' if loss.without_spills else ''}), "
            f"most for {where(loss.place)}; without these cycles {self._at_best(loss)}"
        )

    def _outside(self, loss: Outside) -> str:
        times = f", {loss.executions}x," if loss.executions > 1 else ""
        return (
            f"outside the kernel: {'waiting for ' if loss.waiting else ''}{where(loss.place)}{times} takes "
            f"{self._ms(loss.cycles)}, {self._share(loss.cycles)}"
            f"{f': {copy_in_words(loss.copy)}' if loss.copy is not None else ''}"
        )

    def _link_waits(self, loss: LinkWaits) -> str:
        return (
            f"{self._share(loss.wait_cycles)} of cycles wait for traffic between chips "
            f"(busiest link {_percent(loss.busiest_link_share)} busy): {_LINK_CAUSES[loss.cause]}"
        )

    def _bound(self, loss: MatrixBound | FormBound | NothingLeft) -> str:
        if isinstance(loss, NothingLeft):
            return self._nothing_left(loss)
        if isinstance(loss, FormBound):
            return form_in_words(loss, self._timeline)
        return (
            f"the matrix products alone need {self._ms(loss.ceiling_cycles)}: the busiest matrix unit is occupied "
            f"{self._share(loss.ceiling_cycles)} of the time"
        )

    def _nothing_left(self, loss: NothingLeft) -> str:
        name, less = _RESOURCES[loss.unit]
        busy = f"{name} for {self._share(loss.ceiling_cycles)} of the time"
        if not loss.saturated:
            return f"nothing left: no loss costs half a percent of the run, which needs {busy}"
        return f"nothing left: the run needs {busy}, so only {less} would make it faster"

    def _at_best(self, loss: Loss) -> str:
        return f"at best {self._ms(loss.ceiling_cycles)}"

    def _ms(self, cycles: int) -> str:
        return f"{cycles / self._timeline.clock_hz * 1e3:.3g} ms"

    def _share(self, cycles: int) -> str:
        return _percent(cycles / max(1, self._timeline.cycles))


UNMODELLED = {
    Unmodelled.SURROUNDINGS: "clock throttling under power limits, contention for VMEM ports, the launch from the host",
    Unmodelled.COMPUTED_ASSERTIONS: "assertions on values that vector code computes: they are taken to hold",
    Unmodelled.FLOAT_TABLES: "other float inputs: XLA computes tables that steer the kernel from floats, and the "
    "latency is that of the problem's public ones, on which the kernel was checked, too",
    Unmodelled.LAUNCH_CHECK: "the launch check: before the program the chips compare what each was asked to run, "
    "which is taken to agree",
    Unmodelled.STREAMS: "kernels of the SparseCores: their streams have the time of published gathers, of one kind and "
    "three chips, whatever rows are asked for; the band is wide",
    Unmodelled.EXCHANGES: "collectives that XLA leaves to the SparseCores: they have the time of their bytes, as "
    "fitted on published all-gathers of four devices, and begin at once on all chips",
}


def omissions_in_words(timeline: Timeline) -> list[str]:
    """One sentence for each thing that the model leaves out or assumes for this program."""
    return [_omission(omission, timeline) for omission in timeline.not_modelled]


def notes(verdict: Verdict) -> list[str]:
    """What a reader of a verdict must know: its own notes, and what the model leaves out."""
    omissions = omissions_in_words(verdict.timeline) if verdict.timeline is not None else []
    return [*verdict.notes, *omissions]


def _omission(omission: Omission, timeline: Timeline) -> str:
    match omission:
        case Unmodelled():
            return UNMODELLED[omission]
        case LocalCopies():
            return (
                f"measured speed of DMAs between on-chip memories ({omission.bytes} bytes here): bandwidth and latency "
                "are assumed"
            )
        case UndecidedBranches():
            fast, slow = (cycles / timeline.clock_hz * 1e3 for cycles in (omission.fast_cycles, omission.slow_cycles))
            return (
                f"branches on computed values: taking all or none of them makes {fast:.4g} ms and {slow:.4g} ms, "
                "the slower is reported"
            )
        case LinkModel():
            return (
                "speed and latency of the links between chips beyond "
                f"{omission.link_bytes_per_s / 1e9:g} GB/s per link and direction and {omission.hop_s * 1e6:g} us per "
                f"hop, which were {clean(omission.source)}"
            )
        case OpenSemaphore():
            return f"semaphore between chips that does not end at 0: {clean(omission.name)} at {omission.value}"
    assert_never(omission)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


_WHERE = 34
_SOURCE = 60
_PARTS = 3
"""Parts of a line's cycles that are shown."""
_LEAST = 0.001
"""Lines below this share of the run are put together."""
_LIMITS = {STALLS: "dependencies", WAITS: "DMA waits"}
_OTHERS = "(others)"
_STRETCHES = 24
"""Of a kernel that are shown."""


def blame_text(timeline: Timeline, *, title: str, kernel_file: str = "", source: str = "") -> str:
    """All of ``timeline.blame``, without a final newline.

    ``source`` is the text of the kernel file and ``kernel_file`` its name: lines are quoted below their costs.
    """
    blame = timeline.blame
    quoted = source.splitlines()
    lines = [
        f"blame of {clean(title)} (modelled, TPU {timeline.chip}, {clean(timeline.compiler)}): "
        f"{timeline.cycles:,} cycles, {timeline.latency_ms:.4f} ms",
        "",
        "all of the time",
        *(f"  {sentence}" for sentence in reasons_in_words(timeline)),
        "",
        "losses, largest first",
        *(f"  {rank}. {sentence}" for rank, sentence in enumerate(losses_in_words(timeline), start=1)),
        *occupancy_section("occupancy along the program", timeline, rows=_STRETCHES),
        "",
        "lines: every cycle is in one row; a bundle is shared equally by its instructions, an empty one goes to what",
        "the next one waits for; slots are issue slots left empty in the row's cycles",
        *_lines(blame, max(1, timeline.cycles), quoted, kernel_file),
        "",
        "regions: first and last grid step (with filling and draining the pipeline), steady steps in between",
        *_regions(blame.regions),
    ]
    if blame.steps:
        lines += ["", "grid steps by the path they took through the program", *_steps(blame.steps)]
    return "\n".join(lines)


def _lines(blame: Blame, cycles: int, quoted: Sequence[str], kernel_file: str) -> Iterator[str]:
    yield (
        f"  {'cycles':>11} {'%':>5}  {'where':{_WHERE}} {'issue':>5} {'stall':>5} {'DMA':>5} {'slots':>12} "
        f"{'spills':>8} {'fills':>8}  mostly"
    )
    for line in blame.lines:
        if line.cycles < _LEAST * cycles:
            continue
        yield _row(line, cycles)
        text = _quote(line, quoted, kernel_file)
        if text:
            yield f"  {'':19}  | {text}"
    rest = [line for line in blame.lines if line.cycles < _LEAST * cycles]
    if rest:
        spent = sum(line.cycles for line in rest)
        yield f"  {spent:>11,} {spent / cycles:>5.1%}  {len(rest)} more with less than {_LEAST:.1%} each"


def _row(line: LineCost, cycles: int) -> str:
    issue, stall = sum(line.issue_cycles.values()), sum(line.stall_cycles.values())
    parts = {**line.issue_cycles, **{f"waits for {unit}": spent for unit, spent in line.stall_cycles.items()}}
    parts |= {"waits for DMA": line.wait_cycles, "delay": line.delay_cycles}
    shares = " ".join(f"{part / cycles:>5.1%}" for part in (issue, stall, line.wait_cycles))
    return (
        f"  {line.cycles:>11,} {line.cycles / cycles:>5.1%}  {clean(where(line.place), _WHERE):{_WHERE}} {shares} "
        f"{line.empty_slots:>12,} {line.spill_stores:>8,} {line.spill_loads:>8,}  {mostly(parts, line.cycles)}"
    )


def mostly(parts: Mapping[str, int], cycles: int) -> str:
    """The largest parts of a line's cycles: ``MXU 61%, waiting 20%``."""
    largest = sorted((part for part in parts if parts[part]), key=lambda part: -parts[part])[:_PARTS]
    return ", ".join(f"{part} {parts[part] / max(1, cycles):.0%}" for part in largest)


def _quote(line: LineCost, quoted: Sequence[str], kernel_file: str) -> str:
    place = line.place
    if not isinstance(place, SourceLine) or place.file != kernel_file or place.line > len(quoted):
        return ""
    return clean(quoted[place.line - 1].strip(), _SOURCE)


def _regions(regions: Sequence[RegionCost]) -> Iterator[str]:
    for region in regions:
        cycles = max(1, region.cycles)
        busy = sorted(region.busy_cycles.items(), key=lambda item: -item[1])[:4]
        units = ", ".join(f"{unit} {needed / cycles:.0%}" for unit, needed in busy if needed)
        named = f"{clean(region.kernel)} {region.name}".strip()
        per_step = f" ({region.cycles / region.steps:,.0f} a step)" if region.steps else ""
        bound = f"; bound by {_LIMITS.get(region.critical, region.critical)}" if region.critical else ""
        yield (
            f"  {named}: {region.cycles:,} cycles{per_step}, {region.stall_cycles / cycles:.0%} empty, "
            f"{region.wait_cycles / cycles:.0%} waiting for DMAs{f'; busy: {units}' if units else ''}{bound}"
        )


def _steps(kinds: Sequence[StepKind]) -> Iterator[str]:
    for kind in kinds:
        cycles = max(1, kind.cycles)
        each = f"{kind.least_cycles:,}" if kind.least_cycles == kind.most_cycles else (
            f"{kind.least_cycles:,}–{kind.most_cycles:,}"
        )  # fmt: skip
        yield (
            f"  {kind.steps:>9,} of {clean(kind.kernel) or _OTHERS}: {each} cycles each, {kind.cycles:,} together; "
            f"matrix units {kind.mxu_cycles / cycles:.0%} busy, {kind.stall_cycles / cycles:.0%} empty, "
            f"{kind.wait_cycles / cycles:.0%} waiting for DMAs"
        )
