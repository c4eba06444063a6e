"""The ledger as a person reads it: a table of all rows, or one row in full."""

from __future__ import annotations

import dataclasses
import io
import statistics
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ratchet.values import Decision, Fidelity, Row
from ratchet.values.origin import Origin, Origins
from ratchet.values.status import Status
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import change, fixed, kind_of, number

WIDTH = 110
_KEPT = (Decision.KEPT, Decision.BASELINE)
_HEADINGS = ("", "id", "commit", "score", "change", "ms", "util %", "status", "note")
_RIGHT = {"score", "change", "ms", "util %"}
_ORIGINS = {
    Origin.HERE: "made with this machine's key",
    Origin.ELSEWHERE: "signed with another key",
    Origin.UNSIGNED: "not signed",
    Origin.FORGED: "FORGED",
}
_LISTED = 10
_LEGEND = "* kept, or the baseline; newest last"


def log_table(rows: Sequence[Row], *, terminal: bool = False, width: int = WIDTH) -> str:
    """All rows, newest last, one line each, the series one after the other; kept ones and baselines carry a mark.

    A series is a kernel file by one evaluator: scores of two evaluators are never compared.

    ``change`` relates a score to the kept one before it, and only where both were judged under the
    same conditions; of a measured kernel it is the speed-up over the one timed beside it. ``terminal``
    asks for colours, else the text is plain.
    """
    if not rows:
        return "The ledger has no such rows yet."
    of_each: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        of_each.setdefault((row.kernel, row.evaluator), []).append(row)
    tables = [_series(of_one, terminal=terminal, width=width) for of_one in of_each.values()]
    if len(tables) > 1:
        several = len({evaluator for _, evaluator in of_each}) > 1
        titles = [f"{kernel} · {evaluator}" if several else kernel for kernel, evaluator in of_each]
        tables = [f"{clean(title)}\n{table}" for title, table in zip(titles, tables, strict=True)]
    return "\n".join([*tables, _LEGEND])


def _series(rows: Sequence[Row], *, terminal: bool, width: int) -> str:
    table = [_cells(row, before) for row, before in zip(rows, _incumbents(rows), strict=True)]
    heading, *lines = _layout(table, width)
    if not terminal:
        return "\n".join(line.plain for line in (heading, *lines))
    heading.stylize("bold underline")
    for row, line in zip(rows, lines, strict=True):
        line.stylize("green" if row.decision in _KEPT else "dim" if row.status == Status.PASS.name else "red")
    console = Console(file=io.StringIO(), force_terminal=True, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        console.print(heading, *lines, sep="\n")
    return capture.get().rstrip("\n")


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


def show(row: Row, *, width: int = WIDTH) -> str:
    """Every column of one row, labelled; empty ones are left out."""
    kind = kind_of(row.evaluator) if row.evaluator else ""
    lines = [clean(f"experiment {row.id} · {row.status} · {row.decision}")]
    for field in dataclasses.fields(row):
        values = clean_lines(getattr(row, field.name))
        if field.name in ("evaluator", "median_ms") and values:
            values[0] += f" ({kind})"
        indent = f"  {field.name.replace('_', ' '):<12} "
        for value in values:
            lines += textwrap.wrap(
                value, width, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
            )
            indent = " " * len(indent)
    return "\n".join(lines)


def origins_text(origins: Origins) -> str:
    """Who made the rows: what the chain cannot say."""
    if origins.no_key:
        return f"origin: not known, only that the rows are consistent, for this machine has no key ({origins.no_key})"
    counts = {origin: len(origins.ids(origin)) for origin in Origin}
    parts = [
        f"{counts[origin]} {words}" for origin, words in _ORIGINS.items() if counts[origin] or origin is Origin.HERE
    ]
    text = f"origin: {', '.join(parts)}"
    if later := origins.later_strangers:
        shown = ", ".join(clean(name, 24) for name in later[:_LISTED])
        more = f" and {len(later) - _LISTED} more" if len(later) > _LISTED else ""
        text += f"\nnot from this machine's key, after a row that is: {shown}{more}; did you pull them?"
    return text


def _incumbents(rows: Sequence[Row]) -> list[Row | None]:
    """For each row the kept one before it that was judged under the same conditions."""
    latest: dict[tuple[str, ...], Row] = {}
    before = []
    for row in rows:
        conditions = (row.kernel, row.evaluator, row.chip, row.compiler, row.seal, row.problem)
        before.append(latest.get(conditions))
        if row.decision in _KEPT:
            latest[conditions] = row
    return before


def _cells(row: Row, before: Row | None) -> tuple[str, ...]:
    score, old = number(row.score), number(before.score) if before else None
    latency, util = number(row.median_ms), number(row.util_pct)
    note = clean_lines(row.note)
    return (
        "*" if row.decision in _KEPT else "",
        clean(row.id, 24),
        clean(row.commit)[:9],
        "-" if score is None else fixed(score),
        _change(row, score, old),
        "" if latency is None else fixed(latency),
        "" if util is None else f"{util:.2f}",
        clean(row.status, 24),
        note[0] if note else "",
    )


def _change(row: Row, score: float | None, old: float | None) -> str:
    """Of measured rows the speed-up over the kernel that was timed beside them: two medians decide nothing."""
    speedup = number(row.speedup)
    if row.evaluator and kind_of(row.evaluator) == "measured":
        return "" if speedup is None else change(speedup, 1.0)
    return "" if score is None or old is None else change(score, old)


def _layout(table: Sequence[tuple[str, ...]], width: int) -> list[Text]:
    """Heading and rows, aligned. The mark's column comes first, so no line begins with text from outside."""
    columns = list(zip(*(_HEADINGS, *table), strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    room = max(20, width - sum(widths[:-1]) - 2 * (len(widths) - 1))  # for the note, which comes last
    lines = []
    for cells in (_HEADINGS, *table):
        line = Text()  # a Text reads no markup: a note is only text
        for name, cell, wide in zip(_HEADINGS[:-1], cells[:-1], widths[:-1], strict=True):
            gap = " " * (wide - cell_len(cell))
            line.append(gap + cell + "  " if name in _RIGHT else cell + gap + "  ")
        note = Text(cells[-1])
        note.truncate(room, overflow="ellipsis")
        line.append_text(note)
        line.rstrip()
        lines.append(line)
    return lines
