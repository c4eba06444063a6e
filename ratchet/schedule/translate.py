"""Scalar code of a listing -> Python code that executes it.

Only scalar registers, predicates, scalar memory, sync flags, DMAs, branches and calls are executed.
Vector instructions take their cycle with the bundle they are in and are counted per block, not run.

Every basic block becomes straight Python over local variables named after the physical registers
(``s5``, ``p3``), so that reading a register that was never written is an ``UnboundLocalError``.
Scalars are kept as signed 32-bit integers. A branch has four delay slots that always execute; its
predicate is latched at the branch. Within a bundle all reads come before all writes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ratchet.schedule.bundles import Instruction, Listing
from ratchet.schedule.units import is_vector_code
from ratchet.status import Refusal, Status

DELAY_SLOTS = 4

Run = Callable[[int, tuple[object, ...], object, list[int]], int]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Bundles ``start`` to ``end`` (exclusive), always executed together."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Translated:
    """One listing, ready to be executed.

    ``run(T, A, X, C)`` takes the cycle it starts at, the values of its operands, the runtime
    (:class:`ratchet.schedule.machine.Runtime`) and ``counts``, and returns the cycle after its last bundle.
    """

    listing: Listing
    blocks: tuple[Block, ...]
    counts: list[int]
    """Executions per block; ``run`` counts them up."""
    run: Run
    addresses: tuple[int, ...]
    """Bundle address per line of the generated code, for messages."""
    loop_block: int | None
    """Index of the block that heads the pipeline loop over grid steps, if there is one."""


def translate(listing: Listing, *, place: Callable[[str], int], compiler: str, code_name: str) -> Translated:
    """Translates one listing.

    Args:
        listing: the parsed program.
        place: address of an ``#allocation`` in its space's unit (SMEM 4 B words, VMEM and HBM 512 B, sync flags 1).
        compiler: compiler version, for messages.
        code_name: name of the generated code in tracebacks.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an instruction or operand that is not known.
    """
    return _Translator(listing, place, compiler, code_name).translate()


_BRANCH = re.compile(r"target bundleno = (\d+) \((0x[0-9a-f]+)\)")
_PREDICATE = re.compile(r"\((!?)%(p\w+)\)")
_REGISTER = re.compile(r"^%(\w+?)_([sp]\d+)$")
_PLACE = re.compile(r"^(#allocation\w+)(?: \+ (?:\$(0x[0-9a-f]+)|%(\w+)))?$")

M, H = "4294967295", "2147483648"


def _wrap(expression: str) -> str:
    return f"(({expression}) + {H} & {M}) - {H}"


# Scalar instructions with a result: operands are Python expressions. Loads, calls and the like are methods.
_EXPRESSIONS: dict[str, str] = {
    "sadd.s32": _wrap("{0} + {1}"),
    "ssub.s32": _wrap("{0} - {1}"),
    "smul.u32": _wrap("{0} * {1}"),
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
    "scvt.s32.f32": "X.float_bits({0})",
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
}

_DMAS = {f"dma.{a}_to_{b}": (a, b) for a in ("hbm", "vmem", "smem") for b in ("hbm", "vmem", "smem")}

# Only on paths that the modelled start-up does not take; an error if one is reached.
_NOT_REACHED = {"vwait.ne.trace", "dma.smem_to_host_iova"}


class _Unknown(Exception):
    """Internal: this instruction cannot be translated."""


class _Translator:
    def __init__(self, listing: Listing, place: Callable[[str], int], compiler: str, code_name: str) -> None:
        self.listing = listing
        self.place = place
        self.compiler = compiler
        self.code_name = code_name
        self.lines: list[str] = []
        self.addresses: list[int] = []
        self.address = 0
        self.known: dict[str, set[str]] = {}
        self.definitions: dict[str, Instruction] = {}
        self.pushed: set[str] = set()
        self.loop_block: int | None = None
        self.pointers: dict[str, str] = {}

    def translate(self) -> Translated:
        bundles = self.listing.bundles
        branches: dict[int, int] = {}
        for address, bundle in enumerate(bundles):
            for instruction in bundle:
                opcode = instruction.opcode
                if opcode.startswith("sbr"):
                    self.address = address
                    branches[address] = self._branch_target(instruction)
                elif opcode.startswith("int_to_ptr."):
                    self.pointers[instruction.dest.rpartition("_")[0]] = opcode.partition(".")[2]
                elif opcode == "vpush":
                    self.pushed.add(instruction.operands.strip().lstrip("%"))
        blocks = self._find_blocks(branches)
        self.loop_block = self._pipeline_loop(blocks)
        index = {block.start: i for i, block in enumerate(blocks)}
        index[len(bundles)] = len(blocks)

        self._emit(0, "def run(T, A, X, C):")
        self._emit(1, "sm = X.smem; dma = X.dma; wait = X.wait")
        self._emit(1, "b = 0")
        self._emit(1, "for _ in X.patience:")
        self._dispatch(2, 0, len(blocks), blocks, index, branches)
        self._emit(1, "X.lost_patience()")
        source = "\n".join(self.lines)
        counts = [0] * len(blocks)
        scope: dict[str, Run] = {}
        exec(compile(source, self.code_name, "exec"), scope)  # our own code, made above from a closed set of forms
        return Translated(
            listing=self.listing,
            blocks=tuple(blocks),
            counts=counts,
            run=scope["run"],
            addresses=tuple(self.addresses),
            loop_block=self.loop_block,
        )

    # --- control flow ---

    def _branch_target(self, instruction: Instruction) -> int:
        match = _BRANCH.search(instruction.operands)
        if instruction.opcode != "sbr.rel" or match is None:
            raise self._refuse(instruction, "a branch of unknown form")
        target = int(match.group(1))
        if target > len(self.listing.bundles):
            raise self._refuse(instruction, "a branch to behind the end: the dump is cut off")
        return target

    def _find_blocks(self, branches: dict[int, int]) -> list[Block]:
        end = len(self.listing.bundles)
        leaders = {0}
        for address, target in branches.items():
            leaders.add(target)
            leaders.add(min(address + DELAY_SLOTS + 1, end))
        # Where the compiler's loop header label stands alone is a target too, so nothing more is needed.
        leaders.discard(end)
        ordered = sorted(leaders)
        blocks = []
        for i, start in enumerate(ordered):
            stop = ordered[i + 1] if i + 1 < len(ordered) else end
            branch = next((a for a in range(start, stop) if a in branches), None)
            if branch is not None:
                # Delay slots belong to the block even where another branch lands among them.
                stop = min(branch + DELAY_SLOTS + 1, end)
                inner = [a for a in range(branch + 1, stop) if a in branches]
                if inner:
                    self.address = inner[0]
                    raise self._refuse(None, "a branch in the delay slots of another")
            blocks.append(Block(start=start, end=stop))
        return blocks

    def _dispatch(  # noqa: PLR0917 recursive; all but two pass through
        self, depth: int, low: int, high: int, blocks: list[Block], index: dict[int, int], branches: dict[int, int]
    ) -> None:
        """A binary tree of comparisons over the number of the block to run next."""
        if high - low == 1:
            self._block(depth, low, blocks[low], index, branches)
            return
        middle = (low + high) // 2
        self._emit(depth, f"if b < {middle}:")
        self._dispatch(depth + 1, low, middle, blocks, index, branches)
        self._emit(depth, "else:")
        self._dispatch(depth + 1, middle, high, blocks, index, branches)

    def _block(self, depth: int, number: int, block: Block, index: dict[int, int], branches: dict[int, int]) -> None:
        self.known = {}
        self.address = block.start
        self._emit(depth, f"C[{number}] += 1")
        if number == self.loop_block:
            self._emit(depth, "X.at_loop_head(T)")
        target: int | None = None
        conditional = False
        for address in range(block.start, block.end):
            bundle = self.listing.bundles[address]
            if not bundle:
                continue
            self.address = address
            if address in branches:
                target = branches[address]
            conditional |= self._bundle(depth, bundle, address - block.start)
        length = block.end - block.start
        self.address = block.end - 1
        total = len(self.listing.bundles)
        following = f"return T + {length}" if block.end == total else f"b = {index[block.end]}"
        if target is None:
            self._emit(depth, following if block.end == total else f"T += {length}; {following}")
            return
        jump = f"return T + {length}" if target == total else f"T += {length}; b = {index[target]}"
        if not conditional:
            self._emit(depth, jump)
            return
        self._emit(depth, "if B:")
        self._emit(depth + 1, jump)
        self._emit(depth, "else:")
        self._emit(depth + 1, following if block.end == total else f"T += {length}; {following}")

    def _pipeline_loop(self, blocks: list[Block]) -> int | None:
        for number, block in enumerate(blocks):
            for instruction in self.listing.bundles[block.start]:
                if instruction.opcode == "sphi" and any("iteration index, stage" in n for n in instruction.notes):
                    return number
        return None

    # --- bundles ---

    def _emit(self, depth: int, text: str) -> None:
        self.lines.append("\t" * depth + text)
        self.addresses.append(self.address)

    def _refuse(self, instruction: Instruction | None, why: str) -> Refusal:
        what = f"`{instruction.opcode} {instruction.operands}`: " if instruction else ""
        return Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"{self.listing.file} bundle {self.address:#x} ({self.compiler}): {what[:200]}{why}. "
            "The schedule machine does not guess: report it, or write the kernel without it.",
        )

    def _bundle(self, depth: int, bundle: tuple[Instruction, ...], offset: int) -> bool:
        """Emits one bundle; returns whether it holds a conditional branch."""
        assigns: list[tuple[str, str, str, set[str]]] = []  # register, expression, predicate, registers read
        effects: list[tuple[str, str, set[str]]] = []  # statement, predicate, registers read
        aliases: list[Instruction] = []
        writes: list[tuple[str, str, bool]] = []  # register, value, certain
        conditional = False
        for instruction in bundle:
            opcode = instruction.opcode
            if is_vector_code(opcode):
                if opcode == "vld" and instruction.dest in self.pushed:
                    self._capture(instruction, effects)
                continue
            if opcode in _NO_EFFECT:
                continue
            try:
                if opcode in _ALIASES and self._is_alias(instruction):
                    aliases.append(instruction)
                    continue
                conditional |= self._instruction(instruction, offset, assigns, effects, writes)
            except _Unknown as error:
                raise self._refuse(instruction, str(error)) from None
        targets = [register for register, *_ in assigns]
        read_late = set().union(*(reads for *_, reads in effects)) if effects else set()
        for i, (*_, reads) in enumerate(assigns):
            if reads.intersection(targets[:i]):
                read_late.update(reads)
        if read_late.intersection(targets):
            for i, (_, expression, predicate, _) in enumerate(assigns):
                self._emit(depth, f"t{i} = " + (f"{expression} if {predicate} else None" if predicate else expression))
            self._emit_effects(depth, effects)
            for i, (register, _, predicate, _) in enumerate(assigns):
                self._emit(depth, f"if t{i} is not None: {register} = t{i}" if predicate else f"{register} = t{i}")
        else:
            for register, expression, predicate, _ in assigns:
                self._emit(depth, (f"if {predicate}: " if predicate else "") + f"{register} = {expression}")
            self._emit_effects(depth, effects)
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

    def _emit_effects(self, depth: int, effects: list[tuple[str, str, set[str]]]) -> None:
        for statement, predicate, _ in effects:
            self._emit(depth, (f"if {predicate}: " if predicate else "") + statement)

    def _is_alias(self, instruction: Instruction) -> bool:
        """True where source and destination share a register, so that nothing happens."""
        register = instruction.dest.rpartition("_")[2]
        sources = {r for _, r in re.findall(r"%(\w+?)_([sp]\d+)", instruction.operands)}
        if sources == {register}:
            return True
        if instruction.opcode in ("sphi", "pphi"):
            raise _Unknown(f"a phi that would move between registers {sorted(sources)} and {register}")
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
                raise _Unknown(f"a result in {dest!r}, which is no scalar register")
            certain = not (predicate if when is None else when)
            assigns.append((target, expression, predicate if when is None else when, set(reads)))
            writes.append((target, value, certain))

        def effect(statement: str) -> None:
            effects.append((statement, predicate, set(reads)))

        if opcode.startswith("inlined_call_operand"):
            match = re.search(r"index: (\d+)", text)
            if match is None:
                raise _Unknown("an operand without an index")
            assign(f"A[{match.group(1)}]")
            return False
        if opcode in ("smov", "smov.u32") and text.startswith("("):
            match = re.match(r"\((!?)%(\w+)(?:, %(\w+))?\), (.*)$", text)
            if match is None:
                raise _Unknown("a predicated move of unknown form")
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

        match = _PREDICATE.search(text)
        if match is not None:
            predicate = self._read("%" + match.group(2), reads)
            predicate = f"not {predicate}" if match.group(1) else predicate
            text = text[: match.start()] + text[match.end() :]
        text = re.sub(r"\[(?:thread|resolvable):\$\w+\]", "", text).strip().lstrip(",").strip()

        if opcode == "sbr.rel":
            if predicate:
                effects.append((f"B = {predicate}", "", set(reads)))
            return bool(predicate)
        if opcode == "shalt.err":
            message = " ".join(instruction.notes) or "no message"
            effect(f"X.halt({message!r}, {self.address})")
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
                raise _Unknown("a scalar store of unknown form")
            where = self._memory(match.group(1), reads)
            effect(f"sm[{where}] = {self._operand(match.group(2), reads)}")
            return False
        if opcode == "inlined_call":
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
            raise _Unknown("an instruction that is not known")
        wanted = 1 + max(int(n) for n in re.findall(r"\{(\d)\}", template))
        assign(template.format(*self._operands(text, reads, wanted)))
        return False

    def _dma(self, opcode: str, text: str, offset: int, reads: set[str], effect: Callable[[str], None]) -> None:
        named: dict[str, str] = {}
        for part in _split(text):
            name, equals, value = part.partition("=")
            if not equals:
                raise _Unknown(f"a DMA operand {part!r} without a name")
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
            raise _Unknown(
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
            raise _Unknown(f"a general DMA with operands {sorted(named)}")
        spaces = []
        for end in ("src", "dst"):
            match = re.search(rf"\b{end}=%(\w+?)_s\d+", text)
            space = self.pointers.get(match.group(1)) if match else None
            if space is None:
                raise _Unknown(f"a general DMA whose {end} is in an unknown memory")
            spaces.append(space)
        effect(
            f"X.general_dma(T + {offset}, {spaces[0]!r}, {named['src']}, {spaces[1]!r}, {named['dst']}, "
            f"{named['size_in_granules']}, {named['dst_syncflagno']}, {named['src_syncflagno']}, {self.address})"
        )

    def _capture(self, instruction: Instruction, effects: list[tuple[str, str, set[str]]]) -> None:
        """A vector load whose first element is pushed to the scalar side: its value may be known."""
        match = re.match(r"\[vmem:\[([^\]]*)\]", instruction.operands)
        if match is None or _PREDICATE.search(instruction.operands):
            return
        reads: set[str] = set()
        try:
            where = self._memory(f"[vmem:[{match.group(1)}]]", reads)
        except _Unknown:
            return
        self.definitions[instruction.dest] = instruction
        effects.append((f"x{_digits(instruction.dest)} = X.peek_vmem({where}, {self.address})", "", reads))

    # --- operands ---

    def _operands(self, text: str, reads: set[str], count: int) -> list[str]:
        parts = _split(text)
        if len(parts) != count:
            raise _Unknown(f"{len(parts)} operands where {count} were expected")
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
        raise _Unknown(f"operand {text!r} is of unknown form")

    def _memory(self, text: str, reads: set[str]) -> str:
        inner = re.sub(r"^\[(?:[a-z]+:\[)?|\]+$", "", text.strip())
        match = _PLACE.match(inner)
        if match is not None:
            name, immediate, register = match.groups()
            try:
                base = self.place(name)
            except KeyError:
                raise _Unknown(f"{name} is not among the allocations of the outline") from None
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
            raise _Unknown(f"operand {text!r} is no scalar register")
        value, register = match.groups()
        names = self.known.get(register)
        if names is not None and value not in names:
            raise _Unknown(f"register {register} is read as value {value} but holds {sorted(names)}")
        reads.add(register)
        return register


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
