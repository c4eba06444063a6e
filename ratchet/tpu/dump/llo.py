"""What the compiler hands to a profiler of a unit: in which bundle each instruction is, and where regions begin.

With ``--xla_xprof_register_llo_debug_info`` libtpu registers the LLO module of every kernel and fusion it compiles,
though not of the top level. A profiler session around the compile returns them, without a TPU, in its ``XSpace``. The
messages are declared at run time with the field numbers of libtpu 0.0.42's own descriptors (``xplane.proto``,
``llo_module.proto``, ``llo_instruction.proto``), as far as they are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ratchet.tpu.protos import Protos

_MESSAGES: dict[str, str] = {
    "XSpace": "planes 1 Plane[]",
    "Plane": "name 2 string, events 4 map:Event",
    "Event": "name 2 string, stats 5 Stat[]",
    "Stat": "value 6 bytes",
    "Module": "name 1 string, top 2 Region, utilisation 6 Utilisation",
    "Region": "members 1 Member[], start 5 int64, limit 6 int64, number 7 int64",
    "Member": "instruction 1 Instruction, loop 2 Loop, predicated 3 Predicated, region 4 Region",
    "Instruction": "number 1 int64, bundle 4 sint64",
    "Loop": "pre_header 1 Region, header 2 Region, header_branch 3 Region, body 4 Region, footer 5 Region, "
    "footer_branch 6 Region, exit 7 Region",
    "Predicated": "check 1 Region, check_branch 2 Region, predicated 3 Region, fallthrough 4 Region",
    "Utilisation": "vload 5 Counts, vstore 6 Counts, spill 8 int64[], fill 9 int64[]",
    "Counts": "numerator 1 int64[], denominator 2 int64",
}
_PLANE = "/host:metadata"
_PARTS = {
    "loop": ("pre_header", "header", "header_branch", "body", "footer", "footer_branch", "exit"),
    "predicated": ("check", "check_branch", "predicated", "fallthrough"),
}


@dataclass(kw_only=True)
class Schedule:
    """Where the compiler put the instructions of one unit."""

    bundle: dict[int, int] = field(default_factory=dict)
    """Bundle by the number of the instruction: that in the name of its value."""
    start: dict[int, int] = field(default_factory=dict)
    """First bundle by the number of the region."""
    bundles: int = 0
    limit: int = 0
    """Behind the last bundle that is in a region: there may be one more, to be branched to."""
    busy: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    """Slots of a bundle, and those in use in each, by the columns of a utilisation dump: loads, stores, spills."""


@functools.cache
def _protos() -> Protos:
    return Protos("ratchet.llo", _MESSAGES)


def schedules(space: bytes) -> dict[str, Schedule]:
    """The units of a profile's ``XSpace`` by the name of their HLO instruction.

    Raises:
        ValueError: for bytes that are none, two units of one name, or an instruction that is in no bundle.
    """
    found: dict[str, Schedule] = {}
    for plane in _protos().parse("XSpace", space).planes:
        for event in plane.events.values() if plane.name == _PLANE else ():
            program, _, unit = event.name.partition("::")
            for stat in event.stats if program and unit else ():
                if unit in found:
                    raise ValueError(f"two modules of {unit:.80}")
                found[unit] = _schedule(_protos().parse("Module", stat.value))
    return found


def _schedule(module: Any) -> Schedule:
    counted = module.utilisation
    loads, stores = counted.vload, counted.vstore
    busy = {
        "VLOAD": (loads.denominator, list(loads.numerator)),
        "VLOAD:FILL": (loads.denominator, list(counted.fill)),
        "VSTORE": (stores.denominator, list(stores.numerator)),
        "VSTORE:SPILL": (stores.denominator, list(counted.spill)),
    }
    made = Schedule(bundles=len(counted.spill), limit=module.top.limit, busy=busy)
    if any(len(used) != made.bundles for _, used in busy.values()):
        raise ValueError(f"{module.name:.80} has counts of different numbers of bundles")
    placed, bundles = made.bundle, made.bundles
    todo = [module.top]
    for region in todo:
        made.start[region.number] = region.start
        for member in region.members:
            if not member.HasField("instruction"):
                todo += _inner(member)
                continue
            instruction = member.instruction
            number, bundle = instruction.number, instruction.bundle
            if number in placed or not 0 <= bundle < bundles:
                raise ValueError(f"instruction {number} of {module.name:.80} is in no bundle, or twice")
            placed[number] = bundle
    return made


def _inner(member: Any) -> Iterator[Any]:
    """The regions of a member that is no instruction."""
    if member.HasField("region"):
        yield member.region
    for kind, names in _PARTS.items():
        if member.HasField(kind):
            part = getattr(member, kind)
            yield from (getattr(part, name) for name in names if part.HasField(name))
