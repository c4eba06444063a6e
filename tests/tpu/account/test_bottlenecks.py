"""Blame is believed when an edit that removes what it names moves the latency as predicted. With the real compiler.

The naive attention kernel has two different bottlenecks at two block sizes. Each gets one edit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.sources import edited as with_constants
from ratchet.tpu.account.costs import costs_of
from ratchet.tpu.chips import V5E
from ratchet.tpu.chips.units import SLOTS
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.latency import model as model_program
from ratchet.values import Timeline
from ratchet.values.blame import Blame, LineCost
from ratchet.values.loss import IdleSteps, Stalls, Waits
from ratchet.values.place import SourceLine, Window, Windows
from tests.imports import HERE
from tests.kernels import edited
from tests.tpu.machine.golden_dumps import counted

NAIVE = with_constants((HERE / "examples" / "naive_attention.py").read_text(), BQ=128, BKV=256)
"""Whatever block sizes somebody tried in the example."""

NO_UNUSED_BLOCKS = (
    "pl.BlockSpec((BKV, HEAD_DIM), lambda i, j: (j, 0))",
    "pl.BlockSpec((BKV, HEAD_DIM), "
    "lambda i, j: (jnp.minimum(j, jax.lax.shift_right_logical((i + 1) * BQ - 1, BKV.bit_length() - 1)), 0))",
)
"""Steps above the diagonal ask for the block that is there already, so nothing is copied for them."""

SUM_BY_LANE = (
    (
        "l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)",
        "l_ref[...] = rescale * l_ref[...] + sum(p[:, c : c + 128] for c in range(0, BKV, 128))",
    ),
    (
        "pltpu.VMEM((BQ, 1), jnp.float32),\n            pltpu.VMEM((BQ, HEAD_DIM)",
        "pltpu.VMEM((BQ, 128), jnp.float32),\n            pltpu.VMEM((BQ, HEAD_DIM)",
    ),
    ("(acc_ref[...] / l_ref[...])", "(acc_ref[...] / jnp.sum(l_ref[...], axis=1, keepdims=True))"),
)
"""128 partial sums per row, added up across the lanes once per query block instead of once per step."""


def blocks(bq: int, bkv: int) -> str:
    return edited(NAIVE, ("BQ = 128\n", f"BQ = {bq}\n"), ("BKV = 256\n", f"BKV = {bkv}\n"))


KERNELS = {
    "wide": blocks(256, 1024),
    "wide_edited": edited(blocks(256, 1024), NO_UNUSED_BLOCKS),
    "tall": blocks(1024, 256),
    "tall_edited": edited(blocks(1024, 256), *SUM_BY_LANE),
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    files = []
    for name, source in KERNELS.items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiled", folder, *files],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def model(dumps: Path, name: str) -> tuple[Timeline, Blame]:
    folder = dumps / name
    timeline = model_program(folder, hlo=load_hlo(folder), chip=V5E, compiler="installed")
    assert sum(line.cycles for line in timeline.blame.lines) == timeline.cycles
    return timeline, timeline.blame


def line_of(blame: Blame, name: str, text: str) -> LineCost:
    (number,) = [n for n, line in enumerate(KERNELS[name].splitlines(), start=1) if text in line]
    return next(line for line in blame.lines if line.place == SourceLine(file=f"{name}.py", line=number))


@pytest.mark.slow
def test_two_block_sizes_have_two_bottlenecks(dumps: Path) -> None:
    _, wide = model(dumps, "wide")
    _, tall = model(dumps, "tall")
    idle, waits = wide.losses[:2]
    assert isinstance(idle, IdleSteps)
    assert idle.wait_share > 0.5
    assert isinstance(waits, Waits)
    assert waits.place == Windows(windows=(Window(kind="input", number=1), Window(kind="input", number=2)))
    stalls = tall.losses[0]
    assert isinstance(stalls, Stalls)
    (crossing,) = [stall for stall in stalls.units if stall.unit == "XLU"]
    assert crossing.place == line_of(tall, "tall", "jnp.sum(p").place


def test_without_the_copies_the_latency_is_what_was_said(dumps: Path) -> None:
    """To 8 %: idle steps wait no more. The index map costs scalar code, and a row's first block a wait."""
    before, blame = model(dumps, "wide")
    after, edited_blame = model(dumps, "wide_edited")
    idle, left = (
        sum(kind.wait_cycles for kind in found.steps if not kind.mxu_cycles) for found in (blame, edited_blame)
    )
    assert idle > 0.25 * before.cycles
    assert left < 0.2 * idle
    assert after.cycles == pytest.approx(before.cycles - idle, rel=0.08)


def test_without_the_reduction_the_latency_moves_as_was_said(dumps: Path) -> None:
    """At least by what waits for that line's reductions, at most by all stalls: other lines wait for the unit too."""
    before, blame = model(dumps, "tall")
    after, edited_blame = model(dumps, "tall_edited")
    was = line_of(blame, "tall", "l_ref[...] = rescale").stall_cycles["XLU"]
    left = line_of(edited_blame, "tall_edited", "l_ref[...] = rescale").stall_cycles.get("XLU", 0)
    assert left < was  # permutations, which spread statistics of a row over its lanes, wait for the unit as well
    assert before.cycles - after.cycles > was
    (stalls,) = [loss for loss in blame.losses if isinstance(loss, Stalls)]
    assert after.cycles > stalls.ceiling_cycles
    assert after.cycles == pytest.approx(stalls.ceiling_cycles, rel=0.12)


def test_lines_of_equal_operations_are_distinguished(dumps: Path) -> None:
    """JAX lowers the stores of m and l, which are alike, once; each must keep its own line."""
    _, blame = model(dumps, "tall")
    stores = ("m_ref[...] = jnp.full_like", "l_ref[...] = jnp.zeros_like", "l_ref[...] = rescale", "m_ref[...] = m_new")
    for text in stores:
        assert line_of(blame, "tall", text).issues["VSTORE"] > 0, text


def test_busy_matrix_units_are_the_compilers_bundle_by_bundle(dumps: Path) -> None:
    """In the compiler's count a unit is busy in the 16 cycles after a product's issue; so it is here."""
    ((listing, stated),) = [one for one in counted(dumps / "wide") if "kernel_fn" in one[0].file]
    costs = costs_of(listing, [(0, len(listing.bundles))], compiler="installed", delay_slots=4)
    busy = np.zeros(len(listing.bundles) + 64, np.int64)
    for address, unit in zip(*np.nonzero(costs.mxu), strict=True):
        busy[address + 1 : address + 1 + costs.mxu[address, unit]] += 1
    # Bundles with nothing to count are folded away there, and so are left out on both sides.
    slots = ("VALU", "VPOP", "VLOAD", "VSTORE", "SALU")
    ours = np.flatnonzero(costs.slots[:, [SLOTS.index(slot) for slot in slots]].any(axis=1))
    theirs = np.flatnonzero(np.any([stated[slot] for slot in slots], axis=0))
    assert len(ours) == len(theirs)
    assert np.mean(stated["MATMUL" if "MATMUL" in stated else "MXU"][theirs] == busy[ours]) > 0.98
