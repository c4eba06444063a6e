"""Scalar instructions of one bundle -> Python statements. Control flow between bundles is ``translate``'s.

Scalars are kept as signed 32-bit integers, predicates as booleans, both in variables named after the physical
register (``s5``, ``p3``). All reads of a bundle come before all its writes. Every operand names the value that the
compiler believes to be in the register, which is checked within a block.

The statements hold integers, and names made here from parsed registers: no text of a dump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ratchet.tpu.chips.units import is_vector_code
from ratchet.tpu.dump.columns import Columns
from ratchet.tpu.dump.instruction import Access, Address, Bundle, Immediate, Instruction, Register, Source, Value
from ratchet.tpu.dump.listing import ARGUMENT

NO_EFFECT = frozenset({"compiler-scheduling-barrier", "vtrace", "vsettm", "sfence", "cfence"})
"""Fences, and marks for the hardware's trace unit."""

ALIASES = frozenset(
    {
        *("sphi", "pphi", "int_to_ptr.hbm", "int_to_ptr.vmem", "int_to_ptr.smem", "int_to_ptr.sflag"),
        "int_to_ptr.sparse_core_sequencer_sflag",
    }
)
"""Nothing happens where source and destination share a register; into another one, the pointers are moves."""

BETWEEN_CORES = frozenset({"vpush.ccrf", "vpop.ccrf"})
"""Vector code by which the two cores of a chip wait for each other."""

_POINTERS = {
    f"{head}.{space}": space
    for head in ("int_to_ptr", "scalar_lea", ARGUMENT)
    for space in ("hbm", "vmem", "smem", "sflag")
}


class Untranslatable(Exception):
    """An instruction or operand that is not known."""


class Condition(NamedTuple):
    """A predicate register as tests of a value that may also be unknown."""

    register: str
    negated: bool

    @property
    def yes(self) -> str:
        return f"{self.register} is {not self.negated}"

    @property
    def no(self) -> str:
        return f"{self.register} is {self.negated}"

    @property
    def plain(self) -> str:
        """As the test of an ``if``; an unknown value raises there."""
        return f"not {self.register}" if self.negated else self.register

    @property
    def value(self) -> str:
        """As an expression through which an unknown value passes."""
        return f"{self.register} ^ True" if self.negated else self.register


class _Assignment(NamedTuple):
    register: str
    value: str
    expression: str
    condition: Condition | None
    reads: frozenset[str]


class _Effect(NamedTuple):
    statement: str
    test: str
    reads: frozenset[str]


class Event(NamedTuple):
    """Something of the author's that is counted: a copy started, a wait, a branch or a loop's branch back."""

    kind: str
    """``copy``, ``wait``, ``branch``, ``branch taken``, ``loop`` or ``loop taken``."""
    source: Source
    block: int | None
    """The basic block whose executions are those of the event; None where the event has a counter of its own."""


class Emitter:
    """Translates the bundles of one listing, in the order of their addresses within each block.

    A rule (:mod:`ratchet.tpu.machine.rules`) sees ``instruction``, where it is, and ``condition``, and calls
    :meth:`operand`, :meth:`assign` and :meth:`effect`.
    """

    def __init__(
        self,
        columns: Columns,
        addresses: Mapping[str, int],
        spaces: Mapping[str, str],
        rules: Mapping[str, Callable[[Emitter], None]],
    ) -> None:
        """``addresses`` are those of the allocations, in units of their memory; ``spaces`` those memories."""
        self.maybe: set[str] = set()
        """Registers that some instruction writes under a predicate: they may be read without ever being written."""
        self.pointers: dict[str, str] = {}
        """Memory that a pointer value points to, by value."""
        self.address = self.index = self.offset = 0
        """Bundle, place in the bundle, and cycles since the block began, of the instruction in hand."""
        self.taken: int | None = None
        """Event that a branch taken counts as."""
        self.instruction: Instruction
        self.condition: Condition | None = None
        """Under which the instruction in hand happens."""
        self.block = 0
        """Number of the basic block in hand."""
        self.events: list[Event] = []
        """Events with a source line; the generated code counts those without a block in ``E``."""
        self.captured: set[str] = set()
        """Vector values whose first element may be known."""
        self._addresses = addresses
        self._rules = rules
        self._known: dict[str, set[str]] = {}
        """Values that a physical register may hold, as far as the current block shows."""
        self.pushed: set[str] = set()
        """Vector values that are pushed to the scalar side."""
        for number in columns.with_opcode(lambda opcode: opcode in _POINTERS or opcode in ("smov", "vpush")):
            instruction = columns.instruction(number)
            if instruction.opcode in _POINTERS:
                self.pointers[instruction.makes] = _POINTERS[instruction.opcode]
            elif instruction.opcode == "smov" and len(instruction.form.allocations) == 1:
                self.pointers[instruction.makes] = spaces.get(instruction.form.allocations[0], "")
            elif instruction.opcode == "vpush" and instruction.form.predicate is None:
                self.pushed.update(instruction.reads)
        if "dma.general" in columns.opcodes:
            self._follow_pointers(columns)
        # If one of them is loaded and pushed as it is, then what overwrites it has to be followed too.
        loads = columns.with_opcode("vld".__eq__) if self.pushed else ()
        self._peeks = any(columns.instruction(number).makes in self.pushed for number in loads)
        self._inert = frozenset(opcode for opcode in columns.opcodes if self._is_inert(opcode))
        """Opcodes of which nothing is translated: nearly all of a large kernel's instructions."""
        followed = columns.with_opcode(lambda opcode: opcode not in self._inert)
        self.addresses = sorted(columns.addresses(followed))
        """Of the bundles that are not all inert, in order."""

    def _follow_pointers(self, columns: Columns) -> None:
        """A pointer that was moved, or spilled and loaded again, points to the same memory."""
        moves = columns.with_opcode(lambda opcode: opcode in ("smov", "sst", "sld"))
        instructions = [one for one in map(columns.instruction, moves) if one.opcode == "sst" or not one.predicate]
        known = -1
        while known < len(self.pointers):
            known, spilled = len(self.pointers), dict[str, set[str]]()
            for one in instructions:
                values = [operand.value for operand in one.operands]
                slot = _spill_slot(values[0])
                if one.opcode == "sst" and slot and isinstance(values[1], Register):
                    spilled.setdefault(slot, set()).add(self.pointers.get(values[1].name, ""))
                elif one.opcode == "smov" and isinstance(values[0], Register) and values[0].name in self.pointers:
                    self.pointers.setdefault(one.makes, self.pointers[values[0].name])
            for one in instructions:
                spaces = spilled.get(_spill_slot(one.operands[0].value), set())
                if one.opcode == "sld" and len(spaces) == 1 and "" not in spaces:
                    self.pointers.setdefault(one.makes, next(iter(spaces)))

    def begin_block(self, number: int) -> None:
        """Forgets what registers hold: a block may be entered from several places."""
        self.block = number
        self._known = {}

    def bundle(self, bundle: Bundle, address: int, offset: int) -> tuple[list[str], bool]:
        """Statements for one bundle, and whether it holds a conditional branch (then ``B`` says if it is taken).

        ``address`` is the bundle's, ``offset`` the cycles since the block began, which the generated code did at ``T``.

        Raises:
            Untranslatable: with the instruction as second argument.
        """
        self.address, self.offset = address, offset
        self._branches = False
        placed = [one for one in enumerate(bundle) if one[1].opcode not in self._inert]
        # What the caller left in registers is there before the bundle, which may overwrite one that nobody reads.
        arguments = self._together([one for one in placed if one[1].form.argument])
        return arguments + self._together([one for one in placed if not one[1].form.argument]), self._branches

    def _together(self, instructions: Sequence[tuple[int, Instruction]]) -> list[str]:
        """Statements for instructions that happen at once, each with its place in the bundle."""
        self._assigns: list[_Assignment] = []
        self._effects: list[_Effect] = []
        self._late: list[_Effect] = []
        aliases = []
        for self.index, self.instruction in instructions:
            opcode = self.instruction.opcode
            self._reads: set[str] = set()
            if is_vector_code(opcode):
                self.condition = None
                (self._rules.get(opcode) or self._rules[opcode.partition(".")[0]])(self)
            elif (opcode in ALIASES and self._is_alias()) or self._is_named_anew():
                aliases.append(self.instruction)
            else:
                try:
                    self._scalar(opcode)
                except Untranslatable as error:
                    raise Untranslatable(str(error), self.instruction) from None
        statements = self._statements()
        self._remember(aliases)
        return statements

    def _remember(self, aliases: Sequence[Instruction]) -> None:
        """Which values registers may hold behind the bundle."""
        for register, value, _, condition, _ in self._assigns:
            if condition is None:
                self._known[register] = {value}
            elif register in self._known:
                self._known[register].add(value)
        for instruction in aliases:
            if instruction.register in self._known:
                self._known[instruction.register].add(instruction.makes)

    # --- what rules use ---

    def values(self, count: int) -> list[Value]:
        """All operands. Raises Untranslatable unless there are ``count``."""
        operands = self.instruction.operands
        if len(operands) != count:
            raise Untranslatable(f"{len(operands)} operands where {count} were expected")
        return [operand.value for operand in operands]

    def operands(self, count: int) -> list[str]:
        """The same as expressions."""
        return [self.operand(value) for value in self.values(count)]

    def operand(self, value: Value) -> str:
        """An operand as an expression."""
        if isinstance(value, Register):
            return self.read(value)
        if isinstance(value, Immediate):
            return str(value.word)
        if isinstance(value, Address):
            return self.place(value)
        raise Untranslatable(f"operand {value!r} is of unknown form")

    def place(self, address: Address[Register]) -> str:
        """An address as an expression."""
        base = address.offset
        if address.allocation:
            if address.allocation not in self._addresses:
                raise Untranslatable(f"{address.allocation} is in a memory that is not known")
            base += self._addresses[address.allocation]
        terms = [self.read(register) for register in address.registers]
        if base or not terms:
            terms.insert(0, str(base))
        return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]

    def access(self, value: Value, space: str) -> str:
        """The address of a load or store in ``space`` as an expression."""
        if not isinstance(value, Access) or value.space != space:
            raise Untranslatable(f"operand {value!r} is no access to {space}")
        return self.place(value.address)

    def read(self, register: Register) -> str:
        """A scalar or predicate register as an expression."""
        if register.bank not in ("s", "p") or register.number is None:
            raise Untranslatable(f"operand {register.name} is no scalar register")
        name = f"{register.bank}{register.number}"
        held = self._known.get(name)
        if held is not None and register.name not in held:
            raise Untranslatable(f"register {name} is read as value {register.name} but holds {sorted(held)}")
        self._reads.add(name)
        return name

    def queue(self, letter: str, value: Value) -> str:
        """The variable of a queue entry: ``q10``."""
        if not isinstance(value, Register) or value.number is not None or value.bank:
            raise Untranslatable(f"operand {value!r} is no entry of a queue")
        return f"{letter}{value.value}"

    def made(self, letter: str) -> str:
        """The variable of the queue entry that the instruction makes."""
        return self.queue(letter, self.instruction.dest)

    def assign(self, expression: str, variable: str = "", *, always: bool = False) -> None:
        """Writes the result, or a variable of a queue; ``always`` if the condition is part of the expression."""
        if not variable:
            dest = self.instruction.dest
            if dest.bank not in ("s", "p") or dest.number is None:
                raise Untranslatable(f"a result in {dest.name}, which is no scalar register")
            variable = f"{dest.bank}{dest.number}"
        condition = None if always else self.condition
        self._assigns.append(
            _Assignment(variable, self.instruction.makes, expression, condition, frozenset(self._reads))
        )

    def effect(self, statement: str, test: str | None = None, *, late: bool = False) -> None:
        """Does something under the instruction's condition, or under ``test``; ``late``: behind all others."""
        if test is None:
            test = self.condition.plain if self.condition else ""
        (self._late if late else self._effects).append(_Effect(statement, test, frozenset(self._reads)))

    def event(self, kind: str) -> None:
        """Counts the instruction in hand if it has a source line."""
        source = self.instruction.notes.source
        if source is None:
            return
        if self.condition is None:
            self.events.append(Event(kind, source, self.block))
            return
        self.effect(f"E[{len(self.events)}] += 1")
        self.events.append(Event(kind, source, None))

    def branch(self, condition: Condition) -> None:
        """``B`` becomes whether the branch is taken."""
        self._branches = True
        source, target = self.instruction.notes.source, self.instruction.form.target
        is_loop = target is not None and target <= self.address
        self.taken = None
        if source is not None and target is not None:
            kind = "loop" if is_loop else "branch"
            self.taken = len(self.events)
            self.events += [Event(f"{kind} taken", source, None), Event(kind, source, self.block)]
        self.effect(f"B = {condition.value}", "")
        # Only a value that is not known has a class of its own; the machine decides, or refuses.
        self.effect(f"if B.__class__ is not bool: B = X.decide(B, {is_loop})", "")

    # --- one instruction ---

    def _scalar(self, opcode: str) -> None:
        rule = self._rules.get(ARGUMENT if self.instruction.form.argument else opcode)
        if rule is None:
            raise Untranslatable("an instruction that is not known")
        self.condition = None
        predicate = self.instruction.predicate
        if predicate is not None:
            if isinstance(predicate.holds, bool):
                if opcode == "sbr.rel":
                    raise Untranslatable("a branch with a constant predicate")
                if predicate.holds == predicate.negated:
                    return  # never executed
            else:
                self.condition = Condition(self.read(predicate.holds), predicate.negated)
                if predicate.otherwise is not None and opcode not in ("smov", "smov.u32"):
                    raise Untranslatable("a predicate with an alternative")
        rule(self)

    def _is_alias(self) -> bool:
        """True where source and destination share a register, so that nothing happens."""
        register = self.instruction.register
        sources = {name for name in self.instruction.registers if name and name[0] in "sp"}
        if sources == {register}:
            return True
        if self.instruction.opcode in ("sphi", "pphi"):
            raise Untranslatable(
                f"a phi that would move between registers {sorted(sources)} and {register}", self.instruction
            )
        return False

    def _is_named_anew(self) -> bool:
        """True for a move of what the bundle makes itself to where that is, as the compiler's own spills have."""
        one = self.instruction
        if one.opcode != "smov" or one.form.predicate is not None or one.registers != (one.register,):
            return False
        return any(made.value == one.reads[0] and made.condition is None for made in self._assigns)

    def _is_inert(self, opcode: str) -> bool:
        """Whether instructions of this opcode do nothing that is followed. Of vector code some loads and stores are."""
        if not is_vector_code(opcode):
            return opcode in NO_EFFECT
        if opcode in BETWEEN_CORES:
            return False
        return not ((opcode == "vld" and self.pushed) or (opcode.partition(".")[0] == "vst" and self._peeks))

    # --- the bundle as statements ---

    def _statements(self) -> list[str]:
        assigns, effects = self._assigns, self._effects + self._late
        targets = [assign.register for assign in assigns]
        read_late = frozenset[str]().union(*(effect.reads for effect in effects))
        for number, assign in enumerate(assigns):
            if assign.reads.intersection(targets[:number]):
                read_late |= assign.reads
        self.maybe.update(assign.register for assign in assigns if assign.condition)
        happening = [(f"if {effect.test}: " if effect.test else "") + effect.statement for effect in effects]
        if read_late.isdisjoint(targets):
            return [line for assign in assigns for line in _at_once(assign)] + happening
        before, after = [], []
        for number, (register, _, expression, condition, _) in enumerate(assigns):
            if condition is None:
                before.append(f"t{number} = {expression}")
                after.append(f"{register} = t{number}")
            else:
                either = f"{expression} if {condition.yes} else None if {condition.no} else {condition.register}"
                before.append(f"t{number} = {either}")
                after.append(f"if t{number} is not None: {register} = t{number}")
        return before + happening + after


def _spill_slot(where: Value) -> str:
    """The allocation of an access to a spilled scalar; ``""`` for any other."""
    slot = where.address.allocation if isinstance(where, Access) else None
    return slot if slot and slot.endswith("_spill") else ""


def _at_once(assign: _Assignment) -> list[str]:
    register, _, expression, condition, _ = assign
    if condition is None:
        return [f"{register} = {expression}"]
    return [
        f"if {condition.yes}: {register} = {expression}",
        f"elif not ({condition.no}): {register} = {condition.register}",
    ]
