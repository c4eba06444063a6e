"""Advice as text and as a JSON document: the edit, what is predicted, what it is about, what came of its like."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from ratchet.advise.advice import Advice, Edit, Evidence
from ratchet.advise.prediction import Fate, Modelled, Outlook, Prediction
from ratchet.kernelfile.knobs import in_words
from ratchet.kernelfile.mutation import mutation
from ratchet.values import MEASURED, Row, Score
from ratchet.values.loss import LossKind
from ratchet.values.status import Status
from ratchet.view.document import BAND_MS, Tables, plain, same
from ratchet.view.text import cause, change, clean, cut, fixed

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
    Edit.TRIANGLE: "multiply each strip of rows with the columns that the mask leaves it",
    Edit.STAGGER: "multiply for the next tile before the work on this one is done",
    Edit.TURNS: "several turns of a loop in one, the next one's products begun before the last one's are used",
    Edit.ABREAST: "a statement for all tiles before the next one, so that none waits for what it has just begun",
    Edit.GROUP: "larger blocks with all heads, and a loop over them in a step",
    Edit.PAGES: "the same array several times, each with a page of its own",
    Edit.JOIN: "one kernel for both, which reads what they share once",
    Edit.FETCH: "start copying what stays in VMEM in pieces, and wait for each where it is needed first",
    Edit.TRANSPOSE: "take the array as it lies and contract its other side, so that XLA writes no transposed copy",
    Edit.FUSE: "do to each block what XLA does to the whole array in HBM",
    Edit.SWAP: "walk the grid in the other order, so that another operand's block stays",
    Edit.PAIR: "two edits of which none helps alone",
}
ORIGINS: Mapping[Edit, str] = {
    Edit.LARGER: "tables of blocks of JAX's own kernels",
    Edit.VMEM: "tables of blocks of JAX's own kernels",
    Edit.SMALLER: "tables of blocks of JAX's own kernels",
    Edit.RESIDENT: "kept experiments of kernel.py",
    Edit.SKIP: "FlashAttention-2",
    Edit.MASK: "FlashAttention-2",
    Edit.STRIPS: "kept experiments of kernel.py",
    Edit.SCALE: "kept experiments of kernel.py",
    Edit.BASE_2: "FlashAttention-2",
    Edit.NARROW: "Pallas's guide to matrix multiplication",
    Edit.WIDE: "JAX's flash attention for TPUs",
    Edit.LANES: "kept experiments of kernel.py",
    Edit.DIVIDE: "FlashAttention-2",
    Edit.UNROLL: "the option of Pallas's own loops",
    Edit.PART: "FlashAttention-2, which masks the last blocks alone",
    Edit.TRIANGLE: "kept experiments of kernel.py",
    Edit.STAGGER: "FlashAttention-3",
    Edit.TURNS: "FlashAttention-3, and modulo scheduling (Lam 1988)",
    Edit.ABREAST: "examples/paged_decode.py",
    Edit.GROUP: "JAX's paged attention",
    Edit.PAGES: "JAX's paged attention, pages_per_compute_block",
    Edit.JOIN: "a kept experiment of examples/layernorm_backward.py",
    Edit.FETCH: "a kept experiment with attention",
    Edit.TRANSPOSE: "layouts that XLA assigns to operands of custom calls",
    Edit.FUSE: "allow_input_fusion of Pallas",
    Edit.SWAP: "Pallas's guide to matrix multiplication",
}
"""A paper, a public kernel or a kept experiment that an edit comes from."""
_LOSSES: Mapping[LossKind, str] = {
    LossKind.WAITS: "waiting for copies",
    LossKind.STALLS: "empty bundles that wait for results",
    LossKind.SPILLS: "spilled registers",
    LossKind.IDLE_STEPS: "grid steps that do no product",
}
_FATES: Mapping[Fate, str] = {
    Fate.SLOWER: "slower",
    Fate.SAME: "the same as it is",
    Fate.TWIN: "the same program as another edit",
    Fate.WRONG: "with wrong values",
}
_SUBJECT = 60
_LINE = 160
Numbered = Sequence[tuple[int, Modelled]]
"""Advice with the number that ``--apply`` takes."""


def advice_text(found: Outlook, incumbent: Row, *, kernel: str, most: int, every: bool, again: str) -> str:
    """A few lines for each, numbered from 1 as ``--apply`` counts them; then what was tried, failed and is left."""
    name, latency = clean(kernel), float(incumbent.median_ms)
    measured = incumbent.evaluator in MEASURED
    base = found.base.score if found.base else None
    apart = base is not None and (measured or base.latency_ms != latency)  # of another compiler, or timed
    also = f"{' measured' if measured else ''}; {fixed(base.latency_ms)} ms modelled now" if base and apart else ""
    lines = [f"{name}: {fixed(latency)} ms{also}, row {clean(incumbent.id)}"]
    if not found.advice:
        lines.append(_none(found))
    if base is not None:
        for number, one in enumerate(found.advice[:most], 1):
            lines += _lines(number, one, base)
    if len(found.advice) > most:
        lines.append(f"and {len(found.advice) - most} more: --most {len(found.advice)} shows all")
    lines += _rest(found, base, len(found.tried) + len(found.failed) if every else most, every=every)
    if found.advice:
        lines.append(f"to make the first edit: {clean(again)}")
    return "\n".join(lines)


def _none(found: Outlook) -> str:
    modelled = len(found.tried) + len(found.failed)
    if not modelled and not found.unreached:
        return "no advice: no known pattern is left that was not tried"
    left = f" yet, {len(found.unreached)} left" if found.unreached else ""
    return f"no advice: of {modelled} edits that were modelled none is faster{left}"


def _lines(number: int, one: Modelled, base: Score) -> Iterator[str]:
    advice = one.advice
    yield f"{number}. {advice.rewrite.edit.field.value}: {title(advice)}"
    yield f"   {_WHAT[advice.rewrite.edit]}{_origin(advice.rewrite.edit)}"
    yield f"   predicted {_predicted(one, base)}"
    yield f"   in this ledger: {_record(advice)}"
    if advice.lost_before:
        rows = ", ".join(map(clean, advice.lost_before[-3:]))
        yield f"   the same edit of another version was not kept: row {rows}"
    yield from (f"   about: {_evidence(found)}" for found in advice.evidence[:1])


def _origin(edit: Edit) -> str:
    return f" (from {ORIGINS[edit]})" if edit in ORIGINS else ""


def _predicted(one: Modelled, base: Score) -> str:
    """``0.40120 ms (0.38012 to 0.43333), -8.1 %: 0.0300 ms less issuing, 0.0012 ms more waiting; values checked``."""
    score = one.prediction.score
    assert score is not None
    band = f" ({fixed(score.band.low_ms)} to {fixed(score.band.high_ms)})" if score.band else ""
    issued = (score.latency_ms - score.wait_ms) - (base.latency_ms - base.wait_ms)
    parts = [
        f"{fixed(abs(ms), 3)} ms {'less' if ms < 0 else 'more'} {what}"
        for what, ms in (("issuing", issued), ("waiting", score.wait_ms - base.wait_ms))
        if ms
    ]
    checked = "values checked" if one.prediction.status is Status.PASS else "values not checked yet"
    moved = f"{change(score.latency_ms, base.latency_ms)}: {', '.join(parts)}"
    return f"{fixed(score.latency_ms)} ms{band}, {moved}; {checked}"


def _rest(found: Outlook, base: Score | None, most: int, *, every: bool) -> Iterator[str]:
    if found.tried:
        counts = Counter(one.fate for one in found.tried)
        said = ", ".join(f"{counts[what]} {words}" for what, words in _FATES.items() if counts[what])
        yield f"modelled, and no advice: {said}{'' if every else '; --all lists them'}"
    if every and base is not None:
        yield from (cut(f"   {fixed(one.latency_ms)} ms, {_tried(one, base)}", _LINE) for one in found.tried)
    if found.failed:
        yield f"cannot be modelled: {len(found.failed)}"
    yield from (cut(f"   {_failed(one)}", _LINE) for one in found.failed[:most])
    if len(found.failed) > most:
        yield f"   and {len(found.failed) - most} more: --all lists them"
    if found.unreached:
        yield f"not modelled yet: {len(found.unreached)}; the same command goes on with them, --budget gives it longer"


def _tried(one: Modelled, base: Score) -> str:
    why = f": {title(one.twin) if one.twin else clean(one.why)}" if one.twin or one.why else ""
    return f"{change(one.latency_ms, base.latency_ms)}, {one.fate.value}{why}; {title(one.advice)}"


def _failed(one: Modelled) -> str:
    return f"{title(one.advice)}: {one.prediction.status.name}: {cause(one.prediction.reason)}"


def modelled_line(count: int, of: int, advice: Advice | None, one: Prediction, seconds: float) -> str:
    """One version as it is done."""
    what = f"{fixed(one.score.latency_ms)} ms" if one.score else f"{one.status.name}: {cause(one.reason)}"
    if one.score and one.status not in (Status.PASS, Status.UNCHECKED):
        what += f", {one.status.name}: {cause(one.reason)}"
    checked = ", values checked" if one.status is Status.PASS else ""
    name = title(advice) if advice else "as it is"
    return cut(f"{count} of {of}: {name}: {what}{checked} ({seconds:.1f} s)", _LINE)


def title(one: Advice) -> str:
    """The edit in a few words, as an experiment's message has it."""
    rewrite = one.rewrite
    subject = clean(in_words(rewrite.point) if rewrite.point else rewrite.subject, _SUBJECT)
    return f"{rewrite.edit.value}, {subject}" if subject else rewrite.edit.value


def message(one: Modelled, base: Score) -> str:
    """Of the experiment that tries it: what, and what is predicted."""
    advice = one.advice
    signal = "; ".join(map(_evidence, advice.evidence))
    predicted = f"predicted {_predicted(one, base)}, from {fixed(base.latency_ms)} ms"
    why = f"Hypothesis: {_WHAT[advice.rewrite.edit]}; {predicted}."
    return f"advise: {title(advice)}\n\n{why}\nSignal: {signal or 'none'}."


def _record(one: Advice) -> str:
    record = one.record
    if one.rewrite.edit is Edit.PAIR:
        return "two edits together are not counted"
    if not record.followed:
        return "not tried yet"
    gained = f", saving {median(record.gains):.1%} of the latency in the median" if record.gains else ""
    return f"tried {record.followed} times, {record.kept} kept{gained}"


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


def advice_document(found: Outlook, shown: Numbered, incumbent: Row, *, before: bytes, kernel: str) -> dict[str, Any]:
    """The same as JSON, each advice that is shown with its edit as a patch and as what it changes."""
    base = found.base.score if found.base else None
    tables: Tables = {
        **BAND_MS,
        Modelled: {
            "title": lambda one: title(one.advice),
            **same("status", of="prediction"),
            "fate": lambda one: one.fate.value,
            "why": lambda one: title(one.twin) if one.twin else one.why,
            **same("latency_ms", "wait_ms", of="prediction.score"),
        },
        Evidence: {...: (), "share": lambda found: round(found.share, 4)},
    }

    def of_advice(number: int, one: Modelled) -> dict[str, Any]:
        assert base is not None
        score, advice = one.prediction.score, one.advice
        assert score is not None
        return {
            "number": number,
            "kind": advice.rewrite.edit.field.value,
            "edit": advice.rewrite.edit.value,
            "subject": advice.rewrite.subject,
            "constants": plain(advice.rewrite.point),
            "title": title(advice),
            "predicted_ms": score.latency_ms,
            "band_ms": plain(score.band, tables),
            "wait_ms": score.wait_ms,
            "values_checked": one.prediction.status is Status.PASS,
            "evidence": plain(advice.evidence, tables),
            **plain(advice.record),
            "lost_before": plain(advice.lost_before),
            "changes": str(mutation(before, advice.rewrite.after, kernel)),
            "message": message(one, base),
            "patch": patch(advice, before, kernel),
        }

    return {
        "kernel": kernel,
        "latency_ms": float(incumbent.median_ms),
        "row": incumbent.id,
        "modelled_ms": base.latency_ms if base else None,
        "wait_ms": base.wait_ms if base else None,
        "advice": [of_advice(number, one) for number, one in shown],
        "tried": plain(found.tried, tables),
        "failed": plain(found.failed, tables),
        "not_modelled": len(found.unreached),
    }
