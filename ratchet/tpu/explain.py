"""A program and a chip -> :class:`ratchet.values.Explanation`: compiled, modelled, and every part named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from ratchet.process.sandbox.child import Child
from ratchet.tpu import latency
from ratchet.tpu.account.band import band
from ratchet.tpu.chips import CHIPS, Chip
from ratchet.tpu.chips.units import CAPACITY
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.compiler.errors import overflowing
from ratchet.tpu.dump import memory
from ratchet.tpu.dump.files import UTILISATION_PASS, load_hlo, text_of, tokens_in
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType
from ratchet.values import (
    ArraySpec,
    Artefact,
    Explanation,
    Limit,
    OpCost,
    OpKind,
    OpShare,
    Program,
    RegionCost,
    Span,
    SpanKind,
    Timeline,
    Vmem,
)
from ratchet.values.blame import LINKS, STALLS, WAITS
from ratchet.values.place import Op, SourceLine
from ratchet.values.program import Remedy, Saving, VmemAllocation, VmemUse
from ratchet.values.status import Ended, Refusal, Status
from ratchet.values.tokens import SOURCE_FILE, TokenTable

Steered = Callable[[Program], Mapping[int | str, Any]]
"""Values that loops and branches of a program depend on: inputs by position, operands by ``"launch:place"``."""
MOVES = frozenset({"copy", "copy-start", "copy-done", "slice-start", "slice-done", "transpose"})
"""Opcodes that move bytes and compute nothing."""
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-", "reduce-scatter")
"""How the opcodes of XLA's collectives begin."""
LANES, SUBLANE_BITS = 128, 256
"""A tile of VMEM is as many lanes wide, and as many bits of one lane deep: 8 rows of 32 bits, 16 of 16."""
_WRAPPERS = ("jit(call)", "call_exported", "jit(program)", "call")
"""Scopes that exporting puts around every name."""


def explain_artefact(
    artefact: Artefact,
    chip: Chip,
    folder: Path,
    child: Child,
    *,
    title: str = "",
    steering: Steered | None = None,
    modelled: bool = True,
) -> Explanation:
    """Compile ``artefact`` for ``chip`` in ``child`` and say what it costs and why.

    Args:
        artefact: an exported program, for one chip or all of a slice.
        chip: what ``child`` compiles for.
        folder: empty; keeps the compiler's output.
        child: a compiler process.
        title: what the program is called in reports.
        steering: gives of the compiled program the values that its loops and branches depend on.
        modelled: run the schedule machine; without, there is VMEM and copies only.

    Raises:
        Refusal: as ``compile_artefact``, except ``VMEM_OVERFLOW`` and ``SMEM_OVERFLOW``, which are explained. What the
            machine cannot model is the explanation's ``reason``.
    """
    try:
        program = compiling.compile_artefact(artefact, chip, folder, child)
    except Refusal as refusal:
        if refusal.status not in (Status.VMEM_OVERFLOW, Status.SMEM_OVERFLOW):
            raise
        return _overflown(refusal, chip, folder, title, compiling.compiler_of(child))
    schedule = program.dump_dir / "schedule"
    hlo, tokens = load_hlo(program.dump_dir), tokens_in(schedule)
    vmem = tuple(_named(one, tokens) for one in memory.vmem_by_op(hlo, schedule, chip))
    known: dict[str, Any] = {
        "title": title,
        "chip": chip.name,
        "compiler": program.compiler,
        "footprint": program.footprint,
        "copies": program.copies,
        "vmem": vmem,
        "smem": tuple(_named(one, tokens) for one in memory.smem_by_kernel(hlo, schedule)),
        "kept_bytes": memory.kept_bytes(hlo, schedule, chip),
        "savings": savings(vmem[0]) if vmem and vmem[0].is_kernel else (),
    }
    if artefact.mesh.chips > 1:
        taken = [one for op in hlo.parameters() for one in op.types]
        parts = tuple(map(_held, taken)), tuple(map(_held, hlo.result.types))
        known |= {"mesh": artefact.mesh, "inputs": artefact.inputs, "parts": parts}
    if not modelled:
        sparse = ", ".join(tokens.name(op.name)[:60] for op in hlo.ops.values() if op.is_of_sparse_cores)
        reason = f"{sparse}: what the SparseCores' kernels need of their memories is not known" if sparse else ""
        return Explanation(status=Status.NOT_MODELLED if sparse else Status.PASS, reason=reason, **known)
    try:
        timeline = latency.step(program, chip, artefact.mesh, steering(program) if steering is not None else {})[0]
    except Refusal as refusal:
        ended = isinstance(refusal, Ended)
        return Explanation(status=refusal.status, reason=refusal.message, ended=ended, **known)
    ops = _Ops(timeline=timeline, hlo=hlo, tokens=tokens, slots=_slots(schedule)).all()
    return Explanation(
        status=Status.PASS,
        reason="",
        timeline=timeline,
        band=band(timeline),
        ops=ops,
        limits=_limits(ops),
        edge_cycles=sum(r.cycles for r in timeline.blame.regions if r.name in ("first", "last")),
        **known,
    )


def _overflown(refusal: Refusal, chip: Chip, folder: Path, title: str, compiler: str) -> Explanation:
    """The explanation of a program that does not fit: what its kernel wanted."""
    tokens = tokens_in(folder / "schedule")
    vmem = overflowing(compiling.error_in(folder), folder / "schedule", chip)
    return Explanation(
        title=title,
        chip=chip.name,
        compiler=compiler,
        status=refusal.status,
        reason=refusal.message,
        vmem=(_named(vmem, tokens),) if vmem and vmem.memory == "VMEM" else (),
        smem=(_named(vmem, tokens),) if vmem and vmem.memory == "SMEM" else (),
        savings=savings(vmem) if vmem and vmem.memory == "VMEM" else (),
    )


def _held(array: ArrayType) -> ArraySpec:
    return ArraySpec(shape=array.shape, dtype=array.dtype)


def _named(vmem: Vmem, tokens: TokenTable) -> Vmem:
    return replace(vmem, op=tokens.name(vmem.op))


def _slots(schedule: Path) -> Mapping[str, int]:
    """Slots per bundle of the chip, by the compiler's own word; those of the account where it says nothing."""
    for path in sorted(schedule.glob(f"*{UTILISATION_PASS}.txt")):
        return memory.capacities(text_of(path, Status.INFRASTRUCTURE), file=path.name)
    return CAPACITY


def _limits(ops: Iterable[OpShare]) -> Mapping[Limit, int]:
    spent: Counter[Limit] = Counter()
    for op in ops:
        spent[op.limit] += op.cycles
    return dict(spent.most_common())


@dataclass(frozen=True, kw_only=True)
class _Ops:
    """The operations of a modelled run, each with what limits it."""

    timeline: Timeline
    hlo: HloModule
    tokens: TokenTable
    slots: Mapping[str, int]
    """Slots per bundle of this chip; the timeline's shares are of v5e's."""

    def all(self) -> tuple[OpShare, ...]:
        """Costliest first; what one waited behind another's copy is that one's."""
        shares = {cost.name: self._share(cost) for cost in self.timeline.ops}
        for name, (behind, cycles) in self._behind().items():
            if name in shares and shares[name].executions == 1:
                op = self.hlo.ops[behind]
                shares.setdefault(behind, self._share(OpCost(name=behind, opcode=op.opcode, executions=1, cycles=0)))
                waited = min(cycles, round(shares[name].busy.get(WAITS, 0.0) * shares[name].cycles))
                shares[name] = _without(shares[name], waited)
                shares[behind] = replace(shares[behind], cycles=shares[behind].cycles + waited)
        return tuple(sorted(shares.values(), key=lambda share: -share.cycles))

    def _behind(self) -> Mapping[str, tuple[str, int]]:
        """Of operations of XLA's whose copies were queued behind one that was issued before: the operation that waits
        for that one, and for how many cycles."""
        found: dict[str, tuple[str, int]] = {}
        copies = [_Queued.of(span) for span in self.timeline.spans if span.kind is SpanKind.COPY]
        least = {lane: min(one.queued for one in copies if one.lane == lane) for lane in {one.lane for one in copies}}
        for span in self.timeline.spans:
            if span.kind is not SpanKind.NAMED or span.name in self.hlo.launches or span.name not in self.hlo.ops:
                continue
            for own in (one for one in copies if span.start_cycles <= one.begin < span.end_cycles):
                before = [one for one in copies if one.lane == own.lane and one.begin < span.start_cycles]
                ahead = max((one for one in before if one.end > own.begin), key=lambda one: one.size, default=None)
                late = own.queued - least[own.lane]
                if ahead is None or late <= found.get(span.name, ("", 0))[1]:
                    continue
                if behind := self._done(ahead.size):
                    found[span.name] = behind, late
        return found

    def _done(self, size: int) -> str:
        """What waits for the one asynchronous copy that brings so many bytes; ``""`` for none, or several."""
        starts = [
            op.name
            for op in self.hlo.ops.values()
            if op.opcode.endswith("-start") and len(op.types) > 1 and op.types[1].padded_bytes == size
        ]
        users = [op.name for op in self.hlo.ops.values() if set(starts) & set(op.operands)]
        return users[0] if len(starts) == len(users) == 1 else ""

    def _share(self, cost: OpCost) -> OpShare:
        kind, busy = self._kind(cost), self._busy(cost)
        op = self.hlo.ops.get(cost.name)
        return OpShare(
            name=self.tokens.name(cost.name),
            opcode=cost.opcode,
            kind=kind,
            origin=_readable(self.tokens.explain(op.op_name)) if op else "",
            source=_source(op, self.tokens) if op else None,
            executions=cost.executions,
            cycles=cost.cycles,
            limit=_limit(kind, busy),
            busy=busy,
        )

    def _kind(self, cost: OpCost) -> OpKind:
        if not cost.name or cost.opcode == "runtime":
            return OpKind.LAUNCH
        if cost.name in self.hlo.launches:
            return OpKind.KERNEL
        if cost.opcode.startswith(COLLECTIVES):
            return OpKind.COLLECTIVE
        op = self.hlo.ops.get(cost.name)
        return OpKind.COPY if op is not None and (op.opcode in MOVES or self._moves(op.called)) else OpKind.XLA

    def _moves(self, called: Sequence[str]) -> bool:
        """Whether a fusion only moves bytes."""
        inside = {inner.opcode for name in called for inner in self.hlo.by_computation.get(name, ())}
        return bool(inside & MOVES) and inside <= MOVES | {"parameter", "bitcast", "reshape", "tuple"}

    def _busy(self, cost: OpCost) -> Mapping[str, float]:
        regions = self._regions.get(self._code(cost.name), ())
        shares = _of_regions(regions) if regions else self._spans.get(cost.name, {})
        busy = self._of_chip(shares, exact={"MXU", "XLU"} if regions else {"MXU"})
        if not busy and cost.opcode.endswith("-done"):  # nothing runs: it is waited for
            busy = {WAITS: 1.0}
        elif not regions and cost.cycles:
            waited = self._waits.get(self._code(cost.name), 0.0)
            busy = {**busy, WAITS: waited, "HBM": self._hbm(cost)} if waited else busy
        return dict(sorted(busy.items(), key=lambda item: -item[1]))

    def _hbm(self, cost: OpCost) -> float:
        """Share of an operation of XLA's time for which HBM moves its operands and results; at most all of it."""
        op = self.hlo.ops.get(cost.name)
        if op is None:
            return 0.0
        arrays = [*op.types, *(one for name in op.operands if name in self.hlo.ops for one in self.hlo.ops[name].types)]
        moved = sum(one.padded_bytes for one in arrays if not one.space) * max(1, cost.executions)
        seconds = moved / CHIPS[self.timeline.chip].achievable_hbm_bytes_per_s
        return min(1.0, seconds * self.timeline.clock_hz / max(1, cost.cycles))

    def _of_chip(self, busy: Mapping[str, float], *, exact: Collection[str]) -> dict[str, float]:
        """Shares of the chip's own slots; those of ``exact`` are counted unit by unit already."""
        return {
            unit: share if unit in exact or unit not in CAPACITY else share * CAPACITY[unit] / self.slots.get(unit, 1)
            for unit, share in busy.items()
        }

    def _code(self, name: str) -> str:
        """What is equal for operations that run the same compiled code."""
        return self.hlo.fingerprint(name) if name in self.hlo.ops else name

    @cached_property
    def _regions(self) -> Mapping[str, Sequence[RegionCost]]:
        """Regions of kernels, by their code."""
        regions: dict[str, list[RegionCost]] = {}
        for region in self.timeline.blame.regions:
            if region.kernel:
                regions.setdefault(self._code(region.kernel), []).append(region)
        return regions

    @cached_property
    def _spans(self) -> Mapping[str, Mapping[str, float]]:
        """Shares of units of what has no grid steps, by name: the mean over the executions in the timeline."""
        seen: dict[str, dict[str, list[float]]] = {}
        for span in self.timeline.spans:
            if span.kind is SpanKind.BUSY and span.name:
                share = float(span.attributes["busy_share"])
                seen.setdefault(span.name, {}).setdefault(span.lane, []).append(share)
        return {
            name: {lane: sum(shares) / len(shares) for lane, shares in lanes.items()} for name, lanes in seen.items()
        }

    @cached_property
    def _waits(self) -> Mapping[str, float]:
        """Share of waiting of what has no grid steps, by its code."""
        return {
            self._code(line.place.name): line.wait_cycles / max(1, line.cycles)
            for line in self.timeline.blame.lines
            if isinstance(line.place, Op)
        }


@dataclass(frozen=True, kw_only=True)
class _Queued:
    """One copy of the modelled run, in cycles."""

    lane: str
    begin: int
    queued: int
    """From its issue until it is served."""
    end: int
    size: int

    @classmethod
    def of(cls, span: Span) -> _Queued:
        served = int(span.attributes.get("service_start_cycles", span.start_cycles))
        return cls(
            lane=span.lane,
            begin=span.start_cycles,
            queued=served - span.start_cycles,
            end=span.end_cycles,
            size=int(span.attributes.get("bytes", 0)),
        )


def _without(share: OpShare, waited: int) -> OpShare:
    """An operation without cycles that it waited; its units are as busy as before."""
    left = max(1, share.cycles - waited)
    busy = {unit: part * share.cycles / left for unit, part in share.busy.items() if unit != WAITS}
    busy[WAITS] = max(0.0, share.busy.get(WAITS, 0.0) * share.cycles - waited) / left
    busy = dict(sorted(((unit, min(1.0, part)) for unit, part in busy.items() if part), key=lambda item: -item[1]))
    return replace(share, cycles=share.cycles - waited, busy=busy, limit=_limit(share.kind, busy))


def _readable(name: str) -> str:
    """JAX's name of an operation without the scopes of exporting, and without a primitive behind its own name."""
    parts = [part for part in name.split("/") if part not in _WRAPPERS]
    if len(parts) > 1 and parts[-1] == parts[-2]:
        parts.pop()
    return "/".join(parts)


def _source(op: HloOp, tokens: TokenTable) -> SourceLine | None:
    """The author's line; None where the compiler made the operation, or the program has no places."""
    if not op.op_name or op.place is None or op.place[0] != SOURCE_FILE:
        return None
    source = tokens.nearest(op.place[1])
    return SourceLine(file=PurePath(source[0]).name, line=source[1]) if source else None


def _of_regions(regions: Sequence[RegionCost]) -> dict[str, float]:
    cycles = max(1, sum(region.cycles for region in regions))
    needed: Counter[str] = Counter()
    for region in regions:
        own = region.wait_cycles - region.link_wait_cycles
        needed.update({**region.busy_cycles, STALLS: region.stall_cycles, WAITS: own, LINKS: region.link_wait_cycles})
    return {unit: busy / cycles for unit, busy in needed.items() if busy}


_LIMITS = {
    LINKS: Limit.LINKS,
    "MXU": Limit.MATRIX,
    "SALU": Limit.SCALAR,
    "branch": Limit.SCALAR,
    STALLS: Limit.DEPENDENCIES,
}
"""What an operation is bound by that spends most on a unit; on any other it is vector work."""


def _limit(kind: OpKind, busy: Mapping[str, float]) -> Limit:
    """What takes longest; HBM only where it is busy for more than half of the time, as it goes on beside all else."""
    if kind is OpKind.LAUNCH:
        return Limit.LAUNCH
    if kind is OpKind.COPY:
        return Limit.COPIES
    if kind is OpKind.COLLECTIVE:
        return Limit.LINKS
    bound = {unit: share for unit, share in busy.items() if unit != "HBM" or share > 0.5}
    unit = max(bound, key=lambda unit: bound[unit], default=STALLS)
    if unit in ("HBM", WAITS):
        return Limit.HBM if busy.get("HBM", 0.0) > 0.5 else Limit.LATENCY
    return _LIMITS.get(unit, Limit.VECTOR)


# --- what would free VMEM ---


def savings(vmem: Vmem) -> tuple[Saving, ...]:
    """What would free VMEM of one kernel, largest first; each if everything else stayed."""
    windows = [one for one in vmem.allocations if one.use in (VmemUse.INPUT, VmemUse.OUTPUT)]
    blocks = [*windows, *(one for one in vmem.allocations if one.use is VmemUse.SCRATCH)]
    every = [_halved(side, blocks) for side in sorted({side for one in blocks for side in one.shape if side > 1})]
    every += [
        Saving(change=Remedy.SINGLE_BUFFER, allocations=(one,), frees_bytes=one.size_bytes - one.one_level_bytes)
        for one in windows
        if one.levels > 1
    ]
    every += [
        Saving(change=Remedy.NO_SPILLS, allocations=(one,), frees_bytes=one.size_bytes)
        for one in vmem.allocations
        if one.use is VmemUse.SPILLS
    ]
    return tuple(sorted((one for one in every if one.frees_bytes), key=lambda one: -one.frees_bytes))


def _halved(side: int, blocks: Sequence[VmemAllocation]) -> Saving:
    """What halving all sides of one length frees."""
    freed = {one: one.size_bytes - one.size_bytes * _bytes(one, side) // _bytes(one) for one in blocks}
    shrink = tuple(one for one, saved in freed.items() if saved)
    return Saving(change=Remedy.HALVE, side=side, allocations=shrink, frees_bytes=sum(freed.values()))


def _bytes(block: VmemAllocation, halved: int = 0) -> int:
    """Bytes of one level, padded to whole tiles, with every side of length ``halved`` at half of it."""
    shape = tuple(-(-side // 2) if side == halved else side for side in block.shape)
    order = tuple(reversed(range(len(shape))))
    array = ArrayType(dtype=block.dtype, shape=shape, minor_to_major=order, tiles=(), space=1)
    return replace(array, tiles=((max(1, SUBLANE_BITS // array.item_bits), LANES),)).padded_bytes
