"""Kernels to verify, nearly all written elsewhere, at sizes that a CPU executes in seconds.

Most come with jax itself (``jax.experimental.pallas.ops.tpu``); the others follow the patterns of the Pallas guides:
a layer norm, an int8 matrix product, a pipeline whose DMAs are written by hand, and one made by ``emit_pipeline``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import all_gather, flash_attention, matmul
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel as ragged_kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from benchmarks.lib.sources import ROOT, edited, names_of

# The package exports a function under the module's own name.
megablox = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program and what to run it on."""

    name: str
    function: Callable[..., Any]
    """Not interpreted; the benchmark makes the interpreted twin of it."""
    inputs: tuple[np.ndarray, ...]
    tolerance: float = 1e-2
    """Largest difference allowed, relative to the largest magnitude: a few roundings of the output's dtype."""
    devices: int = 1
    reference: Callable[..., Any] | None = None
    """What to compare with where interpret mode cannot run the kernel."""


def normal(seed: int, shape: tuple[int, ...], dtype: Any = jnp.bfloat16) -> np.ndarray:
    """Normal numbers, rounded to ``dtype``."""
    return np.asarray(jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype))


def _flash() -> Case:
    q, k, v = (normal(i, (1, 2, 1024, 128)) for i in range(3))
    blocks = flash_attention.BlockSizes(block_q=256, block_k_major=256, block_k=128, block_b=1)
    return Case(
        name="jax flash_attention",
        function=functools.partial(flash_attention.flash_attention, causal=True, sm_scale=0.1, block_sizes=blocks),
        inputs=(q, k, v),
    )


def _splash(backward: bool, fused: bool = False) -> Case:
    q, k, v = (normal(i, (2, 1024, 128)) for i in range(3))
    mask = masks.MultiHeadMask([masks.CausalMask((1024, 1024)), masks.LocalMask((1024, 1024), (300, 0), 0)])
    sizes = splash.BlockSizes(
        block_q=256, block_kv=256, block_kv_compute=128, block_q_dkv=256, block_kv_dkv=256, block_kv_dkv_compute=128,
        block_q_dq=None if fused else 256, block_kv_dq=None if fused else 256, use_fused_bwd_kernel=fused,
    )  # fmt: skip
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)

    def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return kernel(q, k, v)  # type: ignore[no-any-return]

    def gradients(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return jax.grad(lambda *a: (kernel(*a).astype(jnp.float32) ** 2).sum(), (0, 1, 2))(q, k, v)

    name = "jax splash_attention" + (" backward" if backward else " forward") + (" fused" if fused else "")
    return Case(name=name, function=gradients if backward else forward, inputs=(q, k, v), tolerance=2e-2)


def _paged(inline: bool) -> Case:
    batch, heads, pages, size = 4, 8, 32, 16
    order = np.random.default_rng(0).permutation(pages).astype(np.int32).reshape(batch, pages // batch)
    return Case(
        name="jax paged_attention" + ("" if inline else " over a grid"),
        function=functools.partial(
            paged_attention_kernel.paged_attention, pages_per_compute_block=4, inline_seq_dim=inline
        ),
        inputs=(
            normal(0, (batch, heads, 128)),
            normal(1, (2, pages, size, 128)),
            normal(2, (2, pages, size, 128)),
            np.array([100, 1, 128, 37], np.int32),
            order,
        ),
    )


def _ragged() -> Case:
    pages = np.random.default_rng(0).permutation(32).astype(np.int32).reshape(4, 8)
    return Case(
        name="jax ragged_paged_attention",
        function=functools.partial(
            ragged_kernel.ragged_paged_attention, num_kv_pages_per_block=2, num_queries_per_block=16, sm_scale=0.1
        ),
        inputs=(
            normal(0, (64, 8, 128)),
            normal(1, (32, 16, 8, 128)),
            np.array([90, 40, 128, 0], np.int32),
            pages,
            np.array([0, 20, 21, 64, 64], np.int32),
            np.array([3], np.int32),
        ),
        # The rows after the last sequence's are not computed; there are none here.
        reference=functools.partial(ragged_kernel.ref_ragged_paged_attention, sm_scale=0.1),
    )


_GROUPS = np.array([100, 0, 300, 112], np.int32)


def _megablox(name: str, *shapes: tuple[int, ...]) -> Case:
    return Case(
        name=f"jax megablox {name}",
        function=functools.partial(getattr(megablox, name), tiling=(128, 128, 128)),
        inputs=(*(normal(i, shape) for i, shape in enumerate(shapes)), _GROUPS),
    )


def _matmul() -> Case:
    return Case(
        name="jax matmul",
        function=functools.partial(matmul.matmul, block_shape=(256, 256), block_k=256),
        inputs=(normal(0, (1024, 1024)), normal(1, (1024, 1024))),
    )


def _int8() -> Case:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (512, 2048)).astype(np.int8), rng.integers(-128, 128, (2048, 512)).astype(np.int8))
    return Case(
        name="int8 matmul",
        function=functools.partial(matmul.matmul, block_shape=(256, 256), block_k=2048, out_dtype=jnp.int32),
        inputs=(a, b),
        tolerance=0.0,
    )


def _layer_norm() -> Case:
    def kernel(x: Any, g: Any, b: Any, o: Any) -> None:
        value = x[...].astype(jnp.float32)
        mean = value.mean(-1, keepdims=True)
        spread = jax.lax.rsqrt(((value - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        o[...] = ((value - mean) * spread * g[...] + b[...]).astype(o.dtype)

    rows = pl.BlockSpec((128, 1024), lambda i: (i, 0))
    whole = pl.BlockSpec((1, 1024), lambda i: (0, 0))
    return Case(
        name="layer norm, ragged rows",
        function=pl.pallas_call(
            kernel, grid=(8,), in_specs=[rows, whole, whole], out_specs=rows,
            out_shape=jax.ShapeDtypeStruct((1000, 1024), jnp.bfloat16),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        ),
        inputs=(normal(0, (1000, 1024)), normal(1, (1, 1024), jnp.float32), normal(2, (1, 1024), jnp.float32)),
    )  # fmt: skip


def _double_buffered() -> Case:
    """Blocks of the input arrive in two buffers by turns, copied by hand."""
    rows, steps = 128, 16

    def kernel(x: Any, o: Any, *scratch: Any) -> None:
        buffer, out, arrived, left = scratch

        def fetch(step: Any, slot: Any) -> Any:
            return pltpu.make_async_copy(x.at[pl.ds(step * rows, rows)], buffer.at[slot], arrived.at[slot])

        def send(step: Any, slot: Any) -> Any:
            return pltpu.make_async_copy(out.at[slot], o.at[pl.ds(step * rows, rows)], left.at[slot])

        fetch(0, 0).start()

        def body(step: Any, _: Any) -> None:
            slot = jax.lax.rem(step, 2)

            @pl.when(step + 1 < steps)
            def _() -> None:
                fetch(step + 1, 1 - slot).start()

            fetch(step, slot).wait()

            @pl.when(step >= 2)
            def _() -> None:
                send(step - 2, slot).wait()

            out[slot] = jnp.tanh(buffer[slot]) * 2
            send(step, slot).start()

        jax.lax.fori_loop(0, steps, body, None)
        send(steps - 2, 0).wait()
        send(steps - 1, 1).wait()

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return Case(
        name="DMAs double-buffered by hand",
        function=pl.pallas_call(
            kernel, in_specs=[anywhere], out_specs=anywhere,
            out_shape=jax.ShapeDtypeStruct((rows * steps, 256), jnp.float32),
            scratch_shapes=[pltpu.VMEM((2, rows, 256), jnp.float32)] * 2 + [pltpu.SemaphoreType.DMA((2,))] * 2,
        ),
        inputs=(normal(0, (rows * steps, 256), jnp.float32),),
        tolerance=1e-5,
    )  # fmt: skip


def _emit_pipeline() -> Case:
    def inner(x: Any, y: Any, o: Any) -> None:
        o[...] = x[...] * 2 + y[...]

    def kernel(x: Any, y: Any, o: Any) -> None:
        block = pl.BlockSpec((128, 256), lambda i, j: (i, j))
        pltpu.emit_pipeline(inner, grid=(4, 2), in_specs=[block, block], out_specs=block)(x, y, o)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return Case(
        name="emit_pipeline",
        function=pl.pallas_call(
            kernel, in_specs=[anywhere, anywhere], out_specs=anywhere,
            out_shape=jax.ShapeDtypeStruct((512, 512), jnp.float32),
        ),
        inputs=(normal(0, (512, 512), jnp.float32), normal(1, (512, 512), jnp.float32)),
        tolerance=1e-5,
    )  # fmt: skip


def _all_gather() -> Case:
    """Every device's shard to every device, by remote copies to both neighbours."""
    spec = jax.sharding.PartitionSpec("x")
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), ("x",))
    gather = functools.partial(all_gather.all_gather, mesh=mesh, axis_name="x")
    return Case(
        name="jax all_gather, 4 devices",
        function=jax.jit(gather, in_shardings=jax.sharding.NamedSharding(mesh, spec)),
        inputs=(normal(0, (256, 128), jnp.float32),),
        tolerance=0.0,
        devices=4,
        reference=lambda x: x,
    )


def _own(name: str, **constants: int) -> Case:
    """A kernel file of this repository, with other constants such as block sizes."""
    names = names_of(edited((ROOT / name).read_text(), **constants))
    inputs = jax.tree.leaves(names["generate_inputs"](jax.random.key(0)))
    return Case(
        name=", ".join((name, *(f"{key} {value}" for key, value in constants.items()))),
        function=names["kernel_fn"],
        inputs=tuple(np.asarray(x) for x in inputs),
    )


def _decode() -> Case:
    """``decode_kernel.py`` at half its context, on a mesh of four devices where the judge has an ambient one."""
    names = names_of(edited((ROOT / "decode_kernel.py").read_text(), CONTEXT=16384))
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), ("chip",))
    placed = [
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        for spec in names["get_tiling_meta"]()["input_shardings"]
    ]

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return names["kernel_fn"](q, k, v)  # type: ignore[no-any-return]

    return Case(
        name="decode_kernel.py, 4 devices",
        function=jax.jit(function, in_shardings=tuple(placed)),
        inputs=tuple(np.asarray(x) for x in jax.tree.leaves(names["generate_inputs"](jax.random.key(0)))),
        devices=4,
        reference=names["reference_fn"],  # interpret mode cannot run its remote copies
    )


BUILDERS: dict[str, Callable[[], Case]] = {
    "naive_128x256": functools.partial(_own, "examples/naive_attention.py", BQ=128, BKV=256),
    "naive_1024": functools.partial(_own, "examples/naive_attention.py", BQ=1024, BKV=1024),
    "kernel": functools.partial(_own, "kernel.py"),
    "decode": _decode,
    "flash": _flash,
    "splash": functools.partial(_splash, backward=False),
    "splash_backward": functools.partial(_splash, backward=True),
    "splash_backward_fused": functools.partial(_splash, backward=True, fused=True),
    "paged": functools.partial(_paged, inline=True),
    "paged_grid": functools.partial(_paged, inline=False),
    "ragged_paged": _ragged,
    "gmm": functools.partial(_megablox, "gmm", (512, 256), (4, 256, 384)),
    "tgmm": functools.partial(_megablox, "tgmm", (256, 512), (512, 384)),
    "matmul": _matmul,
    "int8": _int8,
    "layer_norm": _layer_norm,
    "double_buffered": _double_buffered,
    "emit_pipeline": _emit_pipeline,
    "all_gather": _all_gather,
}
"""Every case."""
