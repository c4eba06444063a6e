"""A space of four knobs whose points were all modelled once, for searches that are replayed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from benchmarks.lib.sources import ROOT
from ratchet.search.space import Observation, Space, space_of
from ratchet.values import Point
from ratchet.values.status import Status

NAIVE = ROOT / "examples" / "naive_attention.py"
LOCKED = "kernel.py"
"""Has the same problem, whose lock is beside it."""
SPACE = ROOT / "benchmarks" / "data" / "search" / "four_knobs.json"
NAME = "four_knobs.py"
NEAR = 1.01
KNOBS = """\
BQ = 128  # tune: 64, 128, 256, 512, 1024, 2048
BKV = 256  # tune: 128, 256, 512, 1024, 2048
PIECES = 1  # tune: 1, 2, 4
UNMASKED = False  # tune: False, True
# where: BKV // PIECES >= 128
"""
STEP = """\
    def accumulate(masked):
        rows_of_piece = BKV // PIECES
        for piece in range(PIECES):
            keys = pl.ds(piece * rows_of_piece, rows_of_piece)
            scores = jax.lax.dot_general(
                q_ref[...], k_ref[keys, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            ) * (HEAD_DIM**-0.5)
            if masked:
                rows = i * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
                columns = j * BKV + piece * rows_of_piece + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
                scores = jnp.where(columns <= rows, scores, -jnp.inf)
            m_new = jnp.maximum(m_ref[...], jnp.max(scores, axis=1, keepdims=True))
            p = jnp.exp(scores - m_new)
            rescale = jnp.exp(m_ref[...] - m_new)
            l_ref[...] = rescale * l_ref[...] + jnp.sum(p, axis=1, keepdims=True)
            acc_ref[...] = rescale * acc_ref[...] + jnp.dot(
                p.astype(v_ref.dtype), v_ref[keys, :], preferred_element_type=jnp.float32
            )
            m_ref[...] = m_new

    # Key blocks that lie wholly after the last query of this block are not attended.
    attended = j * BKV < (i + 1) * BQ
    whole = (j + 1) * BKV <= i * BQ + 1  # every query of the block attends to every key of this one

    if UNMASKED:

        @pl.when(whole)
        def _accumulate_whole():
            accumulate(masked=False)

        @pl.when(attended & jnp.logical_not(whole))
        def _accumulate_part():
            accumulate(masked=True)

    else:

        @pl.when(attended)
        def _accumulate():
            accumulate(masked=True)

"""
"""What is in the place of the naive kernel's step: a block of keys in pieces, masked only where it has to be."""


def kernel() -> str:
    """The kernel file: the naive one with four knobs. As it is, it does what that does."""
    naive = NAIVE.read_text()
    step = naive[naive.index("    # Key blocks that lie wholly") : naive.index("    @pl.when(j == pl.num_programs(1)")]
    constants = naive[naive.index("BQ = ") : naive.index("\n\ndef _attention_block")]
    return naive.replace(step, STEP).replace(constants, KNOBS)


class Recorded:
    """The recorded space."""

    def __init__(self) -> None:
        self.space: Space = space_of(kernel().encode(), NAME, [], [])
        self.naive = self.space.nearest(self.space.constants)
        self.results: dict[object, Observation] = {}
        for row in json.loads(SPACE.read_text())["points"]:
            status = Status[row["status"]]
            made = Observation(
                point=row["point"], status=status, latency_ms=row["latency_ms"], vmem_bytes=row["vmem_bytes"]
            )
            self.results[self.space.key(row["point"])] = made
        points = [self.space.key(point) for point in self.space.points()]
        if set(points) != set(self.results):
            raise ValueError(f"{SPACE.name} is not the space of {NAME}: record it again")
        self.best = min(one.latency_ms for one in self.results.values() if one.latency_ms is not None)

    def of(self, point: Point) -> Observation:
        return self.results[self.space.key(point)]

    def within(self, observations: Iterable[Observation], near: float = NEAR) -> float:
        """How many trials it took to come that near to the best; infinity where it never did."""
        wanted = self.best * near
        return next(
            (n for n, one in enumerate(observations, 1) if one.latency_ms and one.latency_ms <= wanted), math.inf
        )
