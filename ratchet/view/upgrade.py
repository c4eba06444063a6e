"""What an upgrade of JAX and libtpu changed, as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ratchet.values.change import ChangeKind, Costs, Side, Upgrade, ValueChange
from ratchet.view.columns import columns
from ratchet.view.text import clean
from ratchet.view.words import change as relative
from ratchet.view.words import fixed, size

_SHOWN = 8
_HEAD = ("target", "TPU", "latency, modelled", "VMEM", "spills", "copies by XLA", "values", "")
_REASON = 300


def upgrade_text(upgrades: Sequence[Upgrade], *, versions: Sequence[str]) -> str:
    """A row for each target and chip, then what changed in each, by operation."""
    compilers = [_compiler([getattr(one, side) for one in upgrades]) for side in ("before", "after")]
    named = [clean(f"jax {version} ({one})") for version, one in zip(versions, compilers, strict=True)]
    lines = [f"{named[0]} -> {named[1]}, modelled, not measured", ""]
    lines += columns([_HEAD, *map(_row, upgrades)])
    for one in upgrades:
        lines += _details(one)
    worse, unsettled = sum(one.worse for one in upgrades), sum(one.unsettled for one in upgrades)
    end = f"{worse or 'none'} of {len(upgrades)} worse"
    lines += ["", f"{end}, {unsettled} not settled" if unsettled else end]
    return "\n".join(lines)


def _compiler(sides: Sequence[Side]) -> str:
    return next((side.costs.compiler.partition(",")[0] for side in sides if side.costs.compiler), "nothing compiled")


def _row(one: Upgrade) -> tuple[str, ...]:
    before, after = one.before.costs, one.after.costs
    return (
        clean(one.before.target),
        one.before.chip,
        _both(_latency(before), _latency(after)) + _percent(before, after),
        _both(*(size(side.vmem_bytes) if side.vmem_limit_bytes else "-" for side in (before, after))),
        _both(*(str(side.spills) if side.compiler else "-" for side in (before, after))),
        _both(*(f"{side.copies} ({size(side.copy_bytes)})" if side.copies else "none" for side in (before, after))),
        _values(one.values),
        "WORSE" if one.worse else (ChangeKind.UNSETTLED if one.unsettled else one.change.kind).value,
    )


def _latency(costs: Costs) -> str:
    return f"{fixed(costs.latency_ms, 4)} ms" if costs.latency_ms else "-"


def _percent(before: Costs, after: Costs) -> str:
    if not before.latency_ms or not after.latency_ms or before.latency_ms == after.latency_ms:
        return ""
    return f" ({relative(after.latency_ms, before.latency_ms)})"


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _values(values: ValueChange) -> str:
    if not values.compared:
        return "lost" if values.worse else "not compared"
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
            lines.append(f"  {where}: {side.costs.status.name}: {clean(side.costs.reason, _REASON)}")
    if one.values.reason:
        lines.append(f"  values: {clean(one.values.reason, _REASON)}")
    elif one.values.worse:
        lines.append(f"  values: {fixed(one.values.apart_ulps, 3)} ulp of the largest element apart")
    hidden = len(one.ops[_SHOWN:]) + len(one.copies[_SHOWN:])
    lines += [f"  {hidden} smaller changes are not shown (--json)"] if hidden else []
    return ["", f"{clean(one.before.target)} on {one.before.chip}:", *lines] if lines else []


def upgrade_document(upgrades: Sequence[Upgrade]) -> dict[str, Any]:
    """The same as JSON, all changes; ms and bytes, ``null`` where something was not modelled."""
    return {
        "upgrades": [
            {
                "target": one.before.target,
                "chip": one.before.chip,
                "kind": (one.change.kind if one.change.kind is not ChangeKind.NEW else ChangeKind.SAME).value,
                "worse": one.worse,
                "unsettled": one.unsettled,
                "before": _side(one.before),
                "after": _side(one.after),
                "ops_ms": [asdict(moved) for moved in one.ops],
                "copies_bytes": [asdict(moved) for moved in one.copies],
                "values": asdict(one.values),
            }
            for one in upgrades
        ]
    }


def _side(side: Side) -> dict[str, Any]:
    return {**asdict(side.costs), "status": side.costs.status.name, "jax": side.jax_version}
