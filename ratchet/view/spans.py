"""What a span of the modelled timeline is called in a trace."""

from __future__ import annotations

from typing import assert_never

from ratchet.values import Span, SpanKind
from ratchet.view.text import clean

_SUMMARISED = "(summarised)"


def label(span: Span) -> str:  # noqa: PLR0911 - one return for each kind of span
    """A few words, cleaned: names of ops and kernels are the author's."""
    name, given = clean(span.name), span.attributes
    match span.kind:
        case SpanKind.NAMED:
            return name
        case SpanKind.RUN:
            return "modelled run"
        case SpanKind.STEP:
            return f"step {given['step']} of {name}"
        case SpanKind.STEPS:
            return f"steps {given['first_step']}–{given['last_step']} of {name} {_SUMMARISED}"
        case SpanKind.BUSY:
            whose = f"{name}: " if name else f"{_SUMMARISED} " if "steps" in given else ""
            return f"{whose}{given['busy_share']:.0%} {'empty bundles' if span.lane == 'stalls' else 'busy'}"
        case SpanKind.COPY:
            return f"{given['source']}→{given['target']} {given['bytes']} B"
        case SpanKind.WAIT:
            return f"wait {span.end_cycles - span.start_cycles} cycles"
        case SpanKind.MESSAGE:
            what = f"{given['bytes']} B" if given["bytes"] else "signal"
            return (
                f"{what} to chip {given['to_chip']}" if "to_chip" in given else f"{what} from chip {given['from_chip']}"
            )
        case SpanKind.SUMMARY:
            return f"{given['count']} more {_SUMMARISED}"
    assert_never(span.kind)
