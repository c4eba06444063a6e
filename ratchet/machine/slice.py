"""A program on a slice: one machine per chip, run together over the links -> a :class:`ratchet.values.Timeline`.

All chips start at cycle 0. Each has its own memories, sync flags and HBM queue; they meet in nothing but what they
send each other. The latency is that of the slowest chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from ratchet.account.timeline import build
from ratchet.chips import Chip
from ratchet.dump.files import Dumps
from ratchet.dump.hlo import HloModule
from ratchet.dump.image import constant_offsets
from ratchet.machine.dma import Ends
from ratchet.machine.inputs import ScalarInputs
from ratchet.machine.interleaving import Interleaving
from ratchet.machine.links import Ici, Links, Message, ici_for
from ratchet.machine.member import Member, Shared
from ratchet.machine.programs import Programs
from ratchet.machine.record import Record
from ratchet.machine.unknown import UndecidedBranch
from ratchet.values import LinkUse, Span, SpanKind, Timeline
from ratchet.values.omission import LinkModel, OpenSemaphore, UndecidedBranches
from ratchet.values.status import Refusal, Status

KEPT_SPANS = 400
"""Messages and waits shown one by one at each end of a chip's run."""


def run_slice(
    dump_dir: Path,
    *,
    hlo: HloModule,
    chip: Chip,
    compiler: str,
    constants: bytes = b"",
    chip_ids: Sequence[int] = (0, 1, 2, 3),
    scalar_inputs: Sequence[ScalarInputs] | None = None,
    detail: bool = False,
) -> Timeline:
    """Models one run of a program compiled for all chips of a slice.

    Args:
        dump_dir: as for :func:`ratchet.machine.machine.run`, with the pass
            :data:`ratchet.dump.image.OFFSETS_PASS` besides.
        hlo: the optimised module.
        chip: what it was compiled for.
        compiler: version of the compiler, for messages and for the timeline.
        constants: what :func:`ratchet.dump.image.constant_segment` finds in the compiled executable; collectives
            of XLA read their routing tables there.
        chip_ids: the device id of each place in the program's mesh, in order: ``[d.id for d in mesh.devices.flat]``.
        scalar_inputs: per place in the mesh, as for ``machine.run``: each chip has its own shard.
        detail: keep many more single grid steps in the spans.

    Returns:
        The timeline of the slowest chip, with that of every chip in ``chips``.

    Raises:
        Refusal: as ``machine.run``; DEADLOCK if all chips wait for each other, with who waits for what; USAGE for a
            program or a mesh that does not fill the slice.
    """
    ici = ici_for(chip)
    partitions = len(hlo.device_ids)
    given = scalar_inputs or [{}] * ici.chips
    if partitions != ici.chips or sorted(chip_ids) != list(range(ici.chips)) or len(given) != ici.chips:
        raise Refusal(
            Status.USAGE,
            f"compiled for {partitions} chips, run on ids {list(chip_ids)} with {len(given)} sets of inputs; "
            f"a slice of {chip.name} has the {ici.chips} chips 0 to {ici.chips - 1}: use them all, each once.",
        )
    programs = Programs(Dumps(dump_dir, hlo, compiler), hlo, compiler)
    words = {}
    for name, offset in constant_offsets(dump_dir).items():
        piece = constants[offset : offset + 512]
        words[name] = [int.from_bytes(piece[i : i + 4], "little", signed=True) for i in range(0, len(piece), 4)]
    whole = _Slice(
        programs=programs,
        hlo=hlo,
        chip=chip,
        compiler=compiler,
        ici=ici,
        constants=words,
        chip_ids=tuple(chip_ids),
        scalar_inputs=given,
    )
    try:
        return whole.run(detail=detail)
    except UndecidedBranch:
        ways = [whole.run(detail=detail, take_undecided=way) for way in (True, False)]
        fast, slow = sorted(ways, key=lambda timeline: timeline.cycles)
        undecided = UndecidedBranches(fast_cycles=fast.cycles, slow_cycles=slow.cycles)
        return replace(slow, not_modelled=(undecided, *slow.not_modelled))


@dataclass(frozen=True, kw_only=True)
class _Slice:
    """A program and a slice to run it on, as often as need be."""

    programs: Programs
    hlo: HloModule
    chip: Chip
    compiler: str
    ici: Ici
    constants: Mapping[str, Sequence[int]]
    chip_ids: tuple[int, ...]
    scalar_inputs: Sequence[ScalarInputs]

    def run(self, *, detail: bool, take_undecided: bool | None = None) -> Timeline:
        links = Links(self.ici, self.chip.clock_hz)
        turns = Interleaving(self.ici.chips, links.hop_cycles, lambda: _deadlock(shared))
        shared = Shared(links=links, turns=turns, constants=self.constants, chip_ids=self.chip_ids)
        for number in range(self.ici.chips):
            given = self.scalar_inputs[self.chip_ids.index(number)]
            shared.members.append(
                Member(
                    self.programs, self.hlo, self.chip, self.compiler, given,
                    shared=shared, number=number, take_undecided=take_undecided,
                )
            )  # fmt: skip
        records: dict[int, Record] = {}

        def work(member: Member) -> None:
            records[member.number] = member.execute()

        turns.run([lambda member=member: work(member) for member in shared.members])  # type: ignore[misc]
        use = tuple(links.use())
        chips = [self._one(member, records[member.number], shared, use, detail) for member in shared.members]
        slowest = max(chips, key=lambda timeline: timeline.cycles)
        return replace(slowest, chips=tuple(chips), links=use)

    def _one(self, member: Member, record: Record, shared: Shared, use: Sequence[LinkUse], detail: bool) -> Timeline:
        timeline = build(record, chip=self.chip, compiler=self.compiler, detail=detail, links=use)
        open_semaphores = [OpenSemaphore(name=name, value=value) for name, value in member.unsettled().items()]
        link_model = LinkModel(link_bytes_per_s=self.ici.link_bytes_per_s, hop_s=self.ici.hop_s)
        return replace(
            timeline,
            chip_index=member.number,
            ici_bytes=member.sent_bytes,
            ici_wait_cycles=member.memory.remote_wait_cycles,
            launch_cycles=member.launch_cycles,
            spans=(*timeline.spans, *_spans(member, shared.links.log, timeline.cycles, record)),
            not_modelled=(*timeline.not_modelled, link_model, *open_semaphores),
        )


def _spans(member: Member, log: Ends, cycles: int, record: Record) -> list[Span]:
    """Lanes of one chip: what it sent, what reached it, and its waits for others."""
    found: dict[str, list[Span]] = {"ICI out": [], "ICI in": [], "ICI wait": []}
    for message in (*log.first, *log.last):
        if member.number in (message.source, message.target):
            lane = "ICI out" if message.source == member.number else "ICI in"
            found[lane].append(_message_span(lane, message, cycles))
    waits = member.memory.remote_waits
    for start, end, flag in (*waits.first, *waits.last):
        said = {"for": record.flag_name(flag)}
        found["ICI wait"].append(
            Span(lane="ICI wait", kind=SpanKind.WAIT, start_cycles=start, end_cycles=end, attributes=said)
        )
    spans: list[Span] = []
    for lane, items in found.items():
        left_out = items[KEPT_SPANS:-KEPT_SPANS]
        spans += items[:KEPT_SPANS]
        if left_out:
            start, end = left_out[0].start_cycles, max(span.end_cycles for span in left_out)
            spans.append(
                Span(
                    lane=lane,
                    kind=SpanKind.SUMMARY,
                    start_cycles=start,
                    end_cycles=end,
                    attributes={"count": len(left_out)},
                )
            )
        spans += items[max(KEPT_SPANS, len(items) - KEPT_SPANS) :]
    return spans


def _message_span(lane: str, message: Message, cycles: int) -> Span:
    other, chip = ("to_chip", message.target) if lane == "ICI out" else ("from_chip", message.source)
    busy = message.left - message.begin
    start, end = (message.begin, message.left) if lane == "ICI out" else (message.arrival - busy, message.arrival)
    return Span(
        lane=lane,
        kind=SpanKind.MESSAGE,
        start_cycles=min(int(start), cycles),
        end_cycles=min(ceil(end), cycles),
        attributes={
            "bytes": message.size_bytes,
            other: chip,
            "path": "→".join(map(str, message.path)),
            "issued_cycles": message.issued,
            "arrival_cycles": ceil(message.arrival),
        },
    )


def _deadlock(shared: Shared) -> Refusal:
    """All chips wait, and nothing is under way: who waits for whom, and for what."""
    stuck = [member for member in shared.members if member.waits_for is not None]
    ended = {member.number for member in shared.members} - {member.number for member in stuck}
    edges = [f"chip {member.number} for {_awaited(shared, member)}" for member in stuck]
    if ended:
        edges.append(f"{_chips(ended)} reached the end")
    places = [f"Chip {member.number}, place {shared.chip_ids.index(member.number)} in the mesh, {member.waiting()}"
              f"{_so_far(shared, member)}." for member in stuck]  # fmt: skip
    return Refusal(
        Status.DEADLOCK,
        f"the chips wait for each other for ever: {'; '.join(edges)}. {' '.join(places)} "
        "Nothing is under way between them: look for a signal or a copy that not every chip sends.",
    )


def _awaited(shared: Shared, member: Member) -> str:
    """Who should have ended this wait, as far as the other chips' doings tell."""
    flag = member.waits_for[0] if member.waits_for else 0
    at = shared.senders.get(flag, {})
    leavers = shared.own_copies.get(flag, set())
    if leavers and member.number not in leavers:
        return f"a copy of its own that it never starts ({_chips(leavers)} did)"
    if not at:
        return "a signal that no chip ever sends"
    silent = {other.number for other in shared.members} - set().union(*at.values()) - {member.number}
    return _chips(silent, "or") if silent else f"more than {_chips(at.get(member.number, set()))} sent"


def _so_far(shared: Shared, member: Member) -> str:
    at = shared.senders.get(member.waits_for[0] if member.waits_for else 0, {})
    told = [f"at chip {number} by {_chips(by)}" for number, by in sorted(at.items())]
    return f" (signalled so far {', '.join(told)})" if told else ""


def _chips(numbers: set[int], word: str = "and") -> str:
    *most, last = map(str, sorted(numbers)) if numbers else ("none",)
    return f"chips {', '.join(most)} {word} {last}" if most else f"chip {last}"
