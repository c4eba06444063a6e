"""The seven symbols of a named problem: made of the user's reference, and of inputs by shape and dtype.

A kernel file holds all seven. Here a project's table says which function is the reference and what its inputs are, and
the kernel was exported by a process of its own: this one never imports it.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from ratchet.exam.candidate import contract
from ratchet.exam.candidate.user_code import SourceFinder, blame
from ratchet.exam.problem.work import work_of
from ratchet.tpu import exporting
from ratchet.tpu.exporting import in_one_line
from ratchet.values.status import Refusal, Status

Function = Callable[..., Any]


def module(problem: Mapping[str, Any]) -> ModuleType:
    """A module with the seven symbols of ``problem``, as ``ratchet.project.table`` writes it down.

    Raises:
      Refusal: ``CONTRACT``. What the user's modules raise on import is raised.
    """
    made = ModuleType("problem_under_judgement")
    generator = _named(problem["generator"]) if problem["generator"] else None
    generate = generator or functools.partial(drawn, specs=problem["inputs"])
    arguments = jax.eval_shape(generate, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
    leaves, tree = jax.tree.flatten(arguments if isinstance(arguments, tuple) else (arguments,))
    reference, options = _named(problem["reference"]), problem["options"]

    def reference_fn(*arrays: Any) -> Any:
        return jax.tree.leaves(reference(*jax.tree.unflatten(tree, arrays), **options))

    made.__dict__.update(
        {
            "KERNEL_NAME": problem["name"],
            "PROBLEM_DESCRIPTION": problem["description"],
            "kernel_fn": _exported_elsewhere,
            "reference_fn": reference_fn,
            "generate_inputs": lambda key: jax.tree.leaves(generate(key)),
            "compute_flops": lambda: sum(work_of(reference_fn, *leaves).products.values()),
        }
    )
    contract.check_symbols(made.__dict__)
    return made


def unpacked(folder: Path, asked: Mapping[str, Any]) -> tuple[ModuleType, export.Exported, SourceFinder]:
    """What a project's problem comes with: its module, the kernel that another process exported, and the user's files.

    Raises:
      Refusal: ``IMPORT_FAILED`` with the line of the user's, ``LOWERING_FAILED`` for a program that cannot be read.
    """
    files = SourceFinder.unpacked(folder / asked["files"], folder / "tree")
    files.install()
    with blame(Status.IMPORT_FAILED, files, "the reference and its inputs"):
        found = module(asked["problem"])
    try:
        program = exporting.read((folder / asked["program"]).read_bytes())
    except Exception as error:  # flatbuffers raises nearly anything
        message = f"the program of JAX {asked['problem']['jax_version']} cannot be read by {jax.__version__}"
        raise Refusal(Status.LOWERING_FAILED, f"{message}: {in_one_line(error)}") from None
    return found, program, files


def drawn(key: Any, *, specs: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Random arrays: floats from a normal distribution, small integers and booleans from all of their values.

    Raises:
      Refusal: ``CONTRACT`` for wider integers: what they may be is not known from a dtype.
    """
    keys = jax.random.split(key, max(len(specs), 1))
    return tuple(_drawn(one, tuple(spec["shape"]), spec["dtype"]) for one, spec in zip(keys, specs, strict=False))


def _drawn(key: Any, shape: tuple[int, ...], name: str) -> Any:
    try:
        dtype = jnp.dtype(name)
    except TypeError:
        raise Refusal(Status.CONTRACT, f"{name!r:.40} is no dtype of JAX's: wanted one such as bfloat16") from None
    if dtype == jnp.bool_:
        return jax.random.bernoulli(key, 0.5, shape)
    if jnp.issubdtype(dtype, jnp.floating):
        return jax.random.normal(key, shape, jnp.float32).astype(dtype)
    info = jnp.iinfo(dtype)
    if info.bits <= 8:
        wide = jax.random.randint(key, shape, int(info.min), int(info.max) + 1, jnp.int32)
        return wide.astype(dtype)
    size = "x".join(map(str, shape)) if math.prod(shape) else "empty"
    message = (
        f"an input is {name} ({size}), whose values matter: give inputs as a function of a key, package.module:function"
    )
    raise Refusal(Status.CONTRACT, message)


def _named(named: Sequence[str]) -> Function:
    """A function by module and name, dots allowed."""
    found: Any = functools.reduce(getattr, named[1].split("."), importlib.import_module(named[0]))
    if not callable(found):
        raise Refusal(Status.CONTRACT, f"{':'.join(named)} is {type(found).__name__}, wanted a function")
    return found  # type: ignore[no-any-return]


def _exported_elsewhere(*_: Any) -> Any:
    raise Refusal(Status.CONTRACT, "the kernel was exported by another process")
