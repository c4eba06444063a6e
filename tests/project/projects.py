"""A small repository with a kernel, its helper and its reference."""

import subprocess
from pathlib import Path

HELPER = """
def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2
"""
KERNELS = """
import jax
from jax.experimental import pallas as pl

from pkg.helper import double


def twice(x):
    return pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""
REFERENCE = """
import jax


def twice(x):
    return x + x


def fails(x):
    raise ValueError("no reference today")


def make(key):
    return ({"x": jax.random.normal(key, (8, 128))},)


def of_tree(tree):
    return tree["x"] + tree["x"]
"""
TABLE = """
[tool.ratchet]
kernel = "pkg.kernels:twice"
reference = "pkg.reference:twice"

[tool.ratchet.problems.small]
inputs = ["f32[8,128]"]

[tool.ratchet.problems.large]
inputs = ["f32[16,128]"]
chip = "v6e"
"""


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def made(folder: Path, table: str = TABLE) -> Path:
    """A repository with one commit."""
    package = folder / "src" / "pkg"
    package.mkdir(parents=True)
    files = {"__init__": "", "helper": HELPER, "kernels": KERNELS, "reference": REFERENCE}
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    (folder / "pyproject.toml").write_text(table)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "A. User")
    git(folder, "config", "user.email", "user@example.invalid")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder
