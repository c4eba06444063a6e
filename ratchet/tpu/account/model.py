"""A compiled program -> :class:`ratchet.values.Timeline`: the machine runs it, the account says where cycles went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ratchet.tpu.account.link_spans import link_spans
from ratchet.tpu.account.timeline import Known, build
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.dump.prefetch import Ahead
from ratchet.tpu.machine.control import control_flow
from ratchet.tpu.machine.inputs import ScalarInputs
from ratchet.tpu.machine.programs import Programs
from ratchet.tpu.machine.record import Record, Run
from ratchet.tpu.machine.run import read, run, without_collections
from ratchet.values import Timeline


@dataclass
class Reading:
    """What is read of a compiled program's listings once, for as many runs as there are."""

    ahead: Ahead | None = None
    """What was read while the program was compiled."""
    programs: Programs | None = None
    known: Known = field(default_factory=dict)


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
        dump_dir: and the rest: see :func:`ratchet.tpu.machine.run.run`.
        hlo: the optimised module.
        chip: what it was compiled for.
        compiler: version of the compiler, for messages and for the timeline.
        scalar_inputs: values that steer control flow, one set per mesh index or none at all.
        constants: of the executable of a program for a slice.
        detail: keep many more single grid steps in the spans.
        reading: of the same dumps, for the same chip; what it lacks is added.

    Returns:
        The timeline of the slowest chip; on a slice with that of every chip in ``chips``.

    Raises:
        Refusal: as the machine, and SCHEDULE_UNKNOWN for an opcode whose unit is not known.
    """
    reading = reading or Reading()
    with without_collections():
        if chip.schedules and reading.programs is None:
            reading.programs = read(dump_dir, hlo=hlo, chip=chip, compiler=compiler, ahead=reading.ahead)
        done = run(
            dump_dir,
            hlo=hlo,
            chip=chip,
            compiler=compiler,
            scalar_inputs=scalar_inputs,
            constants=constants,
            programs=reading.programs,
        )
        return timeline_of(done, chip=chip, compiler=compiler, detail=detail, known=reading.known)


def timeline_of(run: Run, *, chip: Chip, compiler: str, detail: bool = False, known: Known | None = None) -> Timeline:
    """The timeline of a run; see :func:`model`."""
    known = {} if known is None else known
    undecided = (run.undecided,) if run.undecided else ()
    if not run.links:
        timeline = build(run.slowest, chip=chip, compiler=compiler, detail=detail, known=known)
        control = control_flow(run, run.slowest)
        return replace(timeline, not_modelled=(*undecided, *timeline.not_modelled), control=control)
    chips = tuple(_of_slice(record, run, known, chip=chip, compiler=compiler, detail=detail) for record in run.chips)
    slowest = max(chips, key=lambda timeline: timeline.cycles)
    return replace(slowest, chips=chips, links=run.links, not_modelled=(*undecided, *slowest.not_modelled))


def _of_slice(record: Record, run: Run, known: Known, *, chip: Chip, compiler: str, detail: bool) -> Timeline:
    timeline = build(record, chip=chip, compiler=compiler, detail=detail, links=run.links, known=known)
    return replace(
        timeline,
        chip_index=record.chip_index,
        ici_bytes=record.sent_bytes,
        ici_wait_cycles=record.memory.remote_wait_cycles,
        launch_cycles=record.launch_cycles,
        spans=(*timeline.spans, *link_spans(record, run.messages)),
        control=control_flow(run, record),
    )
