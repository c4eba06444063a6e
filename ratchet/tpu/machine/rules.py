"""What each scalar instruction does: a table from opcode to a rule that writes Python through an ``Emitter``.

What only computes is an expression over its operands; one small function per family does the rest. The generated code
calls the machine as ``X``; ``T`` is the cycle at which the block began, ``A`` the operands of the listing, ``sm``
scalar memory, ``B`` whether the branch of the block is taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from ratchet.tpu.dump.instruction import Access, Immediate, Register
from ratchet.tpu.dump.listing import ARGUMENT
from ratchet.tpu.machine.emitter import ALIASES, Emitter, Untranslatable

Rule = Callable[[Emitter], None]

_M, _H = "4294967295", "2147483648"


def _wrap(expression: str) -> str:
    return f"(({expression}) + {_H} & {_M}) - {_H}"


_ADD = _wrap("{0} + {1}")

EXPRESSIONS: dict[str, tuple[str, int]] = {
    "sadd.s32": (_ADD, 2),
    "ssub.s32": (_wrap("{0} - {1}"), 2),
    "smul.u32": (_wrap("{0} * {1}"), 2),
    "smulhi.u32": (_wrap(f"({{0}} & {_M}) * ({{1}} & {_M}) >> 32"), 2),
    "sand.u32": ("{0} & {1}", 2),
    "sor.u32": ("{0} | {1}", 2),
    "sxor.u32": ("{0} ^ {1}", 2),
    "smin.u32": ("X.minimum_unsigned({0}, {1})", 2),
    "smax.u32": ("X.maximum_unsigned({0}, {1})", 2),
    "smin.s32": ("X.minimum({0}, {1})", 2),
    "smax.s32": ("X.maximum({0}, {1})", 2),
    "scalar_select": ("({1} if {0} is True else {2} if {0} is False else {0})", 3),  # unknown picks unknown
    "scalar_lea.hbm": (_ADD, 2),
    "scalar_lea.vmem": (_ADD, 2),
    "scalar_lea.smem": (_ADD, 2),
    "scalar_lea.sflag": (_ADD, 2),
    "sclz": ("X.leading_zeros({0})", 1),
    "sclz.u32": ("X.leading_zeros({0})", 1),  # the same in libtpu 0.0.51
    "scvt.s32.f32": ("X.float_from_integer({0})", 1),
    "scvt.f32.s32": ("X.float_to_integer({0})", 1),
    "sfloor.f32": ("X.float_floor({0})", 1),
    "sceil.f32": ("X.float_ceil({0})", 1),
    "sadd.f32": ("X.float_add({0}, {1})", 2),
    "ssub.f32": ("X.float_subtract({0}, {1})", 2),
    "smul.f32": ("X.float_multiply({0}, {1})", 2),
    "smin.f32": ("X.float_minimum({0}, {1})", 2),
    "smax.f32": ("X.float_maximum({0}, {1})", 2),
    "sc.u32": (f"({{0}} & {_M}) + ({{1}} & {_M}) > {_M}", 2),
    "por": ("{0} | {1}", 2),
    "pand": ("{0} & {1}", 2),
    "pnand": ("({0} & {1}) ^ True", 2),
    "pnor": ("({0} | {1}) ^ True", 2),
    "pxor": ("{0} ^ {1}", 2),
    "pneg": ("{0} ^ True", 1),
    "pmov": ("{0} != 0", 1),
    "scalar_parameter_address": ("X.parameter({0})", 1),
    "reloc": ("{0}", 1),
}
"""By opcode: a Python expression over the operands, ``{0}`` the first, and how many it takes.

Where the operands are words, it equals the function of :mod:`ratchet.tpu.scalar` for the instruction. What has no short
expression calls the machine, which has those functions lifted to unknown words.
"""

for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    EXPRESSIONS[f"scmp.{_name}.s32.totalorder"] = f"{{0}} {_sign} {{1}}", 2
    EXPRESSIONS[f"scmp.{_name}.u32.totalorder"] = f"({{0}} & {_M}) {_sign} ({{1}} & {_M})", 2
    EXPRESSIONS[f"scmp.{_name}.f32.partialorder"] = f"X.float_{_name}({{0}}, {{1}})", 2

SHIFTS: dict[str, tuple[str, str]] = {
    "sshll.u32": (_wrap("{0} << {1}"), "X.shift_left({0}, {1})"),
    "sshllo.u32": (_wrap("({0} + 1 << {1}) - 1"), "X.shift_left_ones({0}, {1})"),
    "sshrl.u32": (_wrap(f"({{0}} & {_M}) >> {{1}}"), "X.shift_right_logical({0}, {1})"),
    "sshra.s32": ("{0} >> {1}", "X.shift_right_arithmetic({0}, {1})"),
}
"""By opcode: the expression for a known amount from 0 to 31, and that for any other amount."""

EFFECTS: dict[str, tuple[str, int]] = {
    "vwait.done": ("X.wait_done({0})", 1),
    "vwait.done.trace": ("X.wait_done({0})", 1),
    "vwait.ne": ("X.wait_other({now}, {0}, {1})", 2),
    "vwait.ne.trace": ("X.wait_other({now}, {0}, {1})", 2),
    "vsyncadd": ("X.engine.add({0}, {1})", 2),
    "vsyncpa": ("X.flag_set({now}, {0}, {1})", 2),
    "vsyncset": ("X.flag_set({now}, {0}, {1})", 2),
    "vsyncset.done": ("X.flag_set({now}, {0}, {1}); X.done.add({0})", 2),
    "vsyncset.notdone": ("X.flag_set({now}, {0}, {1}); X.done.discard({0})", 2),
    "vsyncadd.remote": ("X.signal({now}, {0}, {1})", 2),
    "vsyncset.remote": ("X.reset({0}, {1})", 2),
    "vdelay": ("T += X.delay({0}) - 1", 1),  # the bundle itself is one of them
}
"""By opcode: a Python statement, ``now`` being the cycle, and how many operands it takes."""

_MEMORIES = ("hbm", "vmem", "smem")


def _expression(code: Emitter, template: str, operands: int) -> None:
    code.assign(template.format(*code.operands(operands)))


def _effect(code: Emitter, template: str, operands: int) -> None:
    code.effect(template.format(*code.operands(operands), now=f"T + {code.offset}"))


def _shift(code: Emitter, short: str, long: str) -> None:
    _, amount = code.values(2)
    known = isinstance(amount, Immediate) and 0 <= amount.word < 32
    code.assign((short if known else long).format(*code.operands(2)))


def _argument(code: Emitter) -> None:
    """The address or value of an operand of the listing."""
    argument = code.instruction.form.argument
    assert argument is not None
    code.assign(f"A[{argument.number}]")


def _move(code: Emitter) -> None:
    predicate, (value,) = code.instruction.predicate, code.operands(1)
    if predicate is None or predicate.otherwise is None or code.condition is None:
        code.assign(value)
        return
    other, condition = code.read(predicate.otherwise), code.condition
    code.assign(f"({value} if {condition.yes} else {other} if {condition.no} else {condition.register})", always=True)


def _branch(code: Emitter) -> None:
    if code.condition is not None:
        code.branch(code.condition)


def _assertion(code: Emitter) -> None:
    failed = code.condition.value if code.condition else "True"
    code.effect(f"X.check({failed}, {code.address}, {code.index})", "")


def _load(code: Emitter) -> None:
    (where,) = code.values(1)
    code.assign(f"sm[{code.access(where, 'smem')}]")


def _store(code: Emitter) -> None:
    where, what = code.values(2)
    place, value = code.access(where, "smem"), code.operand(what)
    if code.condition is None:
        code.effect(f"sm[{place}] = {value}")
        return
    yes, no = code.condition.yes, code.condition.no
    code.effect(f"sm[{place}] = {value}", yes)
    code.effect(f"sm[{place}] = {code.condition.register}", f"not ({yes} or {no})")


def _call(code: Emitter) -> None:
    """``inlined_call``; ``call`` jumps, beside arrays of 8 GiB: the few cycles of that are not modelled."""
    operands = "".join(f"{code.operand(operand.value)}, " for operand in code.instruction.operands)
    code.effect(f"T = X.call({code.address}, {code.index}, T + {code.offset}, ({operands})) - {code.offset}")


def _wait(code: Emitter) -> None:
    flag, least = code.operands(2)
    code.event("wait")
    code.effect(f"T = wait(T + {code.offset}, {flag}, {least}, {code.address}) - {code.offset}")


def _meet(code: Emitter) -> None:
    """Waits for what the other core of the chip pushed."""
    meeting = f"X.meet(T + {code.offset}, {code.address})"
    if code.instruction.opcode.startswith("s"):
        code.assign(meeting)
    else:  # a vector, of which nothing is followed
        code.effect(meeting)
    code.effect(f"T = X.met - {code.offset}")


def _tell(code: Emitter) -> None:
    """What the other core of the chip may wait for."""
    (value,) = code.values(1)
    told = "None" if code.instruction.opcode.startswith("v") else code.operand(value)
    code.effect(f"X.tell(T + {code.offset}, {told})")


def _read_flag(code: Emitter) -> None:
    (flag,) = code.operands(1)
    code.assign(f"X.flag_value(T + {code.offset}, {flag})", code.made("f"))


def _pop(code: Emitter, letter: str, *, first: bool = False) -> None:
    (entry,) = code.values(1)
    held = code.queue(letter, entry)
    code.assign(f"X.popped({held})" if first else held)


def _peek(code: Emitter) -> None:
    """A vector load whose first element is pushed to the scalar side: its value may be known."""
    operands = code.instruction.operands
    if code.instruction.makes not in code.pushed or code.instruction.form.predicate is not None or not operands:
        return
    try:
        where = code.access(operands[0].value, "vmem")
    except Untranslatable:
        return
    code.captured.add(code.instruction.makes)
    code.effect(f"x{code.instruction.dest.value} = X.peek_vmem({where}, {code.address})")


def _overwrite(code: Emitter) -> None:
    """A vector store: what was known of VMEM there is known no more, whether its predicate holds or not."""
    operands = code.instruction.operands
    where = "None"
    if operands and isinstance(operands[0].value, Access) and operands[0].value.whole_rows:
        with contextlib.suppress(Untranslatable):
            where = code.access(operands[0].value, "vmem")
    code.effect(f"X.memory.stored({where})", late=True)  # what a bundle reads is as it was before


def _push(code: Emitter) -> None:
    """A vector value moved to the scalar side."""
    (value,) = code.values(1)
    if not isinstance(value, Register):
        raise Untranslatable("a push of what is no register")
    held = f"x{value.value}" if value.name in code.captured else f"X.unknown({code.address})"
    code.assign(held, code.made("q"))


def _divide(code: Emitter) -> None:
    """Results in a queue: of two, the quotient is popped first, then the remainder."""
    dividend, divisor = code.operands(2)
    results = code.instruction.notes.results
    if results not in ("both", "quotient", "remainder"):
        raise Untranslatable("a division that does not say what it gives")
    code.effect(f"{code.made('q')} = X.divide({dividend}, {divisor}, {results!r})")


def _dma(code: Emitter, source: str, target: str) -> None:
    named = _named(code)
    ends = (source, target if source != target else f"{source}_2")
    allowed = {*ends, "size_in_granules", "dst_syncflagno", "src_stride", "dst_stride", "steps_per_stride"}
    if source == target:
        allowed |= {f"src_{source}", f"dst_{source}"}
    unknown, missing = set(named) - allowed, {"size_in_granules", "dst_syncflagno"} - set(named)
    if unknown or missing:
        raise Untranslatable(
            f"a DMA with operands {sorted(named)} (unknown {sorted(unknown)}, missing {sorted(missing)})"
        )
    strides = "None"
    if "steps_per_stride" in named:
        strides = f"({named['src_stride']}, {named['dst_stride']}, {named['steps_per_stride']})"
    code.event("copy")
    code.effect(
        f"dma(T + {code.offset}, {source!r}, {named.get(ends[0])}, {target!r}, {named.get(ends[1])}, "
        f"{named['size_in_granules']}, {named['dst_syncflagno']}, {strides}, {_place(code)})"
    )


def _to_host(code: Emitter) -> None:
    """A command for the host. When the host reads it is not modelled: no program waits for that."""
    _named(code)


_GENERAL = {
    *("src", "dst", "size_in_granules", "dst_syncflagno", "dst_syncflagno_1", "src_syncflagno"),
    *("stridedescaddr", "overrides"),
}


def _general_dma(code: Emitter) -> None:
    """A DMA whose pointers or whose comment say in which memories it works, and whose strides are in scalar memory."""
    named = _named(code)
    if set(named) != _GENERAL or named["dst_syncflagno_1"] != "0":
        raise Untranslatable(f"a general DMA with operands {sorted(named)}")
    spaces = []
    for end, said in zip(("src", "dst"), code.instruction.notes.between or ("", ""), strict=True):
        pointer = code.instruction.named(end)
        space = code.pointers.get(pointer.name) if isinstance(pointer, Register) else None
        space = space or said
        if space not in _MEMORIES:
            raise Untranslatable(f"a general DMA whose {end} is in an unknown memory")
        spaces.append(space)
    code.event("copy")
    code.effect(
        f"X.general_dma(T + {code.offset}, {spaces[0]!r}, {named['src']}, {spaces[1]!r}, {named['dst']}, "
        f"{named['size_in_granules']}, {named['dst_syncflagno']}, {named['src_syncflagno']}, "
        f"{named['overrides']}, {code.address}, {_place(code)})"
    )


def _place(code: Emitter) -> int:
    """Number of the program's operation that an instruction comes from; -1 for none."""
    source = code.instruction.notes.source
    return -1 if source is None or source.operation is None else source.operation


def _named(code: Emitter) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in code.instruction.operands:
        if not name:
            raise Untranslatable(f"a DMA operand {value!r} without a name")
        named[f"{name}_2" if name in named else name] = code.operand(value)
    return named


RULES: dict[str, Rule] = {
    **{opcode: partial(_expression, template=text, operands=count) for opcode, (text, count) in EXPRESSIONS.items()},
    **{opcode: partial(_effect, template=text, operands=count) for opcode, (text, count) in EFFECTS.items()},
    **{opcode: partial(_shift, short=short, long=long) for opcode, (short, long) in SHIFTS.items()},
    **{alias: partial(_expression, template="{0}", operands=1) for alias in ALIASES},
    **{f"dma.{a}_to_{b}": partial(_dma, source=a, target=b) for a in _MEMORIES for b in _MEMORIES},
    ARGUMENT: _argument,
    "smov": _move,
    "smov.u32": _move,
    "sbr.rel": _branch,
    "shalt.err": _assertion,
    "dma.smem_to_host_iova": _to_host,
    "sld": _load,
    "sst": _store,
    "inlined_call": _call,
    "call": _call,
    "dma.done.wait": _wait,
    "vwait.ge": _wait,
    "vwait.ge.trace": _wait,
    "vsyncmov": _read_flag,
    "vpop.sfrf": partial(_pop, letter="f"),
    "spop.sfrf": partial(_pop, letter="f"),
    "spop": partial(_pop, letter="q"),
    "spop.drf": partial(_pop, letter="q", first=True),
    "vld": _peek,
    "vst": _overwrite,
    "vpush": _push,
    "sdivrem.u32": _divide,
    "dma.general": _general_dma,
    "vpush.ccrf": _tell,
    "spush.sccf": _tell,
    "vpop.ccrf": _meet,
    "spop.sccf": _meet,
}
"""By opcode; of vector code by its first part."""
