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

    def address_of(self, trace: TracebackType | None) -> int:
        """Bundle address of the innermost line of the generated code in a traceback."""
        name = self.run.__code__.co_filename
        lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == name]
        line = lines[-1] if lines else None
        return self.addresses[line - 1] if line else 0


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
    return _Translator(listing, addresses, compiler, code_name, delay_slots).translate()


class _Translator:
    def __init__(
        self, listing: Listing, addresses: Mapping[str, int], compiler: str, code_name: str, delay_slots: int
    ) -> None:
        self.listing = listing
        self.compiler = compiler
        self.code_name = code_name
        self.delay_slots = delay_slots
        self.lines: list[str] = []
        self.addresses: list[int] = []
        self.address = 0
        self.loop_block: int | None = None
        spaces = {allocation.name: allocation.space for allocation in listing.allocations.values()}
        self.emitter = Emitter(listing.columns, addresses, spaces, RULES)

    def translate(self) -> Translated:
        bundles, columns = self.listing.bundles, self.listing.columns
        branches = {int(columns.bundle[number]): target for number, target in columns.branches.items()}
        blocks = self._find_blocks(branches)
        self.loop_block = self._pipeline_loop(blocks)
        index = {block.start: i for i, block in enumerate(blocks)}
        index[len(bundles)] = len(blocks)

        self._emit(0, "def run(T, A, X, C, E):")
        self._emit(1, "sm = X.smem; dma = X.dma; wait = X.wait")
        self._emit(1, "b = 0")
        self._emit(1, "for _ in X.patience:")
        self._dispatch(2, 0, len(blocks), blocks, index, branches)
        self._emit(1, "X.lost_patience()")
        # Behind a branch the compiler may compute on with what it wrote under the other predicate, and drop the result.
        if self.emitter.maybe:
            self.lines.insert(1, "\t" + " = ".join(sorted(self.emitter.maybe)) + " = X.unwritten")
            self.addresses.insert(1, 0)
        source = "\n".join(self.lines)
        counts = [0] * len(blocks)
        scope: dict[str, Run] = {}
        exec(compile(source, self.code_name, "exec"), scope)  # our own code, made above from a closed set of forms
        return Translated(
            listing=self.listing,
            blocks=tuple(blocks),
            counts=counts,
            events=tuple(self.emitter.events),
            event_counts=[0] * len(self.emitter.events),
            run=scope["run"],
            addresses=tuple(self.addresses),
            loop_block=self.loop_block,
            delay_slots=self.delay_slots,
        )

    # --- control flow ---

    def _find_blocks(self, branches: dict[int, int]) -> list[Block]:
        end = len(self.listing.bundles)
        leaders = {0}
        for address, target in branches.items():
            leaders.add(target)
            leaders.add(min(address + self.delay_slots + 1, end))
        # Where the compiler's loop header label is alone is a target too, so nothing more is needed.
        leaders.discard(end)
        ordered = sorted(leaders)
        blocks = []
        for i, start in enumerate(ordered):
            stop = ordered[i + 1] if i + 1 < len(ordered) else end
            branch = next((a for a in range(start, stop) if a in branches), None)
            if branch is not None:
                # Delay slots belong to the block even where another branch lands among them.
                stop = min(branch + self.delay_slots + 1, end)
                inner = [a for a in range(branch + 1, stop) if a in branches]
                if inner:
                    self.address = inner[0]
                    raise self._refuse(None, "a branch in the delay slots of another")
            blocks.append(Block(start=start, end=stop))
        return blocks

    def _dispatch(
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
        self.emitter.begin_block()
        self.emitter.block = number
        self.address = block.start
        self._emit(depth, f"C[{number}] += 1")
        if number == self.loop_block:
            self._emit(depth, "X.at_loop_head(T)")
        target: int | None = None
        conditional = False
        followed = self.emitter.addresses
        for address in followed[bisect_left(followed, block.start) : bisect_left(followed, block.end)]:
            bundle = self.listing.bundles[address]
            self.address = address
            if address in branches:
                target = branches[address]
            try:
                statements, branches_here = self.emitter.bundle(bundle, address, address - block.start)
            except Untranslatable as error:
                raise self._refuse(error.args[1], error.args[0]) from None
            conditional |= branches_here
            for statement in statements:
                self._emit(depth, statement)
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
        if self.emitter.taken is not None:
            self._emit(depth + 1, f"E[{self.emitter.taken}] += 1")
        self._emit(depth + 1, jump)
        self._emit(depth, "else:")
        self._emit(depth + 1, following if block.end == total else f"T += {length}; {following}")

    def _pipeline_loop(self, blocks: list[Block]) -> int | None:
        for number, block in enumerate(blocks):
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
