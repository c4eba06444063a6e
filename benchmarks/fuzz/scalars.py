"""One scalar operation at a time on many words: the definition, a second definition, the executor and the machine.

``ratchet.tpu.scalar`` is compared with numpy (``reference``); the operations that the value executor traces and the
code that the schedule machine generates are compared with ``ratchet.tpu.scalar``. A step is one operation on one pair
of words, on one side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.fuzz import reference
from benchmarks.fuzz.rounds import Round
from ratchet.tpu import scalar
from ratchet.tpu.dump.columns import Columns, flat
from ratchet.tpu.dump.listing import read_instruction
from ratchet.tpu.machine.emitter import Emitter
from ratchet.tpu.machine.rules import RULES
from ratchet.tpu.machine.words import Arithmetic, Unknown
from ratchet.tpu.mlir.module import Block, KernelModule, Op, Type, Value
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.ops import RULE_MODULES
from ratchet.tpu.mosaic.state import Options
from ratchet.tpu.scalar import Undefined

assert RULE_MODULES  # importing them fills the executor's table of operations

AREA = "scalars"
PAIRS = 2048
"""Words of one round, per operation."""

AWKWARD = np.array(
    [0, 1, 2, 3, 7, 8, 15, 16, 30, 31, 32, 33, 40, 63, 64, 65, 100, 2**16, 2**24 + 1, 2**31 - 1, -1, -2, -3, -31, -32,
     -33, -(2**31), -(2**31) + 1, 0x5BD1E995], np.int32,
)  # fmt: skip
NUMBERS = np.array(
    [0.0, 1.0, 1.5, 2.5, 0.5, 1e-30, 1e30, 3e38, 2.0**31, 2.0**31 + 256, 2.0**-126, 2.0**-149, 7e-39, np.inf, np.nan],
    np.float32,
)  # fmt: skip
AWKWARD_FLOATS = np.concatenate([NUMBERS, -NUMBERS]).view(np.int32)


@dataclass(frozen=True)
class Operation:
    """One operation on all sides. ``kind`` is ``i`` or ``f``: what the operands' words hold."""

    kind: str
    count: int
    defined: Callable[..., Any]
    wanted: Callable[..., reference.Wanted]
    machine: str = ""
    """The instruction, where the machine has one."""
    executor: tuple[str, str, tuple[tuple[str, int], ...]] | None = None
    """Name, result type and attributes of the Mosaic operation, where there is one."""


def _named(name: str, machine: str = "", mosaic: str = "") -> Operation:
    """That of a function of ``ratchet.tpu.scalar``."""
    kind, result, wanted = (
        ("f", "f32", reference.floats) if name in reference.FLOATS else ("i", "i32", reference.integers)
    )
    count = 1 if name in ("leading_zeros", "float_floor", "float_ceil") else 2
    executor = (mosaic, result, ()) if mosaic else None
    return Operation(kind, count, getattr(scalar, name), partial(wanted, name), machine, executor)


_CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5}
OPERATIONS: dict[str, Operation] = {
    "add": _named("add", "sadd.s32", "arith.addi"),
    "subtract": _named("subtract", "ssub.s32", "arith.subi"),
    "multiply": _named("multiply", "smul.u32", "arith.muli"),
    "multiply high": _named("multiply_high", "smulhi.u32"),
    "carry": _named("carry", "sc.u32"),
    "shift left": _named("shift_left", "sshll.u32", "arith.shli"),
    "shift left, ones": _named("shift_left_ones", "sshllo.u32"),
    "shift right, logical": _named("shift_right_logical", "sshrl.u32", "arith.shrui"),
    "shift right, arithmetic": _named("shift_right_arithmetic", "sshra.s32", "arith.shrsi"),
    "minimum, unsigned": _named("minimum_unsigned", "smin.u32", "arith.minui"),
    "maximum, unsigned": _named("maximum_unsigned", "smax.u32", "arith.maxui"),
    "leading zeros": _named("leading_zeros", "sclz"),
    "divide": _named("divide_signed", "", "arith.divsi"),
    "remainder": _named("remainder_signed", "", "arith.remsi"),
    "divide, unsigned": _named("divide_unsigned", "", "arith.divui"),
    "remainder, unsigned": _named("remainder_unsigned", "", "arith.remui"),
    "float add": _named("float_add", "sadd.f32", "arith.addf"),
    "float subtract": _named("float_subtract", "ssub.f32", "arith.subf"),
    "float multiply": _named("float_multiply", "smul.f32", "arith.mulf"),
    "float minimum": _named("float_minimum", "smin.f32", "arith.minimumf"),
    "float maximum": _named("float_maximum", "smax.f32", "arith.maximumf"),
    "floor": _named("float_floor", "sfloor.f32", "math.floor"),
    "ceil": _named("float_ceil", "sceil.f32", "math.ceil"),
    "to float": Operation("i", 1, scalar.float_from_integer, reference.to_float, "scvt.s32.f32",
                          ("arith.sitofp", "f32", ())),
    "to integer": Operation("f", 1, scalar.float_to_integer, reference.to_integer, "scvt.f32.s32",
                            ("arith.fptosi", "i32", ())),
    **{
        f"float {name}": Operation(
            "f", 2, partial(scalar.compare_float, name), partial(reference.relation, name),
            f"scmp.{name}.f32.partialorder",
            ("arith.cmpf", "i1", (("predicate", _CMPF[name]),)) if name in _CMPF else None,
        )
        for name in scalar.RELATIONS
    },
}  # fmt: skip


def scalars(seed: int, *, count: int = PAIRS) -> Round:
    """Every operation on ``count`` random words."""
    generator = np.random.default_rng(seed)
    steps, undefined = 0, 0
    differences = []
    for name, one in OPERATIONS.items():
        words = [_drawn(one.kind, count, generator) for _ in range(one.count)]
        rows = list(zip(*(map(int, column) for column in words), strict=True))
        answers = [one.defined(*row) for row in rows]
        known = np.array([not isinstance(answer, Undefined) for answer in answers])
        numbers = np.array([0 if isinstance(answer, Undefined) else int(answer) for answer in answers], np.int64)
        wanted = one.wanted(*words)
        wrong = {"numpy": (known & (numbers != wanted.words)) | (~known & ~wanted.undefined & ~wanted.open)}
        wrong["numpy"] |= known & wanted.undefined
        if one.machine:
            wrong["the machine"] = _machine_apart(one, rows, answers)
        if one.executor:
            got = _traced(one.executor, one.kind, one.count)(*words)
            wrong["the executor"] = known & (np.asarray(got).astype(np.int64) != numbers)
        steps += count * len(wrong)
        undefined += int((~known).sum())
        for side, apart in wrong.items():
            if apart.any():
                at = int(np.flatnonzero(apart)[0])
                differences.append(
                    f"{name} of {rows[at]}: {side} differs from {answers[at]} ({int(apart.sum())} words)"
                )
    return Round(
        area=AREA,
        seed=seed,
        cases=len(OPERATIONS),
        steps=steps,
        outcomes={"equal": steps - len(differences), "undefined": undefined},
        differences=tuple(differences),
    )


def _drawn(kind: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """A third of them awkward, a third anything, the rest small numbers, or floats near the denormals."""
    awkward = generator.choice(AWKWARD if kind == "i" else AWKWARD_FLOATS, count)
    anything = generator.integers(-(2**31), 2**31, count)
    small = generator.integers(-70, 71, count)
    if kind == "f":
        small = generator.integers(0, 2**25, count) - 2**31 * generator.integers(0, 2, count)
    choice = generator.integers(0, 3, count)
    return np.where(choice == 0, awkward, np.where(choice == 1, anything, small)).astype(np.int32)


def _machine_apart(one: Operation, rows: list[tuple[int, ...]], answers: list[Any]) -> np.ndarray:
    """Where the generated code answers otherwise; an undefined answer has to be unknown to it."""
    code = _generated(one.machine, one.count)
    apart = []
    for row, answer in zip(rows, answers, strict=True):
        got = code(*row)
        unknown = isinstance(got, Unknown)
        apart.append(not unknown if isinstance(answer, Undefined) else unknown or got != answer)
    return np.array(apart)


@functools.cache
def _generated(opcode: str, count: int) -> Callable[..., Any]:
    """The code that the machine generates of one instruction, as a function of its registers."""
    dest = "%p9_p9" if opcode.startswith(("scmp", "sc.")) else "%s9_s9"
    instruction = read_instruction(f"{dest} = {opcode} {', '.join(['%s1_s1', '%s2_s2'][:count])}")
    lines, _ = Emitter(Columns(flat([])), {}, {}, RULES).bundle((instruction,), 0, 0)
    code = compile("\n".join(lines), "<generated>", "exec")

    def run(*words: int) -> Any:
        scope: dict[str, Any] = {"X": Arithmetic, "s1": words[0], "s2": words[-1]}
        exec(code, scope)
        return scope[dest[-2:]]

    return run


@functools.cache
def _traced(operation: tuple[str, str, tuple[tuple[str, int], ...]], kind: str, count: int) -> Callable[..., Any]:
    """A Mosaic operation on many scalars, as the executor translates it: words in, words out."""
    name, result, attributes = operation
    values = tuple(Value(Type(kind="scalar", dtype="f32" if kind == "f" else "i32")) for _ in range(count))
    out = Value(Type(kind="scalar", dtype=result))
    op = Op(name=name, operands=values, results=(out,), attributes=dict(attributes), regions=(), location="")
    module = KernelModule(version=0, functions={})

    def one(*words: Any) -> Any:
        executor = Executor(kernel=module, options=Options(), fill=jnp.int32(0), padding=jnp.int32(0))
        typed = [lax.bitcast_convert_type(w, jnp.float32) for w in words] if kind == "f" else list(words)
        executor.run_block(Block(arguments=values, operations=(op,)), typed)
        value = executor[out]
        return lax.bitcast_convert_type(value, jnp.int32) if value.dtype == jnp.float32 else value.astype(jnp.int32)

    return jax.jit(jax.vmap(one))
