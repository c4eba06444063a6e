"""What of a compiled program no machine here runs: such a program has no latency, however little it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

PREPARED = "prepare_start_"
PREPARE = "PrepareAsyncCallStart"
"""Target of the custom call that copies descriptors for the SparseCores; its name is :data:`PREPARED` and that of the
operation which they run."""

_THREAD = "sparsecore"
"""Of operations that the SparseCores run, where they are started."""
_SPARSE_CORE, _HOST = "the SparseCores", "the host"
_HOST_SPACE = 5
_NO_CODE = frozenset({PREPARE, "PrepareAsyncCallDone", "AllocateBuffer", "ConcatBitcast"})
"""Custom calls that take no time of their own; the last joins the slices of a prefetch, which lie side by side."""
_NO_WORK = frozenset(
    "after-all async-update bitcast call constant get-tuple-element parameter partition-id tuple".split()
)
_MOVES = _NO_WORK | frozenset("async-done async-start copy copy-done copy-start fusion reshape transpose".split())
"""Opcodes of a copy into another layout: the work of SparseCores that is modelled, by its bytes."""

_EXCHANGES = frozenset("all-gather all-reduce all-to-all collective-permute reduce-scatter".split())


class Part(NamedTuple):
    """An operation that is not modelled."""

    op: str
    where: str


def elsewhere(
    hlo: HloModule, chip: Chip, has_code: Callable[[str], bool], has_tiles: Callable[[str], bool]
) -> list[Part]:
    """The operations of a program that no machine here runs, in order.

    Args:
        hlo: the optimised module.
        chip: whose SparseCores copy, and exchange where that was timed.
        has_code: whether the compiler wrote a listing for the instruction of a name.
        has_tiles: likewise, one of the SparseCores' for what is handed to them.
    """
    fused = {name for op in hlo.ops.values() if op.opcode == "fusion" for name in op.called}
    names = [name for name in handed(hlo, hlo.ops.values()) if name in hlo.ops]
    sparse = {op.name: op for name in names for op in _inside(hlo, hlo.ops[name])}
    timed = chip.sparse is not None and chip.sparse.exchange_bytes_per_s > 0

    def is_modelled(name: str) -> bool:
        if is_kernel(hlo, name):
            return chip.sparse is not None and has_tiles(name)
        return moves(hlo, name) or (timed and received(hlo, name) is not None)

    found = [Part(_work(hlo, name).name, _SPARSE_CORE) for name in names if not is_modelled(name)]
    for op in hlo.ops.values():
        if op.name in sparse:
            continue
        if op.is_of_sparse_cores:
            found.append(Part(op.name, _SPARSE_CORE))
        elif op.calls_host or any(array.space == _HOST_SPACE for array in op.types):
            found.append(Part(op.name, _HOST))
        elif op.opcode == "custom-call" and op.computation not in fused and op.target not in _NO_CODE:
            found += [] if has_code(op.name) else [Part(op.name, f"custom call {op.target}")]
    return found


def handed(hlo: HloModule, ops: Iterable[HloOp]) -> list[str]:
    """Names of the operations of ``ops`` that are handed to the SparseCores, in the order in which they are.

    libtpu 0.0.42.1 prepares each by a custom call, 0.0.50.1 by its start, which operands follow by an ``async-update``.
    """
    every = list(ops)
    prepared = [op.name.removeprefix(PREPARED) for op in every if op.target == PREPARE]
    starts = [op for op in every if op.opcode == "async-start" and op.thread == _THREAD]
    within = {inner.name for op in starts for inner in _inside(hlo, op) if inner is not op}
    return prepared + [op.name for op in starts if op.name not in within and op.name not in prepared]


def refusal(hlo: HloModule, parts: Sequence[Part], tokens: TokenTable) -> Refusal:
    """Says which operations are not modelled, and how many are."""
    named = ", ".join(f"{tokens.name(part.op)[:60]} ({part.where})" for part in parts[:3])
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    whose = "their" if len(parts) > 1 else "its"
    work = [op for op in hlo.entry_ops() if op.opcode not in _NO_WORK and op.target not in _NO_CODE]
    ops = sum(not op.opcode.endswith("-done") for op in work)
    share = f"modelled are {max(0, ops - len(parts))} of {max(ops, len(parts))} operations of the program"
    return Refusal(Status.NOT_MODELLED, f"{named}{more}: {whose} latency is not modelled; {share}")


def moves(hlo: HloModule, name: str) -> bool:
    """Whether an operation only copies, with all that it calls."""
    return all(op.opcode in _MOVES for op in _inside(hlo, hlo.ops[name]))


def is_kernel(hlo: HloModule, name: str) -> bool:
    """Whether an operation is a kernel for the SparseCores, and nothing else."""
    every = [op for op in _inside(hlo, hlo.ops[name]) if op.opcode not in _NO_WORK | {"async-start", "async-done"}]
    return len(every) == 1 and every[0].is_of_sparse_cores


def received(hlo: HloModule, name: str) -> int | None:
    """Bytes that each device receives in an operation that is one collective of XLA's; None for any other."""
    every = list(_inside(hlo, hlo.ops[name]))
    exchanges = [op for op in every if op.opcode in _EXCHANGES]
    summing = {inner.name for op in exchanges for one in op.called for inner in hlo.by_computation.get(one, ())}
    others = [op for op in every if op.opcode not in _MOVES | _EXCHANGES and op.name not in summing]
    if len(exchanges) != 1 or others:
        return None
    (op,), devices = exchanges, len(hlo.device_ids)
    given = sum(array.padded_bytes for operand in hlo.operands(op) for array in operand.types)
    made = sum(array.padded_bytes for array in op.types)
    if op.opcode in ("all-gather", "reduce-scatter"):
        return abs(made - given)
    times = {"all-reduce": 2, "all-to-all": 1}.get(op.opcode)
    return given if times is None else times * given * (devices - 1) // devices


def _work(hlo: HloModule, name: str) -> HloOp:
    """What an operation that is handed over does: its kernel, or the innermost that computes."""
    inside = list(_inside(hlo, hlo.ops[name]))
    kernels = [op for op in inside if op.is_kernel]
    return (kernels or [op for op in inside if op.opcode == "fusion"] or inside)[0]


def _inside(hlo: HloModule, op: HloOp) -> Iterator[HloOp]:
    """An operation and all that it calls."""
    yield op
    for computation in op.called:
        for inner in hlo.by_computation.get(computation, ()):
            yield from _inside(hlo, inner)
