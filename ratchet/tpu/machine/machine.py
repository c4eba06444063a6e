"""The schedule machine: executes a compiled program's scalar control flow, DMAs and sync flags -> Record.

Time is counted in bundles: one address of the post-register-allocation listing is one cycle, and only waits for
DMAs add to that. The latency is *modelled*: what it leaves out is said in ``Record.not_modelled``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import MOST_DELAY
from ratchet.tpu.dump.outline import PARAMETERS
from ratchet.tpu.machine.addresses import GRANULES_PER_ADDRESS
from ratchet.tpu.machine.arithmetic import Arithmetic
from ratchet.tpu.machine.assertions import meaning
from ratchet.tpu.machine.dma import GRANULE_BYTES, DmaEngine, Ends, Idle, Worked
from ratchet.tpu.machine.grid_steps import GridSteps
from ratchet.tpu.machine.inputs import Inputs, ScalarInputs, operand_unknown
from ratchet.tpu.machine.known import WORDS_PER_GRANULE, KnownMemory
from ratchet.tpu.machine.peers import Alone, GeneralDma, Peers
from ratchet.tpu.machine.programs import Programs, Unit
from ratchet.tpu.machine.record import OpRun, Record
from ratchet.tpu.machine.sparse_cores import SparseCoreError, SparseCoreUnits
from ratchet.tpu.machine.unknown import UndecidedBranch, Unknown, UnknownSteers
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Refusal, Status

_FLAG = (1 << 13) - 1
"""Bits of a sync flag's number; above them is the core on chips that have two."""
MOST_GRANULES = 1 << 32
"""No copy is larger: memories of a TPU hold fewer granules of 32 B."""

SUBLANES = 8
"""Rows of 512 B that one vector store reaches."""

KEPT_RUNS = 20_000
"""Executions of HLO ops kept at each end of a run."""

PATIENCE = 200_000_000
"""Basic blocks that a program may execute before the machine calls it endless."""
PATIENCE_UNDECIDED = 5_000_000
"""The same where branches on unknown values are all taken one way, which may never end."""


class Machine(Arithmetic):
    """One run of one program. The generated code calls its public methods."""

    def __init__(
        self,
        programs: Programs,
        chip: Chip,
        scalar_inputs: ScalarInputs,
        peers: Peers,
        *,
        take_undecided: bool | None = None,
    ) -> None:
        """Prepares a run.

        Args:
            programs: the listings, with the HLO that they were compiled from.
            chip: that runs.
            scalar_inputs: what steers, see :func:`ratchet.tpu.machine.run.run`.
            peers: the other chips.
            take_undecided: which way branches go whose condition vector code computes; None raises
                :class:`UndecidedBranch` there.
        """
        self.smem: dict[int, object] = {}
        self.unwritten = Unknown("a register that nothing wrote on this path")
        self.engine = DmaEngine(chip, chip.constants, self._deadlock)
        """DMA queues and sync flags."""
        self._done: set[int] = set()
        """Sync flags that the program marked done."""
        self.sparse = SparseCoreUnits(chip, programs.hlo, self.engine)
        """The SparseCores that the program hands work to."""
        self.known = KnownMemory()
        """What is known of HBM and VMEM."""
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        """HLO instructions that are being executed, innermost last, with their arguments."""
        self._programs = programs
        self._addresses = programs.addresses
        self._peers = peers
        self._units: dict[str, Unit] = {}
        self._by_call: dict[str, tuple[str, Unit]] = {}
        self._stack: list[Unit] = []
        self._steps = GridSteps()
        self._chip = chip
        self._scalar_inputs = scalar_inputs
        self._cores_of: dict[str, int] = {}
        """Per kernel, how many cores of the chip work on it."""
        self._op_runs = Ends(KEPT_RUNS)
        self._op_cycles: dict[str, list[int]] = {}
        self._not_modelled: set[Unmodelled] = set()
        self._take_undecided = take_undecided
        self._most_blocks = PATIENCE if take_undecided is None else PATIENCE_UNDECIDED
        self.patience = itertools.repeat(None, self._most_blocks)
        self._inputs = Inputs(programs.hlo, scalar_inputs, self.known, chip.hbm_address_bytes)
        self._per_address = {"hbm": chip.hbm_address_bytes // GRANULE_BYTES}
        """DMA granules per address step, where that is not the one of VMEM."""
        peers.attach(self)

    def execute(self) -> Record:
        """Runs the program from its top level; returns what happened."""
        cycles = self._run_unit(self._unit(TOP), 0, ())
        return Record(
            cycles=cycles,
            units={name: (unit.translated, unit.is_kernel) for name, unit in self._units.items()},
            op_cycles={name: (runs, total) for name, (runs, total) in self._op_cycles.items()},
            op_runs=self._op_runs,
            opcodes={name: op.opcode for name, op in self._programs.hlo.ops.items()},
            unit_of_op={name: unit.name for name, unit in self._by_call.values()},
            steps=self._steps,
            memory=self.engine,
            chip_index=self._peers.number,
            flag_name=self._addresses.flag_name,
            op_of_flag=self._addresses.awaited_op,
            not_modelled=tuple(one for one in Unmodelled if one in self._not_modelled),
        )

    # --- preparation ---

    def _unit(self, name: str) -> Unit:
        unit = self._units.get(name)
        if unit is None:
            unit = self._units[name] = self._programs.unit(name)
            for address, allocation in self._addresses.fixed_smem.items():
                value = self._addresses.start_up_value(allocation, self._inputs.output, self._peers.start_up)
                if value is not None:
                    self.smem.setdefault(address, value)
            self._place_parameters()
            if name == TOP:
                self.sparse.done_flags = self._addresses.sparse_core_flags
                self._peers.begin(unit)
        return unit

    def _place_parameters(self) -> None:
        """Pointers to the parameters, which the runtime keeps downwards from that of the first."""
        for address, allocation in self._addresses.fixed_smem.items():
            if allocation.role == PARAMETERS:
                for number, where in enumerate(self._inputs.parameters):
                    self.smem.setdefault(address - number, where)

    def _run_unit(self, unit: Unit, now: int, arguments: tuple[object, ...]) -> int:
        address_of = unit.translated.address_of
        self._stack.append(unit)
        try:
            end = unit.translated.run(now, arguments, self, unit.translated.counts, unit.translated.event_counts)
        except UnknownSteers as error:
            raise self.refuse(
                address_of(error.__traceback__),
                f"control flow or an address depends on {error}, which the machine does not know",
                unit,
            ) from None
        except (UnboundLocalError, NameError) as error:
            raise self.refuse(
                address_of(error.__traceback__), f"a register is read before it is written ({error})", unit
            ) from None
        except KeyError as error:
            word = error.args[0]
            known = self._addresses.fixed_smem.get(word) if isinstance(word, int) else None
            what = f"the runtime's {known.tag!r}" if known else f"scalar memory word {word!r}, never written"
            raise self.refuse(address_of(error.__traceback__), f"a load from {what}", unit) from None
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise self.refuse(
                address_of(error.__traceback__), f"something that cannot be executed ({error})", unit
            ) from None
        self._stack.pop()
        return end

    # --- called by generated code: control ---

    def call(self, address: int, index: int, now: int, arguments: tuple[object, ...]) -> int:
        """Runs the program that an ``inlined_call`` or ``call`` names in its comment; returns the cycle after it."""
        name = self._instruction(address, index).notes.called
        called = self._by_call.get(name)
        if called is None:
            if not name:
                raise self.refuse(address, "a call that does not say of what")
            called = self._by_call[name] = (name, self._unit(self._programs.resolve(name)))
        name, unit = called
        if unit.is_kernel or self.known:
            arguments = self._give_operands(name, unit, arguments)
        self.calls.append((name, arguments))
        if unit.is_kernel:
            self._steps.kernel(unit.name, unit.translated).begin(now, self.engine.hbm_busy_cycles)
            if self._chip.cores > 1:
                self.engine.shared_by(self._cores_at_work(unit, arguments))
        end = self._run_unit(unit, now, arguments)
        if unit.is_kernel and self._chip.cores > 1:
            self.engine.shared_by(self._chip.cores)
        if unit.is_kernel:
            self._steps.kernel(unit.name, unit.translated).end(end, self.engine.hbm_busy_cycles)
        self.calls.pop()
        total = self._op_cycles.setdefault(name, [0, 0])
        total[0] += 1
        total[1] += end - now
        self._op_runs.add(OpRun(name, now, end))
        return end

    def _give_operands(self, name: str, unit: Unit, arguments: tuple[object, ...]) -> tuple[object, ...]:
        given = list(arguments)
        for number, (space, kind) in unit.operands.items():
            words = self._inputs.operand_words(name, number) if kind == "input" else None
            where = given[number]
            if words is not None:
                if not space:
                    given[number] = words[0]
                elif space == "smem" and isinstance(where, int):
                    self.smem.update({where + i: word for i, word in enumerate(words)})
                elif isinstance(where, int):
                    self.known.write(space, self._granule(space, where), words)
            elif not space and unit.is_kernel and isinstance(where, Unknown) and not where.given:
                given[number] = operand_unknown(name, number)
            elif kind == "output" and space in ("hbm", "vmem") and isinstance(where, int):
                self.known.forget(space, self._granule(space, where), 1)
        return tuple(given)

    def _cores_at_work(self, unit: Unit, arguments: tuple[object, ...]) -> int:
        """How many cores of the chip work on a kernel: without a parallel dimension of its grid, only the first.

        The kernel is run as the second core has it, until it copies anything or ends.
        """
        if unit.name not in self._cores_of:
            machine = Machine(self._programs, self._chip, self._scalar_inputs, Alone(core=1))
            core = {a: 1 for a, allocation in self._addresses.fixed_smem.items() if allocation.role == "core index"}
            machine.smem = {**self.smem, **core}
            machine.engine = Idle(self._chip, self._chip.constants, self._deadlock)
            try:
                machine._run_unit(machine._unit(unit.name), 0, arguments)
                self._cores_of[unit.name] = 1
            except (Refusal, Worked, UndecidedBranch):  # whatever it is that the other core does
                self._cores_of[unit.name] = self._chip.cores
        return self._cores_of[unit.name]

    def at_loop_head(self, now: int) -> None:
        """The pipeline loop of a kernel begins another iteration."""
        unit = self._stack[-1]
        if unit.is_kernel:
            self._steps.kernel(unit.name, unit.translated).head(now, self.engine.hbm_busy_cycles)

    def decide(self, condition: Unknown, is_loop: bool) -> bool:
        """Which way a branch goes whose condition is not known. The length of a loop has no bound."""
        if condition.given or is_loop:
            raise UnknownSteers(condition.origin)
        if self._take_undecided is None:
            raise UndecidedBranch
        return self._take_undecided

    def check(self, failed: object, address: int, index: int) -> None:
        """An assertion that the compiler planted; it stops the program if ``failed``."""
        if isinstance(failed, Unknown):
            self._not_modelled.add(Unmodelled.COMPUTED_ASSERTIONS)
        if failed is not True:
            return
        notes = self._instruction(address, index).notes
        status, words = meaning(notes.assertion)
        raise Refusal(
            status,
            f"{self.where(address)}: the program would stop here with {' '.join(notes.text.split())[:300]!r}. "
            f"That is an assertion of the compiler's: {words}.",
        )

    def delay(self, cycles: int, address: int) -> int:
        """Cycles that a ``vdelay`` takes, its own bundle included."""
        if not 0 < cycles <= MOST_DELAY:
            raise self.refuse(address, f"a delay of {cycles} cycles")
        return cycles

    def lost_patience(self) -> None:
        raise self.refuse(0, f"more than {self._most_blocks} basic blocks were executed: the program seems endless")

    # --- called by generated code: memory ---

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        """Waits until ``flag`` holds at least ``least``; returns the cycle."""
        self._peers.before_wait(now, flag, least, address)
        until = self.engine.wait(now, flag, least, address)
        self._peers.after_wait(self._stack[-1], address, until)
        if until > now:
            self._steps.waited(self._stack[-1].name, address, flag, until - now)
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
        address: int,
    ) -> None:
        if isinstance(granules, Unknown):
            raise UnknownSteers(granules.origin)  # the length of a copy has no bound
        if not 0 <= granules <= MOST_GRANULES:
            raise self.refuse(address, f"a copy of {granules} granules")
        self.engine.start(now, source, target, granules, flag, _contiguous(strides))
        if target == "smem" or self.known:
            self._move(source, start, target, stop, granules, strides)

    def general_dma(  # noqa: PLR0913, PLR0917 - called by generated code, with one argument for each operand
        self,
        now: int,
        source: str,
        start: object,
        target: str,
        stop: object,
        granules: int,
        flag: int,
        source_flag: int,
        overrides: int,
        address: int,
    ) -> None:
        """A DMA that may signal its source too when it has read all of it (flag 0 is a dummy)."""
        if not 0 <= granules <= MOST_GRANULES:
            raise self.refuse(address, f"a copy of {granules} granules")
        copy = GeneralDma(now, source, start, target, stop, granules, flag, source_flag, overrides, address)
        if self._peers.general_dma(copy):
            return
        if target == "hbm" and not overrides and self.sparse.named_by_copy(flag):
            with self._sparse_core(address):
                self.sparse.hand_over(copy, self._addresses.prepared_op(flag >> 16))
            return
        self.dma(now, source, start, target, stop, granules, flag, "unknown", address)
        if source_flag & _FLAG:
            raise self.refuse(address, "a general DMA that signals its source")

    def _move(self, source: str, start: object, target: str, stop: object, granules: int, strides: object) -> None:
        """Follows known contents through a DMA."""
        if self._peers.keeps(target, stop):
            return
        if not isinstance(stop, int):
            self.forget(target, stop)
            return
        words = None
        if isinstance(start, int) and strides is None:
            if source == "smem":
                words = [
                    self.smem.get(start + i, Unknown("scalar memory")) for i in range(granules * WORDS_PER_GRANULE)
                ]
            else:
                words = self.known.read(source, start, granules)
        if target == "smem":
            if words is None:
                words = [self._unknown_contents(source, start)] * (granules * WORDS_PER_GRANULE)
            self.smem.update(zip(range(stop, stop + len(words)), words, strict=True))
        elif words is not None:
            self.known.write(target, stop, words)
        else:
            self.known.forget(target, stop, granules)

    def forget(self, space: str, where: object) -> None:
        """A DMA into ``space`` at an address that is not known: it may have overwritten anything there."""
        if space == "smem" and isinstance(where, Unknown):
            raise UnknownSteers(where.origin)
        self.known.forget_all(space)

    def _unknown_contents(self, space: str, start: object) -> Unknown:
        """What a copy to scalar memory brings, traced to the operand or parameter that it is."""
        name, arguments = self.calls[-1] if self.calls else ("", ())
        for number, where in enumerate(arguments):
            if isinstance(where, int) and self._granule(space, where) == start:
                return operand_unknown(name, number)
        return Unknown(f"{space} contents copied to scalar memory at {start}", given=True)

    def _granule(self, space: str, where: int) -> int:
        """Number of the DMA granule at an address."""
        return where * self._per_address.get(space, GRANULES_PER_ADDRESS)

    def peek_vmem(self, where: object, address: int) -> object:
        """First element of a vector load, if its value is known."""
        if isinstance(where, int):
            words = self.known.read("vmem", where * GRANULES_PER_ADDRESS, 1)
            if words is not None:
                return words[0]
        return Unknown(f"a vector load at {self._stack[-1].translated.listing.where(address)}")

    def stored(self, where: object) -> None:
        """A vector store of up to ``SUBLANES`` rows: what was known there is not any more."""
        if not self.known:
            return
        if isinstance(where, int):
            self.known.forget("vmem", where * GRANULES_PER_ADDRESS, SUBLANES * GRANULES_PER_ADDRESS)
        else:
            self.known.forget_all("vmem")

    def unknown(self, address: int) -> object:
        """A vector result moved to a scalar."""
        if self._peers.agrees(self._stack[-1], address):
            return 1
        return Unknown(f"a vector result moved to a scalar at {self._stack[-1].translated.listing.where(address)}")

    def flag_add(self, now: int, flag: int, amount: int) -> None:
        self.engine.add(flag, amount)

    def flag_set(self, now: int, flag: int, value: int) -> None:
        """Sets a sync flag."""
        self._peers.settle(now)
        self.engine.set(now, flag, value)

    def flag_set_done(self, now: int, flag: int, value: int) -> None:
        """Sets a sync flag and marks it done."""
        self.flag_set(now, flag, value)
        self._done.add(flag)

    def flag_set_not_done(self, now: int, flag: int, value: int) -> None:
        """Sets a sync flag that is not done until it is marked again."""
        self.flag_set(now, flag, value)
        self._done.discard(flag)

    def wait_done(self, flag: int, address: int) -> None:
        """Waits for a sync flag that the program itself marked done before; no time passes.

        Since libtpu 0.0.52 a program marks the flag of its registry when it begins. Its finalisation waits for that,
        and again after each command that the registry's mask has for the host. The program sets the mask to 0.
        """
        if flag not in self._done:
            raise self.refuse(address, f"a wait for the host to mark {self._addresses.flag_name(flag)} done")

    def wait_other(self, now: int, flag: int, value: int, address: int) -> None:
        """Waits for room in the queue of commands for the host, which is empty when a program starts."""
        if self.flag_value(now, flag) == value:
            raise self.refuse(address, f"a wait for the host to move {self._addresses.flag_name(flag)}")

    def signal(self, now: int, word: int, amount: int, address: int) -> None:
        """Adds to a sync flag of another chip, or of a SparseCore."""
        if self._addresses.sparse_core_flags and self.sparse.named(word):
            with self._sparse_core(address):
                self.sparse.signal(now, word, amount)
            return
        self._peers.signal(now, word, amount, address)

    def reset(self, word: int, value: int, address: int) -> None:
        """Sets a sync flag of a SparseCore."""
        if not self.sparse.named(word):
            raise self.refuse(address, f"a flag of another unit, {word:#x}, is set")
        with self._sparse_core(address):
            self.sparse.reset(word, value)

    @contextlib.contextmanager
    def _sparse_core(self, address: int) -> Iterator[None]:
        try:
            yield
        except SparseCoreError as error:
            raise self.refuse(address, str(error)) from None

    def flag_value(self, now: int, flag: int) -> int:
        """What a sync flag holds."""
        self._peers.settle(now)
        return self.engine.value(now, flag)

    def parameter(self, number: int) -> int:
        """Address of an entry parameter."""
        return self._inputs.parameters[number]

    # --- for peers and messages ---

    def leave_out(self, what: Unmodelled) -> None:
        """Notes that ``what`` is not modelled in this run."""
        self._not_modelled.add(what)

    def flag_name(self, flag: int) -> str:
        """A sync flag in words."""
        return self._addresses.flag_name(flag)

    def _deadlock(self, flag: int, value: int, least: int, address: int) -> Refusal:
        return Refusal(
            Status.DEADLOCK,
            f"{self.where(address)} waits for {self._addresses.flag_name(flag)} to reach {least}, "
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

    def refuse(self, address: int, why: str, unit: Unit | None = None) -> Refusal:
        where = (unit or self._stack[-1]).translated.listing.where(address)
        return Refusal(Status.SCHEDULE_UNKNOWN, f"{where} ({self._programs.compiler}): {why}.")


def _contiguous(strides: object) -> int:
    """Granules of a contiguous piece of a copy whose steps of 512 B are strided; 0 if it is in one piece or unknown."""
    if isinstance(strides, tuple) and isinstance(strides[2], int):
        return max(0, strides[2]) * GRANULES_PER_ADDRESS
    return 0
