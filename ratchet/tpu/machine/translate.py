"""Scalar code of a listing -> Python code that executes it.

Only scalar registers, predicates, scalar memory, sync flags, DMAs, branches and calls are executed.
Vector instructions take their cycle with the bundle they are in and are counted per block, not run.

Every basic block becomes straight Python over local variables named after the physical registers, so that reading
a register that was never written is an ``UnboundLocalError``; one that is only written under a predicate is unknown
until then. A branch has delay slots that always execute; its predicate is latched at the branch.
"""

from __future__ import annotations

import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType

from ratchet.tpu.dump.instruction import Instruction
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.emitter import Emitter, Event, Untranslatable
from ratchet.tpu.machine.rules import RULES
from ratchet.values.status import Refusal, Status

Run = Callable[[int, tuple[object, ...], object, list[int], list[int]], int]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Bundles ``start`` to ``end`` (exclusive), always executed together."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Translated:
    """One listing, ready to be executed.

    ``run(T, A, X, C, E)`` takes the cycle it starts at, the values of its operands, the machine, ``counts`` and
    ``event_counts``, and returns the cycle after its last bundle.
    """

    listing: Listing
    blocks: tuple[Block, ...]
    counts: list[int]
    """Executions per block; ``run`` counts them up."""
    events: tuple[Event, ...]
    event_counts: list[int]
    """Executions per event that has a counter of its own; ``run`` counts them up."""
    run: Run
    addresses: tuple[int, ...]
    """Bundle address per line of the generated code, for messages."""
    loop_block: int | None
    """Index of the block that heads the pipeline loop over grid steps, if there is one."""
    delay_slots: int
    """Bundles behind a branch that always execute."""

    def fresh(self) -> Translated:
        """The same with all counts at zero."""
        return replace(self, counts=[0] * len(self.counts), event_counts=[0] * len(self.event_counts))

    def executions(self) -> Iterator[tuple[Event, int]]:
        """How often each event happened."""
        for event, own in zip(self.events, self.event_counts, strict=True):
            yield event, own if event.block is None else self.counts[event.block]

    def lines_of(self, trace: TracebackType | None) -> list[int | None]:
        """Of each frame in a traceback, the line of the generated code that it was at; None for other code."""
        name = self.run.__code__.co_filename
        return [frame.lineno if frame.filename == name else None for frame in traceback.extract_tb(trace)]

    def address_of(self, trace: TracebackType | None) -> int:
        """Bundle address of the innermost line of the generated code in a traceback."""
        lines = [line for line in self.lines_of(trace) if line]
        return self.addresses[lines[-1] - 1] if lines else 0


def translate(
    listing: Listing, *, addresses: Mapping[str, int], compiler: str, code_name: str, delay_slots: int
) -> Translated:
    """Translates one listing.

    Args:
        listing: the parsed program.
        addresses: of each ``#allocation`` in its memory's unit (SMEM 4 B words, VMEM and HBM 512 B, sync flags 1).
        compiler: compiler version, for messages.
        code_name: name of the generated code in tracebacks.
        delay_slots: bundles behind a branch that always execute.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for an instruction or operand that is not known.
    """
    return _Translator(listing, addresses, compiler, delay_slots).translate(code_name)


class _Translator:
    def __init__(self, listing: Listing, addresses: Mapping[str, int], compiler: str, delay_slots: int) -> None:
        self.listing = listing
        self.compiler = compiler
        self.delay_slots = delay_slots
        self.lines: list[str] = []
        self.addresses: list[int] = []
        self.address = 0
        columns = listing.columns
        self.branches = {int(columns.bundle[number]): target for number, target in columns.branches.items()}
        """Where the branch in a bundle goes."""
        self.blocks = self._find_blocks()
        self.loop_block = self._pipeline_loop()
        self.index = {block.start: number for number, block in enumerate(self.blocks)}
        spaces = {allocation.name: allocation.space for allocation in listing.allocations.values()}
        self.emitter = Emitter(columns, addresses, spaces, RULES)

    def translate(self, code_name: str) -> Translated:
        self._emit(0, "def run(T, A, X, C, E):")
        self._emit(1, "sm = X.memory.smem; dma = X.dma; wait = X.wait")
        self._emit(1, "b = 0")
        self._emit(1, "for _ in X.steps:")
        self._dispatch(2, 0, len(self.blocks))
        self._emit(1, "X.too_many_steps()")
        # Behind a branch the compiler may compute on with what it wrote under the other predicate, and drop the result.
        if self.emitter.maybe:
            self.lines.insert(1, "\t" + " = ".join(sorted(self.emitter.maybe)) + " = X.unwritten")
            self.addresses.insert(1, 0)
        scope: dict[str, Run] = {}
        # Our own code, made above from a closed set of forms.
        exec(compile("\n".join(self.lines), code_name, "exec"), scope)
        return Translated(
            listing=self.listing,
            blocks=tuple(self.blocks),
            counts=[0] * len(self.blocks),
            events=tuple(self.emitter.events),
            event_counts=[0] * len(self.emitter.events),
            run=scope["run"],
            addresses=tuple(self.addresses),
            loop_block=self.loop_block,
            delay_slots=self.delay_slots,
        )

    # --- control flow ---

    def _find_blocks(self) -> list[Block]:
        end = len(self.listing.bundles)
        after = (min(address + self.delay_slots + 1, end) for address in self.branches)
        # Where the compiler's loop header label is alone is a target too, so nothing more is needed.
        ordered = sorted({0, *self.branches.values(), *after} - {end})
        blocks = []
        for start, following in pairwise([*ordered, end]):
            branch = next((a for a in range(start, following) if a in self.branches), None)
            # Delay slots belong to the block even where another branch lands among them.
            stop = following if branch is None else min(branch + self.delay_slots + 1, end)
            inner = [a for a in range(start, stop) if a in self.branches and a != branch]
            if inner:
                self.address = inner[0]
                raise self._refuse(None, "a branch in the delay slots of another")
            blocks.append(Block(start=start, end=stop))
        return blocks

    def _dispatch(self, depth: int, low: int, high: int) -> None:
        """A binary tree of comparisons over the number of the block to run next."""
        if high - low == 1:
            self._block(depth, low)
            return
        middle = (low + high) // 2
        self._emit(depth, f"if b < {middle}:")
        self._dispatch(depth + 1, low, middle)
        self._emit(depth, "else:")
        self._dispatch(depth + 1, middle, high)

    def _block(self, depth: int, number: int) -> None:
        block = self.blocks[number]
        self.emitter.begin_block(number)
        self.address = block.start
        self._emit(depth, f"C[{number}] += 1")
        if number == self.loop_block:
            self._emit(depth, "X.at_loop_head(T)")
        target: int | None = None
        conditional = False
        followed = self.emitter.addresses
        for address in followed[bisect_left(followed, block.start) : bisect_left(followed, block.end)]:
            self.address = address
            target = self.branches.get(address, target)
            try:
                statements, branches = self.emitter.bundle(
                    self.listing.bundles[address], address, address - block.start
                )
            except Untranslatable as error:
                raise self._refuse(error.args[1], error.args[0]) from None
            conditional |= branches
            for statement in statements:
                self._emit(depth, statement)
        self.address = block.end - 1
        following = self._goto(block, block.end)
        if target is None:
            self._emit(depth, following)
            return
        jump = self._goto(block, target)
        if not conditional:
            self._emit(depth, jump)
            return
        self._emit(depth, "if B:")
        if self.emitter.taken is not None:
            self._emit(depth + 1, f"E[{self.emitter.taken}] += 1")
        self._emit(depth + 1, jump)
        self._emit(depth, "else:")
        self._emit(depth + 1, following)

    def _goto(self, block: Block, address: int) -> str:
        """The statement that ends a block and goes on at an address."""
        length = block.end - block.start
        if address == len(self.listing.bundles):
            return f"return T + {length}"
        return f"T += {length}; b = {self.index[address]}"

    def _pipeline_loop(self) -> int | None:
        for number, block in enumerate(self.blocks):
            for instruction in self.listing.bundles[block.start]:
                if instruction.opcode == "sphi" and instruction.notes.heads_pipeline:
                    return number
        return None

    def _emit(self, depth: int, text: str) -> None:
        self.lines.append("\t" * depth + text)
        self.addresses.append(self.address)

    def _refuse(self, instruction: Instruction | None, why: str) -> Refusal:
        what = f"`{instruction}`: " if instruction else ""
        return Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"{self.listing.where(self.address)} ({self.compiler}): {what[:200]}{why}. "
            "The schedule machine does not guess: report it, or write the kernel without it.",
        )
