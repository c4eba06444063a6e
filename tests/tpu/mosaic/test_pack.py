"""Packing and unpacking element by element, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.tpu.mosaic.twin import loaded


def _packed(*vectors: jax.Array, packed: Any) -> list[jax.Array]:
    """The packed words, and what each place of them unpacks to."""

    def kernel(*refs: Any) -> None:
        *inputs, words, unpacked = refs
        words[...] = pltpu.pack_elementwise([ref[...] for ref in inputs], packed_dtype=packed).astype(jnp.uint32)
        for n, ref in enumerate(inputs):
            unpacked[n] = pltpu.unpack_elementwise(words[...], index=n, packed_dtype=packed, unpacked_dtype=ref.dtype)

    shape = vectors[0].shape
    return pl.pallas_call(
        kernel,
        out_shape=[
            jax.ShapeDtypeStruct(shape, jnp.uint32),
            jax.ShapeDtypeStruct((len(vectors), *shape), vectors[0].dtype),
        ],
    )(*vectors)


@pytest.mark.parametrize(("wide", "packed", "count"), [
    (jnp.float32, jnp.bfloat16, 2), (jnp.int32, jnp.int16, 2), (jnp.int32, jnp.int8, 4),
])  # fmt: skip
def test_the_first_is_lowest_and_comes_back(wide: Any, packed: Any, count: int) -> None:
    random = np.random.default_rng(0)
    vectors = [(random.normal(size=(8, 128)) * 1e4).astype(wide) for _ in range(count)]
    result = loaded(lambda *v: _packed(*v, packed=packed), *vectors).check(vectors)
    narrow = np.stack([v.astype(packed) for v in vectors])
    words = np.stack(list(narrow), axis=-1).view(np.uint32)[..., 0]
    assert result.findings == ()
    np.testing.assert_array_equal(result.outputs[0], words)
    np.testing.assert_array_equal(result.outputs[1], narrow.astype(wide))
