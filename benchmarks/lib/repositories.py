"""Where the kernels come from, and how a module of theirs is imported without the framework around it."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import TestCase

import jax

INSTALLED = "installed"
"""Instead of a commit: the repository's package is in this environment."""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository of public kernels."""

    origin: str
    """``owner/name``."""
    commit: str
    root: str = ""
    """The folder in it that goes on ``sys.path``."""
    bare: tuple[str, ...] = ()
    """Packages whose ``__init__`` is not run: it would import a whole framework."""
    stubs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Modules that kernels import and that need the framework: what they must hold, of our own making."""
    is_older: bool = False
    """It names memory spaces and functions of semaphores as JAX did before."""


def _logger(name: str) -> logging.Logger:
    """As the framework's: with a method more."""
    logger = logging.getLogger(name)
    logger.warning_once = logger.info_once = logger.debug  # type: ignore[attr-defined]
    return logger


def _over(size: int, step: int) -> int:
    return -(-size // step)


REPOSITORIES = {
    "jax": Repository(origin="jax-ml/jax", commit=INSTALLED),
    "jax-source": Repository(
        origin="jax-ml/jax",
        commit="990e6a0b84138346e6a38785412f36356e0e5dc3",
        root="tests/pallas",
        stubs={
            "jax._src.hypothesis_test_util": {
                "setup_hypothesis": lambda: None,
                "hypothesis_is_thread_safe": bool,
                "HypothesisShardedTestCase": TestCase,
            }
        },
        is_older=True,
    ),
    "tpu-inference": Repository(
        origin="vllm-project/tpu-inference",
        commit="b8692ff01fa191343836996c27a39dc95f008b88",
        bare=("tpu_inference",),
        stubs={
            "tpu_inference.logger": {"init_logger": _logger},
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
    "tpu-collectives": Repository(
        origin="beshrislambouli/TPU-Collectives",
        commit="77c3d008d0bb9c01f48b9250d785a9dce7594942",
        is_older=True,
    ),
    "pallas-kernel": Repository(
        origin="sdh1014/pallas-kernel",
        commit="a8e38dc71169c974aa00f8e1acbe257ce0a516e2",
        bare=("tops", "tops.ops", "tops.ops.gla", "tops.ops.common"),
    ),
}
"""By the name that begins a case's; a folder of this name holds the clone."""

SITE = ("einshape", "jaxtyping", "wadler-lindig", "pydantic", "pydantic-core", "annotated-types", "typing-inspection",
        "immutabledict", "typeguard==2.13.3", "tqdm", "chex", "toolz", "einops",
        "absl-py", "hypothesis", "sortedcontainers")  # fmt: skip
"""What modules of the repositories import besides JAX; without dependencies, so that JAX stays as it is."""


def clone_commands(sources: Path) -> list[str]:
    """Shell commands that fetch the repositories at their commits, and what they import."""
    commands = [
        f"git clone URL-OF/{one.origin} {sources / name} && git -C {sources / name} checkout {one.commit}"
        for name, one in REPOSITORIES.items()
        if one.commit != INSTALLED
    ]
    return [*commands, f"pip install --no-deps --target {sources / 'site'} {' '.join(SITE)}"]


def module_of(name: str, path: str, sources: Path) -> Any:
    """The module at ``path`` of a repository, whose clone is ``sources/name``; packages in ``sources/site`` come last.

    Of a notebook, the code of its cells; of a page in Markdown, its blocks.

    Raises:
        FileNotFoundError: the repository is not there.
    """
    repository = REPOSITORIES[name]
    if repository.commit != INSTALLED:
        _enter(repository, sources, name)
    if path.endswith(".ipynb"):
        return cells(sources / name / path)
    if path.endswith(".md"):
        return blocks(sources / name / path)
    return import_module(path.removeprefix(f"{repository.root}/").removesuffix(".py").replace("/", "."))


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    return ["".join(one["source"]) for one in json.loads(notebook.read_text())["cells"] if one["cell_type"] == "code"]


def blocks(page: Path) -> list[str]:
    """The Python of a page in Markdown, block by block; what only a notebook understands is left out."""
    listed = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [one for one in listed if "%timeit" not in one]


def _enter(repository: Repository, sources: Path, name: str) -> None:
    root = sources / name / repository.root
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no folder: clone {repository.origin} to {sources / name}")
    sys.path.insert(0, str(root))
    sys.path.append(str(sources / "site"))
    for package in repository.bare:
        module = ModuleType(package)
        module.__path__ = [str(root.joinpath(*package.split(".")))]
        sys.modules[package] = module
    if repository.is_older:
        _name_as_before()
    for stub, held in repository.stubs.items():
        module = ModuleType(stub)
        vars(module).update(held)
        sys.modules[stub] = module


def _name_as_before() -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    spaces = {name: getattr(pltpu, name) for name in ("VMEM", "SMEM", "HBM")}
    pltpu.MemorySpace = pltpu.TPUMemorySpace = SimpleNamespace(**spaces, ANY=pl.ANY)
    for name in ("DeviceIdType", "semaphore_signal", "semaphore_wait"):
        setattr(pltpu, name, getattr(pl, name))
