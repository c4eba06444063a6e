"""What a kernel file computes, interpreted on a CPU."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from ratchet.tpu.library import execute
from ratchet.tpu.mosaic.findings import RunResult


def values(text: str) -> np.ndarray:
    """float32[TOKENS, WIDTH] that a kernel of ``sources`` makes of the same random inputs."""
    names = _run(text)
    shape = (names["TOKENS"], names["WIDTH"])
    arrays = [jax.random.normal(key, shape, jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 3)]
    return np.asarray(names["kernel_fn"](*arrays), np.float32)


def results(text: str) -> list[np.ndarray]:
    """What a kernel file makes of its own inputs, in float32."""
    names = _run(text)
    made = names["kernel_fn"](*names["generate_inputs"](jax.random.key(1)))
    return [np.asarray(one, np.float32) for one in jax.tree.leaves(made)]


def executed(text: str) -> RunResult:
    """The same by the executor of TPU programs, with what it finds of hazards."""
    names: dict[str, Any] = {}
    exec(compile(text, "kernel", "exec"), names)
    shape = (names["TOKENS"], names["WIDTH"])
    arrays = [jax.random.normal(key, shape, jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 3)]
    return execute(names["kernel_fn"], *arrays)


def _run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"interpreted": functools.partial(pl.pallas_call, interpret=True)}
    edited = re.sub(r"\b\w+\.pallas_call\(", "interpreted(", text)
    assert edited != text
    exec(compile(edited, "kernel", "exec"), names)
    return names
