"""What others decode and prefill with from pages, modelled on one chip, each at the best of some blocks.

jax's two kernels come with jax. tpu-inference's and sglang-jax's are read from clones, at the commits of
``benchmarks/lib/repositories.py``: ``python -m benchmarks.coverage --clone`` prints how they are fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.decoding import Shape, paged_operands, row, scales_of, table_of
from benchmarks.lib.programs import modelled, of_function, struct
from benchmarks.lib.repositories import module_of
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline
from ratchet.values.status import Refusal

import jax.numpy as jnp  # isort: skip

VMEM = 100 << 20
SOURCES = Path(".ratchet/corpus")
"""The clones."""
TPU_INFERENCE, SGLANG = "tpu-inference", "sglang-jax"
KERNELS = {TPU_INFERENCE: "tpu_inference/kernels", SGLANG: "python/sgl_jax/srt/kernels"}


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """What a peer computes at once: keys, queries of a chunk, and sequences."""

    keys: int
    queries: int = 1
    sequences: int = 1

    def __str__(self) -> str:
        return " x ".join(str(each) for each in (self.sequences, self.queries, self.keys) if each > 1)


DECODING = tuple(Blocks(keys=keys) for keys in (128, 256, 512, 1024, 2048))
LATENTS = tuple(Blocks(keys=keys, sequences=many) for many in (1, 4) for keys in (256, 512, 1024, 2048))
CHUNKS = tuple(Blocks(queries=128, keys=keys) for keys in (512, 1024, 2048)) + tuple(
    Blocks(queries=512, keys=keys) for keys in (512, 1024)
)
"""With fewer keys, programs compile for minutes."""
Peer = Callable[[Shape, Blocks, Workers], Timeline]


def paged(shape: Shape, blocks: Blocks, workers: Workers) -> Timeline:
    """jax's ``paged_attention``, which has neither windows nor one scale for all of a narrow cache."""
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    avals, steering = paged_operands(shape)
    program = functools.partial(paged_attention, pages_per_compute_block=blocks.keys // shape.page)
    return modelled(of_function(program, avals), workers, steering)


def ragged(shape: Shape, blocks: Blocks, workers: Workers) -> Timeline:
    """jax's ``ragged_paged_attention``, every sequence with one query or a chunk of them."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

    steering = {
        2: shape.lengths,
        3: table_of(shape, 1)[0],
        4: _places(shape),
        5: np.array([shape.batch], np.int32),
        "kernel:3": np.zeros(2, np.int32),  # a constant of its own, which XLA computes
    }
    pool = (steering[3].size, shape.page, 2 * shape.kv_heads, shape.head_dim)
    program = functools.partial(
        ragged_paged_attention,
        **_options(shape),
        num_kv_pages_per_block=blocks.keys // shape.page,
        num_queries_per_block=blocks.queries if shape.chunk else 8,
    )
    avals = [_tokens(shape, shape.q_heads), struct(pool, jnp.dtype(shape.dtype)), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def ragged_v3(kernel: Any, shape: Shape, blocks: Blocks, workers: Workers) -> Timeline:
    """tpu-inference's ``ragged_paged_attention`` in its third version; it writes no new keys here."""
    dtype = jnp.dtype(shape.dtype)
    steering = {
        4: shape.lengths,
        5: table_of(shape, 1)[0].reshape(-1),
        6: _places(shape),
        7: _cases(shape),
        **_begun({4: 3, 5: 4, 6: 6}),
    }
    new = [_tokens(shape, shape.kv_heads, dtype)] * 2
    program = functools.partial(
        kernel.ragged_paged_attention.__wrapped__, update_kv_cache=False, **_options(shape), **_sizes(shape, blocks)
    )
    avals = [_tokens(shape, shape.q_heads), *new, _packed(shape, dtype), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def ragged_v3_sgl(kernel: Any, shape: Shape, blocks: Blocks, workers: Workers) -> Timeline:
    """sglang-jax's version of it, with sinks; it writes the new keys. Heads of 64 have rows of 128, twice."""
    dtype = jnp.dtype(shape.dtype)
    steering = {
        4: shape.lengths,
        5: table_of(shape, 1)[0].reshape(-1),
        6: _places(shape),
        7: shape.context * np.arange(shape.batch + 1, dtype=np.int32),
        8: _cases(shape),
        "kernel:4": np.zeros(1, np.int32),
        "kernel:5": _cases(shape),
        **_begun({6: 3, 7: 4, 8: 6}),
    }
    new = [_tokens(shape, shape.kv_heads, dtype)] * 2
    call = functools.partial(kernel.ragged_paged_attention.__wrapped__, **_options(shape), **_sizes(shape, blocks))

    def program(*operands: Any) -> Any:
        return call(*operands[:9], None, *operands[9:])  # no mask

    avals = [_tokens(shape, shape.q_heads), *new, _packed(shape, dtype), *_integers(steering)]
    if shape.halves:
        avals.append(struct((shape.q_heads,), jnp.float32))
    return modelled(of_function(program, avals), workers, steering)


def ragged_v3_64(kernel: Any, shape: Shape, blocks: Blocks, workers: Workers) -> Timeline:
    """tpu-inference's variant of it for heads of 64, with sinks; it writes one new key a sequence."""
    packing = 2
    steering = {
        4: shape.lengths,
        5: table_of(shape, 1)[0].reshape(-1),
        6: _places(shape),
        7: np.full(3, shape.batch, np.int32),
        "kernel:0": np.int32(shape.batch),
        **_begun({5: 3, 6: 4, 7: 6}),
    }
    rows = -(-shape.kv_heads // packing)
    pool = struct((steering[5].size, shape.page, rows, packing, shape.head_dim), jnp.bfloat16)
    program = functools.partial(
        kernel.ragged_paged_attention_hd64.__wrapped__,
        **_options(shape),
        num_kv_pages_per_block=blocks.keys // shape.page,
        num_queries_per_block=1,
    )
    tokens = [_tokens(shape, heads) for heads in (shape.q_heads, shape.kv_heads, shape.kv_heads)]
    avals = [*tokens, pool, *_integers(steering), struct((shape.q_heads,), jnp.float32)]
    return modelled(of_function(program, avals), workers, steering)


def latent_v2(kernel: Any, shape: Shape, blocks: Blocks, workers: Workers, *, sgl: bool = False) -> Timeline:
    """``mla_ragged_paged_attention`` in its second version, tpu-inference's or ``sgl``ang-jax's.

    Both write one new key of each sequence. sglang-jax's also takes where the pages of each begin.
    """
    none, all_of = np.array([shape.batch] * 2, np.int32), np.array([0, shape.batch], np.int32)
    integers = [shape.lengths, table_of(shape, 1)[0].reshape(-1), _places(shape)]
    if sgl:
        integers.append(shape.context * np.arange(shape.batch + 1, dtype=np.int32))
    first = len(integers) + 1
    steering: dict[int | str, np.ndarray] = dict(enumerate([*integers, np.full(3, shape.batch, np.int32)], 5))
    for name, sequences, many in (("kernel_0", all_of, blocks.sequences), ("kernel_1", none, 1), ("kernel_2", none, 1)):
        steps, ids = np.int32((sequences[1] - sequences[0]) // many), np.full((many, 6), -1, np.int32)
        steering |= {f"{name}:0": steps, f"{name}:{first}": sequences, f"{name}:{first + 3}": ids}
        steering |= _begun({first + 1: 3, first + 2: 4}, name)
    heads, rotated = (shape.q_heads, shape.batch), 64
    queries = [(*(heads[::-1] if sgl else heads), shape.value_dim), (*heads[::-1], rotated)]
    new = [(shape.batch, shape.value_dim), (shape.batch, rotated)]
    pool = (steering[6].size, shape.page // 2, 2, shape.head_dim)
    program = functools.partial(
        kernel.mla_ragged_paged_attention.__wrapped__,
        sm_scale=0.1,
        num_kv_pages_per_block=blocks.keys // shape.page,
        num_queries_per_block=1,
        decode_batch_size=blocks.sequences,
        vmem_limit_bytes=VMEM,
    )
    avals = [*(struct(one, jnp.bfloat16) for one in (*queries, *new, pool)), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def offered(shape: Shape, sources: Path) -> dict[str, Peer]:
    """The peers that have what a shape asks for, and are there."""
    latent, halves, floats = bool(shape.value_dim), shape.halves, shape.dtype != "int8"
    whole = not latent and not halves
    decodes = whole and not shape.window and not shape.chunk and shape.dtype == "bfloat16"
    v3 = "ragged_paged_attention/v3/"
    of_jax = ((whole, "ragged_paged_attention", ragged), (decodes, "paged_attention", paged))
    of_clones: tuple[tuple[bool, str, str, str, Callable[..., Timeline]], ...] = (
        (latent, TPU_INFERENCE, "MLA v2", "mla/v2/kernel", latent_v2),
        (halves, TPU_INFERENCE, "RPA v3, 64", f"{v3}kernel_hd64", ragged_v3_64),
        (whole and floats, TPU_INFERENCE, "RPA v3", f"{v3}kernel", ragged_v3),
        (latent, SGLANG, "MLA v2", "mla/v2/kernel", functools.partial(latent_v2, sgl=True)),
        (not latent and floats, SGLANG, "RPA v3", "ragged_paged_attention/ragged_paged_attention_v3", ragged_v3_sgl),
    )
    return {f"jax {name}": peer for has, name, peer in of_jax if has} | {
        f"{repository} {name}": functools.partial(peer, _kernel(repository, path, sources))
        for has, repository, name, path, peer in of_clones
        if has and (sources / repository).is_dir()
    }


def blocks_of(shape: Shape) -> list[Blocks]:
    """What is tried at a shape."""
    tried = CHUNKS if shape.chunk else LATENTS if shape.value_dim else DECODING
    return [one for one in tried if not one.keys % shape.page and not shape.context % one.keys]


def best(peer: Peer, shape: Shape, tried: list[Blocks], workers: Workers) -> tuple[Timeline, str]:
    """The fastest of some blocks; what cannot be compiled or modelled is named."""
    modelled: list[tuple[Timeline, Blocks]] = []
    failed: list[tuple[Blocks, Refusal]] = []
    for blocks in tried:
        try:
            modelled.append((peer(shape, blocks, workers), blocks))
        except Refusal as refusal:
            failed.append((blocks, refusal))
    if not modelled:
        raise failed[0][1]
    timeline, first = min(modelled, key=lambda pair: pair[0].cycles)
    others = ", ".join(str(each) for _, each in modelled)
    return timeline, f"{first} of {others}" + "".join(f"; {each}: {why.status.name}" for each, why in failed)


def peers_of(
    shape: Shape, workers: Workers, *, sources: Path = SOURCES, keys: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """A line of the table for each; what has none says why. ``keys``: no other blocks are tried."""
    tried = [one for one in blocks_of(shape) if one.keys in keys or not keys]
    for name, peer in offered(shape, sources).items():
        try:
            yield row(shape, name, *best(peer, shape, tried, workers))
        except Refusal as refusal:
            print(f"{shape.name}, {name}: {refusal.status.name}: {refusal.message:.200}")


@functools.cache
def _kernel(repository: str, path: str, sources: Path) -> Any:
    """A module of theirs, which asks for the version of the chip it is on."""
    module = module_of(repository, f"{KERNELS[repository]}/{path}.py", sources)
    if hasattr(module, "get_tpu_version"):
        module.get_tpu_version = lambda: int(V5E.name[1])
    return module


def _options(shape: Shape) -> dict[str, Any]:
    scale, window = shape.dim**-0.5, shape.window or None
    return {"sm_scale": scale, "sliding_window": window, "vmem_limit_bytes": VMEM, **scales_of(shape)}


def _sizes(shape: Shape, blocks: Blocks) -> dict[str, tuple[int, ...]]:
    """Of version three: what is fetched and what is computed at once, of queries and keys, for one token and for more.

    What has no sequences here is compiled, too, in small blocks.
    """
    idle = (1, shape.page) * 2
    if shape.chunk:
        return {
            "d_block_sizes": idle,
            "m_block_sizes": (blocks.queries, blocks.keys, blocks.queries // 2, min(blocks.keys, 512)),
        }
    return {"d_block_sizes": (1, blocks.keys) * 2, "m_block_sizes": idle}


def _packed(shape: Shape, dtype: Any) -> Any:
    """The pool of version three: keys beside values, narrow elements in words of 32 bits."""
    packing = 4 // dtype.itemsize
    pages = shape.batch * shape.context // shape.page
    return struct((pages, shape.page, 2 * shape.kv_heads // packing, packing, shape.head_dim), dtype)


def _cases(shape: Shape) -> np.ndarray:
    """The sequences of one token, those of chunks that long, and all."""
    one = 0 if shape.chunk else shape.batch
    return np.array([one, one, shape.batch], np.int32)


def _begun(sizes: Mapping[int, int], kernel: str = "kernel") -> dict[str, np.ndarray]:
    """What RPA's semaphores and copies begin with, by operand: constants of its own, which XLA computes."""
    return {f"{kernel}:{n}": np.full(size, 0 if size == 3 else -1, np.int32) for n, size in sizes.items()}


def _places(shape: Shape) -> np.ndarray:
    """Where each sequence's queries begin, and the last ones end."""
    return max(1, shape.chunk) * np.arange(shape.batch + 1, dtype=np.int32)


def _tokens(shape: Shape, heads: int, dtype: Any = jnp.bfloat16) -> Any:
    return struct((shape.batch * max(1, shape.chunk), heads, shape.dim), dtype)


def _integers(steering: Mapping[Any, np.ndarray]) -> list[Any]:
    return [struct(value.shape, jnp.int32) for name, value in steering.items() if isinstance(name, int)]
