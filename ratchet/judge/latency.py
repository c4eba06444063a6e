"""The modelled latency of a compiled program: the schedule machine as a step of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.chips import Chip
from ratchet.schedule import machine
from ratchet.values import Program, Timeline


def step(
    program: Program, chip: Chip, steering: Mapping[int | str, Any], *, detail: bool = False
) -> tuple[Timeline, str]:
    """Run the schedule machine over the dumps of ``program``; ``steering`` are its integer inputs by position.

    Raises:
      Refusal: ``SCHEDULE_UNKNOWN``, ``DEADLOCK``, ``OUT_OF_BOUNDS`` or ``MEMORY_HAZARD``.
    """
    timeline = machine.run(
        program.dump_dir / "schedule",
        hlo_text=(program.dump_dir / "optimized.hlo").read_text(),
        chip=chip,
        compiler=program.compiler,
        scalar_inputs=steering,
        detail=detail,
    )
    return (
        timeline,
        f"{timeline.latency_ms:.4f} ms modelled, {timeline.cycles:,} cycles, {timeline.grid_steps:,} grid steps",
    )
