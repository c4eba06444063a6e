"""The modelled latency of a compiled program: the schedule machine as a step of a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.tpu.account.model import Reading, model
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import Mesh, Program, Timeline


def step(
    program: Program,
    chip: Chip,
    mesh: Mesh,
    steering: Mapping[int | str, Any],
    *,
    computed: Sequence[Mapping[int | str, Any]] = (),
    detail: bool = False,
    reading: Reading | None = None,
) -> tuple[Timeline, str]:
    """Run the schedule machine over the dumps of ``program``, one machine for each chip of ``mesh``.

    ``steering`` are the problem's inputs that may steer, by position; each chip gets its own part of them.
    ``computed`` is what XLA computes of the kernels' operands, one set per mesh index. What the chips do together
    before the program (``Timeline.launch_cycles``) belongs to the latency. ``reading``: see ``model``.

    Raises:
      Refusal: ``SCHEDULE_UNKNOWN``, ``DEADLOCK``, ``OUT_OF_BOUNDS`` or ``MEMORY_HAZARD``.
    """
    constants = program.dump_dir / "constants.bin"
    timeline = model(
        program.dump_dir / "schedule",
        hlo=load_hlo(program.dump_dir),
        chip=chip,
        compiler=program.compiler,
        scalar_inputs=[
            {**_own(steering, mesh, place), **(computed[place] if computed else {})} for place in range(mesh.chips)
        ],
        constants=constants.read_bytes() if mesh.chips > 1 else b"",
        detail=detail,
        reading=reading,
    )
    return timeline, (
        f"{timeline.latency_ms:.4f} ms modelled, {timeline.cycles:,} cycles, {timeline.grid_steps:,} grid steps"
        + (f"; chip {timeline.chip_index} is the slowest of {mesh.chips}" if timeline.chips else "")
    )


def _own(steering: Mapping[int | str, Any], mesh: Mesh, place: int) -> dict[int | str, Any]:
    """A chip's own part of what steers."""
    return {
        key: values if isinstance(key, str) else values[mesh.part(key, values.shape, place)]
        for key, values in steering.items()
    }
