"""What to do about a compiler's or a lowering's error: one sentence, found by the words of the error."""

from __future__ import annotations

from ratchet.values.status import Status

_LOWERED = frozenset(
    (Status.LOWERING_FAILED, Status.UNALIGNED_BLOCK, Status.UNSUPPORTED_PRIMITIVE, Status.COMPILE_FAILED)
)

_HINTS = (
    (
        "statically prove that index in dimension",
        "say what the index is a multiple of: pl.multiple_of(index, 8) for rows, 128 for lanes, if that is true",
    ),
    (
        "last two dimensions",
        "make the last two dimensions of the block multiples of 8 and 128, or those of the whole array",
    ),
    ("store scalars to VMEM", "store an array, as o[0:1, 0:1] = x.reshape(1, 1), or give the reference pltpu.SMEM"),
    ("load scalars from SMEM", "give the reference memory_space=pltpu.SMEM, or load a slice of it"),
    ("captures constants", "pass the array to pallas_call as an operand, or build it inside with jnp.full and iota"),
    (
        "Unsupported dot precision",
        "ask for DEFAULT or HIGHEST; for the three passes of HIGH split the operands by hand",
    ),
    ("matmul acc to be 32-bit", "ask for it: preferred_element_type=jnp.float32, and round afterwards"),
    ("Unsigned integer dtype", "cast to a signed type first"),
    ("TracerBoolConversion", "a Python `if` cannot see a traced value: use pl.when, jnp.where or jax.lax.cond"),
    ("is out of bounds for grid", "pl.program_id(axis) counts the dimensions of `grid`, from 0"),
    ("requested but no grid", "give pallas_call a grid, or leave pl.program_id out"),
    ("without shard_map", "call the kernel inside jax.shard_map and declare the mesh in get_tiling_meta()"),
    (
        "last dim size is not 128",
        "load the whole block and pick rows by jnp.where, or move the step into the index map",
    ),
    ("shape cast", "keep the last dimension as it is in a reshape, or do the reshape outside of the kernel"),
    (
        "lowering for tc: cumsum",
        "a product with a triangular matrix of ones, or log2(n) shifted additions (pltpu.roll)",
    ),
    ("lowering for tc: sort", "sort outside of the kernel, or by a bitonic network of pltpu.roll and jnp.where"),
    ("lowering for tc: rev", "reverse in the index map by blocks, or multiply by a reversed identity matrix"),
    ("lowering for tc: scatter", "select by position: jnp.where(iota == index, new, old)"),
    ("lowering for tc: gather", "gather by the index map (PrefetchScalarGridSpec) or by one copy a row"),
    (
        "Unimplemented primitive",
        "write it with operations that Pallas has on a TPU, or let XLA do it beside the kernel",
    ),
    ("Not Implemented", "the operation exists, but not at this shape or dtype: try whole tiles (8, 128) and float32"),
)


_OVERFLOW = (
    "`ratchet explain FILE --vmem` lists every allocation and what would free some; "
    "`ratchet fit FILE NAME=VALUES` says which values of its constants fit"
)


def hint(status: Status, message: str) -> str:
    """What to do about an error of lowering or compiling, ``""`` where nothing is known about it."""
    if status is Status.VMEM_OVERFLOW:
        return _OVERFLOW
    if status not in _LOWERED:
        return ""
    return next((advice for words, advice in _HINTS if words in message), "")
