"""What of a block a core's coroutine does itself, and what is compiled: runs of operations that touch nobody else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mlir.signature import TENSOR_CORE, Kernel
from ratchet.tpu.mosaic.rules import TERMINATORS, VIEW_OPS, root_of

MEETS = frozenset(
    {
        "memref.alloca", "tpu.barrier", "tpu.core_id", "tpu.device_id", "tpu.enqueue_dma", "tpu.enqueue_indirect_dma",
        "tpu.fetch_and_add_sync", "tpu.sem_alloc", "tpu.sem_barrier", "tpu.sem_read", "tpu.sem_signal", "tpu.sem_wait",
        "tpu.subcore_id", "tpu.wait_dma", "tpu.wait_dma2", "tpu.wait_indirect_dma",
    }
)  # fmt: skip
"""Operations on what other cores see or change, and on what is numbered by core."""
SCALAR_MEMORY = frozenset({"memref.load", "memref.store"})
_CORE_SEGMENT = {"tpu.enqueue_dma": (5, 6), "tpu.sem_signal": (3, 4)}
"""Which operand groups name another core and a subcore."""
_OF_CORES = frozenset({"tpu.barrier", "tpu.core_id", "tpu.fetch_and_add_sync", "tpu.subcore_id"})
CORE, SUBCORE = "core_parallel", "subcore_parallel"
TENSOR_CORES = 2
"""Of a v5p."""


def meets_cores(kernel: Kernel) -> bool:
    """Whether a kernel is one of a SparseCore, or of TensorCores that name each other."""
    return kernel.core != TENSOR_CORE or any(
        op.name in _OF_CORES or names_core(op) for op in kernel.module.operations()
    )


def names_core(op: Op) -> bool:
    groups = _CORE_SEGMENT.get(op.name, ())
    return any(op.attributes["operandSegmentSizes"][group] for group in groups)


def core_dimensions(kernel: Kernel) -> tuple[int | None, int | None]:
    """The dimensions of the grid that are cores and their subcores. TensorCores of a mesh are a parallel dimension.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where the dimension of cores is not known.
    """
    found = {name: [d for d, one in enumerate(kernel.semantics) if one == name] for name in (CORE, SUBCORE, "parallel")}
    if kernel.core == TENSOR_CORE and not found[CORE]:
        found[CORE] = [d for d in found["parallel"] if kernel.bounds[d] == TENSOR_CORES]
    cores, subcores = found[CORE], found[SUBCORE]
    if len(cores) > 1 or len(subcores) > 1:
        raise kernel.module.refusal(f"cores along the dimensions {cores + subcores} of a grid {kernel.bounds}")
    if kernel.core == TENSOR_CORE and cores and kernel.bounds[cores[0]] not in (1, TENSOR_CORES):
        raise kernel.module.refusal(f"cores that name each other in a grid of {kernel.bounds[cores[0]]} steps for them")
    return (cores[0] if cores else None), (subcores[0] if subcores else None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """Operations beside each other that are compiled as one."""

    operations: tuple[Op, ...]
    constants: tuple[Op, ...]
    """Those outside whose results it uses: they stay constants."""
    given: tuple[Value, ...]
    """The other values from outside that it uses, no memory."""
    refs: tuple[Value, ...]
    """Memory from outside that it uses, and what that is a view of."""
    left: tuple[Value, ...]
    """What is used behind it."""


Step = Op | Run
_STEPS: WeakKeyDictionary[Block, tuple[Step, ...]] = WeakKeyDictionary()


def steps_of(block: Block) -> tuple[Step, ...]:
    """The operations of a block in an order that changes nothing, what can be compiled together."""
    if block not in _STEPS:
        _STEPS[block] = tuple(_steps(block))
    return _STEPS[block]


def is_local(op: Op) -> bool:
    """Whether an operation, with all in it, is compiled: the rest a core's coroutine does."""
    return not (op.name in TERMINATORS or op.name in SCALAR_MEMORY or _is_pure(op) or _meets(op))


def is_constant(op: Op) -> bool:
    """Whether an operation is a scalar constant, which cores know from the beginning."""
    return op.name == "arith.constant" and op.results[0].type.kind == "scalar"


def _meets(op: Op) -> bool:
    return any(one.name in MEETS for one in op.walk())


def _is_pure(op: Op) -> bool:
    """A view, or a scalar of scalars."""
    plain = (value.type.kind == "scalar" for value in (*op.operands, *op.results))
    return op.name in VIEW_OPS or (not op.regions and bool(op.results) and all(plain))


def _steps(block: Block) -> Iterable[Step]:
    run: list[Op] = []
    made: set[Value] = set()
    for op in block.operations:
        if is_constant(op):
            continue
        if is_local(op):
            run.append(op)
            made.update(op.results)
        elif not run or (_is_pure(op) and made.isdisjoint(op.operands)):
            yield op
        else:
            yield _run(block, run)
            run, made = [], set()
            yield op
    assert not run, "a block ends in a terminator"


def _run(block: Block, operations: list[Op]) -> Run:
    inside = [one for op in operations for one in op.walk()]
    own = {value for op in inside for value in op.results}
    own |= {value for op in inside for region in op.regions for value in region.arguments}
    used = dict.fromkeys(value for op in inside for value in op.operands if value not in own)
    refs = [value for value in used if value.type.kind == "memref"]
    values = [value for value in used if value.type.kind != "memref"]
    constants = {value.owner for value in values if value.owner is not None and value.owner.name == "arith.constant"}
    members = set(operations)
    others = [one for op in block.operations if op not in members for one in op.walk()]
    behind = {value for op in others for value in op.operands}
    return Run(
        operations=tuple(operations),
        constants=tuple(constants),
        given=tuple(value for value in values if value.owner not in constants),
        refs=tuple(dict.fromkeys([*refs, *map(root_of, refs)])),
        left=tuple(value for op in operations for value in op.results if value in behind),
    )
