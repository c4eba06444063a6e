"""Values as HTML for a notebook. Every text goes through ``_text``: names are the author's, and data."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from ratchet.values import Explanation, Timeline, Verdict, Vmem
from ratchet.view.explain import allocation_in_words, headline, kernel_lines, limits_in_words, op_name, saving_in_words
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.occupancy import occupancy_in_words
from ratchet.view.text import clean, fixed, kind_of, size, where

_ROWS = 12
_BAR = 120
"""Width of a whole bar, in pixels."""
_BLUE = "#3b78c3"
_COLOURS = {
    "matrix units": _BLUE,
    "vector units": "#d9822b",
    "HBM": "#8f5fb5",
    "scalar unit": "#7d7d7d",
    "dependencies": "#c9b037",
    "copies by XLA": "#c0392b",
    "launch": "#4f9d69",
}


def explanation_html(explanation: Explanation) -> str:
    """Latency, operations with bars, VMEM and what is not modelled."""
    parts = [_heading(headline(explanation))]
    timeline = explanation.timeline
    if timeline is not None:
        parts.append(_paragraph(f"limited by: {limits_in_words(explanation)}"))
        cycles = max(1, timeline.cycles)
        rows = [
            _row(
                op.cycles / cycles,
                _COLOURS.get(op.limit.value, "#999999"),
                f"{op.cycles / timeline.clock_hz * 1e3:.4f}",
                f"{op.cycles / cycles:.1%}",
                op.limit.value,
                op_name(op),
                f"{op.origin} {where(op.source) if op.source else ''}",
            )
            for op in explanation.ops[:_ROWS]
        ]
        parts.append(_table(("", "ms, modelled", "share", "limited by", "operation", "from"), rows))
        parts += [_lines(timeline), _losses(timeline)]
    parts += [_vmem(vmem) for vmem in explanation.vmem if vmem.is_kernel]
    parts.append(
        _notes(
            "would free VMEM",
            [f"{size(s.frees_bytes)}: {saving_in_words(s, explanation.knobs)}" for s in explanation.savings[:4]],
        )
    )
    if timeline is not None:
        parts.append(_notes("not modelled", omissions_in_words(timeline)))
    return _whole(parts)


def timeline_html(timeline: Timeline) -> str:
    """Latency, units with bars and the costliest source lines."""
    cycles = max(1, timeline.cycles)
    head = (
        f"{fixed(timeline.latency_ms)} ms modelled for TPU {timeline.chip} ({timeline.compiler}): "
        f"{timeline.cycles:,} cycles, {timeline.grid_steps:,} grid steps"
    )
    shares = {
        "matrix units": timeline.mxu_busy_cycles / cycles,
        "empty bundles": timeline.empty_bundles / cycles,
        "waiting for DMAs": timeline.dma_wait_cycles / cycles,
    }
    rows = [_row(share, _BLUE, what, f"{share:.1%}") for what, share in shares.items()]
    traffic = f"HBM: {size(timeline.hbm_read_bytes)} read, {size(timeline.hbm_write_bytes)} written"
    return _whole(
        [
            _heading(head),
            _table(("", "", "share of cycles"), rows),
            _paragraph(traffic),
            _lines(timeline),
            _losses(timeline),
            _notes("not modelled", omissions_in_words(timeline)),
        ]
    )


def verdict_html(verdict: Verdict) -> str:
    """Status, numbers with units, and why."""
    kind = kind_of(verdict.conditions.evaluator)
    facts: dict[str, str] = {"status": f"{verdict.status.name}: {verdict.status.meaning}"}
    if verdict.reason:
        facts["why"] = verdict.reason
    facts["judged by"] = f"{verdict.conditions.evaluator} ({kind}), {verdict.conditions.compiler}"
    if verdict.score is not None:
        score = verdict.score
        facts["latency"] = f"{fixed(score.latency_ms)} ms {kind}"
        if score.band is not None:
            facts["band"] = f"{fixed(score.band.low_ms)} to {fixed(score.band.high_ms)} ms"
        facts["roofline"] = f"{score.util_pct:.2f} % reached, {score.tflops:.2f} TFLOP/s, {score.regime}"
        facts["score"] = fixed(score.score)
    if verdict.footprint is not None:
        used = verdict.footprint
        facts["VMEM"] = f"{size(used.vmem_bytes)} of {size(used.vmem_limit_bytes)}"
        facts["spills"] = f"{used.spill_stores} stores, {used.spill_loads} loads"
    if verdict.parity is not None:
        facts["correctness"] = f"worst error {fixed(verdict.parity.worst_error, 3)} of its allowance"
    parts = [_heading(f"{verdict.kernel_name} ({verdict.kernel})"), _facts(facts)]
    if verdict.timeline is not None:
        parts += [_lines(verdict.timeline), _losses(verdict.timeline)]
    return _whole(parts)


def _losses(timeline: Timeline) -> str:
    along = list(map(occupancy_in_words, timeline.occupancy))
    return _notes("losses", losses_in_words(timeline)[:3]) + _notes("along the programs of the kernels", along)


def _lines(timeline: Timeline) -> str:
    lines = kernel_lines(timeline)[:_ROWS]
    cycles = max(1, timeline.cycles)
    rows = [
        _row(
            line.cycles / cycles,
            _BLUE,
            f"{line.cycles / timeline.clock_hz * 1e3:.4f}",
            f"{line.cycles / cycles:.1%}",
            where(line.place),
        )
        for line in lines
    ]
    return _table(("", "ms, modelled", "share", "line"), rows) if rows else ""


def _vmem(vmem: Vmem) -> str:
    whole = max(1, vmem.used_bytes, vmem.limit_bytes)
    rows = [
        _row(one.size_bytes / whole, "#8f5fb5", size(one.size_bytes), allocation_in_words(one))
        for one in vmem.allocations
    ]
    said = f"VMEM of {vmem.op or 'the kernel'}: {size(vmem.used_bytes)} of {size(vmem.limit_bytes)}"
    return _paragraph(said if vmem.fits else f"{said}: it does not fit") + _table(("", "bytes", "allocation"), rows)


def _text(text: str) -> str:
    return html.escape(clean(text), quote=True)


def _heading(text: str) -> str:
    return f"<b>{_text(text)}</b>"


def _paragraph(text: str) -> str:
    return f"<div>{_text(text)}</div>"


def _notes(title: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f"<details><summary>{_text(title)}</summary><ul>{items}</ul></details>" if items else ""


def _row(share: float, colour: str, *texts: str) -> tuple[str, ...]:
    """A bar, and the cells after it."""
    width = round(_BAR * min(1.0, max(0.0, share)))
    return (f'<div style="background:{colour};height:0.8em;width:{width}px"></div>', *map(_text, texts))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML, made by ``_row``; the head is text."""
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><th>{_text(what)}</th><td>{_text(said)}</td></tr>" for what, said in facts.items())
    return f"<table><tbody>{rows}</tbody></table>"


def _whole(parts: Iterable[str]) -> str:
    return f"<div>{''.join(parts)}</div>"


def register() -> None:
    """Let notebooks show these values: they ask a value for ``_repr_html_``."""
    Explanation._repr_html_ = explanation_html  # type: ignore[attr-defined]
    Timeline._repr_html_ = timeline_html  # type: ignore[attr-defined]
    Verdict._repr_html_ = verdict_html  # type: ignore[attr-defined]
