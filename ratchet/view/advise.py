"""Advice as text and as a JSON document: the edit, what speaks for it, what it should save, what came of its like."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ratchet.advise.advice import Advice, Edit, Evidence
from ratchet.kernelfile.knobs import in_words
from ratchet.kernelfile.mutation import mutation
from ratchet.values import Row
from ratchet.values.loss import LossKind
from ratchet.view.document import Tables, plain, same
from ratchet.view.text import clean, fixed

_WHAT: Mapping[Edit, str] = {
    Edit.LARGER: "a larger block: fewer grid steps, each with more to hide its copies and latencies behind",
    Edit.VMEM: "a larger block that overflowed VMEM, under a higher limit",
    Edit.SMALLER: "a smaller block: fewer values alive at once",
    Edit.RESIDENT: "keep what the last grid dimension walks whole in VMEM, and walk it by a loop in one grid step",
    Edit.SKIP: "do nothing in blocks that the mask hides altogether",
    Edit.MASK: "mask only the blocks that the mask divides",
    Edit.STRIPS: "two strips of rows in a block: fewer values alive, and chains that do not wait for each other",
    Edit.SCALE: "scale an operand of the product instead of each of its results",
    Edit.BASE_2: "fold log2(e) into the factor of the scores and use exp2",
    Edit.NARROW: "give the matrix units the operands as they are, without a cast to float32",
    Edit.WIDE: "let statistics of rows be as wide as the lanes, so that none is spread from one lane",
    Edit.LANES: "add up per lane, and across the lanes once, where the sum is read",
    Edit.DIVIDE: "multiply by the reciprocal of each row's divisor",
    Edit.UNROLL: "unroll a loop",
    Edit.PART: "walk the blocks that are attended whole in a loop of their own, without a mask or a branch",
    Edit.TRIANGLE: "multiply each strip of rows with the columns that the mask leaves it, as splash attention does",
    Edit.STAGGER: "multiply for the next tile before the work on this one is done, in FlashAttention-3's order",
    Edit.TURNS: "several turns of a loop in one, the next one's products begun before the last one's are used",
    Edit.PAIR: "both of two edits that were a little slower alone",
}
_LOSSES: Mapping[LossKind, str] = {
    LossKind.WAITS: "waiting for copies",
    LossKind.STALLS: "empty bundles that wait for results",
    LossKind.SPILLS: "spilled registers",
    LossKind.IDLE_STEPS: "grid steps that do no product",
}
_SUBJECT = 60


def advice_text(advice: Sequence[Advice], incumbent: Row, *, kernel: str, most: int, again: str) -> str:
    """A few lines for each, numbered from 1 as ``--apply`` counts them."""
    name, latency = clean(kernel), float(incumbent.median_ms)
    lines = [f"{name}: {fixed(latency)} ms, row {clean(incumbent.id)}"]
    if not advice:
        lines.append("no advice: no known pattern is left that was not tried, or should save anything")
    for number, one in enumerate(advice[:most], 1):
        lines += _lines(number, one)
    if len(advice) > most:
        lines.append(f"and {len(advice) - most} more: --most {len(advice)} shows all")
    if advice:
        lines.append("predicted from the modelled run, at best; confidence from what this ledger says of the same edit")
        lines.append(f"to make the first edit: {clean(again)}")
    return "\n".join(lines)


def _lines(number: int, one: Advice) -> list[str]:
    kind = one.rewrite.edit.field.value
    lines = [
        f"{number}. {kind}: {title(one)}",
        f"   {_WHAT[one.rewrite.edit]}",
        f"   predicted {fixed(one.latency_ms)} ms at best, confidence {one.confidence:.0%}: {_record(one)}",
    ]
    if one.lost_before:
        rows = ", ".join(map(clean, one.lost_before[-3:]))
        lines.append(f"   the same edit of another version was not kept: row {rows}")
    lines += [f"   evidence: {_evidence(found)}" for found in one.evidence]
    return lines


def title(one: Advice) -> str:
    """The edit in a few words, as an experiment's message has it."""
    rewrite = one.rewrite
    subject = clean(in_words(rewrite.point) if rewrite.point else rewrite.subject, _SUBJECT)
    return f"{rewrite.edit.value}, {subject}" if subject else rewrite.edit.value


def message(one: Advice, latency_ms: float) -> str:
    """Of the experiment that tries it: what, and what is predicted."""
    signal = "; ".join(map(_evidence, one.evidence))
    predicted = f"predicted {fixed(one.latency_ms)} ms at best, from {fixed(latency_ms)} ms"
    return f"advise: {title(one)}\n\nHypothesis: {_WHAT[one.rewrite.edit]}; {predicted}.\nSignal: {signal or 'none'}."


def _record(one: Advice) -> str:
    record = one.record
    if one.rewrite.edit is Edit.PAIR:
        return "that of its two parts, multiplied"
    if not record.followed:
        return "not tried in this ledger yet"
    gained = f", saving {median(record.gains):.1%} of the latency in the median" if record.gains else ""
    return f"tried {record.followed} times in this ledger, {record.kept} kept{gained}"


def _evidence(one: Evidence) -> str:
    what = _LOSSES[one.loss] if one.loss is not None else "the lines that it edits"
    line = "" if one.line is None else f", most of it {'waits for' if one.loss else 'on'} line {one.line}"
    return f"{what}: {one.cycles:,} cycles, {one.share:.1%} of the run{line}"


def patch(one: Advice, before: bytes, kernel: str) -> str:
    """The edit as a unified diff."""
    old, new = (data.decode(errors="replace").splitlines(keepends=True) for data in (before, one.rewrite.after))
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(old, new, f"a/{kernel}", f"b/{kernel}")
    )


def advice_document(
    advice: Sequence[Advice], incumbent: Row, *, before: bytes, kernel: str, most: int
) -> dict[str, Any]:
    """The same as JSON, with each edit as a patch and as what it changes."""
    latency = float(incumbent.median_ms)
    tables: Tables = {
        Advice: {
            "kind": "rewrite.edit.field",
            **same("edit", "subject", of="rewrite"),
            "constants": "rewrite.point",
            "title": title,
            "evidence": "evidence",
            "saved_cycles": "saved_cycles",
            "predicted_ms": "latency_ms",
            "confidence": lambda one: round(one.confidence, 3),
            **same("followed", "kept", "gains", of="record"),
            "lost_before": "lost_before",
            "changes": lambda one: str(mutation(before, one.rewrite.after, kernel)),
            "message": lambda one: message(one, latency),
            "patch": lambda one: patch(one, before, kernel),
        },
        Evidence: {...: (), "share": lambda found: round(found.share, 4)},
    }
    numbered = [{"number": number, **plain(one, tables)} for number, one in enumerate(advice[:most], 1)]
    return {"kernel": kernel, "latency_ms": latency, "row": incumbent.id, "advice": numbered}
