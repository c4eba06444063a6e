"""An explanation as text and as one JSON document."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ratchet.tpu.account.reasons import reasons
from ratchet.values import (
    ArraySpec,
    Copy,
    Explanation,
    LineCost,
    OpKind,
    OpShare,
    Saving,
    Timeline,
    Vmem,
    VmemAllocation,
)
from ratchet.values.place import Code, Op
from ratchet.values.program import Remedy, VmemUse
from ratchet.values.reason import Reason
from ratchet.values.status import Status
from ratchet.view.document import BAND_MS, MODELLED, Tables, plain, same
from ratchet.view.losses import copy_in_words, losses_in_words, mostly, omissions_in_words, reasons_in_words
from ratchet.view.occupancy import OCCUPANCY, occupancy_section
from ratchet.view.text import clean, fixed, size, where

SCHEMA_VERSION = 1
"""Version of the JSON document that ``ratchet explain --json`` prints."""
_LEAST = 0.001
"""Rows below this share of the run are put together."""
_NAME, _ORIGIN = 32, 60
_SAVINGS, _LINES, _COPIES, _OTHERS, _STRETCHES = 4, 16, 12, 5, 12
"""Rows that are shown of each."""
_OF_CHIP = ("chip_index", "place", "cycles", "launch_cycles", "ici_cycles", "ici_wait_cycles", "ici_bytes",
            "hbm_read_bytes", "hbm_write_bytes")  # fmt: skip
_NAMES = {"stalls": "empty", "waits": "waiting"}


def explain_text(explanation: Explanation) -> str:
    """Everything, without a final newline."""
    return "\n".join(_lines(explanation))


def vmem_text(explanation: Explanation) -> str:
    """VMEM alone, without a final newline."""
    return "\n".join(_vmem(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield headline(explanation)
    timeline = explanation.timeline
    if timeline is not None:
        yield f"  limited by: {limits_in_words(explanation)}"
        yield f"  {_percent(explanation.edge_cycles / max(1, timeline.cycles))} fills and drains pipelines of kernels"
        yield ""
        yield "operations, costliest first (busy: what each is needed for, of its own time)"
        yield from _ops(explanation.ops, max(1, timeline.cycles), timeline.clock_hz)
        lines = kernel_lines(timeline)
        if lines:
            yield ""
            yield "lines of the kernels"
            yield from _source_lines(lines, max(1, timeline.cycles), timeline.clock_hz)
        yield from occupancy_section("occupancy of the kernels along their programs", timeline, rows=_STRETCHES)
        if timeline.chips:
            yield ""
            yield from _between_chips(explanation, timeline)
        yield ""
        yield "all of the time"
        yield from (f"  {said}" for said in reasons_in_words(timeline))
        yield ""
        yield "losses, largest first"
        yield from (f"  {rank}. {said}" for rank, said in enumerate(losses_in_words(timeline), start=1))
    yield ""
    yield from _copies(explanation)
    yield ""
    yield from _vmem(explanation)
    if timeline is not None:
        yield ""
        yield "not modelled"
        yield from (f"  - {said}" for said in omissions_in_words(timeline))


def _between_chips(explanation: Explanation, timeline: Timeline) -> Iterator[str]:
    """How arrays lie on the chips, and what each chip does besides computing."""
    mesh, ms = explanation.mesh, 1e3 / timeline.clock_hz
    given, made = (", ".join(map(str, arrays)) or "nothing" for arrays in explanation.parts)
    splits = [split_in_words(one, split) for one, split in zip(explanation.inputs, mesh.inputs, strict=False)]
    yield f"chips: {' x '.join(f'{name} {count}' for name, count in mesh.axes)}; inputs {', '.join(splits)}"
    yield f"  each holds {given} of the inputs, {made} of the outputs"
    if explanation.footprint is not None:
        memory = explanation.footprint
        yield f"  and needs {size(memory.hbm_bytes)} of its {size(memory.hbm_limit_bytes)} of HBM"
    yield f"  chip place {'ms':>9} {'links ms':>9} {'hidden':>7} {'sent':>10} {'HBM read':>10} {'written':>10}"
    for chip in timeline.chips:
        waited = max(0, chip.ici_wait_cycles - chip.launch_cycles)
        hidden = _percent(max(0, chip.ici_cycles - waited) / chip.ici_cycles) if chip.ici_cycles else ""
        moved = " ".join(f"{size(one):>10}" for one in (chip.ici_bytes, chip.hbm_read_bytes, chip.hbm_write_bytes))
        number = f"{chip.chip_index:>4} {chip.place:>5}"
        yield f"  {number} {chip.cycles * ms:>9.4f} {chip.ici_cycles * ms:>9.4f} {hidden:>7} {moved}"
    yield "  place: in the mesh; links: anything is under way to or from the chip; hidden: that beside other work of it"


def split_in_words(array: ArraySpec, split: Sequence[Sequence[str]]) -> str:
    """``bfloat16[2048@chip,1024]``: as arrays are written on a command line."""
    over = [f"@{'+'.join(names)}" if names else "" for names in split]
    sides = [f"{side}{axis}" for side, axis in itertools.zip_longest(array.shape, over, fillvalue="")]
    return f"{array.dtype}[{','.join(sides)}]"


def headline(explanation: Explanation) -> str:
    """Program, chip, compiler, and latency with its band; or why there is none."""
    title = clean(explanation.title) or "program"
    what = f"{title} for TPU {explanation.chip} ({clean(explanation.compiler)})"
    if explanation.timeline is None:
        if explanation.status is Status.PASS:
            return f"{what}: compiled, not modelled"
        over = explanation.status in (Status.VMEM_OVERFLOW, Status.SMEM_OVERFLOW)
        said = "does not compile" if over else "not modelled"
        return f"{what}: {said}, {explanation.status.name}: {clean(explanation.reason)}"
    band = explanation.band
    near = f", 9 times in 10 between {fixed(band.low_ms, 4)} and {fixed(band.high_ms, 4)} ms" if band else ""
    return f"{what}: {fixed(explanation.timeline.latency_ms)} ms modelled{near}"


def limits_in_words(explanation: Explanation) -> str:
    """``matrix units 66 %, HBM 19 %, launch 0.3 %``: of the whole run."""
    timeline, limits = explanation.timeline, explanation.limits or {}
    cycles = max(1, timeline.cycles) if timeline else 1
    return ", ".join(
        f"{limit.value} {_percent(spent / cycles)}" for limit, spent in limits.items() if spent >= 0.0005 * cycles
    )


def _ops(ops: Sequence[OpShare], cycles: int, clock_hz: float) -> Iterator[str]:
    yield f"  {'ms':>9} {'%':>6}  {'limited by':15} {'busy':30} {'operation':{_NAME}} from"
    rest = [op for op in ops if op.cycles < _LEAST * cycles and op.kind is not OpKind.LAUNCH]
    for op in ops:
        if op in rest:
            continue
        times = f" x{op.executions}" if op.executions > 1 else ""
        place = f"{clean(op.origin, _ORIGIN)} {where(op.source) if op.source else ''}".strip()
        name = op_name(op, _NAME - len(times)) + times
        said = f"{op.limit.value:15} {_busy(op.busy):30} {name:{_NAME}} {place}"
        yield f"{_time(op.cycles, cycles, clock_hz)}  {said}".rstrip()
    if rest:
        spent = _time(sum(op.cycles for op in rest), cycles, clock_hz)
        yield f"{spent}  {len(rest)} more below {_LEAST:.1%} each"


def _time(spent: int, cycles: int, clock_hz: float) -> str:
    """Milliseconds, and the share of all cycles."""
    return f"  {spent / clock_hz * 1e3:>9.4f} {_percent(spent / cycles):>6}"


def kernel_lines(timeline: Timeline) -> list[LineCost]:
    """What the kernels' cycles go to: source lines, waits for windows, the compiler's pipeline; costliest first."""
    return [
        line for line in timeline.blame.lines if not isinstance(line.place, Op) and line.place is not Code.TOP_LEVEL
    ]


def op_name(op: OpShare, limit: int | None = None) -> str:
    """The name of an operation, or in words what has none."""
    return clean(op.name, limit) or "(code around all operations)"


def _busy(busy: Mapping[str, float]) -> str:
    shown = [(unit, share) for unit, share in busy.items() if share >= 0.005][:3]
    return ", ".join(f"{_NAMES.get(unit, unit)} {share:.0%}" for unit, share in shown)


def _source_lines(lines: Sequence[LineCost], cycles: int, clock_hz: float) -> Iterator[str]:
    for line in lines[:_LINES]:
        own = line.wait_cycles - line.link_wait_cycles
        parts = {**line.issue_cycles, "waiting": own, "waiting for links": line.link_wait_cycles}
        parts |= {f"empty for {unit}": spent for unit, spent in line.stall_cycles.items()}
        spent = _time(line.cycles, cycles, clock_hz)
        yield f"{spent}  {where(line.place):28} {mostly(parts, line.cycles)}"
    if lines[_LINES:]:
        spent = _time(sum(line.cycles for line in lines[_LINES:]), cycles, clock_hz)
        yield f"{spent}  {len(lines) - _LINES} more lines"


def _copies(explanation: Explanation) -> Iterator[str]:
    copies = explanation.copies
    if not copies:
        yield "copies: none"
        return
    injected = [copy for copy in copies if copy.injected]
    asked = [copy for copy in copies if not copy.injected]
    yield (
        f"copies: {len(injected)} inserted by XLA ({size(_total(injected))}), {len(asked)} asked for by the program "
        f"({size(_total(asked))})"
    )
    spent = {op.name: op.cycles for op in explanation.ops}
    clock = explanation.timeline.clock_hz if explanation.timeline else 1.0
    for copy in sorted(copies, key=lambda copy: -copy.size_bytes)[:_COPIES]:
        done = copy.instruction.replace("-start", "-done")
        cycles = spent.get(copy.instruction, 0) + (spent.get(done, 0) if done != copy.instruction else 0)
        took = f", {cycles / clock * 1e3:.4f} ms" if cycles else ""
        yield f"  {clean(copy.instruction)}: {copy.kind} of {size(copy.size_bytes)}{took}, {copy_in_words(copy)}"
    if copies[_COPIES:]:
        yield f"  and {len(copies) - _COPIES} more"


def _total(copies: Sequence[Copy]) -> int:
    return sum(copy.size_bytes for copy in copies)


def _vmem(explanation: Explanation) -> Iterator[str]:
    kernels = [vmem for vmem in explanation.vmem if vmem.is_kernel]
    others = [vmem for vmem in explanation.vmem if not vmem.is_kernel]
    if not explanation.vmem and explanation.status is not Status.SMEM_OVERFLOW:
        yield "VMEM: no operation has a report"
    for vmem in kernels:
        yield from _of_kernel(vmem)
    if explanation.savings:
        yield "  what would free some, each if everything else stayed"
        for saving in explanation.savings[:_SAVINGS]:
            yield f"    {size(saving.frees_bytes):>10}  {saving_in_words(saving, explanation.knobs)}"
    for vmem in others[:_OTHERS]:
        mostly = f", most of it {allocation_in_words(vmem.allocations[0])}" if vmem.allocations else ""
        yield f"VMEM of {clean(vmem.op)}, by XLA: {size(vmem.used_bytes)} of {size(vmem.limit_bytes)}{mostly}"
    if others[_OTHERS:]:
        yield f"  and {len(others) - _OTHERS} more operations of XLA with less"
    if explanation.kept_bytes:
        yield f"VMEM in which XLA keeps whole arrays between operations: {size(explanation.kept_bytes)}"
    for one in explanation.smem:
        yield from _of_kernel(one)


def _of_kernel(vmem: Vmem) -> Iterator[str]:
    over = "" if vmem.fits else f", {size(vmem.used_bytes - vmem.limit_bytes)} too much"
    limit = f" of {size(vmem.limit_bytes)}" if vmem.limit_bytes else ""
    has = f" (the chip has {size(vmem.chip_bytes)})" if vmem.chip_bytes else ""
    yield f"{vmem.memory} of {clean(vmem.op) or 'the kernel'}: {size(vmem.used_bytes)}{limit}{over}{has}"
    for one in vmem.allocations:
        yield f"    {size(one.size_bytes):>10}  {allocation_in_words(one)}"
    if not vmem.allocations:
        yield "    nothing of its own: XLA keeps its operands and results in VMEM"


def allocation_in_words(one: VmemAllocation) -> str:
    """``input window 0: bf16[256,128] of [4096,128], double buffered``."""
    said = f"{_short(one)}: {clean(one.block)}" if one.block else _short(one)
    if one.whole:
        said += f" of [{','.join(map(str, one.whole))}]"
    if one.use in (VmemUse.INPUT, VmemUse.OUTPUT):
        said += {1: ", single buffered", 2: ", double buffered"}.get(one.levels, f", {one.levels} buffers")
    return said


def saving_in_words(saving: Saving, knobs: Mapping[int, Sequence[str]]) -> str:
    """What to change, and what of it shrinks; ``knobs`` are constants by value."""
    names = ", ".join(dict.fromkeys(_short(one) for one in saving.allocations))
    if saving.change is Remedy.HALVE:
        named = clean(" or ".join(knobs.get(saving.side, ())), _NAME)
        return f"halve {saving.side} to {-(-saving.side // 2)}{f' ({named}?)' if named else ''}: {names}"
    if saving.change is Remedy.SINGLE_BUFFER:
        return f"pl.Buffered(1) for {names}: its copies then wait for the step before"
    return "no register spills: smaller pieces of work in the body"


def _short(one: VmemAllocation) -> str:
    return one.use.value + (f" {one.number}" if one.number is not None else "")


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def explain_document(explanation: Explanation) -> dict[str, Any]:
    """The same as JSON: cycles of the TensorCore clock, ms, bytes, shares of 1; null where there is none."""
    timeline = explanation.timeline
    return {
        "schema_version": SCHEMA_VERSION,
        **plain(explanation, _TABLES),
        "lines": plain(timeline.blame.lines, _TABLES) if timeline else [],
        "occupancy": plain(timeline.occupancy, _TABLES) if timeline else [],
        "chips": [{name: getattr(chip, name) for name in _OF_CHIP} for chip in timeline.chips] if timeline else [],
        "reasons": plain(reasons(timeline.blame.regions), _TABLES) if timeline else [],
        "losses": losses_in_words(timeline) if timeline else [],
        "not_modelled": omissions_in_words(timeline) if timeline else [],
    }


def _saving(saving: Saving, knobs: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    return {**plain(saving), "side": saving.side or None, "knobs": list(knobs.get(saving.side, ()))}


_TABLES: Tables = {
    **BAND_MS,
    Explanation: {
        **same("title", "chip", "compiler"),
        "evaluator": lambda explanation: f"{explanation.chip}-model",
        **MODELLED,
        **same("status", "reason"),
        **same("latency_ms", "cycles", "clock_hz", of="timeline"),
        "band_ms": "band",
        "launch_share": lambda explanation: explanation.launch_share if explanation.timeline else None,
        "edge_cycles": lambda explanation: explanation.edge_cycles if explanation.timeline else None,
        ...: ("ended", "footprint", "knobs"),
        "limits": lambda explanation: explanation.limits or {},
        "savings": lambda explanation: [_saving(one, explanation.knobs) for one in explanation.savings],
    },
    LineCost: {"where": "place", **same("cycles", "issue_cycles", "stall_cycles", "wait_cycles", "link_wait_cycles")},
    Reason: {"use": "use", "unit": "unit", "cycles": "cycles", "where": "place"},
    **OCCUPANCY,
    Vmem: {...: (), "fits": "fits"},
}
