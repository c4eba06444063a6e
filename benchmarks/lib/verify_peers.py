"""tokamax's kernels for the TPU, to verify. There are none where it is not installed: ``pip install -e .[peers]``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.verify_cases import Case, normal

_OPS = "tokamax._src.ops"
_GROUPS = np.array([100, 0, 300, 112], np.int32)


def _grouped(transposed: bool) -> Case:
    kernels = importlib.import_module(f"{_OPS}.ragged_dot.pallas_mosaic_tpu_kernel")
    shapes = ((256, 512), (512, 384)) if transposed else ((512, 256), (4, 256, 384))
    name = "tgmm" if transposed else "gmm"
    return Case(
        name=f"tokamax {name}",
        function=functools.partial(
            getattr(kernels, name),
            precision=(jax.lax.Precision.DEFAULT, jax.lax.Precision.DEFAULT),
            out_dtype=jnp.bfloat16,
            tiling=(128, 128, 128),
        ),
        inputs=(normal(0, shapes[0]), normal(1, shapes[1]), _GROUPS),
    )


def _splash(backward: bool) -> Case:
    folder = f"{_OPS}.experimental.tpu.splash_attention"
    splash = importlib.import_module(f"{folder}.splash_attention_kernel")
    masks = importlib.import_module(f"{folder}.splash_attention_mask")
    config = splash.SplashConfig(
        block_q=256, block_kv=256, block_kv_compute=128, block_q_dkv=256, block_kv_dkv=256, block_kv_dkv_compute=128
    )
    kernel = splash.make_splash_mha(masks.CausalMask((1024, 1024)), q_seq_shards=1, config=config)

    def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return kernel(q, k, v)

    def gradients(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return jax.grad(lambda *a: (kernel(*a).astype(jnp.float32) ** 2).sum(), (0, 1, 2))(q, k, v)

    return Case(
        name=f"tokamax splash_attention {'backward' if backward else 'forward'}",
        function=gradients if backward else forward,
        inputs=tuple(normal(i, (2, 1024, 128)) for i in range(3)),
        tolerance=2e-2,
    )


def _cross_entropy(backward: bool) -> Case:
    kernels = importlib.import_module(f"{_OPS}.linear_softmax_cross_entropy_loss.pallas_mosaic_tpu_kernel")
    blocks = {"b_block_size": 1024, "h_block_size": 128, "v_block_size": 256}
    loss = functools.partial(kernels.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu, **blocks)
    gradients = functools.partial(kernels.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu, **blocks)

    def both(x: jax.Array, labels: jax.Array, w: jax.Array) -> Any:
        value, lse = loss(x, labels, w)
        return gradients(jnp.ones_like(value), lse, x, labels, w)

    def plain(x: jax.Array, labels: jax.Array, w: jax.Array) -> Any:
        def total(x: jax.Array, w: jax.Array) -> jax.Array:
            logits = jnp.dot(x, w, precision=jax.lax.Precision.HIGHEST)
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).sum()

        return jax.grad(total, (0, 1))(x, w)

    labels = np.random.default_rng(0).integers(0, 1024, 1024).astype(np.int32)
    return Case(
        name=f"tokamax linear cross-entropy {'backward' if backward else 'forward'}",
        function=both if backward else loss,
        inputs=(normal(0, (1024, 256), jnp.float32), labels, normal(1, (256, 1024), jnp.float32)),
        tolerance=1e-4,
        # Interpret mode knows no DMAs whose size is decided at run time.
        reference=plain if backward else None,
    )


BUILDERS: dict[str, Callable[[], Case]] = (
    {
        "tokamax_gmm": functools.partial(_grouped, False),
        "tokamax_tgmm": functools.partial(_grouped, True),
        "tokamax_splash": functools.partial(_splash, False),
        "tokamax_splash_backward": functools.partial(_splash, True),
        "tokamax_cross_entropy": functools.partial(_cross_entropy, False),
        "tokamax_cross_entropy_backward": functools.partial(_cross_entropy, True),
    }
    if importlib.util.find_spec("tokamax") is not None
    else {}
)
