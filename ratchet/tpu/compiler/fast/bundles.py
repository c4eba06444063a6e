"""A unit's text after the last pass, and a profile -> the texts that are read of a unit. Pure.

With ``--xla_xprof_register_llo_debug_info`` libtpu registers the LLO module of every kernel and fusion it compiles,
though not of the top level. A profiler session around the compile returns them, without a TPU, in its ``XSpace``: in
which bundle each instruction is, and where regions begin. The unit's text after the last pass has all else. What comes
of the two says the same as the compiler's dumps: instruction by instruction, in the same bundles.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ratchet.tpu.dump.files import LISTING_PASS, OUTLINE_PASS, UTILISATION_PASS
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
"""What is read of libtpu 0.0.42's own ``xplane.proto``, ``llo_module.proto`` and ``llo_instruction.proto``."""
_PLANE = "/host:metadata"
_PARTS = {
    "loop": ("pre_header", "header", "header_branch", "body", "footer", "footer_branch", "exit"),
    "predicated": ("check", "check_branch", "predicated", "fallthrough"),
}

_INSTRUCTION = re.compile(r" *(%[a-z]*(\d{1,18})(?:_[a-z]+\d{1,18})? = ([a-z_]*))")
_SLOTLESS = ("phi", "inlined_call_operand")
"""How the opcodes end that are none of the chip's: a listing has them behind the others of a bundle."""
_CAST = re.compile(r"%s\d{1,18}_(s\d{1,18}) = int_to_ptr\.\w+ [^%]*%s\d{1,18}_(s\d{1,18})\b")
"""Another type of the same number, which is an instruction of the chip's where it changes the register."""
_TARGET = re.compile(r" target = \$region(\d{1,18})$")
_ALLOCATION, _REGION = "#allocation", "$region"
_OTHERS = (_REGION, "loop:", "//", "_")
"""How lines begin that are neither an instruction nor an allocation."""


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
def protos() -> Protos:
    """The parts of a profile that are read, as messages."""
    return Protos("ratchet.llo", _MESSAGES)


def schedules(space: bytes) -> dict[str, Schedule]:
    """The units of a profile's ``XSpace`` by the name of their HLO instruction.

    Raises:
        ValueError: for bytes that are none, two units of one name, or an instruction that is in no bundle.
    """
    found: dict[str, Schedule] = {}
    for plane in protos().parse("XSpace", space).planes:
        for event in plane.events.values() if plane.name == _PLANE else ():
            program, _, unit = event.name.partition("::")
            for stat in event.stats if program and unit else ():
                if unit in found:
                    raise ValueError(f"two modules of {unit:.80}")
                found[unit] = _schedule(protos().parse("Module", stat.value))
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


def scheduled(text: str, schedule: Schedule) -> dict[str, str]:
    """Puts the instructions of ``text``, a dump after :data:`~ratchet.tpu.dump.files.LAST_PASS`, into their bundles.

    Returns:
        The three texts that the compiler's own dumps have, by their pass; the utilisation dump has fewer columns.

    Raises:
        ValueError: the text and the schedule are not of the same unit, or the text has a form that is not known.
    """
    bundles: list[list[str]] = [[] for _ in range(schedule.bundles)]
    behind: dict[int, list[str]] = {}
    outline, places = list[str](), dict(schedule.bundle)
    for number, opcode, statement in _statements(text):
        if number is None:
            outline.append(statement)
            continue
        bundle = places.pop(number, None)
        if bundle is None:
            raise ValueError(f"instruction {number} is in no bundle, or there twice")
        if not opcode.startswith("v") or opcode.endswith(_SLOTLESS):  # vector code is neither a branch nor a cast
            to = behind.setdefault(bundle, []) if _is_slotless(opcode, statement) else bundles[bundle]
            to.append(_with_bundle(statement, schedule))
        else:
            bundles[bundle].append(statement)
    if places:
        raise ValueError(f"{len(schedule.bundle)} instructions are scheduled, {len(places)} of them not in the text")
    for bundle, last in behind.items():
        bundles[bundle] += last
    rows = [
        f"{n:#6x} : {{ {'  ;;  '.join(bundle)} }}" if bundle else f"{n:#6x} : {{}}" for n, bundle in enumerate(bundles)
    ]
    return {
        LISTING_PASS: "\n".join(["= control target key end", *rows, ""]),
        OUTLINE_PASS: "\n".join([f"$region0: // region range: [0, {schedule.limit})", *outline, ""]),
        UTILISATION_PASS: _utilisation(schedule),
    }


def _statements(text: str) -> Iterator[tuple[int | None, str, str]]:
    """Instructions with their numbers and opcodes, and allocations with None."""
    lines = iter(text.split("\n"))
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None:
            plain = line.lstrip()
            if plain.startswith(_ALLOCATION):
                yield None, "", plain
            elif plain and not plain.startswith(_OTHERS):
                raise ValueError(f"a line of unknown form: {plain:.80}")
            continue
        whole = line[match.start(1) :]
        if "/*" in whole and whole.count("/*") != whole.count("*/"):
            pieces = [whole]
            while whole.count("/*") != whole.count("*/"):  # a comment holds line breaks
                try:
                    pieces.append(next(lines))
                except StopIteration:
                    raise ValueError("a comment never ends") from None
                whole = "\n".join(pieces)
        yield int(match[2]), match[3], whole


def _is_slotless(opcode: str, statement: str) -> bool:
    cast = _CAST.match(statement) if opcode == "int_to_ptr" else None
    return opcode.endswith(_SLOTLESS) or (cast is not None and cast[1] == cast[2])


def _with_bundle(statement: str, schedule: Schedule) -> str:
    """A branch names the region that it goes to: as a listing says it, with the region's first bundle."""
    if _REGION not in statement:
        return statement
    target = _TARGET.search(statement)
    if target is None:
        raise ValueError(f"a branch of unknown form: {statement:.80}")
    start = schedule.start.get(region := int(target[1]))
    if start is None:
        raise ValueError(f"a branch to region {region}, which is not there")
    return f"{statement[: target.start()]} target bundleno = {start} ({start:#x}), region = {region}"


def _utilisation(schedule: Schedule) -> str:
    columns = schedule.busy
    rows = zip(*(used for _, used in columns.values()), strict=True)
    head = [
        "== CAPACITY:",
        ", ".join(columns),
        " ".join(str(slots) for slots, _ in columns.values()),
        "== UTILIZATION:",
    ]
    return "\n".join([*head, *(" ".join(map(str, row)) for row in rows if any(row)), ""])
