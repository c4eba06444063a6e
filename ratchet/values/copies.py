"""The copies of a kernel, as its values were computed and as the schedule machine issued them: rows of numbers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

MOST_COPIES = 1 << 18
"""Of one run of a kernel, how many copies of its own, and how many grid steps where their number depends on values,
are followed. A kernel with more is refused."""
MOST_BLOCKS = 1 << 22
"""The same for blocks of windows: grid steps times windows."""


A_WINDOW = -1
"""In the place of an operand: one of the windows that the pipeline moves."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One operand or result of a kernel, as the kernel's module has it."""

    number: int
    """Among all operands of the call, results behind them."""
    space: str
    """The memory that the module says it is in (``hbm``, ``any``…), or that its window is in."""
    block: tuple[int, ...]
    """Shape of its window; empty where the kernel moves it itself."""
    shape: tuple[int, ...]
    """Of the array, with ``low`` elements of padding before it and some behind, as ``blocks`` counts elements."""
    low: tuple[int, ...]
    shared: int
    """Number of the operand in whose memory it is: its own, or that of the operand that is aliased to the result."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An operation that starts copies."""

    place: int
    """Number of the operation in the program that the compiler got; -1 for one without."""
    source: int
    target: int
    """Numbers of the operands that it reads and writes in place; ``A_WINDOW``, or below that a number for each memory
    of the kernel's own."""
    source_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    source_sizes: tuple[int, ...]
    target_sizes: tuple[int, ...]
    """Of the slices; empty where they depend on values."""


@dataclass(frozen=True, kw_only=True)
class ExecutedCopies:
    """What the first execution of one kernel's call copied, for its values."""

    site: str
    """The call's own name in the compiled program."""
    operands: tuple[Operand, ...]
    windows: tuple[int, ...]
    """Numbers of the operands with a window, one for each column of ``blocks``."""
    changed: tuple[int, ...]
    """Numbers of the operands whose blocks follow from scalars that the kernel writes."""
    steps: int
    blocks: bytes
    """Packed int32[steps, windows]: per grid step the first element of each window, in row-major order of ``shape``."""
    places: tuple[Place, ...]
    count: int
    """Copies that the kernel started itself."""
    copies: bytes
    """Packed int32[count, 4]: index into ``places``, first element read, first element written, bytes."""


@dataclass(frozen=True, kw_only=True)
class IssuedCopies:
    """What the first run of one kernel copied in the compiled program."""

    launch: str
    """The HLO instruction that launches it."""
    runs: int
    """How often the kernel ran; the first run is the one that is logged."""
    cores: int
    """How many cores of the chip share its grid."""
    shared: tuple[int, ...]
    """Of each operand, results behind them, the first that lies in the same memory: its own number for most."""
    count: int
    """DMAs issued."""
    copies: bytes
    """Packed int64[count, COLUMNS], in the order of issue."""


COLUMNS = 8
"""Of a DMA: number of the operation that it comes from (-1 for none), bytes, then for source and target each the
operand (results behind them; -1 for memory of the kernel's own; -2 for neither), where it begins (byte of the operand,
or address in the kernel's own memory in granules; -1 for not known), and the operand whose window is there (-1)."""


def packed(rows: object) -> bytes:
    """The rows of an array, compressed."""
    return zlib.compress(rows.tobytes(), 1)  # type: ignore[attr-defined]


def unpacked(data: bytes, limit: int) -> bytes:
    """What :func:`packed` compressed, ``limit`` bytes of it at most.

    Raises:
        ValueError: ``data`` is something else, or is longer.
    """
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"not compressed rows: {error}") from None
    if len(raw) > limit:
        raise ValueError(f"more than {limit} bytes of rows")
    return raw
