"""The table of what each operation does, and what can be said of operations without executing them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.tpu.mlir.module import KernelModule, Op, Value

VIEW_OPS = frozenset(
    {
        "tpu.memref_slice",
        "tpu.memref_squeeze",
        "tpu.memref_reshape",
        "tpu.memref_bitcast",
        "tpu.reinterpret_cast",
        "tpu.erase_memref_layout",
        "tpu.assume_layout",
        "memref.cast",
        "memref.memory_space_cast",
    }
)
"""Operations whose result is a view of their first operand."""


Run = Callable[[Any, Op], None]
"""Executes one operation on an ``Executor``."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one operation is executed."""

    run: Run
    attributes: frozenset[str]
    """Attributes it understands; any other is a refusal."""
    writes: Callable[[Op], Iterable[Value]]
    """The memrefs it writes to."""
    reads: bool
    """Whether it loads memory: digested, and logged where other chips write it (see ``report.reads``)."""
    checks: bool
    """Whether it may report a finding."""


RULES: dict[str, Rule] = {}


def rule(
    *names: str,
    attributes: Sequence[str] = (),
    writes: Callable[[Op], Iterable[Value]] | None = None,
    reads: bool = False,
    checks: bool = False,
) -> Callable[[Run], Run]:
    """Register how ``names`` are executed."""

    def register(run: Run) -> Run:
        for name in names:
            RULES[name] = Rule(
                run=run, attributes=frozenset(attributes), writes=writes or (lambda op: ()), reads=reads, checks=checks
            )
        return run

    return register


class Unsupported(Exception):
    """What an operation asks for and nobody here can execute."""


def computes(*names: str, attributes: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how the value of ``names`` is computed: a function of the operation and its operands' values."""

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        @rule(*names, attributes=attributes)
        @functools.wraps(compute)
        def run(executor: Any, op: Op) -> None:
            executor.result(op, compute(op, *(executor[value] for value in op.operands)))

        return compute

    return register


def integer(op: Op, attribute: str, default: int | None = None) -> int:
    """An attribute of an operation; ``default`` where it has none.

    Raises:
        Unsupported: it has none, and there is no default.
    """
    value = op.attributes.get(attribute, default)
    if value is None:
        raise Unsupported(f"{op.name} without its attribute {attribute}")
    return int(str(value))


WAITS = frozenset({"tpu.wait_dma2", "tpu.wait_dma", "tpu.sem_wait"})
DMA_OPS = WAITS | {"tpu.enqueue_dma"}
_DEVICE_SEGMENT = {"tpu.enqueue_dma": 4, "tpu.sem_signal": 2}
"""Which operand group names another device."""

TERMINATORS = frozenset({"scf.yield", "func.return", "scf.condition", "tpu.yield", "memref.alloca_scope.return"})


DRAWS = frozenset({"tpu.prng_set_seed_32", "tpu.prng_random_bits"})


def draws(kernel: KernelModule) -> bool:
    """Whether the core draws bits in a kernel, of which the TPU's are others (``ops/drawn.py``)."""
    return any(op.name in DRAWS for op in kernel.operations())


BITS_WANTED = "bits as an operand, by jax.random.bits beside the kernel, or in it by a jax.random key of threefry2x32"
"""In the place of those that the core draws."""
MATRIX_UNIT = frozenset({"tpu.matmul_push_rhs", "tpu.matmul_acc_lhs", "tpu.matmul_pop"})
"""Operations that leave something in a matrix unit, or take it from there."""
_QUEUE = "how many results the queue of the matrix unit holds is not documented; wanted products by jnp.dot"
_WHICH_BITS = "which of the bits it takes is not documented; wanted the rounding by integer operations"
_LAYOUT = "it depends on the layout that the compiler gives memory"
_BETWEEN_PASSES = "the compiler's passes leave it for each other, with a layout beside it; wanted whole vectors"
_FLAT = "a kernel's module has functions only; wanted an operand, or a number where it is used"
WAYS_OUT = {
    "tpu.matmul_lhs_fifo": _QUEUE,
    "tpu.matmul_pop_fifo": _QUEUE,
    "tpu.annotate": "what it promises the compiler of loads and stores is not checked; leave pltpu.annotate out",
    "tpu.conv": "no libtpu compiles it yet (JAX 0.12 asks for 0.1.0); wanted products by jnp.dot",
    "tpu.memref_memory_space_is": "it is decided by the compiler alone; wanted a memory space in the BlockSpec",
    "tpu.pack_vmsk": _BETWEEN_PASSES,
    "tpu.roll_vectors": _BETWEEN_PASSES,
    "tpu.unroll_vectors": _BETWEEN_PASSES,
    "tpu.sem_read": "it depends on when copies and signals arrive; wanted a wait for them",
    "tpu.stochastic_convert": _WHICH_BITS,
    "tpu.stochastic_convert_elementwise": _WHICH_BITS,
    "tpu.tile_size": f"{_LAYOUT}; wanted sizes of the kernel's own",
    "memref.extract_strided_metadata": f"{_LAYOUT}; wanted indices",
    "memref.get_global": _FLAT,
    "memref.global": _FLAT,
    "memref.reinterpret_cast": f"{_LAYOUT}; wanted tpu.memref_slice, as Ref.at writes it",
    "vector.contract": "no lowering of Pallas' writes it; wanted tpu.matmul, as jnp.dot becomes",
    "scf.index_switch": "no lowering of Pallas' writes it; wanted scf.if, as lax.switch becomes",
}
"""Operations that no rule will execute: why, and what to do."""

_NO_PROMISE = {"overflowFlags": "#arith.overflow<none>", "fastmath": "#arith.fastmath<none>"}


def promise(op: Op) -> str:
    """What an operation promises the compiler of its operands and this judge does not check; ``""`` for nothing."""
    given = (
        f"{name} = {op.attributes[name]}" for name, none in _NO_PROMISE.items() if op.attributes.get(name, none) != none
    )
    return next(given, "")


def root_of(value: Value) -> Value:
    """The memref that a view was made from."""
    while value.owner is not None and value.owner.name in VIEW_OPS:
        value = value.owner.operands[0]
    return value


def is_remote(op: Op) -> bool:
    segment = _DEVICE_SEGMENT.get(op.name)
    return segment is not None and bool(op.attributes["operandSegmentSizes"][segment])
