"""The schedule machine's one entry: a compiled program, for one chip or for a slice, run once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ratchet.tpu.chips import CHIPS, Chip
from ratchet.tpu.dump.files import Dumps
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.dump.image import constant_offsets
from ratchet.tpu.dump.prefetch import Ahead
from ratchet.tpu.machine.dma import Ends
from ratchet.tpu.machine.inputs import ScalarInputs
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.peers import Alone
from ratchet.tpu.machine.programs import Programs
from ratchet.tpu.machine.record import Run
from ratchet.tpu.machine.slice import run_slice
from ratchet.tpu.machine.unknown import UndecidedBranch
from ratchet.values.omission import UndecidedBranches
from ratchet.values.status import Refusal, Status

CONSTANT_BYTES = 512
"""Of each constant of the compiler's, what is read."""


def run(
    dump_dir: Path,
    *,
    hlo: HloModule,
    chip: Chip,
    compiler: str,
    scalar_inputs: Sequence[ScalarInputs] = (),
    constants: bytes = b"",
    programs: Programs | None = None,
) -> Run:
    """Runs a compiled program once.

    Branches whose condition vector code computes are all taken, then none; the slower run is returned.

    Args:
        dump_dir: holds what the compiler wrote under :func:`ratchet.tpu.dump.files.dump_flags`, for this program alone;
            for a slice with the pass :data:`ratchet.tpu.dump.image.OFFSETS_PASS` besides.
        hlo: the optimised module. It says for which devices the program was compiled.
        chip: what it was compiled for.
        compiler: version of the compiler, for messages.
        scalar_inputs: real values of arrays that steer control flow (scalar prefetch, dynamic grid bounds), one set per
            mesh index or none at all: by number of the entry parameter, or, where XLA computes them first, by
            ``"name:i"``, operand ``i`` of HLO instruction ``name``. Shapes and dtypes as in the compiled program.
        constants: what :func:`ratchet.tpu.dump.image.constant_segment` reads in the executable of a program for a
        slice;
            collectives of XLA have their routing tables there.
        programs: the listings, where another run of the same program for this chip has read them.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for anything that the machine does not know, DEADLOCK for a wait that can never
            end, OUT_OF_BOUNDS and MEMORY_HAZARD where an assertion fails that the compiler planted, USAGE for a mesh
            that is neither one chip nor the slice, or other inputs than one set per chip.
    """
    if not chip.schedules:
        known = ", ".join(name for name, other in CHIPS.items() if other.schedules)
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"programs for {chip.name} are compiled, and executed for their values; their schedules are not modelled: "
            f"they count DMAs in other units. Modelled are {known}.",
        )
    chips = len(hlo.device_ids)
    given = scalar_inputs or [{}] * chips
    if len(given) != chips:
        raise Refusal(Status.USAGE, f"{len(given)} sets of inputs for a program on {chips} chips: give one for each.")
    programs = programs or read(dump_dir, hlo=hlo, chip=chip, compiler=compiler)
    if chips == 1:
        once = partial(_run_alone, programs, chip, given[0])
    else:
        if sorted(hlo.device_ids) != list(range(chip.ici.chips)):
            raise Refusal(
                Status.USAGE,
                f"compiled for the devices {list(hlo.device_ids)}; a slice of {chip.name} has the {chip.ici.chips} "
                f"chips 0 to {chip.ici.chips - 1}: use them all, each once.",
            )
        once = partial(run_slice, programs, chip, given, _constants(dump_dir, constants))
    with without_collections():
        try:
            return once()
        except UndecidedBranch:
            ways = [once(take_undecided=way) for way in (True, False)]
    fast, slow = sorted(ways, key=lambda way: way.slowest.cycles)
    cycles = fast.slowest.cycles, slow.slowest.cycles
    return replace(slow, undecided=UndecidedBranches(fast_cycles=cycles[0], slow_cycles=cycles[1]))


def read(dump_dir: Path, *, hlo: HloModule, chip: Chip, compiler: str, ahead: Ahead | None = None) -> Programs:
    """The listings of a compiled program, for one run or several; arguments as of :func:`run`.

    ``ahead``: what was read while it was compiled.
    """
    return Programs(Dumps(dump_dir, hlo, compiler, ahead), hlo, compiler, chip)


def _run_alone(
    programs: Programs, chip: Chip, scalar_inputs: ScalarInputs, *, take_undecided: bool | None = None
) -> Run:
    machine = Machine(programs, chip, scalar_inputs, Alone(), take_undecided=take_undecided)
    return Run(chips=(machine.execute(),), messages=Ends(0))


def _constants(dump_dir: Path, segment: bytes) -> dict[str, list[int]]:
    """Words of each constant, by allocation."""
    words = {}
    for name, offset in constant_offsets(dump_dir).items():
        piece = segment[offset : offset + CONSTANT_BYTES]
        words[name] = [int.from_bytes(piece[i : i + 4], "little", signed=True) for i in range(0, len(piece), 4)]
    return words


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No garbage collection meanwhile: a listing is made of small tuples by the hundred thousand, none in a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
