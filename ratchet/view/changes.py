"""What changed of each target: by a commit, as markdown, JUnit XML and lines; by an upgrade, as text and as JSON."""

from __future__ import annotations

import xml.etree.ElementTree as Xml
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ratchet.values.change import WORSE, Change, ChangeKind, Costs, Side, Upgrade, ValueChange
from ratchet.values.status import Status
from ratchet.view.document import Tables, plain, same
from ratchet.view.text import cause, clean, columns, fixed, size
from ratchet.view.text import change as relative

MARKER = "<!-- ratchet ci -->"
"""First line of a comment, by which the Action knows the one that it wrote before."""
_REASON_OF_A_SIDE = 300
_SHOWN = 8
_HEAD = ("target", "TPU", "latency, modelled", "VMEM", "spills", "copies by XLA")


def markdown(changes: Sequence[Change], *, base: str, notes: Sequence[str] = ()) -> str:
    """A table, one row for each target and chip, the worse ones first; ends without a newline.

    ``notes`` are on the list itself, and come first; what is quoted in them is between backticks.
    """
    order = {kind: place for place, kind in enumerate(ChangeKind)}
    rows = [_row(one) for one in sorted(changes, key=lambda one: order[one.kind])]
    lines = [
        MARKER,
        f"### TPU kernels against `{code(base)}`: {counted(changes)}",
        "",
        *(f"- {note}" for note in notes),
        *([""] if notes else []),
        f"| {' | '.join((*_HEAD, ''))} |",
        f"|{'|'.join(['---', '---', '--:', '--:', '--:', '--:', '---'])}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    reasons = [f"- `{code(one.target)}` on {one.chip}: {_why(one)}" for one in changes if _why(one)]
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
    before, kind = change.before or change.after, change.kind
    return (
        f"`{code(change.target)}`",
        change.chip,
        *_costs(before, change.after, none="–", to="→"),
        f"**{kind.value}**" if kind in WORSE else kind.value,
    )


def _costs(before: Costs, after: Costs, *, none: str = "-", to: str = "->") -> list[str]:
    """Latency, VMEM, spills and copies: ``old -> new``, or once where both are equal."""

    def both(said: Callable[[Costs], str]) -> str:
        old, new = said(before), said(after)
        return new if old == new else f"{old} {to} {new}"

    return [
        both(lambda one: f"{fixed(one.latency_ms, 4)} ms" if one.latency_ms else none) + _percent(before, after),
        both(lambda one: size(one.vmem_bytes) if one.vmem_limit_bytes else none),
        both(lambda one: f"{one.spills}" if one.compiler else none),
        both(lambda one: f"{one.copies} ({size(one.copy_bytes)})" if one.copies else "none"),
    ]


def _percent(before: Costs | None, after: Costs) -> str:
    if before is None or not before.latency_ms or not after.latency_ms or before.latency_ms == after.latency_ms:
        return ""
    return f" ({relative(after.latency_ms, before.latency_ms)})"


def _why(change: Change) -> str:
    side = _side(change)
    if not side.reason:
        return ""
    return f"{side.status.name}: {_plain(cause(side.reason))}"


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


def code(text: str) -> str:
    """Fit to be between backticks, where nothing is markdown, in a cell of a table."""
    return clean(text).translate(_IN_CODE)


def _plain(text: str) -> str:
    """Names are data: nothing in them is markdown, HTML, a link or a mention."""
    text = clean(text).translate(_IN_TEXT)
    return text.replace("://", ":\u200b//").replace("www.", "www\u200b.")


def change_line(change: Change) -> str:
    """One target as it is done."""
    latency = f"{fixed(change.after.latency_ms)} ms" if change.after.latency_ms else change.after.status.name
    percent = _percent(change.before, change.after)
    why = cause(change.after.reason)
    return clean(f"{change.kind.value}: {change.target} on {change.chip}: {latency}{percent}{why and f': {why}'}")


def junit(changes: Sequence[Change]) -> str:
    """One test case for each target and chip; what is worse is a failure."""
    worse, unsettled = (sum(one.kind in kinds for one in changes) for kinds in (WORSE, (ChangeKind.UNSETTLED,)))
    counts = {"tests": str(len(changes)), "failures": str(worse), "errors": str(unsettled)}
    suite = Xml.Element("testsuite", name="ratchet ci", attrib=counts)
    for one in changes:
        case = Xml.SubElement(suite, "testcase", classname=f"ratchet.{one.chip}", name=clean(one.target))
        if one.kind in WORSE:
            failure = Xml.SubElement(case, "failure", message=change_line(one))
            failure.text = clean(one.after.reason, _REASON_OF_A_SIDE) or change_line(one)
        elif one.kind is ChangeKind.UNSETTLED:
            error = Xml.SubElement(case, "error", message=change_line(one))
            error.text = clean(_side(one).reason, _REASON_OF_A_SIDE) or change_line(one)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


# --- an upgrade of JAX and libtpu ---


def upgrade_text(upgrades: Sequence[Upgrade], *, versions: Sequence[str]) -> str:
    """A row for each target and chip, then what changed in each, by operation."""
    compilers = [_compiler([getattr(one, side) for one in upgrades]) for side in ("before", "after")]
    named = [clean(f"jax {version} ({one})") for version, one in zip(versions, compilers, strict=True)]
    lines = [f"{named[0]} -> {named[1]}, modelled, not measured", ""]
    lines += columns([(*_HEAD, "values", "", ""), *map(_upgraded, upgrades)])
    for one in upgrades:
        lines += _details(one)
    worse, unsettled = sum(one.worse for one in upgrades), sum(one.unsettled for one in upgrades)
    end = f"{worse or 'none'} of {len(upgrades)} worse"
    lines += ["", f"{end}, {unsettled} not settled" if unsettled else end]
    return "\n".join(lines)


_WHOSE = {
    "kernel": "the kernel's: this JAX does not take it",
    "jax": "JAX's lowering",
    "compiler": "the compiler's",
    "judge": "a limit of this judge",
}


def _compiler(sides: Sequence[Side]) -> str:
    return next((side.costs.compiler.partition(",")[0] for side in sides if side.costs.compiler), "nothing compiled")


def _upgraded(one: Upgrade) -> tuple[str, ...]:
    return (
        clean(one.before.target),
        one.before.chip,
        *_costs(one.before.costs, one.after.costs),
        _values(one.values),
        "WORSE" if one.worse else (ChangeKind.UNSETTLED if one.unsettled else one.change.kind).value,
        _WHOSE.get(one.whose, "") if one.worse or one.unsettled else "",
    )


def _values(values: ValueChange) -> str:
    if not values.compared:
        return "lost" if values.worse or values.limit else "not compared"
    if values.identical:
        return "identical"
    return "differ" if values.worse else f"within {fixed(values.apart_ulps, 2)} ulp"


def _details(one: Upgrade) -> list[str]:
    lines = [
        f"  {clean(moved.name)}: {fixed(moved.before, 4)} -> {fixed(moved.after, 4)} ms" for moved in one.ops[:_SHOWN]
    ]
    lines += [
        f"  {clean(moved.name)}: {size(int(moved.before))} -> {size(int(moved.after))}" for moved in one.copies[:_SHOWN]
    ]
    for side, where in ((one.before, "before"), (one.after, "after")):
        if side.costs.reason:
            lines.append(f"  {where}: {side.costs.status.name}: {clean(side.costs.reason, _REASON_OF_A_SIDE)}")
    if one.values.reason:
        lines.append(f"  values: {clean(one.values.reason, _REASON_OF_A_SIDE)}")
    elif one.values.worse:
        lines.append(f"  values: {fixed(one.values.apart_ulps, 3)} ulp of the largest element apart")
    hidden = len(one.ops[_SHOWN:]) + len(one.copies[_SHOWN:])
    lines += [f"  {hidden} smaller changes are not shown (--json)"] if hidden else []
    return ["", f"{clean(one.before.target)} on {one.before.chip}:", *lines] if lines else []


def upgrade_document(upgrades: Sequence[Upgrade]) -> dict[str, Any]:
    """The same as JSON, all changes; ms and bytes, ``null`` where something was not modelled."""
    tables: Tables = {
        Upgrade: {
            **same("target", "chip", of="before"),
            "kind": lambda one: ChangeKind.SAME if one.change.kind is ChangeKind.NEW else one.change.kind,
            **same("worse", "unsettled", "whose", "before", "after"),
            "ops_ms": "ops",
            "copies_bytes": "copies",
            "values": "values",
        },
        Side: lambda side: {**plain(side.costs), "jax": side.jax_version},
    }
    return {"upgrades": plain(upgrades, tables)}
