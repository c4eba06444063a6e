"""The blame table as text: where every cycle of a modelled run went. ``hlo_dumps/<id>/blame.txt`` and ``--deep``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratchet.values import Timeline
from ratchet.values.blame import STALLS, WAITS, Blame, LineCost, RegionCost, StepKind
from ratchet.values.place import SourceLine
from ratchet.view.losses import losses_in_words
from ratchet.view.places import where
from ratchet.view.text import clean

_WHERE = 34
_SOURCE = 60
_PARTS = 3
"""Parts of a line's cycles that are shown."""
_LEAST = 0.001
"""Lines below this share of the run are put together."""
_LIMITS = {STALLS: "dependencies", WAITS: "DMA waits"}
_OTHERS = "(others)"


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
        "losses, largest first",
        *(f"  {rank}. {sentence}" for rank, sentence in enumerate(losses_in_words(timeline), start=1)),
        "",
        "lines: every cycle is in one row; a bundle is shared equally by its instructions, an empty one goes to what",
        "the next one waits for (? where that is not known); slots are issue slots left empty in the row's cycles",
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
    parts = {unit: spent for unit, spent in line.issue_cycles.items()}
    parts |= {f"waits for {unit}": spent for unit, spent in line.stall_cycles.items()}
    parts |= {"waits for DMA": line.wait_cycles, "delay": line.delay_cycles}
    largest = sorted((part for part in parts if parts[part]), key=lambda part: -parts[part])[:_PARTS]
    mostly = ", ".join(f"{part} {parts[part] / max(1, line.cycles):.0%}" for part in largest)
    shares = " ".join(f"{part / cycles:>5.1%}" for part in (issue, stall, line.wait_cycles))
    return (
        f"  {line.cycles:>11,} {line.cycles / cycles:>5.1%}  {clean(where(line.place), _WHERE):{_WHERE}} {shares} "
        f"{line.empty_slots:>12,} {line.spill_stores:>8,} {line.spill_loads:>8,}  {mostly}"
    )


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
