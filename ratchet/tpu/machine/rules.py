"""What each scalar instruction does: a table from opcode to a rule that writes Python through an ``Emitter``.

One small function per family. The generated code calls the machine as ``X``; ``T`` is the cycle at which the block
began, ``A`` the operands of the listing, ``sm`` scalar memory, ``B`` whether the branch of the block is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ratchet.tpu.dump.instruction import Immediate, Operand, Register
from ratchet.tpu.dump.listing import ARGUMENT
from ratchet.tpu.machine.emitter import ALIASES, Emitter, Untranslatable
from ratchet.tpu.machine.expressions import EXPRESSIONS, SHIFTS

Rule = Callable[[Emitter], None]

_MEMORIES = ("hbm", "vmem", "smem")


def _expression(code: Emitter, template: str, operands: int) -> None:
    code.assign(template.format(*code.operands(operands)))


def _shift(code: Emitter, short: str, long: str) -> None:
    _, amount = _just(code, 2)
    known = isinstance(amount.value, Immediate) and 0 <= amount.value.word < 32
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
    (operand,) = _just(code, 1)
    code.assign(f"sm[{code.access(operand.value, 'smem')}]")


def _store(code: Emitter) -> None:
    where, what = _just(code, 2)
    place, value = code.access(where.value, "smem"), code.operand(what.value)
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


def _flag(code: Emitter, method: str) -> None:
    flag, amount = code.operands(2)
    code.effect(f"X.{method}(T + {code.offset}, {flag}, {amount})")


def _wait_other(code: Emitter) -> None:
    flag, value = code.operands(2)
    code.effect(f"X.wait_other(T + {code.offset}, {flag}, {value}, {code.address})")


def _to_host(code: Emitter) -> None:
    """A command for the host. When the host reads it is not modelled: no program waits for that."""
    _named(code)


def _wait_done(code: Emitter) -> None:
    (flag,) = code.operands(1)
    code.effect(f"X.wait_done({flag}, {code.address})")


def _signal(code: Emitter) -> None:
    flag, amount = code.operands(2)
    code.effect(f"X.signal(T + {code.offset}, {flag}, {amount}, {code.address})")


def _reset(code: Emitter) -> None:
    """A flag of another unit is set."""
    flag, value = code.operands(2)
    code.effect(f"X.reset({flag}, {value}, {code.address})")


def _read_flag(code: Emitter) -> None:
    (flag,) = code.operands(1)
    code.assign(f"X.flag_value(T + {code.offset}, {flag})", code.made("f"))


def _pop(code: Emitter, letter: str, *, first: bool = False) -> None:
    (entry,) = _just(code, 1)
    code.assign(code.queue(letter, entry.value) + (".pop()" if first else ""))


def _push(code: Emitter) -> None:
    """A vector value moved to the scalar side."""
    (operand,) = _just(code, 1)
    value = operand.value
    if not isinstance(value, Register):
        raise Untranslatable("a push of what is no register")
    held = f"x{value.value}" if value.name in code.captured else f"X.unknown({code.address})"
    code.assign(held, code.made("q"))


def _divide(code: Emitter) -> None:
    """Results in a queue: of two, the quotient is popped first, then the remainder."""
    dividend, divisor = code.operands(2)
    results = code.instruction.notes.results
    made = {"both": "X.divide({})", "quotient": "[X.quotient({})]", "remainder": "[X.remainder({})]"}
    if results not in made:
        raise Untranslatable("a division that does not say what it gives")
    code.effect(f"{code.made('q')} = {made[results].format(f'{dividend}, {divisor}')}")


def _delay(code: Emitter) -> None:
    (cycles,) = code.operands(1)
    code.effect(f"T += X.delay({cycles}, {code.address}) - 1")  # the bundle itself is one of them


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
        f"{named['size_in_granules']}, {named['dst_syncflagno']}, {strides}, {code.address})"
    )


_GENERAL = {
    *("src", "dst", "size_in_granules", "dst_syncflagno", "dst_syncflagno_1", "src_syncflagno"),
    *("stridedescaddr", "overrides"),
}


def _general_dma(code: Emitter) -> None:
    """A DMA whose pointers say in which memories it works, and whose strides are in scalar memory."""
    named = _named(code)
    if set(named) != _GENERAL or named["dst_syncflagno_1"] != "0":
        raise Untranslatable(f"a general DMA with operands {sorted(named)}")
    spaces = []
    for end in ("src", "dst"):
        pointer = code.instruction.named(end)
        space = code.pointers.get(pointer.name) if isinstance(pointer, Register) else None
        if space is None:
            raise Untranslatable(f"a general DMA whose {end} is in an unknown memory")
        spaces.append(space)
    code.event("copy")
    code.effect(
        f"X.general_dma(T + {code.offset}, {spaces[0]!r}, {named['src']}, {spaces[1]!r}, {named['dst']}, "
        f"{named['size_in_granules']}, {named['dst_syncflagno']}, {named['src_syncflagno']}, "
        f"{named['overrides']}, {code.address})"
    )


def _named(code: Emitter) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in code.instruction.operands:
        if not name:
            raise Untranslatable(f"a DMA operand {value!r} without a name")
        named[f"{name}_2" if name in named else name] = code.operand(value)
    return named


def _just(code: Emitter, count: int) -> tuple[Operand, ...]:
    operands = code.instruction.operands
    if len(operands) != count:
        raise Untranslatable(f"{len(operands)} operands where {count} were expected")
    return operands


RULES: dict[str, Rule] = {
    **{opcode: partial(_expression, template=text, operands=count) for opcode, (text, count) in EXPRESSIONS.items()},
    **{opcode: partial(_shift, short=short, long=long) for opcode, (short, long) in SHIFTS.items()},
    **{alias: partial(_expression, template="{0}", operands=1) for alias in ALIASES},
    **{f"dma.{a}_to_{b}": partial(_dma, source=a, target=b) for a in _MEMORIES for b in _MEMORIES},
    ARGUMENT: _argument,
    "smov": _move,
    "smov.u32": _move,
    "sbr.rel": _branch,
    "shalt.err": _assertion,
    "vwait.ne": _wait_other,
    "vwait.ne.trace": _wait_other,
    "dma.smem_to_host_iova": _to_host,
    "sld": _load,
    "sst": _store,
    "inlined_call": _call,
    "call": _call,
    "dma.done.wait": _wait,
    "vwait.ge": _wait,
    "vwait.ge.trace": _wait,
    "vsyncadd": partial(_flag, method="flag_add"),
    "vsyncpa": partial(_flag, method="flag_set"),
    "vsyncadd.remote": _signal,
    "vsyncset": partial(_flag, method="flag_set"),
    "vsyncset.done": partial(_flag, method="flag_set_done"),
    "vsyncset.notdone": partial(_flag, method="flag_set_not_done"),
    "vwait.done": _wait_done,
    "vwait.done.trace": _wait_done,
    "vsyncset.remote": _reset,
    "vsyncmov": _read_flag,
    "vpop.sfrf": partial(_pop, letter="f"),
    "spop.sfrf": partial(_pop, letter="f"),
    "spop": partial(_pop, letter="q"),
    "spop.drf": partial(_pop, letter="q", first=True),
    "vpush": _push,
    "sdivrem.u32": _divide,
    "vdelay": _delay,
    "dma.general": _general_dma,
}
"""By opcode."""
