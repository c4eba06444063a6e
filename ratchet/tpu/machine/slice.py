"""A program on a slice: one machine per chip, run together over the links.

All chips start at cycle 0. Each has its own memories, sync flags and HBM queue; they have nothing in common but what
they send each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ratchet.tpu.chips import Chip
from ratchet.tpu.machine.deadlock import deadlock
from ratchet.tpu.machine.inputs import ScalarInputs
from ratchet.tpu.machine.interleaving import Interleaving
from ratchet.tpu.machine.links import Links
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.programs import Programs
from ratchet.tpu.machine.record import Record, Run
from ratchet.tpu.machine.slice_member import Shared, SliceMember
from ratchet.values.omission import LinkModel, OpenSemaphore


def run_slice(
    programs: Programs,
    chip: Chip,
    scalar_inputs: Sequence[ScalarInputs],
    constants: Mapping[str, Sequence[int]],
    *,
    take_undecided: bool | None = None,
) -> Run:
    """Runs a program on all chips of a slice.

    Args:
        programs: its listings, with the HLO and its devices.
        chip: the kind of chip.
        scalar_inputs: what steers, by mesh index.
        constants: words of the compiler's own constants, by allocation.
        take_undecided: see :class:`ratchet.tpu.machine.machine.Machine`.

    Raises:
        Refusal: as a machine alone; DEADLOCK if all chips wait for each other, with who waits for what.
    """
    ici, chip_ids = chip.ici, programs.hlo.device_ids
    links = Links(ici, chip.clock_hz)
    order = Interleaving(ici.chips, links.hop_cycles, lambda: deadlock(shared))
    shared = Shared(links=links, order=order, constants=constants, chip_ids=chip_ids)
    shared.members.extend(SliceMember(shared, number) for number in range(ici.chips))
    machines = [
        Machine(programs, chip, scalar_inputs[chip_ids.index(peers.number)], peers, take_undecided=take_undecided)
        for peers in shared.members
    ]
    records: dict[int, Record] = {}

    def work(peers: SliceMember, machine: Machine) -> None:
        record = machine.execute()
        records[peers.number] = replace(record, sent_bytes=peers.sent_bytes, launch_cycles=peers.launch_cycles)

    pairs = list(zip(shared.members, machines, strict=True))
    order.run([lambda pair=pair: work(*pair) for pair in pairs])  # type: ignore[misc]
    link_model = LinkModel(link_bytes_per_s=ici.link_bytes_per_s, hop_s=ici.hop_s)
    chips = []
    for peers, machine in pairs:
        record = records[peers.number]
        left = [OpenSemaphore(name=machine.flag_name(f), value=value) for f, value in peers.unsettled().items()]
        chips.append(replace(record, not_modelled=(*record.not_modelled, link_model, *left)))
    return Run(chips=tuple(chips), links=tuple(links.use()), messages=links.log)
