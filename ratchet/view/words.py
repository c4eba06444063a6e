"""Numbers and reasons as a person reads them."""

from __future__ import annotations

import math

from ratchet.values import Earlier, Step, Verdict


def kind_of(evaluator: str) -> str:
    """``modelled`` or ``measured``: which of the two a number by this evaluator is."""
    return "modelled" if evaluator.endswith("-model") else "measured"


def fixed(value: float, digits: int = 5) -> str:
    """``value`` to so many significant digits, never with an exponent: ``0.00012346``, ``1234.6``, ``1234568``."""
    if not math.isfinite(value):
        return str(value)
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def size(n_bytes: int) -> str:
    """Bytes in the largest binary unit that leaves at least one: ``9.00 MiB``."""
    amount = float(n_bytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def number(text: str) -> float | None:
    """The finite number that a ledger cell holds, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def change(new: float, old: float) -> str:
    """Relative change in per cent with its sign, ``+12.3 %``; empty where there is nothing to relate to."""
    return percent(100 * (new / old - 1)) if old > 0 else ""


def times(faster: float) -> str:
    """``1.124x``: how many times as fast, to three or four digits."""
    rounded = float(f"{faster:.4g}" if faster < 2 else f"{faster:.3g}")
    return f"{fixed(rounded, 4 if rounded < 2 else 3)}x"


def percent(share_pct: float) -> str:
    """A change in per cent with its sign, to three digits: ``-11.1 %``, ``+284 %``, ``-0.0268 %``."""
    rounded = float(f"{share_pct:.3g}")
    return f"{'+' if rounded > 0 else ''}{fixed(rounded, 3)} %"


def time_change(faster: float) -> str:
    """What becomes of the time: ``-11.1 %`` where a run is 1.125 times as fast."""
    return "same" if faster == 1 else percent(100 * (1 / faster - 1))


def earlier_in_words(earlier: Earlier) -> str:
    """Which judging a remembered verdict is from."""
    who = f"experiment {earlier.experiment}" if earlier.experiment else "a sweep"
    return f"{who} judged the same program at {earlier.time}"


def reason_beyond(verdict: Verdict, reason: str) -> str:
    """What the reason of a decision adds to the verdict's own, so that each is printed once."""
    return reason.removeprefix(f"{verdict.status.name}: {verdict.reason}").lstrip("; ")


def summary_beyond(verdict: Verdict, step: Step) -> str:
    """The summary of a step, or ``""`` where it is the verdict's reason."""
    return "" if verdict.reason == f"{step.name}: {step.summary}" else step.summary


def judged_again(count: int) -> str:
    """That later verdicts only repeated one."""
    return f"judged again {count} time{'s' * (count > 1)}, unchanged"
