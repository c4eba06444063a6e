"""The modelled latency of a compiled program: the schedule machine as a step of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.candidate.mesh import part
from ratchet.chips import Chip
from ratchet.dump.files import load_hlo
from ratchet.machine import machine, slice
from ratchet.values import Mesh, Program, Timeline


def step(
    program: Program, chip: Chip, mesh: Mesh, steering: Mapping[int | str, Any], *, detail: bool = False
) -> tuple[Timeline, str]:
    """Run the schedule machine over the dumps of ``program``, one machine for each chip of ``mesh``.

    ``steering`` are the problem's inputs that may steer, by position; each chip gets its own part of them. What the
    chips do together before the program (``Timeline.launch_cycles``) belongs to the latency.

    Raises:
      Refusal: ``SCHEDULE_UNKNOWN``, ``DEADLOCK``, ``OUT_OF_BOUNDS`` or ``MEMORY_HAZARD``.
    """
    schedule = program.dump_dir / "schedule"
    hlo = load_hlo(program.dump_dir)
    if mesh.chips == 1:
        timeline = machine.run(
            schedule, hlo=hlo, chip=chip, compiler=program.compiler, scalar_inputs=steering, detail=detail
        )
    else:
        timeline = slice.run_slice(
            schedule,
            hlo=hlo,
            chip=chip,
            compiler=program.compiler,
            constants=(program.dump_dir / "constants.bin").read_bytes(),
            chip_ids=program.chip_ids,
            scalar_inputs=[
                {number: values[part(mesh, int(number), values.shape, place)] for number, values in steering.items()}
                for place in range(mesh.chips)
            ],
            detail=detail,
        )
    return timeline, (
        f"{timeline.latency_ms:.4f} ms modelled, {timeline.cycles:,} cycles, {timeline.grid_steps:,} grid steps"
        + (f"; chip {timeline.chip_index} is the slowest of {mesh.chips}" if timeline.chips else "")
    )
