"""Edited kernels compute what they computed: all edits on top of each other, interpreted on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import ATTENTION, edits

CHAIN = (Edit.MASK, Edit.RESIDENT, Edit.SCALE, Edit.BASE_2, Edit.WIDE, Edit.LANES, Edit.STRIPS, Edit.DIVIDE)


def values(text: str) -> np.ndarray:
    """What the kernel makes of the same random inputs."""
    names: dict[str, object] = {}
    exec(compile(text.replace("    )(a, b, c)", "    interpret=True)(a, b, c)"), "kernel", "exec"), names)
    shape = (names["TOKENS"], names["WIDTH"])
    arrays = [jax.random.normal(key, shape, jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 3)]
    return np.asarray(names["kernel_fn"](*arrays), np.float32)  # type: ignore[operator]


@pytest.mark.slow
def test_an_attention_kernel_with_every_edit_attends_as_before():
    text = ATTENTION.replace(
        "    )(a, b, c)", "        compiler_params=tpu.CompilerParams(vmem_limit_bytes=2**26),\n    )(a, b, c)"
    )
    before = values(text)
    for edit in CHAIN:
        (one,) = edits(text, edit)
        text = one.after.decode()
    after = values(text)
    assert "exp2" in text
    assert np.abs(before).max() > 1
    np.testing.assert_allclose(after, before, atol=0.03)
