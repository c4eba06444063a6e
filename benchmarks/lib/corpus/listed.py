"""The list: every repository and, by importing their modules, every case."""

from __future__ import annotations

import logging

import jax

from benchmarks.lib.corpus import jax_ops, serving, tpu_inference, training
from benchmarks.lib.corpus.case import CASES
from benchmarks.lib.corpus.repositories import INSTALLED, Repository


def _logger(name: str) -> logging.Logger:
    """As the framework's: with a method more."""
    logger = logging.getLogger(name)
    logger.warning_once = logger.info_once = logger.debug  # type: ignore[attr-defined]
    return logger


def _over(size: int, step: int) -> int:
    return -(-size // step)


REPOSITORIES = {
    "jax": Repository(origin="jax-ml/jax", commit=INSTALLED),
    "tpu-inference": Repository(
        origin="vllm-project/tpu-inference",
        commit="b8692ff01fa191343836996c27a39dc95f008b88",
        bare=("tpu_inference",),
        stubs={
            "tpu_inference.logger": {"init_logger": _logger},
            "tpu_inference.envs": {},
            "tpu_inference.utils": {
                "align_to": lambda size, step: -(-size // step) * step,
                "get_device_name": lambda num_devices=None: "TPU v5e",
                "get_dtype_packing": lambda dtype: 4 // dtype.itemsize,
                "TPU_HEAD_SIZE_ALIGNMENT": 128,
            },
        },
    ),
    "sglang-jax": Repository(
        origin="sgl-project/sglang-jax",
        commit="cddbf6f1cc33cbdd453bd8f36ff7051cf46ca176",
        root="python",
        bare=("sgl_jax", "sgl_jax.srt", "sgl_jax.srt.kernels"),
        stubs={
            "sgl_jax.srt.utils": {"cdiv": _over},
            "sgl_jax.srt.utils.common_utils": {
                "cdiv": _over,
                "next_power_of_2": lambda size: 1 << (size - 1).bit_length(),
            },
            "sgl_jax.srt.utils.jax_utils": {"get_device_name": lambda *_: "TPU v5e"},
        },
    ),
    "jetstream": Repository(
        origin="AI-Hypercomputer/JetStream",
        commit="acd4f5ad50ed2fb38e0e5bd7defd81e34a62706c",
        root="experimental/jax",
        is_older=True,
        bare=("inference", "inference.kernel", "inference.kernel.attention"),
    ),
    "pytorch-xla": Repository(
        origin="pytorch/xla",
        commit="41398bfff334fc8d3b1c00be6ea8cc5411f6d6bf",
        is_older=True,
        bare=("torch_xla", "torch_xla.experimental", "torch_xla.experimental.pallas_kernels"),
    ),
    "tokamax": Repository(
        origin="openxla/tokamax",
        commit="ab18dbc84d4338e3fa7e4a9a8d7c3ce4adf34782",
        bare=("tokamax",),
    ),
    "maxtext": Repository(
        origin="AI-Hypercomputer/maxtext",
        commit="e591f30cbbf217ed67ef71263ec0538239f9c3b8",
        root="src",
        bare=(
            "maxtext",
            "maxtext.kernels",
            "maxtext.kernels.attention",
            "maxtext.kernels.mhc",
            "maxtext.kernels.megablox",
        ),
        stubs={"maxtext.common": {}, "maxtext.common.common_types": {"DEFAULT_MASK_VALUE": -0.7 * 3.4028235e38}},
    ),
    "axlearn": Repository(
        origin="apple/axlearn",
        commit="34aed43c1b6e581c4753d06d7cbeedd5010ef26b",
        bare=("axlearn", "axlearn.common", "axlearn.common.kernels"),
        stubs={
            "axlearn.common.utils": {"Tensor": jax.Array, "get_tpu_dot_precision": lambda _: jax.lax.Precision.DEFAULT}
        },
    ),
    "qwix": Repository(origin="google/qwix", commit="aa623acb24c418563265fd8d541c1d51fc285269"),
    "pallas-kernel": Repository(
        origin="sdh1014/pallas-kernel",
        commit="a8e38dc71169c974aa00f8e1acbe257ce0a516e2",
        bare=("tops", "tops.ops", "tops.ops.gla", "tops.ops.common"),
    ),
}
"""By the name that begins a case's; a folder of this name holds the clone."""

__all__ = ["CASES", "REPOSITORIES", "jax_ops", "serving", "tpu_inference", "training"]
