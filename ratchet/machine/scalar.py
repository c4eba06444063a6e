"""Scalar instructions of one bundle -> Python statements. Control flow between bundles is ``translate``'s.

Scalars are kept as signed 32-bit integers, predicates as booleans, both in variables named after the physical
register (``s5``, ``p3``). All reads of a bundle come before all its writes. Every operand names the value that the
compiler believes to be in the register, which is checked within a block.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Callable, Sequence

from ratchet.chips.units import is_vector_code
from ratchet.dump.bundles import Instruction

_PREDICATE = re.compile(r"\((!?)%(p\w+)\)")
_CONSTANT_PREDICATE = re.compile(r"\((!?)([01])\)")
_REGISTER = re.compile(r"^%(\w+?)_([sp]\d+)$")
_STORE = re.compile(r"\[vmem:\[([^\]]*)\] sm:\$0x[0-9a-f]+\](?! ss:)")
_PLACE = re.compile(r"^(#allocation\w+)(?: \+ (?:\$(0x[0-9a-f]+)|%(\w+)))?$")

M, H = "4294967295", "2147483648"


def _wrap(expression: str) -> str:
    return f"(({expression}) + {H} & {M}) - {H}"


# Scalar instructions with a result: operands are Python expressions. Loads, calls and the like are methods.
_EXPRESSIONS: dict[str, str] = {
    "sadd.s32": _wrap("{0} + {1}"),
    "ssub.s32": _wrap("{0} - {1}"),
    "smul.u32": _wrap("{0} * {1}"),
    "smulhi.u32": _wrap(f"({{0}} & {M}) * ({{1}} & {M}) >> 32"),
    "sand.u32": "{0} & {1}",
    "sor.u32": "{0} | {1}",
    "sxor.u32": "{0} ^ {1}",
    "sshll.u32": _wrap("{0} << ({1} & 31)"),
    "sshrl.u32": _wrap(f"({{0}} & {M}) >> ({{1}} & 31)"),
    "sshra.s32": "{0} >> ({1} & 31)",
    "smin.u32": _wrap(f"X.least({{0}} & {M}, {{1}} & {M})"),
    "smax.u32": _wrap(f"X.most({{0}} & {M}, {{1}} & {M})"),
    "smin.s32": "X.least({0}, {1})",
    "smax.s32": "X.most({0}, {1})",
    "smov": "{0}",
    "smov.u32": "{0}",
    "scalar_select": "({1} if {0} is True else {2} if {0} is False else {0})",  # unknown picks unknown
    "scalar_lea.hbm": _wrap("{0} + {1}"),
    "scalar_lea.vmem": _wrap("{0} + {1}"),
    "scalar_lea.smem": _wrap("{0} + {1}"),
    "scalar_lea.sflag": _wrap("{0} + {1}"),
    "sclz": "X.leading_zeros({0})",
    "sclz.u32": "X.leading_zeros({0})",  # the same in libtpu 0.0.51
    "scvt.s32.f32": "X.float_bits({0})",
    "scvt.f32.s32": "X.to_integer({0})",
    "sc.u32": f"({{0}} & {M}) + ({{1}} & {M}) > {M}",
    "por": "{0} | {1}",
    "pand": "{0} & {1}",
    "pnand": "({0} & {1}) ^ True",
    "pnor": "({0} | {1}) ^ True",
    "pxor": "{0} ^ {1}",
    "pneg": "{0} ^ True",
    "pmov": "{0} != 0",
    "scalar_parameter_address": "X.parameter({0})",
    "reloc": "{0}",
}
for _name in ("floor", "ceil"):
    _EXPRESSIONS[f"s{_name}.f32"] = f"X.rounded({_name!r}, {{0}})"
for _name in ("add", "sub", "mul", "min", "max"):
    _EXPRESSIONS[f"s{_name}.f32"] = f"X.float_operation({_name!r}, {{0}}, {{1}})"
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    _EXPRESSIONS[f"scmp.{_name}.s32.totalorder"] = f"{{0}} {_sign} {{1}}"
    _EXPRESSIONS[f"scmp.{_name}.u32.totalorder"] = f"({{0}} & {M}) {_sign} ({{1}} & {M})"
    _EXPRESSIONS[f"scmp.{_name}.f32.partialorder"] = f"X.as_float({{0}}) {_sign} X.as_float({{1}})"

_ALIASES = {"sphi", "pphi", "int_to_ptr.hbm", "int_to_ptr.vmem", "int_to_ptr.smem", "int_to_ptr.sflag"}

_NO_EFFECT = {
    "compiler-scheduling-barrier",
    "vtrace",  # a mark for the hardware's trace unit
    "vsettm",  # trace mask
    "sfence",
    "cfence",
}

_DMAS = {f"dma.{a}_to_{b}": (a, b) for a in ("hbm", "vmem", "smem") for b in ("hbm", "vmem", "smem")}

# Only on paths that the modelled start-up does not take; an error if one is reached.
_NOT_REACHED = {"vwait.ne", "vwait.ne.trace", "dma.smem_to_host_iova"}


class Untranslatable(Exception):
    """An instruction or operand that is not known."""


class ScalarCode:
    """Translates the bundles of one listing, in the order of their addresses within each block."""

    def __init__(self, bundles: Sequence[tuple[Instruction, ...]], place: Callable[[str], int]) -> None:
        self.place = place
        self.address = 0
        self.statements: list[str] = []
        self.known: dict[str, set[str]] = {}
        """Values that a physical register may hold, as far as the current block tells."""
        self.definitions: dict[str, Instruction] = {}
        self.pushed: set[str] = set()
        """Vector values that are pushed to the scalar side."""
        self.peeks = False
        """Whether one of them is loaded and pushed as it is: then what overwrites it has to be followed too."""
        self.maybe: set[str] = set()
        """Registers that some instruction writes under a predicate: they may be read without ever being written."""
        self.pointers: dict[str, str] = {}
        """Memory space that a pointer value points to."""
        for bundle in bundles:
            for instruction in bundle:
                if instruction.opcode.startswith(("int_to_ptr.", "scalar_lea.")):
                    self.pointers[instruction.dest.rpartition("_")[0]] = instruction.opcode.partition(".")[2]
                elif instruction.opcode == "vpush":
                    self.pushed.add(instruction.operands.strip().lstrip("%"))
        self.peeks = any(i.opcode == "vld" and i.dest in self.pushed for bundle in bundles for i in bundle)

    def begin_block(self) -> None:
        """Forgets what registers hold: a block may be entered from several places."""
        self.known = {}

    def bundle(
        self, bundle: tuple[Instruction, ...], address: int, offset: int, target: int | None
    ) -> tuple[list[str], bool]:
        """Statements for one bundle, and whether it holds a conditional branch (then ``B`` says if it is taken).

        Args:
            bundle: the instructions.
            address: bundle address, for messages of the generated code.
            offset: cycles since the block began; the generated code's ``T`` is the cycle at which it did.
            target: where the branch in this bundle goes, if it holds one.

        Raises:
            Untranslatable: with the instruction as second argument.
        """
        self.address, self.target, self.statements = address, target, []
        conditional = self._bundle(bundle, offset)
        return self.statements, conditional

    def _bundle(self, bundle: tuple[Instruction, ...], offset: int) -> bool:
        assigns: list[tuple[str, str, str, set[str]]] = []  # register, expression, predicate, registers read
        effects: list[tuple[str, str, set[str]]] = []  # statement, predicate, registers read
        aliases: list[Instruction] = []
        writes: list[tuple[str, str, bool]] = []  # register, value, certain
        conditional = False
        stores: list[tuple[str, str, set[str]]] = []
        for instruction in bundle:
            opcode = instruction.opcode
            if is_vector_code(opcode):
                if opcode == "vld" and instruction.dest in self.pushed:
                    self._capture(instruction, effects)
                elif self.peeks and opcode.partition(".")[0] == "vst":
                    self._overwrite(instruction, stores)
                continue
            if opcode in _NO_EFFECT:
                continue
            try:
                if opcode in _ALIASES and self._is_alias(instruction):
                    aliases.append(instruction)
                    continue
                conditional |= self._instruction(instruction, offset, assigns, effects, writes)
            except Untranslatable as error:
                raise Untranslatable(str(error), instruction) from None
        effects += stores  # what a bundle reads is as it was before
        targets = [register for register, *_ in assigns]
        read_late = set().union(*(reads for *_, reads in effects)) if effects else set()
        for i, (*_, reads) in enumerate(assigns):
            if reads.intersection(targets[:i]):
                read_late.update(reads)
        if read_late.intersection(targets):
            for i, (_, expression, predicate, _) in enumerate(assigns):
                if predicate:
                    yes, no, condition = _three_ways(predicate)
                    expression = f"{expression} if {yes} else None if {no} else {condition}"  # noqa: PLW2901
                self.statements.append(f"t{i} = {expression}")
            self._emit_effects(effects)
            for i, (register, _, predicate, _) in enumerate(assigns):
                if predicate:
                    self.maybe.add(register)
                self.statements.append(f"if t{i} is not None: {register} = t{i}" if predicate else f"{register} = t{i}")
        else:
            for register, expression, predicate, _ in assigns:
                if not predicate:
                    self.statements.append(f"{register} = {expression}")
                    continue
                self.maybe.add(register)
                yes, no, condition = _three_ways(predicate)
                self.statements.append(f"if {yes}: {register} = {expression}")
                self.statements.append(f"elif not ({no}): {register} = {condition}")
            self._emit_effects(effects)
        for register, value, certain in writes:
            if certain:
                self.known[register] = {value}
            elif register in self.known:
                self.known[register].add(value)
        for instruction in aliases:
            register = instruction.dest.rpartition("_")[2]
            value = instruction.dest.rpartition("_")[0]
            if register in self.known:
                self.known[register].add(value)
        return conditional

    def _emit_effects(self, effects: list[tuple[str, str, set[str]]]) -> None:
        for statement, predicate, _ in effects:
            self.statements.append((f"if {predicate}: " if predicate else "") + statement)

    def _is_alias(self, instruction: Instruction) -> bool:
        """True where source and destination share a register, so that nothing happens."""
        register = instruction.dest.rpartition("_")[2]
        sources = {r for _, r in re.findall(r"%(\w+?)_([sp]\d+)", instruction.operands)}
        if sources == {register}:
            return True
        if instruction.opcode in ("sphi", "pphi"):
            raise Untranslatable(f"a phi that would move between registers {sorted(sources)} and {register}")
        return False

    # --- instructions ---

    def _instruction(
        self,
        instruction: Instruction,
        offset: int,
        assigns: list[tuple[str, str, str, set[str]]],
        effects: list[tuple[str, str, set[str]]],
        writes: list[tuple[str, str, bool]],
    ) -> bool:
        opcode, dest, text, _ = instruction
        reads: set[str] = set()
        predicate = ""

        def assign(expression: str, register: str | None = None, when: str | None = None) -> None:
            value, _, of_dest = dest.rpartition("_")
            target = register or of_dest
            if not re.fullmatch(r"[sp]\d+|[xqf]\d+", target):
                raise Untranslatable(f"a result in {dest!r}, which is no scalar register")
            certain = not (predicate if when is None else when)
            assigns.append((target, expression, predicate if when is None else when, set(reads)))
            writes.append((target, value, certain))

        def effect(statement: str) -> None:
            effects.append((statement, predicate, set(reads)))

        if opcode.startswith("inlined_call_operand"):
            match = re.search(r"index: (\d+)", text)
            if match is None:
                raise Untranslatable("an operand without an index")
            assign(f"A[{match.group(1)}]")
            return False
        if opcode in ("smov", "smov.u32") and text.startswith("("):
            match = re.match(r"\((!?)%(\w+)(?:, %(\w+))?\), (.*)$", text)
            if match is None:
                raise Untranslatable("a predicated move of unknown form")
            negated, condition, old, new = match.groups()
            p = self._read("%" + condition, reads)
            value = self._operand(new, reads)
            if old is None:
                predicate = f"not {p}" if negated else p
                assign(value)
            else:
                other = self._read("%" + old, reads)
                yes, no = (other, value) if negated else (value, other)
                assign(f"({yes} if {p} is True else {no} if {p} is False else {p})")
            return False

        match = _CONSTANT_PREDICATE.search(text)
        if match is not None:
            if opcode == "sbr.rel":
                raise Untranslatable("a branch with a constant predicate")
            if (match.group(1) == "!") == (match.group(2) == "1"):
                return False  # never executed
            text = text[: match.start()] + text[match.end() :]
        match = _PREDICATE.search(text)
        if match is not None:
            predicate = self._read("%" + match.group(2), reads)
            predicate = f"not {predicate}" if match.group(1) else predicate
            text = text[: match.start()] + text[match.end() :]
        text = re.sub(r"\[(?:thread|resolvable):\$\w+\]", "", text).strip().lstrip(",").strip()

        if opcode == "sbr.rel":
            if predicate:
                effects.append((f"B = {_value_of(predicate)}", "", set(reads)))
                # Only a value that is not known has a class of its own; the machine decides, or refuses.
                is_loop = self.target is not None and self.target <= self.address
                effects.append((f"if B.__class__ is not bool: B = X.decide(B, {is_loop})", "", set()))
            return bool(predicate)
        if opcode == "shalt.err":
            message = " ".join(instruction.notes) or "no message"
            effects.append((f"X.check({_value_of(predicate) or True}, {message!r}, {self.address})", "", set(reads)))
            return False
        if opcode in _NOT_REACHED:
            effect(f"X.not_modelled({opcode!r}, {self.address})")
            return False
        if opcode == "sld":
            assign(f"sm[{self._memory(text, reads)}]")
            return False
        if opcode == "sst":
            match = re.match(r"(\[smem:\[.*?\]\])\s*,?\s*(.*)$", text)
            if match is None:
                raise Untranslatable("a scalar store of unknown form")
            where = self._memory(match.group(1), reads)
            value = self._operand(match.group(2), reads)
            if not predicate:
                effect(f"sm[{where}] = {value}")
                return False
            yes, no, condition = _three_ways(predicate)
            effects.append((f"sm[{where}] = {value}", yes, set(reads)))
            effects.append((f"sm[{where}] = {condition}", f"not ({yes} or {no})", set(reads)))
            return False
        if opcode in ("inlined_call", "call"):  # `call` jumps, beside arrays of 8 GiB; the few cycles are not modelled
            operands = [self._operand(part, reads) for part in _split(text)]
            note = instruction.notes[0] if instruction.notes else ""
            effect(f"T = X.call({note!r}, T + {offset}, ({''.join(o + ', ' for o in operands)})) - {offset}")
            return False
        if opcode in ("dma.done.wait", "vwait.ge", "vwait.ge.trace"):
            flag, least = self._operands(text, reads, 2)
            effect(f"T = wait(T + {offset}, {flag}, {least}, {self.address}) - {offset}")
            return False
        if opcode in ("vsyncadd", "vsyncpa"):
            flag, amount = self._operands(text, reads, 2)
            method = "flag_add" if opcode == "vsyncadd" else "flag_set"
            effect(f"X.{method}(T + {offset}, {flag}, {amount})")
            return False
        if opcode == "vsyncadd.remote":
            flag, amount = self._operands(text, reads, 2)
            effect(f"X.signal(T + {offset}, {flag}, {amount}, {self.address})")
            return False
        if opcode == "vsyncmov":
            (flag,) = self._operands(text, reads, 1)
            assign(f"X.flag_value(T + {offset}, {flag})", register=f"f{dest}")
            return False
        if opcode in ("vpop.sfrf", "spop.sfrf"):
            assign(f"f{text.lstrip('%')}")
            return False
        if opcode == "vpush":
            value = text.lstrip("%")
            held = f"x{_digits(value)}" if value in self.definitions else f"X.unknown({self.address})"
            assign(held, register=f"q{dest}")
            return False
        if opcode == "spop":
            assign(f"q{text.lstrip('%')}")
            return False
        if opcode == "sdivrem.u32":
            a, c = self._operands(text, reads, 2)
            effect(f"q{dest} = X.divide({a}, {c})")
            return False
        if opcode == "spop.drf":
            # The quotient is popped first, then the remainder.
            assign(f"q{text.lstrip('%')}.pop()")
            return False
        if opcode == "vdelay":
            (cycles,) = self._operands(text, reads, 1)
            effect(f"T += {cycles} - 1")  # the bundle itself is one of them
            return False
        if opcode in _DMAS or opcode == "dma.general":
            self._dma(opcode, text, offset, reads, effect)
            return False
        template = _EXPRESSIONS.get(opcode)
        if template is None and opcode in _ALIASES:
            template = "{0}"  # into another register: a move
        if template is None:
            raise Untranslatable("an instruction that is not known")
        wanted = 1 + max(int(n) for n in re.findall(r"\{(\d)\}", template))
        assign(template.format(*self._operands(text, reads, wanted)))
        return False

    def _dma(self, opcode: str, text: str, offset: int, reads: set[str], effect: Callable[[str], None]) -> None:
        named: dict[str, str] = {}
        for part in _split(text):
            name, equals, value = part.partition("=")
            if not equals:
                raise Untranslatable(f"a DMA operand {part!r} without a name")
            if name in named:
                name += "_2"
            named[name] = self._operand(value, reads)
        if opcode == "dma.general":
            self._general_dma(text, named, offset, effect)
            return
        source, target = _DMAS[opcode]
        allowed = {source, target, "size_in_granules", "dst_syncflagno", "src_stride", "dst_stride", "steps_per_stride"}
        if source == target:
            allowed = (allowed - {source}) | {f"src_{source}", f"dst_{source}", source, f"{source}_2"}
        unknown = set(named) - allowed
        missing = {"size_in_granules", "dst_syncflagno"} - set(named)
        if unknown or missing:
            raise Untranslatable(
                f"a DMA with operands {sorted(named)} (unknown {sorted(unknown)}, missing {sorted(missing)})"
            )
        start = named.get(source, "None")
        stop = named.get(target if source != target else f"{source}_2", "None")
        strides = "None"
        if "steps_per_stride" in named:
            strides = f"({named['src_stride']}, {named['dst_stride']}, {named['steps_per_stride']})"
        effect(
            f"dma(T + {offset}, {source!r}, {start}, {target!r}, {stop}, {named['size_in_granules']}, "
            f"{named['dst_syncflagno']}, {strides}, {self.address})"
        )

    def _general_dma(self, text: str, named: dict[str, str], offset: int, effect: Callable[[str], None]) -> None:
        """A DMA whose memories are told by its pointers, and whose strides lie in scalar memory."""
        wanted = {"src", "dst", "size_in_granules", "dst_syncflagno", "src_syncflagno", "stridedescaddr", "overrides"}
        if set(named) != wanted | {"dst_syncflagno_1"} or named["dst_syncflagno_1"] != "0":
            raise Untranslatable(f"a general DMA with operands {sorted(named)}")
        spaces = []
        for end in ("src", "dst"):
            match = re.search(rf"\b{end}=%(\w+?)_s\d+", text)
            space = self.pointers.get(match.group(1)) if match else None
            if space is None:
                raise Untranslatable(f"a general DMA whose {end} is in an unknown memory")
            spaces.append(space)
        effect(
            f"X.general_dma(T + {offset}, {spaces[0]!r}, {named['src']}, {spaces[1]!r}, {named['dst']}, "
            f"{named['size_in_granules']}, {named['dst_syncflagno']}, {named['src_syncflagno']}, "
            f"{named['overrides']}, {self.address})"
        )

    def _capture(self, instruction: Instruction, effects: list[tuple[str, str, set[str]]]) -> None:
        """A vector load whose first element is pushed to the scalar side: its value may be known."""
        match = re.match(r"\[vmem:\[([^\]]*)\]", instruction.operands)
        if match is None or _PREDICATE.search(instruction.operands):
            return
        reads: set[str] = set()
        try:
            where = self._memory(f"[vmem:[{match.group(1)}]]", reads)
        except Untranslatable:
            return
        self.definitions[instruction.dest] = instruction
        effects.append((f"x{_digits(instruction.dest)} = X.peek_vmem({where}, {self.address})", "", reads))

    def _overwrite(self, instruction: Instruction, effects: list[tuple[str, str, set[str]]]) -> None:
        """A vector store: what was known of VMEM there is known no more, whether its predicate holds or not."""
        match = _STORE.match(_PREDICATE.sub("", instruction.operands).strip().lstrip(",").strip())
        reads: set[str] = set()
        where = "None"
        if match is not None:
            with contextlib.suppress(Untranslatable):
                where = self._memory(f"[vmem:[{match.group(1)}]]", reads)
        effects.append((f"X.stored({where})", "", reads if where != "None" else set()))

    # --- operands ---

    def _operands(self, text: str, reads: set[str], count: int) -> list[str]:
        parts = _split(text)
        if len(parts) != count:
            raise Untranslatable(f"{len(parts)} operands where {count} were expected")
        return [self._operand(part, reads) for part in parts]

    def _operand(self, text: str, reads: set[str]) -> str:
        text = re.sub(r"(?<=\w) \[#allocation\w+\]$", "", text.strip())  # which allocation the address lies in
        text = re.sub(r"^\w+=", "", text)
        if text.startswith("%"):
            return self._read(text, reads)
        if re.fullmatch(r"-?\d+", text):
            value = int(text)
            return str((value + 2**31) % 2**32 - 2**31)
        if text.startswith("[#allocation"):
            return self._memory(text, reads)
        if re.fullmatch(r"-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)", text):
            return str(struct.unpack("<i", struct.pack("<f", float(text)))[0])
        raise Untranslatable(f"operand {text!r} is of unknown form")

    def _memory(self, text: str, reads: set[str]) -> str:
        inner = re.sub(r"^\[(?:[a-z]+:\[)?|\]+$", "", text.strip())
        match = _PLACE.match(inner)
        if match is not None:
            name, immediate, register = match.groups()
            try:
                base = self.place(name)
            except KeyError:
                raise Untranslatable(f"{name} is not among the allocations of the outline") from None
            if register:
                return f"{base} + {self._read('%' + register, reads)}"
            return str(base + int(immediate or "0", 16))
        terms = []
        for part in inner.split(" + "):
            terms.append(str(int(part[1:], 16)) if part.startswith("$0x") else self._operand(part, reads))
        return " + ".join(terms)

    def _read(self, text: str, reads: set[str]) -> str:
        match = _REGISTER.match(text)
        if match is None:
            raise Untranslatable(f"operand {text!r} is no scalar register")
        value, register = match.groups()
        names = self.known.get(register)
        if names is not None and value not in names:
            raise Untranslatable(f"register {register} is read as value {value} but holds {sorted(names)}")
        reads.add(register)
        return register


def _three_ways(predicate: str) -> tuple[str, str, str]:
    """Tests for a predicate being true, being false, and the register whose value may be unknown."""
    register = predicate.removeprefix("not ")
    if register == predicate:
        return f"{register} is True", f"{register} is False", register
    return f"{register} is False", f"{register} is True", register


def _value_of(predicate: str) -> str:
    """The predicate as an expression through which an unknown value passes."""
    register = predicate.removeprefix("not ")
    return register if register == predicate else f"{register} ^ True"


def _digits(value: str) -> str:
    return value.partition("_")[0].lstrip("v")


def _split(text: str) -> list[str]:
    """Operands at the top level: commas inside brackets do not part them."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts
