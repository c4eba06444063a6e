"""The modelled latency of a compiled program: the machine runs it, the account says where the cycles went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.tpu.account.costs import Known
from ratchet.tpu.account.timeline import timeline_of
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.machine.memory import ScalarInputs
from ratchet.tpu.machine.programs import Programs, read
from ratchet.tpu.machine.run import run, without_collections
from ratchet.values import Copy, Mesh, Program, Timeline
from ratchet.values.loss import Loss, Outside
from ratchet.values.place import Op


@dataclass
class Reading:
    """What is read of a compiled program's listings once, for as many runs as there are."""

    programs: Programs | None = None
    known: Known = field(default_factory=dict)


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
    timeline = replace(timeline, blame=replace(timeline.blame, losses=_with_copies(timeline, program.copies)))
    return timeline, (
        f"{timeline.latency_ms:.4f} ms modelled, {timeline.cycles:,} cycles, {timeline.grid_steps:,} grid steps"
        + (f"; chip {timeline.chip_index} is the slowest of {mesh.chips}" if timeline.chips else "")
    )


def _with_copies(timeline: Timeline, copies: Sequence[Copy]) -> tuple[Loss, ...]:
    """The losses; those that are a copy say which."""
    known = {one.instruction.replace("-start", "-done"): one for one in copies}
    known |= {one.instruction: one for one in copies}
    return tuple(
        replace(loss, copy=known.get(loss.place.name))
        if isinstance(loss, Outside) and isinstance(loss.place, Op)
        else loss
        for loss in timeline.blame.losses
    )


def model(  # noqa: PLR0913 - the dumps, what they are of, and what steers them
    dump_dir: Path,
    *,
    hlo: HloModule,
    chip: Chip,
    compiler: str,
    scalar_inputs: Sequence[ScalarInputs] = (),
    constants: bytes = b"",
    detail: bool = False,
    reading: Reading | None = None,
) -> Timeline:
    """Models one run of a compiled program, on one chip or on a slice.

    Args:
        dump_dir: and ``hlo``, ``chip``, ``compiler``, ``constants``: see :func:`ratchet.tpu.machine.programs.read`.
        hlo: the optimised module.
        chip: what it was compiled for.
        compiler: its version.
        scalar_inputs: values that steer control flow, see :func:`ratchet.tpu.machine.run.run`.
        constants: of the executable.
        detail: keep many more single grid steps in the spans.
        reading: of the same dumps, for the same chip; what it lacks is added.

    Returns:
        The timeline of the slowest chip; on a slice with that of every chip in ``chips``.

    Raises:
        Refusal: as the machine, and SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    reading = reading or Reading()
    with without_collections():
        programs = reading.programs or read(dump_dir, hlo=hlo, chip=chip, compiler=compiler, constants=constants)
        reading.programs = programs
        done = run(programs, scalar_inputs)
        return timeline_of(done, chip=chip, compiler=compiler, detail=detail, known=reading.known)


def _own(steering: Mapping[int | str, Any], mesh: Mesh, place: int) -> dict[int | str, Any]:
    """A chip's own part of what steers."""
    return {
        key: values if isinstance(key, str) else values[mesh.part(key, values.shape, place)]
        for key, values in steering.items()
    }
