"""What others decode and prefill with from pages, modelled on one chip, each at the best of some blocks of keys.

jax's two kernels come with jax. tpu-inference's are read from its package without what serves around them::

    .venv/uv/bin/uv pip install --no-deps tpu-inference==0.26.0 sympy mpmath

That release asks for the JAX that is here. sglang-jax has none that does: its kernels call what JAX 0.10 dropped.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.lib.decoding import Shape, paged_operands, row, scales_of, table_of
from benchmarks.lib.programs import modelled, of_function, struct
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline
from ratchet.values.status import Refusal

import jax.numpy as jnp  # isort: skip

KEYS = (128, 256, 512, 1024, 2048)
FEWEST = 512
"""Keys of a block for chunks: with fewer, the peers' programs compile for minutes."""
VMEM = 100 << 20
TPU_INFERENCE = importlib.util.find_spec("tpu_inference")
Peer = Callable[[Shape, int, Workers], Timeline]
"""The program at a shape, with blocks of so many keys."""


def paged(shape: Shape, keys: int, workers: Workers) -> Timeline:
    """jax's ``paged_attention``, which has neither windows nor one scale for all of a narrow cache."""
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    avals, steering = paged_operands(shape)
    program = functools.partial(paged_attention, pages_per_compute_block=keys // shape.page)
    return modelled(of_function(program, avals), workers, steering)


def ragged(shape: Shape, keys: int, workers: Workers) -> Timeline:
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
        sm_scale=shape.head_dim**-0.5,
        sliding_window=shape.window or None,
        **scales_of(shape),
        num_kv_pages_per_block=keys // shape.page,
        num_queries_per_block=128 if shape.chunk else 8,
        vmem_limit_bytes=VMEM,
    )
    avals = [_tokens(shape, shape.q_heads), struct(pool, jnp.dtype(shape.dtype)), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def ragged_v3(shape: Shape, keys: int, workers: Workers) -> Timeline:
    """tpu-inference's ``ragged_paged_attention`` in its third version; it writes no new keys here."""
    kernel = _kernel("ragged_paged_attention.v3.kernel")
    dtype, sequences = jnp.dtype(shape.dtype), 0 if shape.chunk else shape.batch
    packing = 4 // dtype.itemsize
    steering = {
        4: shape.lengths,
        5: table_of(shape, 1)[0].reshape(-1),
        6: _places(shape),
        7: np.array([sequences, sequences, shape.batch], np.int32),
        **_begun({4: 3, 5: 4, 6: 6}),
    }
    pool = (steering[5].size, shape.page, 2 * shape.kv_heads // packing, packing, shape.head_dim)
    new = [_tokens(shape, shape.kv_heads, dtype)] * 2
    blocks = (512, keys, 256, min(keys, 512)) if shape.chunk else (1, keys, 1, keys)
    program = functools.partial(
        kernel.ragged_paged_attention.__wrapped__,
        update_kv_cache=False,
        sm_scale=shape.head_dim**-0.5,
        sliding_window=shape.window or None,
        **scales_of(shape),
        **{"m_block_sizes" if shape.chunk else "d_block_sizes": blocks},
        vmem_limit_bytes=VMEM,
    )
    avals = [_tokens(shape, shape.q_heads), *new, struct(pool, dtype), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def ragged_v3_64(shape: Shape, keys: int, workers: Workers) -> Timeline:
    """tpu-inference's variant of it for heads of 64, with sinks; it writes one new key a sequence."""
    kernel, packing = _kernel("ragged_paged_attention.v3.kernel_hd64"), 2
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
        sm_scale=shape.dim**-0.5,
        sliding_window=shape.window or None,
        num_kv_pages_per_block=keys // shape.page,
        num_queries_per_block=1,
        vmem_limit_bytes=VMEM,
    )
    tokens = [_tokens(shape, heads) for heads in (shape.q_heads, shape.kv_heads, shape.kv_heads)]
    avals = [*tokens, pool, *_integers(steering), struct((shape.q_heads,), jnp.float32)]
    return modelled(of_function(program, avals), workers, steering)


def latent_v2(shape: Shape, keys: int, workers: Workers) -> Timeline:
    """tpu-inference's ``mla_ragged_paged_attention`` in its second version; it writes one new key a sequence."""
    kernel = _kernel("mla.v2.kernel")
    none, all_of = np.array([shape.batch] * 2, np.int32), np.array([0, shape.batch], np.int32)
    steering: dict[int | str, np.ndarray] = {
        5: shape.lengths,
        6: table_of(shape, 1)[0].reshape(-1),
        7: _places(shape),
        8: np.full(3, shape.batch, np.int32),
    }
    for name, sequences in (("kernel_0", all_of), ("kernel_1", none), ("kernel_2", none)):
        steps = {f"{name}:0": np.int32(sequences[1] - sequences[0]), f"{name}:4": sequences}
        steering |= steps | _begun({5: 3, 6: 4}, name) | {f"{name}:7": np.full((1, 6), -1, np.int32)}
    rotated = 64
    queries = [(shape.q_heads, shape.batch, shape.value_dim), (shape.batch, shape.q_heads, rotated)]
    new = [(shape.batch, shape.value_dim), (shape.batch, rotated)]
    pool = (steering[6].size, shape.page // 2, 2, shape.head_dim)
    program = functools.partial(
        kernel.mla_ragged_paged_attention.__wrapped__,
        sm_scale=0.1,
        num_kv_pages_per_block=keys // shape.page,
        num_queries_per_block=1,
        vmem_limit_bytes=VMEM,
    )
    avals = [*(struct(one, jnp.bfloat16) for one in (*queries, *new, pool)), *_integers(steering)]
    return modelled(of_function(program, avals), workers, steering)


def offered(shape: Shape) -> dict[str, Peer]:
    """The peers that have what a shape asks for, and are installed."""
    here = TPU_INFERENCE is not None
    if shape.value_dim:
        return {"tpu-inference MLA v2": latent_v2} if here else {}
    if shape.halves:
        return {"tpu-inference RPA v3, 64": ragged_v3_64} if here else {}
    peers: dict[str, Peer] = {"jax ragged_paged_attention": ragged}
    if not shape.window and not shape.chunk and shape.dtype == "bfloat16":
        peers["jax paged_attention"] = paged
    if here and shape.dtype != "int8":
        peers["tpu-inference RPA v3"] = ragged_v3
    return peers


def best(peer: Peer, shape: Shape, sizes: Sequence[int], workers: Workers) -> tuple[Timeline, str]:
    """The fastest of some blocks of keys; what cannot be compiled or modelled is named."""
    modelled: list[tuple[Timeline, int]] = []
    failed: list[tuple[int, Refusal]] = []
    for keys in sizes:
        if keys % shape.page or shape.context % keys or (shape.chunk and keys < FEWEST):
            continue
        try:
            modelled.append((peer(shape, keys, workers), keys))
        except Refusal as refusal:
            failed.append((keys, refusal))
    if not modelled:
        raise failed[0][1]
    timeline, keys = min(modelled, key=lambda pair: pair[0].cycles)
    tried = ", ".join(str(each) for _, each in modelled)
    return timeline, f"{keys} of {tried} keys" + "".join(f"; {n}: {refusal.status.name}" for n, refusal in failed)


def peers_of(shape: Shape, workers: Workers, sizes: Sequence[int] = KEYS) -> Iterator[dict[str, Any]]:
    """A line of the table for each; what has none says why."""
    for name, peer in offered(shape).items():
        try:
            yield row(shape, name, *best(peer, shape, sizes, workers))
        except Refusal as refusal:
            print(f"{shape.name}, {name}: {refusal.status.name}: {refusal.message:.200}")


def _kernel(module: str) -> Any:
    """A module of tpu-inference's kernels. Its package would start vllm, and its kernels ask which chip this is."""
    assert TPU_INFERENCE is not None
    name, version = TPU_INFERENCE.name, int(V5E.name[1])
    if name not in sys.modules:
        bare, logger, utils = map(types.ModuleType, (name, f"{name}.logger", f"{name}.utils"))
        bare.__path__ = list(TPU_INFERENCE.submodule_search_locations or ())
        logger.init_logger = logging.getLogger  # type: ignore[attr-defined]
        utils.get_device_name = lambda: "TPU v5e"  # type: ignore[attr-defined]
        sys.modules |= {one.__name__: one for one in (bare, logger, utils)}
    found = importlib.import_module(f"{name}.kernels.{module}")
    if hasattr(found, "get_tpu_version"):
        found.get_tpu_version = lambda: version  # type: ignore[attr-defined]
    return found


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
