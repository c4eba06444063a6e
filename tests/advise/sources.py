"""Kernel files of other shapes and names than those of this repository, as patterns have to read them; and runs."""

from __future__ import annotations

import difflib
from dataclasses import replace

from ratchet.advise.advice import Edit, Rewrite
from ratchet.advise.advise import rewrites
from ratchet.kernelfile.syntax import File
from ratchet.values import SourceLine, Timeline
from ratchet.values.loss import LossKind
from ratchet.values.place import Code, Place
from tests.view import timelines

HEAD = """import jax
from jax import numpy as np
from jax.experimental import pallas as plas
from jax.experimental.pallas import tpu

"""

TAIL = """

def reference_fn(*arrays):
    return arrays[0]


def generate_inputs(key):
    return (jax.random.normal(key, (TOKENS, WIDTH), np.bfloat16),) * 3


def compute_flops():
    return 1


def get_tiling_meta():
    return {"grid": [TOKENS // ACROSS, TOKENS // ALONG], "buffers": []}
"""

ATTENTION = (
    HEAD
    + '''TOKENS = 512
WIDTH = 128
ACROSS = 64
ALONG = 256


def _mix(one, two, three, out, top, total, mixed):
    """A step."""
    here = plas.program_id(0)
    there = plas.program_id(1)

    @plas.when(there == 0)
    def _begin():
        top[...] = np.full_like(top, -np.inf)
        total[...] = np.zeros_like(total)
        mixed[...] = np.zeros_like(mixed)

    # What comes later is not seen.
    @plas.when(there * ALONG < here * ACROSS + ACROSS)
    def _see():
        seen = 0.125 * jax.lax.dot_general(
            one[...], two[...], (((1,), (1,)), ((), ())), preferred_element_type=np.float32
        )
        mine = here * ACROSS + jax.lax.broadcasted_iota(np.int32, (ACROSS, ALONG), 0)
        its = there * ALONG + jax.lax.broadcasted_iota(np.int32, (ACROSS, ALONG), 1)
        seen = np.where(mine >= its, seen, -1e30)
        highest = np.maximum(top[...], np.max(seen, axis=-1, keepdims=True))
        part = np.exp(seen - highest)
        less = np.exp(top[...] - highest)
        total[...] = np.sum(part, axis=-1, keepdims=True) + total[...] * less
        mixed[...] = less * mixed[...] + np.dot(part.astype(np.bfloat16), three[...], preferred_element_type=np.float32)
        top[...] = highest

    @plas.when(there == TOKENS // ALONG - 1)
    def _end():
        out[...] = (mixed[...] / total[...]).astype(out.dtype)


def kernel_fn(a, b, c):
    walked = plas.BlockSpec((ALONG, WIDTH), lambda i, j: (j, 0))
    return plas.pallas_call(
        _mix,
        out_shape=jax.ShapeDtypeStruct((TOKENS, WIDTH), a.dtype),
        grid=(TOKENS // ACROSS, TOKENS // ALONG),
        in_specs=[plas.BlockSpec((ACROSS, WIDTH), lambda i, j: (i, 0)), walked, walked],
        out_specs=plas.BlockSpec((ACROSS, WIDTH), lambda i, j: (i, 0)),
        scratch_shapes=[
            tpu.VMEM((ACROSS, 1), np.float32),
            tpu.VMEM((ACROSS, 1), np.float32),
            tpu.VMEM((ACROSS, WIDTH), np.float32),
        ],
    )(a, b, c)
'''
    + TAIL
)

PRODUCT = (
    HEAD
    + """TOKENS = 1024
WIDTH = TOKENS
SIDE = 256
TILE = (SIDE, 128)


def _add(left, right, out, sums):
    @plas.when(plas.program_id(2) == 0)
    def _clear():
        sums[...] = np.zeros_like(sums)

    sums[...] += np.dot(
        left[...].astype(np.float32), right[...].astype(np.float32), preferred_element_type=np.float32
    )

    @plas.when(plas.program_id(2) == plas.num_programs(2) - 1)
    def _write():
        out[...] = sums[...].astype(out.dtype)


def kernel_fn(x, y):
    return plas.pallas_call(
        _add,
        out_shape=jax.ShapeDtypeStruct((TOKENS, TOKENS), x.dtype),
        grid=(TOKENS // SIDE, TOKENS // TILE[1], TOKENS // SIDE),
        in_specs=[
            plas.BlockSpec((SIDE, SIDE), lambda i, j, k: (i, k)),
            plas.BlockSpec((SIDE, TILE[1]), lambda i, j, k: (k, j)),
        ],
        out_specs=plas.BlockSpec((SIDE, TILE[1]), lambda i, j, k: (i, j)),
        scratch_shapes=[tpu.VMEM((SIDE, TILE[1]), np.float32)],
        compiler_params=tpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, y)
"""
    + TAIL
)

ROWS = (
    HEAD
    + """TOKENS, WIDTH = 4096, 1024
LINES = 16


def _weigh(x, out):
    weights = np.exp(x[...] - np.max(x[...], axis=1, keepdims=True))
    out[...] = weights / np.sum(weights, axis=1, keepdims=True)


def kernel_fn(x):
    return plas.pallas_call(
        _weigh,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(plas.cdiv(TOKENS, LINES),),
        in_specs=[plas.BlockSpec((LINES, WIDTH), lambda i: (i, 0))],
        out_specs=plas.BlockSpec((LINES, WIDTH), lambda i: (i, 0)),
    )(x)
"""
    + TAIL
)


def file_of(text: str) -> File:
    return File.of(text.encode(), "other.py")


def edits(text: str, edit: Edit) -> list[Rewrite]:
    """Every rewrite of one kind."""
    return [one for one in rewrites(file_of(text)) if one.edit is edit]


def once(text: str, edit: Edit) -> str:
    """The file after the only rewrite of that kind."""
    (one,) = edits(text, edit)
    return one.after.decode()


def changed(before: str, after: str) -> list[str]:
    """Lines that went and came, without their margins."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-" and line[2:].strip()]


def held(text: str, what: str, *reads: str) -> str:
    """The file with a part of its call in a name of the host's, which ``reads`` read as well."""
    start = text.rindex("\n", 0, text.index("pallas_call(", text.index("def kernel_fn"))) + 1
    assert what in text[start:]
    lines = "".join(f"    {one}\n" for one in (f"held = {what}", *reads))
    return text[:start] + lines + text[start:].replace(what, "held")


CYCLES = 100_000
LINES = 120
UNITS = ("MXU", "XLU", "VALU", "VPOP", "EUP", "VLOAD", "VSTORE", "SALU")


def run(file: str) -> Timeline:
    """Of ``file``; lines cost 240 cycles each, the pipeline the rest."""
    blame = timelines.blame(CYCLES, file)
    (one,) = blame.lines

    def cost(place: Place, cycles: int, waits: int) -> object:
        issued = dict.fromkeys(UNITS, (cycles - waits) // len(UNITS))
        return replace(one, place=place, cycles=cycles, issue_cycles=issued, wait_cycles=waits)

    lines = [cost(SourceLine(file=file, line=line), 240, 0) for line in range(1, LINES + 1)]
    lines.append(cost(Code.PIPELINE, CYCLES - 240 * LINES, 30_000))
    losses = tuple(loss for loss in blame.losses if loss.kind is not LossKind.SPILLS)
    blame = replace(blame, lines=tuple(lines), losses=losses)  # type: ignore[arg-type]
    return replace(timelines.timeline(), cycles=CYCLES, blame=blame)
