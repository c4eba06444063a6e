"""How attention is cut into blocks: what a caller may set, and how blocks are made to fit a shape. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from pallas_flash.kernels.flash_backward import BackwardBlocks
from pallas_flash.kernels.flash_forward import ForwardBlocks
from pallas_flash.target import Target

LANES = 128
KEYS = 512
"""Of a block, where not said otherwise."""
RESIDENT = 3 / 8
"""Share of VMEM given to keys and values of a chunk, double buffering included."""
ONE_PASS = 19 / 32
"""Share of VMEM given to the queries of a key head in a backward pass of one pass."""
FORWARD_LIMIT, BACKWARD_LIMIT = 55 / 64, 15 / 16
"""Share of VMEM that a kernel may take at most: the compiler keeps some for itself."""
BAND = 1024
"""Queries of a block at most where a causal window is narrower: its code grows with them."""
TABLE_TILE, TABLE_TILES = 512, (256, 512, 1024)
"""What a tile is, and what it may be for a mask, unless the caller says."""
TABLE_ENTRIES = 1 << 17
"""Tiles that a table may list: it is in scalar memory, of which TPU v5e has 1 MiB."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a caller may choose. Blocks are the largest to use; they shrink to divide a shape with little padding."""

    forward: ForwardBlocks | None = None
    """None takes those that were tuned for the nearest shape on this chip, see :mod:`pallas_flash.tuned`."""
    backward: BackwardBlocks | None = None
    table_tile: int | None = None
    """Queries and keys per tile where a table says what to do with each: with a mask or documents. None takes 512, or
    what suits a mask best (:func:`pallas_flash.tables.suited_tile`)."""
    without_tpu: Literal["error", "interpret", "fallback"] = "error"
    """On another platform: JAX's own error, Pallas's interpreter (slow), or plain XLA (quadratic memory)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What blocks depend on."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    dim_v: int
    itemsize: int
    left: int | None
    right: int | None
    tables: bool
    target: Target

    @property
    def square(self) -> bool:
        """Query and key blocks have to be cut alike: the diagonal is what matters."""
        return self.right == 0 and self.q_len == self.kv_len

    @property
    def lanes(self) -> int:
        """Elements that a row of ``dim`` occupies in VMEM."""
        return round_up(self.dim, LANES)

    @property
    def lanes_v(self) -> int:
        """Of a row of the values' ``dim_v``."""
        return round_up(self.dim_v, LANES)


def round_up(length: int, unit: int) -> int:
    """The least multiple of ``unit`` that is not less."""
    return -(-length // unit) * unit


def even(length: int, most: int) -> int:
    """A block of at most about ``most``, at least about half, that cuts ``length`` into equal parts with least padding.

    Of several with as little, one of whole blocks of KEYS keys, then the largest.
    """
    unit = LANES if length <= 2 * LANES or most < 2 * LANES else 2 * LANES
    fewest = -(-length // most)
    sizes = (round_up(-(-length // parts), unit) for parts in range(fewest, 2 * fewest))
    return min(sizes, key=lambda size: (round_up(length, size), size % KEYS > 0, -size))


def divisor(block: int, most: int) -> int:
    """The largest multiple of LANES that divides ``block`` and is at most ``most``, or LANES."""
    return max((size for size in range(LANES, block + 1, LANES) if block % size == 0 and size <= most), default=LANES)


def table_tile(wanted: int, shape: Shape) -> int:
    """Queries and keys per tile of a table: as wanted, or more where the table would not fit."""
    tile = round_up(min(wanted, max(shape.q_len, shape.kv_len)), LANES)
    while shape.batch * -(-shape.q_len // tile) * -(-shape.kv_len // tile) > TABLE_ENTRIES:
        tile *= 2
    return tile


def fit_forward(blocks: ForwardBlocks, shape: Shape, tile: int | None) -> ForwardBlocks:
    """The forward pass's blocks for a shape; ``tile`` is that of its table."""
    span = None if shape.left is None or shape.right is None else shape.left + shape.right + 1
    most, widest = blocks.block_q, blocks.turn
    if span is not None and shape.right == 0 and span <= blocks.block_q:
        most = min(blocks.block_q, max(BAND, round_up(span, 256)))  # all keys of a block are known while tracing
    elif span is not None:
        # A narrow band is wasted on wide blocks: what is outside it is computed, too.
        most = min(most, max(256, round_up(span, 256)))
        if shape.right == 0:
            most = _dividing(span, shape.q_len, most)
        widest = min(widest, max(256, round_up(span // 2, 256)))
    block_q = tile or even(shape.q_len, most)
    turn = tile or (divisor(block_q, widest) if shape.square else even(shape.kv_len, widest))
    unit = block_q if shape.square else turn
    block_kv = divisor(turn, blocks.block_kv)
    per_key = 2 * (shape.lanes + shape.lanes_v) * shape.itemsize  # k and v, each in two buffers
    chunks = -(-shape.kv_len // max(unit, min(blocks.chunk_kv, int(RESIDENT * shape.target.vmem_bytes) // per_key)))
    return dataclasses.replace(
        blocks,
        block_q=block_q,
        block_kv=block_kv,
        chunk_kv=round_up(-(-shape.kv_len // chunks), unit),
        rows=divisor(block_q, blocks.rows),
        unroll=turn // block_kv,
        vmem_limit_bytes=min(blocks.vmem_limit_bytes, int(FORWARD_LIMIT * shape.target.vmem_bytes)),
    )


def _dividing(span: int, q_len: int, most: int) -> int:
    """A block of queries of which a causal window is several, so that its first keys are known while tracing."""
    sizes = [most >> halved for halved in range(3)]
    whole = (size for size in sizes if size >= BAND // 2 and span % size <= 1 and even(q_len, size) == size)
    return next(whole, most)


def one_pass(shape: Shape, q_len: int) -> bool:
    """Whether the queries of a key head fit VMEM, with their gradients: q, do and dq twice, q scaled, dq in float32."""
    per_query = shape.lanes * (5 * shape.itemsize + 4) + shape.lanes_v * 2 * shape.itemsize
    return shape.heads // shape.kv_heads * q_len * per_query <= ONE_PASS * shape.target.vmem_bytes


def parts_of(shape: Shape, q_len: int) -> int:
    """The fewest equal parts of a key head's heads that fit VMEM each; 0 if a single head does not."""
    group = shape.heads // shape.kv_heads
    fitting = (
        parts
        for parts in range(1, group + 1)
        if group % parts == 0 and one_pass(dataclasses.replace(shape, kv_heads=shape.kv_heads * parts), q_len)
    )
    return next(fitting, 0)


def fit_backward(blocks: BackwardBlocks, shape: Shape, tile: int | None) -> tuple[BackwardBlocks, int]:
    """The backward pass's blocks for a shape, and in how many parts of each key head's heads one pass makes all.

    0 where not even one head fits: a pass for dq and one for dk and dv, which both compute the scores.
    """
    span = None if shape.left is None or shape.right is None else shape.left + shape.right + 1
    limit = None if span is None else max(256, round_up(span // 2, 256))
    group = shape.heads // shape.kv_heads

    def block(length: int, most: int) -> int:
        return tile if tile is not None else even(length, most if limit is None else min(most, limit))

    block_q = block(shape.q_len, blocks.block_q)
    block_kv = block_q if shape.square else block(shape.kv_len, blocks.block_kv)
    padded = round_up(shape.q_len, block_q)
    parts = parts_of(shape, padded) if shape.q_len <= blocks.chunk_q else 0
    at_once = padded if parts else max(block_q, 8192 * 128 // shape.lanes // group // block_q * block_q)
    chunk_q = round_up(-(-shape.q_len // -(-shape.q_len // at_once)), block_q)
    chunk_kv = min(round_up(shape.kv_len, block_kv), max(1, blocks.chunk_kv // block_kv) * block_kv)
    fitted = dataclasses.replace(
        blocks,
        chunk_q=chunk_q,
        chunk_kv=chunk_kv,
        block_q=block_q,
        block_kv=block_kv,
        rows=divisor(block_q, blocks.rows),
        strip=divisor(block_q, blocks.strip),
        vmem_limit_bytes=min(blocks.vmem_limit_bytes, int(BACKWARD_LIMIT * shape.target.vmem_bytes)),
    )
    return fitted, parts
