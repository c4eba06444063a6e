"""The schedule machine: executes a compiled program's scalar control flow, DMAs and sync flags -> Record.

Time is counted in bundles: one address of the post-register-allocation listing is one cycle, and only waits for
DMAs add to that. The latency is *modelled*: what it leaves out is said in ``Record.not_modelled``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import MOST_DELAY
from ratchet.tpu.machine.copies import CopyLog
from ratchet.tpu.machine.dma import GRANULE_BYTES, DmaEngine, GeneralDma, Idle, Worked
from ratchet.tpu.machine.memory import GRANULES_PER_ADDRESS, Inputs, Memory, ScalarInputs, operand_unknown
from ratchet.tpu.machine.programs import Programs, Unit
from ratchet.tpu.machine.record import GridSteps, Record, Waited
from ratchet.tpu.machine.slices import Result, results
from ratchet.tpu.machine.sparse_cores import SparseCoreUnits
from ratchet.tpu.machine.words import Arithmetic, NotExecutable, UndecidedBranch, Unknown, UnknownSteers
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Refusal, Status

_FLAG = (1 << 13) - 1
"""Bits of a sync flag's number; above them is the core on chips that have two."""
_TO_A_CHIP = 1 << 14
"""Bit of a DMA's overrides that sends it to another chip; above it is the core on chips that have two."""
_TO_BOTH = 16
"""From this bit on, a copy's flag names that of the other core, where it arrives as well."""
MOST_GRANULES = 1 << 32
"""No copy is larger: memories of a TPU hold fewer granules of 32 B."""

STEP_LIMIT = 200_000_000
"""Basic blocks that a program may execute before the machine calls it endless."""
STEP_LIMIT_UNDECIDED = 5_000_000
"""The same where branches on unknown values are all taken one way, which may never end."""

_FAILED = {
    "unknown": (Status.SCHEDULE_UNKNOWN, "an assertion that is not known here: see what of the kernel it speaks of"),
    "bounds": (Status.OUT_OF_BOUNDS, "an index leads outside an array or a window"),
    "semaphore": (
        Status.MEMORY_HAZARD,
        "a copy was started and never awaited, or a semaphore signalled and never waited for",
    ),
}
"""What a failed assertion of the compiler's says of the kernel, by its kind (:attr:`Notes.assertion`)."""


class CoresTalk(Exception):
    """A core signals or copies to the other one of its chip: the two have to run together."""


class Machine(Arithmetic):
    """One run of one program on one chip. The generated code calls its public methods."""

    def __init__(
        self,
        programs: Programs,
        scalar_inputs: ScalarInputs,
        *,
        start_up: Mapping[str, int] | None = None,
        take_undecided: bool | None = None,
    ) -> None:
        """Prepares a run.

        Args:
            programs: the listings, with the HLO that they were compiled from and the chip.
            scalar_inputs: what steers, see :func:`ratchet.tpu.machine.run.run`.
            start_up: what the runtime stores that differs from chip to chip or core to core, by role of the allocation.
            take_undecided: which way branches go whose condition vector code computes; None raises
                :class:`UndecidedBranch` there.
        """
        chip = programs.chip
        self.memory = Memory(chip.hbm_address_bytes, programs.addresses.fixed_smem)
        self.unwritten = Unknown("a register that nothing wrote on this path")
        self.engine = DmaEngine(chip, chip.constants, self._deadlock)
        """DMA queues and sync flags."""
        self.done: set[int] = set()
        """Sync flags that the program marked done."""
        flags = programs.addresses.sparse_core_flags
        self.sparse = SparseCoreUnits(chip, programs.hlo, self.engine, flags, programs.sparse_work)
        """The SparseCores that the program hands work to."""
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        """HLO instructions that are being executed, innermost last, with their arguments."""
        self._programs = programs
        self.addresses = programs.addresses
        self._start_up = start_up or {}
        self._units: dict[str, Unit] = {}
        self._by_call: dict[str, Unit] = {}
        self._stack: list[Unit] = []
        self._steps = GridSteps()
        self._scalar_inputs = scalar_inputs
        self.cores_of: dict[str, int] = {}
        """Per kernel, how many cores of the chip work on it."""
        self.not_modelled: set[Unmodelled] = set()
        self._take_undecided = take_undecided
        self._step_limit = STEP_LIMIT if take_undecided is None else STEP_LIMIT_UNDECIDED
        self.steps = itertools.repeat(None, self._step_limit)
        """What is left of the step limit, for the generated code."""
        self._logs: dict[str, CopyLog] = {}
        """Of the first run of each kernel, what it copies."""
        self._log: CopyLog | None = None
        self.met = 0
        """When the last meeting with the other core of the chip was over."""
        self._told: object = None
        """What this core last pushed for the other one."""
        self._inputs = Inputs(programs.hlo, scalar_inputs)
        self._inputs.put(self.memory, programs.buffers)

    def execute(self) -> Record:
        """Runs the program from its top level; returns what happened."""
        cycles = self._run_unit(self._unit(TOP), 0, ())
        if self.sparse.kernels:
            self.not_modelled.add(Unmodelled.STREAMS)
        if self.sparse.exchanges:
            self.not_modelled.add(Unmodelled.EXCHANGES)
        return Record(
            cycles=cycles,
            units=self._units,
            opcodes={name: op.opcode for name, op in self._programs.hlo.ops.items()},
            unit_of_op={name: unit.name for name, unit in self._by_call.items()},
            steps=self._steps,
            memory=self.engine,
            addresses=self.addresses,
            not_modelled=tuple(one for one in Unmodelled if one in self.not_modelled),
            copies=tuple(log.issued(self._programs) for log in self._logs.values()),
        )

    def _unit(self, name: str) -> Unit:
        unit = self._units.get(name)
        if unit is None:
            unit = self._units[name] = self._programs.unit(name)
            for address, word in self._programs.start_up(self._start_up).items():
                self.memory.smem.setdefault(address, word)
        return unit

    def _run_unit(self, unit: Unit, now: int, arguments: tuple[object, ...]) -> int:
        translated = unit.translated
        self._stack.append(unit)
        try:
            end = translated.run(now, arguments, self, translated.counts, translated.event_counts)
        except NotExecutable as error:
            raise self.refuse(translated.address_of(error.__traceback__), str(error)) from None
        except (NameError, LookupError) as error:
            if translated.lines_of(error.__traceback__)[-1] is None:
                raise  # no fault of the program's
            raise self.refuse(translated.address_of(error.__traceback__), self._unwritten(error)) from None
        self._stack.pop()
        return end

    def _unwritten(self, error: NameError | LookupError) -> str:
        """What the generated code read before anything wrote it."""
        if isinstance(error, NameError):
            return f"a register is read before it is written ({error})"
        if isinstance(error, IndexError):
            return "an operand that the caller does not pass"
        return f"a load from the runtime's {self.addresses.fixed_smem[error.args[0]].tag!r}"

    # --- called by generated code: control ---

    def call(self, address: int, index: int, now: int, arguments: tuple[object, ...]) -> int:
        """Runs the program that an ``inlined_call`` or ``call`` names in its comment; returns the cycle after it."""
        name = self._instruction(address, index).notes.called
        unit = self._by_call.get(name)
        if unit is None:
            if not name:
                raise NotExecutable("a call that does not say of what")
            unit = self._by_call[name] = self._unit(self._programs.resolve(name))
        if unit.is_kernel or self.memory:
            arguments = self._give_operands(name, unit, arguments)
        sliced = [] if unit.is_kernel or not self.memory else self._slices(name, unit, arguments)
        self.calls.append((name, arguments))
        end = self._run_kernel(unit, now, arguments) if unit.is_kernel else self._run_unit(unit, now, arguments)
        self.calls.pop()
        for result in sliced:
            self.memory.hold(*result)
        self._steps.ran(name, now, end)
        return end

    def _run_kernel(self, unit: Unit, now: int, arguments: tuple[object, ...]) -> int:
        steps = self._steps.kernel(unit.name, unit.translated)
        steps.begin(now, self.engine.hbm_busy_cycles)
        cores = self._programs.chip.cores
        if cores > 1:
            self.engine.shared_by(self._cores_at_work(unit, arguments))
        launch = self.calls[-1][0]
        if launch not in self._logs:
            self._log = self._logs[launch] = CopyLog(launch, unit, arguments, self.cores_of.get(unit.name, 1))
        self._logs[launch].runs += 1
        end = self._run_unit(unit, now, arguments)
        self._log = None
        if cores > 1:
            self.engine.shared_by(cores)
        steps.end(end, self.engine.hbm_busy_cycles)
        return end

    def _give_operands(self, name: str, unit: Unit, arguments: tuple[object, ...]) -> tuple[object, ...]:
        given = list(arguments)
        run = self._logs[name].runs if name in self._logs else 0
        for number, (space, kind) in unit.operands.items():
            if number >= len(given):
                continue  # refused where it is read
            words = self._inputs.operand_words(name, number, run) if kind == "input" else None
            where = given[number]
            if words is not None:
                if not space:
                    given[number] = words[0]
                else:
                    self.memory.hold(space, where, words)
            elif not space and unit.is_kernel and isinstance(where, Unknown) and not where.given:
                given[number] = operand_unknown(name, number)
            elif kind == "output" and space in ("hbm", "vmem") and isinstance(where, int):
                granules = -(-self._result_bytes(name, number) // GRANULE_BYTES)
                self.memory.overwrite(space, self.memory.granule(space, where), max(1, granules))
        return tuple(given)

    def _result_bytes(self, name: str, number: int) -> int:
        op = self._programs.hlo.ops.get(name)
        place = -1 if op is None else number - len(op.operands)
        return op.types[place].padded_bytes if op is not None and 0 <= place < len(op.types) else 0

    def _slices(self, name: str, unit: Unit, arguments: Sequence[object]) -> list[Result]:
        spaces = [unit.operands.get(number, ("", ""))[0] for number in range(len(arguments))]
        return results(self._programs.hlo, name, list(zip(spaces, arguments, strict=True)), self.memory)

    def _cores_at_work(self, unit: Unit, arguments: tuple[object, ...]) -> int:
        """How many cores of the chip work on a kernel: without a parallel dimension of its grid, only the first.

        The kernel is run as the second core has it, until it copies anything or ends.
        """
        chip = self._programs.chip
        if unit.name not in self.cores_of:
            machine = Machine(self._programs, self._scalar_inputs, start_up={"core index": 1})
            core = {a: 1 for a, allocation in self.addresses.fixed_smem.items() if allocation.role == "core index"}
            machine.memory.smem.update(self.memory.smem | core)
            machine.engine = Idle(chip, chip.constants, self._deadlock)
            try:
                machine._run_unit(machine._unit(unit.name), 0, arguments)
                self.cores_of[unit.name] = 1
            except (Refusal, Worked, CoresTalk, UndecidedBranch):  # whatever it is that the other core does
                self.cores_of[unit.name] = chip.cores
        return self.cores_of[unit.name]

    def at_loop_head(self, now: int) -> None:
        """The pipeline loop of a kernel begins another iteration."""
        unit = self._stack[-1]
        if unit.is_kernel:
            self._steps.kernel(unit.name, unit.translated).head(now, self.engine.hbm_busy_cycles)

    def decide(self, condition: object, is_loop: bool) -> bool:
        """Which way a branch goes whose condition is not known. The length of a loop has no bound."""
        if not isinstance(condition, Unknown):
            raise NotExecutable("a branch on what is no truth value")
        if condition.given or is_loop:
            raise UnknownSteers(condition.origin)
        if self._take_undecided is None:
            raise UndecidedBranch
        return self._take_undecided

    def check(self, failed: object, address: int, index: int) -> None:
        """An assertion that the compiler planted; it stops the program if ``failed``."""
        if isinstance(failed, Unknown):
            self.not_modelled.add(Unmodelled.COMPUTED_ASSERTIONS)
        if failed is not True:
            return
        notes = self._instruction(address, index).notes
        status, words = _FAILED.get(notes.assertion, _FAILED["unknown"])
        raise Refusal(
            status,
            f"{self.where(address)}: the program would stop here with {' '.join(notes.text.split())[:300]!r}. "
            f"That is an assertion of the compiler's: {words}.",
        )

    def delay(self, cycles: int) -> int:
        """Cycles that a ``vdelay`` takes, its own bundle included."""
        if not 0 < cycles <= MOST_DELAY:
            raise NotExecutable(f"a delay of {cycles} cycles")
        return cycles

    def too_many_steps(self) -> None:
        raise self.refuse(0, f"more than {self._step_limit} basic blocks were executed: the program seems endless")

    # --- called by generated code: memory ---

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        """Waits until ``flag`` holds at least ``least``; returns the cycle."""
        between = self.engine.remote_wait_cycles
        until = self.engine.wait(now, flag, least, address)
        if until > now:
            wait = Waited(address, flag, self.engine.remote_wait_cycles > between)
            self._steps.waited(self._stack[-1].name, wait, until - now)
        return until

    def dma(  # noqa: PLR0913, PLR0917 - called by generated code, with one argument for each operand
        self,
        now: int,
        source: str,
        start: object,
        target: str,
        stop: object,
        granules: int,
        flag: int,
        strides: object,
        place: int = -1,
    ) -> None:
        if isinstance(granules, Unknown):
            raise UnknownSteers(granules.origin)  # the length of a copy has no bound
        if not 0 <= granules <= MOST_GRANULES:
            raise NotExecutable(f"a copy of {granules} granules")
        if self._log is not None:
            self._log.add(place, source, start, target, stop, granules)
        piece = 0  # in one piece, or unknown
        if isinstance(strides, tuple) and isinstance(strides[2], int):
            piece = max(0, strides[2]) * GRANULES_PER_ADDRESS
        other = flag >> _TO_BOTH & (1 << _TO_BOTH) - 1
        if other:  # XLA brings an operand to both cores at once
            self._start_for_both(now, source, target, granules, (flag & (1 << _TO_BOTH) - 1, other), piece)
        else:
            self.engine.start(now, source, target, granules, flag, piece)
        if (target == "smem" or self.memory) and not self._keeps(target, stop):
            known = start if strides is None else None
            self.memory.copy(source, known, target, stop, granules, lambda: self._brought(source, start))

    def general_dma(self, *operands: Any) -> None:
        """A DMA that may signal its source too when it has read all of it (flag 0 is a dummy)."""
        copy = GeneralDma(*operands)
        if not 0 <= copy.granules <= MOST_GRANULES:
            raise NotExecutable(f"a copy of {copy.granules} granules")
        if self._sends(copy):
            return
        if copy.target == "hbm" and not copy.overrides and self.sparse.named_by_copy(copy.flag):
            counts = self.addresses.flag(copy.flag >> 16)
            self.sparse.hand_over(copy, counts.prepared_op if counts else "")
            return
        self.dma(*copy[:7], "unknown", copy.place)
        if copy.source_flag & _FLAG:
            raise NotExecutable("a general DMA that signals its source")

    def _brought(self, space: str, start: object) -> Unknown:
        """What a copy to scalar memory brings, traced to the operand or parameter that it is."""
        name, arguments = self.calls[-1] if self.calls else ("", ())
        for number, where in enumerate(arguments):
            if isinstance(where, int) and self.memory.granule(space, where) == start:
                return operand_unknown(name, number)
        return Unknown(f"{space} contents copied to scalar memory at {start}", given=True)

    def peek_vmem(self, where: object, address: int) -> object:
        """First element of a vector load, if its value is known."""
        words = self.memory.read("vmem", where * GRANULES_PER_ADDRESS, 1) if isinstance(where, int) else None
        if words is not None:
            return words[0]
        return Unknown(f"a vector load at {self._stack[-1].translated.listing.where(address)}")

    def unknown(self, address: int) -> object:
        """A vector result moved to a scalar."""
        return Unknown(f"a vector result moved to a scalar at {self._stack[-1].translated.listing.where(address)}")

    def flag_set(self, now: int, flag: int, value: int) -> None:
        """Sets a sync flag."""
        self._await_arrivals(now)
        self.engine.set(now, flag, value)

    def wait_done(self, flag: int) -> None:
        """Waits for a sync flag that the program itself marked done before; no time passes.

        Since libtpu 0.0.52 a program marks the flag of its registry at its begin, and waits for it at its end.
        """
        if flag not in self.done:
            raise NotExecutable(f"a wait for the host to mark {self.addresses.flag_name(flag)} done")

    def wait_other(self, now: int, flag: int, value: int) -> None:
        """Waits for room in the queue of commands for the host, which is empty when a program starts."""
        if self.flag_value(now, flag) == value:
            raise NotExecutable(f"a wait for the host to move {self.addresses.flag_name(flag)}")

    def signal(self, now: int, word: int, amount: int) -> None:
        """Adds to a sync flag of another chip, or of a SparseCore."""
        word = self._on_this_chip(word)
        if self.addresses.sparse_core_flags and self.sparse.named(word):
            self.sparse.signal(now, word, amount)
        else:
            self._signal_chip(now, word, amount)

    def reset(self, word: int, value: int) -> None:
        """Sets a sync flag of a SparseCore."""
        word = self._on_this_chip(word)
        if not self.sparse.named(word):
            raise NotExecutable(f"a flag of another unit, {word:#x}, is set")
        self.sparse.reset(word, value)

    def flag_value(self, now: int, flag: int) -> int:
        """What a sync flag holds."""
        self._await_arrivals(now)
        return self.engine.value(now, flag)

    def parameter(self, number: int) -> int:
        """Address of an entry parameter."""
        parameters = self._programs.buffers.parameters
        if not 0 <= number < len(parameters):
            raise NotExecutable(f"the address of entry parameter {number} of {len(parameters)}")
        return parameters[number]

    # --- the other core of the chip: alone, a core takes it to be as far as itself ---

    def tell(self, now: int, word: object) -> None:
        """Pushes a word for the other core."""
        self._told = word

    def meet(self, now: int, address: int) -> object:
        """Waits for a word of the other core, and returns it; ``met`` becomes when it is there."""
        self.met = now
        return self._told

    def _start_for_both(
        self, now: int, source: str, target: str, granules: int, flags: tuple[int, int], piece: int
    ) -> None:
        """Starts a copy that arrives at the other core of the chip as well, with the second of the flags there."""
        raise CoresTalk

    # --- other chips, of which there are none ---

    def _await_arrivals(self, now: int) -> None:
        """Returns once everything is known that reaches this chip up to ``now``."""

    def _on_this_chip(self, word: int) -> int:
        """A signal's word without the number of this chip, where it names one of its SparseCores."""
        return word

    def _signal_chip(self, now: int, word: int, amount: int) -> None:
        if self._programs.chip.cores > 1 and word >> 14 in (2, 3):  # above 14 bits of flag: a core of this chip
            raise CoresTalk
        raise NotExecutable("a signal to a chip in a program for one chip")

    def _sends(self, copy: GeneralDma) -> bool:
        """Takes over a copy that names a chip; False for one that does not."""
        if copy.overrides and self._programs.chip.cores > 1:
            raise CoresTalk
        if copy.overrides & _TO_A_CHIP:
            raise NotExecutable("a copy to another chip in a program for one chip")
        return False

    def _keeps(self, space: str, granule: object) -> bool:
        """Whether what is known of that memory holds whatever is written there."""
        return False

    # --- messages ---

    def _deadlock(self, flag: int, value: int, least: int, address: int) -> Refusal:
        return Refusal(
            Status.DEADLOCK,
            f"{self.where(address)} waits for {self.addresses.flag_name(flag)} to reach {least}, "
            f"but it is at {value} and nothing is on its way: a copy is waited for that was never started.",
        )

    def where(self, address: int) -> str:
        unit = self._stack[-1]
        listing = unit.translated.listing
        source = next((i.notes.source for i in listing.bundles[address] if i.notes.source), None)
        where = f", {source.file}:{source.line}" if source else ""
        return f"{listing.where(address)}{where} ({self._programs.compiler})"

    def _instruction(self, address: int, index: int) -> Instruction:
        return self._stack[-1].translated.listing.bundles[address][index]

    def refuse(self, address: int, why: str) -> Refusal:
        where = self._stack[-1].translated.listing.where(address)
        return Refusal(Status.SCHEDULE_UNKNOWN, f"{where} ({self._programs.compiler}): {why}.")
