"""Which way a program went: how often each branch, loop and copy of its kernels was executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.values import encoding
from ratchet.values.copies import ExecutedCopies, IssuedCopies


@dataclass(frozen=True, kw_only=True)
class ControlFlow:
    """Executions per source place (``file:line`` as the compiled program has it), summed over all runs of a kernel."""

    branches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How often the body of a conditional was executed, and how often it was passed by or its other body executed."""
    loops: Mapping[str, int] = field(default_factory=dict)
    """Iterations of a loop."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """DMAs started."""
    executed: tuple[ExecutedCopies, ...] = ()
    """Every copy of each call of a kernel, where it was executed for its values on one chip."""
    issued: tuple[IssuedCopies, ...] = ()
    """The same where it was modelled."""


def encode(flow: ControlFlow) -> dict[str, Any]:
    """As plain JSON."""
    counts = {name: dict(getattr(flow, name)) for name in ("branches", "loops", "copies")}
    return counts | {name: encoding.encode(getattr(flow, name)) for name in ("executed", "issued")}


def decode(record: Mapping[str, Any]) -> ControlFlow:
    """Reads what :func:`encode` wrote.

    Raises:
        ValueError: ``record`` is something else.
    """
    try:
        return ControlFlow(
            branches={place: (int(then), int(otherwise)) for place, (then, otherwise) in record["branches"].items()},
            loops={place: int(count) for place, count in record["loops"].items()},
            copies={place: int(starts) for place, starts in record["copies"].items()},
            executed=encoding.decode(tuple[ExecutedCopies, ...], record["executed"]),  # type: ignore[arg-type]
            issued=encoding.decode(tuple[IssuedCopies, ...], record["issued"]),  # type: ignore[arg-type]
        )
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise ValueError(f"no record of control flow: {type(error).__name__}: {error}") from None
