"""A bundle of a SparseCore's tile as a function of the tile's state.

Scalar instructions are computed, vector ones take their cycle, and streams, waits and barriers are noted. Words that
the sequencer gave or memory holds are not known; one that decides what a tile does raises ``UnknownSteers``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ratchet.tpu import scalar
from ratchet.tpu.chips import SparseCores
from ratchet.tpu.dump.tiles import Instruction, Section
from ratchet.tpu.machine.words import Arithmetic, Unknown, lifted
from ratchet.values.status import Refusal

_MASK = (1 << 32) - 1

_COMPUTED = {
    "sadd.s32": "({0} + {1}) & M", "ssub.s32": "({0} - {1}) & M", "smul.u32": "({0} * {1}) & M",
    "smulhi.u32": "({0} * {1}) >> 32 & M", "sand.u32": "{0} & {1}", "sor.u32": "{0} | {1}", "sxor.u32": "{0} ^ {1}",
    "sshll.u32": "X.shift_left({0}, {1}) & M", "sshrl.u32": "X.shift_right_logical({0}, {1}) & M",
    "sshra.s32": "X.shift_right_arithmetic(signed({0}), {1}) & M",
    "smin.u32": "min({0}, {1})", "smax.u32": "max({0}, {1})",
    "seq.s32": "{0} == {1}", "sne.s32": "{0} != {1}", "sgt.s32": "signed({0}) > signed({1})",
    "sge.s32": "signed({0}) >= signed({1})", "slt.s32": "signed({0}) < signed({1})",
    "sle.s32": "signed({0}) <= signed({1})", "sgt.u32": "{0} > {1}", "sge.u32": "{0} >= {1}", "slt.u32": "{0} < {1}",
    "sle.u32": "{0} <= {1}", "por": "either({0}, {1})", "pand": "both({0}, {1})", "simm.s32": "{0}", "smov.u32": "{0}",
    "srdreg.scid": "tile.core", "stileid.u32": "tile.number",
}  # fmt: skip
"""What scalar instructions compute, of words from 0 to 2^32 - 1; their names say it."""
_NO_EFFECT = frozenset("snop ssettag ssettm strace sfence ssyncset.done ssyncadd.tile.s32".split())
"""Nothing that a tile waits for: tags, trace marks, fences, the signal of the end to the sequencer."""
_FORMS = {
    "rddreg": ("{t}", "tile.given[{oa}]"),
    "wrdreg": ("tile.given[{ta}]", "{o}"),
    "sld": ("{t}", "tile.smem[int_({oa})]"),
    "sst": ("tile.smem[int_({ta})]", "{o}"),
    "swait.ge": ("", "note(('wait', int_({oa}), int_({o1})))"),
    "swait.eq": ("", "note(('equal', int_({oa}), int_({o1})))"),
    "ssyncadd.s32": ("", "note(('add', int_({ta}), int_({o})))"),
    "ssyncset.s32": ("", "note(('set', int_({ta}), int_({o})))"),
    "sfence.stream.hbm": ("", "note(('fence', 0, 0))"),
    "sbarrier.arrive": ("", "note(('meet', int_({ta}), 0))"),
}
"""What others change and to what, or what they note: of target and operands the words, and (``a``) the addresses."""
_STREAMS = frozenset(
    f"stream.{kind}.{way}" for kind in ("linear", "indirect", "indirect_vreg") for way in ("gather", "scatter")
)
_ENDS = frozenset({"tilespmem", "hbm", "hbm4b"})
_OF_VECTORS = re.compile(r"v[a-z]")
_REGISTER = re.compile(r"(!?)([sp])([12]?[0-9]|3[01])")
_SLOTS = [f"${number}" for number in range(16)]
MEMORY = re.compile(r"\[(\w+):([^\]]*)\]")


UNKNOWN = Unknown("a word of the sequencer's or of memory")


class Step(NamedTuple):
    """One bundle, translated."""

    run: Callable[[Any], bool]
    """Changes the tile, notes events, and says whether its branch is taken."""
    cycles: int
    target: int
    """Of its branch; -1 for the end."""
    slots: int
    """Bundles behind the branch that always execute."""


def translate(section: Section, address: int, cores: SparseCores, refuse: Callable[[str], Refusal]) -> Step:
    """A bundle as a function. Raises what ``refuse`` makes for what does not read, or was not timed."""
    if address >= len(section.bundles):
        raise refuse(f"its tiles run past their program at {address:#x}")
    try:
        return _translate(section, address, cores, refuse)
    except (IndexError, ValueError, SyntaxError):  # an operand too few, one of another kind, a target that is none
        raise refuse(f"bundle {address:#x} of its tiles does not read") from None


def _translate(section: Section, address: int, cores: SparseCores, refuse: Callable[[str], Refusal]) -> Step:
    """What is read is read before anything is written. The text of the function has numbers alone."""
    reads, writes, cycles, target, slots = list[str](), list[str](), 1, -1, cores.delay_slots
    for number, one in enumerate(section.bundles[address]):
        always = f"c{number} = {_word(one.predicate, refuse) if one.predicate else 'True'}"
        if one.opcode == "sdelay":
            if one.predicate or _REGISTER.fullmatch(one.operands[0]):
                raise refuse("its tiles stall by a predicate or a register")
            cycles += int(_word(one.operands[0], refuse))
        elif one.opcode in ("sbr.rel", "shalt"):
            reads += [always, f"taken = bool(c{number})"]
            if one.opcode == "sbr.rel":
                target = section.labels.get(one.operands[0].partition("-")[0], -1)
                slots = _SLOTS.index(one.operands[1]) if len(one.operands) > 1 else slots
                if target < 0:
                    raise refuse(f"bundle {address:#x} branches to {one.operands[0][:40]!r}")
        elif (effect := _effect(one, section, cores, refuse)) is not None:
            place, what = effect
            reads += [always, f"t{number} = ({what}) if c{number} else None"]
            writes += [f"if c{number}: {place} = t{number}"] if place else []
    lines = ["s, p, note, taken = tile.s, tile.p, tile.events.append, False", *reads, *writes, "return taken"]
    names: dict[str, Any] = {"M": _MASK, "signed": signed, "either": _either, "both": _both}
    names |= {"X": Arithmetic, "opposite": _opposite, "int_": operator.index}
    exec(compile("def run(tile):\n" + "".join(f"    {line}\n" for line in lines), f"<tiles {address}>", "exec"), names)
    return Step(names["run"], cycles, target, slots)


def _effect(
    one: Instruction, section: Section, cores: SparseCores, refuse: Callable[[str], Refusal]
) -> tuple[str, str] | None:
    """What an instruction changes and to what; a note of an event where it changes nothing; None for no effect."""
    opcode, operands = one.opcode, one.operands
    if opcode in _COMPUTED:
        return _word(one.targets[0], refuse), _COMPUTED[opcode].format(*(_word(text, refuse) for text in operands))
    if opcode in _STREAMS:
        return "", _stream(one, section, cores, refuse)
    if opcode in _FORMS:
        read = {"t": (_word, one.targets, 0), "ta": (_address, one.targets, 0), "o": (_word, operands, 0)}
        read |= {"oa": (_address, operands, 0), "o1": (_word, operands, 1)}
        form = "\0".join(_FORMS[opcode])
        known = {key: how(of[n], refuse) for key, (how, of, n) in read.items() if f"{{{key}}}" in form}
        place, _, what = form.format(**known).partition("\0")
        return place, what
    if opcode in _NO_EFFECT or opcode.startswith("sfence") or (_OF_VECTORS.match(opcode) and _is_of_vectors(one)):
        return None
    raise refuse(f"its tiles execute {opcode}, which nobody timed")


def _stream(one: Instruction, section: Section, cores: SparseCores, refuse: Callable[[str], Refusal]) -> str:
    """A stream between HBM and the memory of a tile: its flag, and how many words it moves."""
    parts = [*one.targets, *one.operands]
    flags = [part for part in parts if part.startswith("[sflag:")]
    ends = [match[1] for part in parts if part not in flags and (match := MEMORY.match(part))]
    numbers = [part for part in one.operands if not part.startswith("[")]
    if len(flags) != 1 or len(ends) != 2 or not set(ends) <= _ENDS or "tilespmem" not in ends:
        raise refuse(f"its tiles stream between {' and '.join(ends)}, which nobody timed")
    words = _word(numbers[0], refuse)
    if ".indirect." in one.opcode:
        words = f"{words} * {_word(numbers[2], refuse)}"
    if ".indirect_vreg." in one.opcode:  # the indices are in a vector register
        words = f"{words} * {_lanes(numbers[2], section, cores, refuse)}"
    kind = "write" if one.opcode.endswith("scatter") else "read"
    return f"note(('{kind}', int_({_address(flags[0], refuse)}), int_({words})))"


def _lanes(mask: str, section: Section, cores: SparseCores, refuse: Callable[[str], Refusal]) -> int:
    """How many lanes of a vector a mask leaves, which has to be the same in all of the program."""
    made = [one for bundle in section.bundles for one in bundle if mask in one.targets]
    if {(one.opcode, one.predicate) for one in made} != {("vmmov", "")} or len({one.operands for one in made}) != 1:
        raise refuse("its tiles gather by a mask that is computed")
    return (int(_word(made[0].operands[0], refuse)) & (1 << cores.lanes) - 1).bit_count()


def _is_of_vectors(one: Instruction) -> bool:
    """Whether an instruction leaves scalar registers alone."""
    return all(target.startswith(("v", "[tilespmem:")) for target in one.targets)


def _address(text: str, refuse: Callable[[str], Refusal]) -> str:
    match = MEMORY.fullmatch(text)
    if match is None:
        raise refuse(f"an operand {text[:40]!r} of its tiles does not read")
    return " + ".join(_word(part, refuse) for part in match[2].split("+"))


def _word(text: str, refuse: Callable[[str], Refusal]) -> str:
    """An operand as an expression."""
    if register := _REGISTER.fullmatch(text):
        name = f"{register[2]}[{int(register[3])}]"
        return f"opposite({name})" if register[1] else name
    if text == "lr":
        return "s[32]"
    if re.fullmatch(r"\$?0x[0-9a-fA-F]{1,8}", text):
        return str(int(text.removeprefix("$"), 16))
    raise refuse(f"an operand {text[:40]!r} of its tiles does not read")


signed = lifted(scalar.wrap)
_opposite = lifted(operator.not_)


def _either(*two: Any) -> Any:
    known = [one for one in two if one is not UNKNOWN]
    return True if any(known) else UNKNOWN if len(known) < len(two) else False


def _both(one: Any, other: Any) -> Any:
    return _opposite(_either(_opposite(one), _opposite(other)))
