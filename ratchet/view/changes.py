"""What changed, as the text of a comment in markdown, as JUnit XML and as lines."""

from __future__ import annotations

import xml.etree.ElementTree as Xml
from collections import Counter
from collections.abc import Callable, Sequence

from ratchet.values.change import WORSE, Change, ChangeKind, Costs
from ratchet.values.status import Status
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import change as relative
from ratchet.view.words import fixed, size

MARKER = "<!-- ratchet ci -->"
"""First line of a comment, by which the Action knows the one that it wrote before."""
_REASON = 160
_HEAD = ("target", "TPU", "latency, modelled", "VMEM", "spills", "copies by XLA", "")


def markdown(changes: Sequence[Change], *, base: str) -> str:
    """A table, one row for each target and chip, the worse ones first; ends without a newline."""
    order = {kind: place for place, kind in enumerate(ChangeKind)}
    rows = [_row(one) for one in sorted(changes, key=lambda one: order[one.kind])]
    lines = [
        MARKER,
        f"### TPU kernels against `{_code(base)}`: {counted(changes)}",
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'|'.join(['---', '---', '--:', '--:', '--:', '--:', '---'])}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    reasons = [f"- `{_code(one.target)}` on {one.chip}: {_why(one)}" for one in changes if _why(one)]
    compilers = list(dict.fromkeys(one.after.compiler for one in changes if one.after.compiler))
    if reasons:
        lines += ["", *reasons]
    lines += [
        "",
        f"Modelled from the compiler's schedule ({_plain(', '.join(compilers)) or 'nothing compiled'}), not measured. "
        "The same program has the same number: what changed here, the change made.",
    ]
    return "\n".join(lines)


def counted(changes: Sequence[Change]) -> str:
    """``1 slower, 3 same``, worst first."""
    count = Counter(one.kind for one in changes)
    return ", ".join(f"{count[kind]} {kind.value}" for kind in ChangeKind if count[kind]) or "no targets"


def _row(change: Change) -> tuple[str, ...]:
    before, after = change.before, change.after
    kind = change.kind
    return (
        f"`{_code(change.target)}`",
        change.chip,
        _both(before, after, lambda one: f"{fixed(one.latency_ms, 4)} ms" if one.latency_ms else "–")
        + _percent(before, after),
        _both(before, after, lambda one: size(one.vmem_bytes) if one.vmem_limit_bytes else "–"),
        _both(before, after, lambda one: f"{one.spills}" if one.compiler else "–"),
        _both(before, after, lambda one: f"{one.copies} ({size(one.copy_bytes)})" if one.copies else "none"),
        f"**{kind.value}**" if kind in WORSE else kind.value,
    )


def _both(before: Costs | None, after: Costs, said: Callable[[Costs], str]) -> str:
    """``old → new``, or once where both are equal."""
    new = said(after)
    old = said(before) if before is not None else new
    return new if old == new else f"{old} → {new}"


def _percent(before: Costs | None, after: Costs) -> str:
    if before is None or not before.latency_ms or not after.latency_ms or before.latency_ms == after.latency_ms:
        return ""
    return f" ({relative(after.latency_ms, before.latency_ms)})"


def _why(change: Change) -> str:
    side = _side(change)
    if not side.reason:
        return ""
    return f"{side.status.name}: {_plain((clean_lines(side.reason) or [''])[0][:_REASON])}"


def _side(change: Change) -> Costs:
    """The one whose reason is shown: the base where that alone is not settled."""
    before, after = change.before, change.after
    if before is not None and before.status is Status.UNSETTLED and after.status is not Status.UNSETTLED:
        return before
    return after


_IN_CODE = str.maketrans({"`": "'", "<": "‹", "|": "¦"})
_IN_TEXT = str.maketrans(
    {
        "\\": "\\\\",
        "&": "&amp;",
        "<": "&lt;",
        "|": "&#124;",
        "`": "'",
        "[": "\\[",
        "]": "\\]",
        "*": "\\*",
        "_": "\\_",
        "@": "@\u200b",  # names nobody
        "#": "#\u200b",  # nor an issue
    }
)


def _code(text: str) -> str:
    """Fit to be between backticks, where nothing is markdown, in a cell of a table."""
    return clean(text).translate(_IN_CODE)


def _plain(text: str) -> str:
    """Names are data: nothing in them is markdown, HTML, a link or a mention."""
    text = clean(text).translate(_IN_TEXT)
    return text.replace("://", ":\u200b//").replace("www.", "www\u200b.")


def line(change: Change) -> str:
    """One target as it is done."""
    latency = f"{fixed(change.after.latency_ms)} ms" if change.after.latency_ms else change.after.status.name
    percent = _percent(change.before, change.after)
    return clean(f"{change.kind.value}: {change.target} on {change.chip}: {latency}{percent}")


def junit(changes: Sequence[Change]) -> str:
    """One test case for each target and chip; what is worse is a failure."""
    worse, unsettled = (sum(one.kind in kinds for one in changes) for kinds in (WORSE, (ChangeKind.UNSETTLED,)))
    counts = {"tests": str(len(changes)), "failures": str(worse), "errors": str(unsettled)}
    suite = Xml.Element("testsuite", name="ratchet ci", attrib=counts)
    for one in changes:
        case = Xml.SubElement(suite, "testcase", classname=f"ratchet.{one.chip}", name=clean(one.target))
        if one.kind in WORSE:
            failure = Xml.SubElement(case, "failure", message=line(one))
            failure.text = clean(one.after.reason) or line(one)
        elif one.kind is ChangeKind.UNSETTLED:
            error = Xml.SubElement(case, "error", message=line(one))
            error.text = clean(_side(one).reason) or line(one)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
