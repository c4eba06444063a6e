"""One edit, what of the modelled run it is about, and what came of its like before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ratchet.values import Literal
from ratchet.values.loss import LossKind


class Field(Enum):
    """What an edit is about."""

    TILING = "tiling"
    ALGORITHM = "algorithm"
    PRECISION = "precision"
    LAYOUT = "layout"
    COMPILER = "compiler hints"


class Edit(Enum):
    """The closed set of edits. Sentences about them are in ``view/advise.py``."""

    field: Field

    LARGER = "larger blocks", Field.TILING
    SMALLER = "smaller blocks", Field.TILING
    RESIDENT = "operands stay in VMEM", Field.ALGORITHM
    SKIP = "skip what is masked away", Field.ALGORITHM
    MASK = "mask only where it matters", Field.ALGORITHM
    STRIPS = "strips of rows", Field.TILING
    SCALE = "scale an operand", Field.PRECISION
    BASE_2 = "exponentials to base 2", Field.PRECISION
    NARROW = "narrow operands of products", Field.PRECISION
    WIDE = "statistics as wide as the lanes", Field.LAYOUT
    LANES = "sums lane by lane", Field.LAYOUT
    DIVIDE = "divide rows, not elements", Field.ALGORITHM
    UNROLL = "unroll a loop", Field.COMPILER
    PART = "two loops, one without a mask", Field.ALGORITHM
    TRIANGLE = "strips as wide as the mask leaves them", Field.ALGORITHM
    STAGGER = "products ahead of what uses them", Field.ALGORITHM
    TURNS = "several turns at once", Field.ALGORITHM
    ABREAST = "tiles side by side", Field.ALGORITHM
    GROUP = "several heads in a step", Field.TILING
    PAGES = "several pages in a step", Field.TILING
    JOIN = "two kernels in one", Field.ALGORITHM
    FETCH = "operands fetched in pieces", Field.ALGORITHM
    TRANSPOSE = "a transposed operand as it is", Field.LAYOUT
    FUSE = "what XLA does beside the kernel", Field.ALGORITHM
    SWAP = "grid dimensions swapped", Field.TILING
    PAIR = "two edits together", Field.ALGORITHM
    VMEM = "larger blocks under a higher VMEM limit", Field.TILING

    def __new__(cls, text: str, about: Field) -> Edit:
        one = object.__new__(cls)
        one._value_, one.field = text, about
        return one


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A kernel file with one edit made."""

    edit: Edit
    after: bytes
    lines: tuple[int, ...]
    """Source lines, of the file before, whose cost the edit is about."""
    subject: str = ""
    """What is edited: names of the author's. Untrusted."""
    point: Mapping[str, Literal] = field(default_factory=dict)
    """Constants and their new values, where it is no more than that."""
    factor: float = 1.0
    """By how much a block grows."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What of the modelled run speaks for an edit."""

    loss: LossKind | None
    """None where it is the cost of source lines."""
    cycles: int
    share: float
    """Of the run."""
    line: int | None
    """The costliest source line of it."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What came of the same edit in the ledger of this kernel, and of its ledger's other kernels."""

    followed: int = 0
    kept: int = 0
    gains: tuple[float, ...] = ()
    """Share of the latency that each of the kept ones saved."""

    @property
    def confidence(self) -> float:
        """That it helps: the share that was kept, as if one of two more had been."""
        return (self.kept + 1) / (self.followed + 2)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to try next."""

    rewrite: Rewrite
    evidence: tuple[Evidence, ...]
    saved_cycles: int
    """What it is about: a guess, by which edits are put in order before they are modelled."""
    confidence: float
    """Of 1: that it helps, by the ledger."""
    record: Record
    lost_before: tuple[str, ...] = ()
    """Ids of the experiments that made the same edit to other versions since it was kept last, oldest first."""

    @property
    def worth(self) -> float:
        """By which edits are put in order before they are modelled."""
        return self.saved_cycles * self.confidence
