"""The ledger as a person reads it: what each experiment gained, and all rows as tables.

Modelled latencies are compared with the kept one before, where both were judged under the same conditions. Of measured
ones the speed-up is what launches beside each other gave: two medians of different days decide nothing.
"""

from __future__ import annotations

import io
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ratchet.loop.decide import conditions_of
from ratchet.loop.frozen import current
from ratchet.loop.ledger import MERGED
from ratchet.loop.rows import repeats
from ratchet.loop.series import Proof, series_of
from ratchet.values import Conditions, Fidelity, Row
from ratchet.values.row import Origin, Origins
from ratchet.values.status import CORRECT
from ratchet.view.document import numbers, plain
from ratchet.view.text import clean, first_line, fixed, kind_of, number, time_change, times

_NUMBERS = (
    "score median_ms util_pct tflops bw_util_pct wait_ms band_low_ms band_high_ms modelled_ms speedup speedup_low "
    "speedup_high seconds"
).split()
_COUNTS = "vmem_bytes spills launches samples".split()
_HEADINGS = ("", "id", "commit", "score", "ms", "faster", "time", "util %", "status", "note")
_RIGHT = {"score", "ms", "faster", "time", "util %"}
_DISPENSABLE = tuple(map(_HEADINGS.index, ("commit", "score", "util %", "faster")))
"""Columns that go first where a terminal has no room for notes."""
_NOTE = 30
"""Cells that notes should have."""
_NARROW = 72
"""Below this width a row is several lines."""
_CORRECT = {status.name for status in CORRECT}
ORIGINS = {
    Origin.HERE: "made with this machine's key",
    Origin.ELSEWHERE: "signed with another key",
    Origin.UNSIGNED: "not signed",
    Origin.FORGED: "FORGED",
}
_LISTED = 10
_COMPARED = "faster, time: beside the one kept before it under the same conditions; measured ones are timed beside it"
_LEGEND = f"* kept, or the baseline; newest last; {_COMPARED}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row beside the kept one that it is compared with."""

    row: Row
    before: Row | None
    """The kept one before it under the same conditions."""
    latency_ms: float | None
    faster: float | None
    """The time before over the time now: 2 is twice as fast, below 1 is slower."""
    repeats: str = ""
    """Id of the row whose result this one only repeats; ``""`` where it says something new."""
    again: int = 0
    """How many later rows only repeat this one."""

    @property
    def kind(self) -> str:
        """``modelled`` or ``measured``; ``""`` where nothing says."""
        return kind_of(self.row.evaluator) if self.row.evaluator else ""

    @property
    def kept(self) -> bool:
        return self.row.in_place

    @property
    def time_change_pct(self) -> float | None:
        """By how many per cent the time grew; negative where it shrank."""
        return None if self.faster is None else 100 * (1 / self.faster - 1)


def entries(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """An entry for each row, in order."""
    latest: dict[tuple[str, Conditions], Row] = {}
    repeated = repeats(rows)
    again = Counter(repeated.values())
    made = []
    for row in rows:
        conditions = (row.kernel, conditions_of(row))
        before = latest.get(conditions)
        latency = _positive(row.median_ms)
        made.append(
            Entry(
                row=row,
                before=before,
                latency_ms=latency,
                faster=_faster(row, before, latency),
                repeats=repeated.get(row.id, ""),
                again=again[row.id],
            )
        )
        if row.in_place and latency is not None:
            latest[conditions] = row
    return tuple(made)


def by_evaluator(made: Iterable[Entry]) -> Mapping[tuple[str, str], list[Entry]]:
    """Entries by kernel file and evaluator, whose latencies are never compared.

    Left out are those that only repeat, and merges, which are of no kernel.
    """
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in made:
        if not entry.repeats and entry.row.decision != MERGED:
            found.setdefault((entry.row.kernel, entry.row.evaluator), []).append(entry)
    return found


def entry_document(entry: Entry) -> dict[str, Any]:
    """A row as JSON: every column, numbers as numbers, null where there is none; and what it gained."""
    return {
        **plain(entry.row, {Row: {...: (), **numbers(*_NUMBERS)}}),
        **{name: None if (value := number(getattr(entry.row, name))) is None else int(value) for name in _COUNTS},
        "kind": entry.kind,
        "repeats": entry.repeats or None,
        "judged_again": entry.again,
        "against": entry.before.id if entry.before and entry.faster is not None else None,
        "times_faster": entry.faster,
        "time_change_pct": entry.time_change_pct,
    }


def _faster(row: Row, before: Row | None, latency: float | None) -> float | None:
    if row.evaluator and kind_of(row.evaluator) == "measured":
        return _positive(row.speedup)
    earlier = _positive(before.median_ms) if before else None
    return earlier / latency if earlier and latency else None


def _positive(text: str) -> float | None:
    value = number(text)
    return value if value is not None and value > 0 else None


# --- tables ---


def log_table(rows: Sequence[Row], *, width: int | None = None, colour: bool = False) -> str:
    """All rows, newest last, the series one after the other; kept ones and baselines carry a mark.

    A series is a kernel file by one evaluator: latencies of two evaluators are never compared. Before all comes when
    problems were frozen, first those in another's place.

    Args:
      rows: of the ledger, oldest first.
      width: columns of the terminal: less important ones are left out and notes cut. None leaves everything whole.
      colour: whether to mark rows by colour.
    """
    if not rows:
        return "The ledger has no such rows yet."
    parts = [line for one in current(rows) for line in _wrapped(clean(one.said), width)]
    for (kernel, evaluator), of_one in by_evaluator(entries(rows)).items():
        title = f"{of_one[0].kind} latency of {kernel} by {evaluator}" if evaluator else f"latency of {kernel}"
        parts += [*_wrapped(clean(title), width), *_series(of_one, width=width, colour=colour)]
    return "\n".join([*parts, *_wrapped(_LEGEND, width)])


def top_table(rows: Sequence[Row], *, most: int, width: int | None = None, colour: bool = False) -> str:
    """The experiments that made their kernel the most times faster, largest gain first, at most ``most`` a series."""
    parts = []
    for (kernel, evaluator), of_one in by_evaluator(entries(rows)).items():
        if best := gained(of_one)[:most]:
            title = f"what gained most: {best[0].kind} latency of {kernel} by {evaluator}"
            parts += [*_wrapped(clean(title), width), *_series(best, width=width, colour=colour)]
    if not parts:
        return "No experiment was kept and faster than the kernel before it yet."
    return "\n".join([*parts, *_wrapped(_COMPARED, width)])


def gained(of_one: Sequence[Entry]) -> list[Entry]:
    """The kept ones of a series that were faster than the one before, largest gain first."""
    better = [one for one in of_one if one.kept and one.faster is not None and one.faster > 1]
    return sorted(better, key=lambda one: -(one.faster or 0.0))


def _series(of_one: Sequence[Entry], *, width: int | None, colour: bool) -> list[str]:
    table = [_cells(one, whole=width is None) for one in of_one]
    lines = _cards(table, width) if width is not None and width < _NARROW else _layout(table, width)
    if not colour:
        return [line.plain for _, line in lines]
    for place, line in lines:
        line.stylize("bold" if place is None else _style(of_one[place]))
    console = Console(file=io.StringIO(), force_terminal=True, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(*(line for _, line in lines), sep="\n")
    return capture.get().rstrip("\n").split("\n")


def _style(one: Entry) -> str:
    return "green" if one.kept else "dim" if one.row.status in _CORRECT else "red"


def fidelity_table(rows: Sequence[Fidelity]) -> str:
    """Measured over modelled latency, of every row that has both, and how the ratio spreads."""
    if not rows:
        return "No row has both latencies: they come from judging with a TPU attached (`--on tpu`)."
    lines = [
        f"{clean(row.id, 24):<22} {clean(row.chip, 12):<8} {fixed(row.measured_ms):>10} ms measured "
        f"{fixed(row.modelled_ms):>10} ms modelled  ratio {row.ratio:.3f}{'  outside the band' * row.outside_band}"
        for row in rows
    ]
    ratios = [row.ratio for row in rows]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}"
    return "\n".join([*lines, f"{len(rows)} rows, ratio {spread}"])


def origins_text(origins: Origins) -> str:
    """Who made the rows: what the chain cannot say."""
    if origins.no_key:
        return f"origin: not known, only that the rows are consistent, for this machine has no key ({origins.no_key})"
    counts = {origin: len(origins.ids(origin)) for origin in Origin}
    parts = [
        f"{counts[origin]} {words}" for origin, words in ORIGINS.items() if counts[origin] or origin is Origin.HERE
    ]
    text = f"origin: {', '.join(parts)}"
    if later := origins.later_strangers:
        shown = ", ".join(clean(name, 24) for name in later[:_LISTED])
        more = f" and {len(later) - _LISTED} more" if len(later) > _LISTED else ""
        text += f"\nnot from this machine's key, after a row that is: {shown}{more}; did you pull them?"
    return text


def series_text(seal: str, proofs: Mapping[str, Proof]) -> str:
    """Which series this judge's rows belong to, and what showed it."""
    proof = proofs.get(seal)
    if proof is None:
        return f"series: seal {seal} is in no proof, so its rows are compared with its own alone"
    return (
        f"series: seal {seal} is of the series of {series_of(seal)}: {proof.programs} programs had the documents of "
        f"seal {proof.equals}, to the digit ({proof.date}, sha256 {proof.documents[:16]})"
    )


def _cells(one: Entry, *, whole: bool) -> tuple[str, ...]:
    row = one.row
    score, util = number(row.score), number(row.util_pct)
    note = clean(row.note) if whole else first_line(row.note)
    if one.again:
        note += f" (judged again {one.again} time{'s' * (one.again > 1)}, unchanged)"
    return (
        "*" if one.kept else "",
        clean(row.id) if whole else clean(row.id, 24),
        clean(row.commit)[:9],
        "-" if score is None else fixed(score, 4),
        "-" if one.latency_ms is None else fixed(one.latency_ms, 4),
        "" if one.faster is None else times(one.faster),
        "" if one.faster is None else time_change(one.faster),
        "" if util is None else f"{util:.1f}",
        clean(row.status) if whole else clean(row.status, 24),
        note,
    )


def _layout(table: Sequence[tuple[str, ...]], width: int | None) -> list[tuple[int | None, Text]]:
    """Heading and rows, aligned, each with the place of its row. Columns go until notes have room.

    The mark's column comes first, so no line begins with text from outside.
    """
    shown = list(range(len(_HEADINGS)))
    widths = [max(map(cell_len, column)) for column in zip(*(_HEADINGS, *table), strict=True)]
    for place in _DISPENSABLE:
        if width is None or sum(widths[at] + 2 for at in shown[:-1]) + _NOTE <= width:
            break
        shown.remove(place)
    lines: list[tuple[int | None, Text]] = []
    for number_of, cells in enumerate((_HEADINGS, *table), start=-1):
        line = Text()  # a Text reads no markup: a note is only text
        for place in shown[:-1]:
            gap = " " * (widths[place] - cell_len(cells[place]))
            line.append(gap + cells[place] + "  " if _HEADINGS[place] in _RIGHT else cells[place] + gap + "  ")
        note = Text(cells[-1])
        if width is not None:
            note.truncate(max(8, width - line.cell_len), overflow="ellipsis")
        line.append_text(note)
        line.rstrip()
        lines.append((None if number_of < 0 else number_of, line))
    return lines


def _cards(table: Sequence[tuple[str, ...]], width: int) -> list[tuple[int | None, Text]]:
    """The same where there is no room for a table: a few lines for each row."""
    lines: list[tuple[int | None, Text]] = []
    for place, (mark, name, _, _, ms, faster, change, _, status, note) in enumerate(table):
        numbers = "" if ms == "-" else "  ".join(filter(None, (f"{ms} ms", faster, change)))
        texts = [f"{mark or ' '} {name}", "  ".join(filter(None, (status, numbers))), note]
        for number_of, text in enumerate(texts):
            lines += [(place, Text(line)) for line in _wrapped(text, width, "    " if number_of else "")]
    return lines


def _wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Lines of at most ``width`` cells, words whole where they fit. Only the first may begin with outside text."""
    if width is None:
        return [indent + text]
    under = indent or "  "
    lines = [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), max(8, width - len(under)))]
    return [(under if number else indent) + line for number, line in enumerate(lines)]
