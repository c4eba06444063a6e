"""The verdict as one JSON document: what ``--json`` prints, described by ``ratchet/view/verdict.schema.json``.

A document says how one experiment ended. ``verdict`` is null where nothing was judged. Every number about
the kernel's speed is beside its ``evaluator`` and ``kind``: ``modelled`` or ``measured``.
``seconds`` are always the judge's own, by the wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from ratchet.values import SCHEMA_VERSION, OpCost, Row, Samples, Step, Timeline, Verdict
from ratchet.values.blame import LineCost
from ratchet.values.loss import Key, Loss, Refuted, UnitStall
from ratchet.values.omission import Omission, Unmodelled
from ratchet.values.place import Code, SourceLine
from ratchet.values.status import Status
from ratchet.values.verdict import Conditions
from ratchet.view.document import Tables, numbers, plain, same
from ratchet.view.document import outcome as of_status
from ratchet.view.losses import losses_in_words, notes
from ratchet.view.occupancy import OCCUPANCY
from ratchet.view.text import cause, kind_of, where

SCHEMA_PATH = Path(__file__).with_name("verdict.schema.json")


def verdict_document(  # noqa: PLR0913 - the verdict, and by keyword what the loop adds to it
    verdict: Verdict | None,
    *,
    outcome: Status,
    decision: str | None,
    reason: str,
    id: str | None = None,
    commit: str | None = None,
    incumbent: Row | None = None,
    refuted: Mapping[Key, Refuted] | None = None,
) -> dict[str, Any]:
    """The document of one experiment, as plain JSON values. ``refuted``: losses removed before without a gain.

    ``outcome`` is the status of the experiment, whose exit code the process ends with: ``NOT_BETTER`` where
    the verdict says ``PASS``, and the refusal where nothing was judged. ``decision`` is null then.
    """
    ended = {
        **of_status(outcome),
        "decision": decision,
        "reason": reason,
        "why": cause(reason),
        "id": id,
        "commit": commit,
        "incumbent": plain(incumbent, _TABLES),
    }
    judged = plain(verdict, _TABLES)
    if verdict is not None and verdict.timeline is not None:
        judged["losses"] = losses_in_words(verdict.timeline, refuted)
    return {"schema_version": SCHEMA_VERSION, "outcome": ended, "verdict": judged}


def reason_beyond(verdict: Verdict, reason: str) -> str:
    """What the reason of a decision adds to the verdict's own, so that each is printed once."""
    return reason.removeprefix(f"{verdict.status.name}: {verdict.reason}").lstrip("; ")


def summary_beyond(verdict: Verdict, step: Step) -> str:
    """The summary of a step, or ``""`` where it is the verdict's reason."""
    return "" if verdict.reason == f"{step.name}: {step.summary}" else step.summary


def _evaluator(verdict: Verdict) -> dict[str, str]:
    return {"evaluator": verdict.conditions.evaluator, "kind": kind_of(verdict.conditions.evaluator)}


def _steps(verdict: Verdict) -> list[dict[str, Any]]:
    return [{**plain(step), "summary": summary_beyond(verdict, step)} for step in verdict.steps]


def _where(kind: type) -> dict[str, str]:
    return {"where": "place"} if "place" in kind.__annotations__ else {}


_OF_A_CHIP = same(
    "chip_index", "place", "cycles", "executed_bundles", "dma_wait_cycles", "ici_wait_cycles", "ici_bytes",
    "hbm_read_bytes", "hbm_write_bytes", "launch_cycles",
)  # fmt: skip
_TABLES: Tables = {
    Row: {
        **same("id", "commit", "evaluator"),
        "kind": lambda row: kind_of(row.evaluator),
        **numbers("score", latency_ms="median_ms"),
    },
    Verdict: {
        ...: ("kernel_name", "source_sha256"),
        "kernel": lambda verdict: {
            "path": verdict.kernel,
            "name": verdict.kernel_name,
            "source_sha256": verdict.source_sha256,
        },
        "score": lambda verdict: verdict.score and {**_evaluator(verdict), **plain(verdict.score)},
        "steps": _steps,
        "notes": notes,
        "hint": lambda verdict: hint(verdict.status, verdict.reason),
        "losses": lambda _: [],
    },
    Conditions: {...: (), "kind": lambda conditions: kind_of(conditions.evaluator)},
    Samples: {...: (), "kind": lambda _: "measured", **same("clock", "latency_ms", "calls")},
    Timeline: {
        "evaluator": lambda timeline: f"{timeline.chip}-model",
        "kind": lambda _: "modelled",
        ...: ("spans", "control"),
        "latency_ms": "latency_ms",
        "span_count": lambda timeline: len(timeline.spans),
        "chips": lambda timeline: [plain(chip, {Timeline: _OF_A_CHIP}) for chip in timeline.chips],
    },
    OpCost: {...: (), "name": lambda op: op.name or where(Code.TOP_LEVEL)},
    LineCost: {
        "where": "place",
        "line": lambda line: line.place.line if isinstance(line.place, SourceLine) else 0,
        ...: (),
    },
    **OCCUPANCY,
    UnitStall: {...: (), "where": "place"},
    **{kind: {"kind": "kind", ...: (), **_where(kind)} for kind in get_args(Loss)},
    **{kind: {"kind": "kind", ...: ()} for kind in get_args(Omission)},
    Unmodelled: lambda omission: {"kind": omission.value},
}


_LOWERED = frozenset(
    (Status.LOWERING_FAILED, Status.UNALIGNED_BLOCK, Status.UNSUPPORTED_PRIMITIVE, Status.COMPILE_FAILED)
)

_HINTS = {
    "statically prove that index in dimension": "say what the index is a multiple of: pl.multiple_of(index, 8) for "
    "rows, 128 for lanes, if that is true",
    "last two dimensions": "make the last two dimensions of the block multiples of 8 and 128, or those of the whole "
    "array",
    "store scalars to VMEM": "store an array, as o[0:1, 0:1] = x.reshape(1, 1), or give the reference pltpu.SMEM",
    "load scalars from SMEM": "give the reference memory_space=pltpu.SMEM, or load a slice of it",
    "captures constants": "pass the array to pallas_call as an operand, or build it inside with jnp.full and iota",
    "Unsupported dot precision": "ask for DEFAULT or HIGHEST; for the three passes of HIGH split the operands by hand",
    "matmul acc to be 32-bit": "ask for it: preferred_element_type=jnp.float32, and round afterwards",
    "Unsigned integer dtype": "cast to a signed type first",
    "TracerBoolConversion": "a Python `if` cannot see a traced value: use pl.when, jnp.where or jax.lax.cond",
    "is out of bounds for grid": "pl.program_id(axis) counts the dimensions of `grid`, from 0",
    "requested but no grid": "give pallas_call a grid, or leave pl.program_id out",
    "without shard_map": "call the kernel inside jax.shard_map and declare the mesh in get_tiling_meta()",
    "last dim size is not 128": "load the whole block and pick rows by jnp.where, or move the step into the index map",
    "shape cast": "keep the last dimension as it is in a reshape, or do the reshape outside of the kernel",
    "lowering for tc: cumsum": "a product with a triangular matrix of ones, or log2(n) shifted additions (pltpu.roll)",
    "lowering for tc: sort": "sort outside of the kernel, or by a bitonic network of pltpu.roll and jnp.where",
    "lowering for tc: rev": "reverse in the index map by blocks, or multiply by a reversed identity matrix",
    "lowering for tc: scatter": "select by position: jnp.where(iota == index, new, old)",
    "lowering for tc: gather": "gather by the index map (PrefetchScalarGridSpec) or by one copy a row",
    "Unimplemented primitive": "write it with operations that Pallas has on a TPU, or let XLA do it beside the kernel",
    "Not Implemented": "the operation exists, but not at this shape or dtype: try whole tiles (8, 128) and float32",
}


_OVERFLOW = (
    "`ratchet explain FILE --vmem` lists every allocation and what would free some; "
    "`ratchet fit FILE NAME=VALUES` says which values of its constants fit"
)


_SCALARS = (
    "`ratchet explain FILE` lists what is in SMEM; an operand that is prefetched, or has memory_space=pltpu.SMEM and "
    "no block, is there whole: give it a block, or pl.ANY and copy what a step needs"
)


def hint(status: Status, message: str) -> str:
    """What to do about an error of lowering or compiling, ``""`` where nothing is known about it."""
    if status is Status.VMEM_OVERFLOW:
        return _OVERFLOW
    if status is Status.SMEM_OVERFLOW:
        return _SCALARS
    if status not in _LOWERED:
        return ""
    return next((advice for words, advice in _HINTS.items() if words in message), "")
