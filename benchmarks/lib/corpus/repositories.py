"""Where the kernels come from, and how a module of theirs is imported without the framework around it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

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
    """It names memory spaces as JAX did before."""


def enter(repository: Repository, sources: Path, name: str) -> None:
    """Make ``name``'s modules importable from ``sources/name``; packages in ``sources/site`` come last.

    Raises:
        FileNotFoundError: the repository is not there.
    """
    if repository.commit == INSTALLED:
        return
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
        _name_spaces_as_before()
    for stub, held in repository.stubs.items():
        module = ModuleType(stub)
        vars(module).update(held)
        sys.modules[stub] = module


def _name_spaces_as_before() -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    spaces = {name: getattr(pltpu, name) for name in ("VMEM", "SMEM", "HBM")}
    pltpu.MemorySpace = pltpu.TPUMemorySpace = SimpleNamespace(**spaces, ANY=pl.ANY)


SITE = ("einshape", "jaxtyping", "wadler-lindig", "pydantic", "pydantic-core", "annotated-types", "typing-inspection",
        "immutabledict", "typeguard==2.13.3", "tqdm", "chex", "toolz", "einops")  # fmt: skip
"""What modules of the repositories import besides JAX; without dependencies, so that JAX stays as it is."""


def clone_commands(repositories: Mapping[str, Repository], sources: Path) -> list[str]:
    """Shell commands that fetch the repositories at their commits, and what they import."""
    fetched = {name: one for name, one in repositories.items() if one.commit != INSTALLED}
    commands = [
        f"git clone URL-OF/{one.origin} {sources / name} && git -C {sources / name} checkout {one.commit}"
        for name, one in fetched.items()
    ]
    return [*commands, f"pip install --no-deps --target {sources / 'site'} {' '.join(SITE)}"]
