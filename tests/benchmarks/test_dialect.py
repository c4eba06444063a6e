"""The minimal kernels that the TPU compiler is asked by: the bindings take one of every operation that it took."""

from __future__ import annotations

from importlib import metadata

import pytest

from benchmarks import dialect
from benchmarks.lib import dialect_kernels
from benchmarks.lib.dialect_kernels import SPARSE_CORE, TENSOR_CORE, Core
from benchmarks.lib.dialects import lowers

TOOK = lowers(metadata.version("jax"))


def texts(core: Core, operation: str) -> list[str]:
    made = []
    for body in dialect_kernels.lines(operation):
        try:
            made.append(dialect.kernel(core, body))
        except ValueError:
            continue
    return made


@pytest.mark.parametrize("core", [Core(kind=TENSOR_CORE, lanes=8), Core(kind=SPARSE_CORE, lanes=8)], ids=["tc", "sc"])
def test_there_is_a_kernel_of_each_operation_that_compiles(core: Core) -> None:
    took = [
        name for name, places in TOOK.items()
        if any(place.endswith(".sc") == (core.kind == SPARSE_CORE) for place in places)
    ]  # fmt: skip
    assert len(took) > 100 or core.kind == SPARSE_CORE
    kernels = {name: texts(core, name) for name in took}
    assert [name for name, made in kernels.items() if not made] == []
    assert [name for name, made in kernels.items() if not any(name in text for text in made)] == []


def test_what_a_kernel_computes_is_stored() -> None:
    (text,) = texts(Core(kind=TENSOR_CORE, lanes=8), "vector.from_elements")
    assert text.index("vector.from_elements") < text.index("tpu.vector_store")


def test_no_kernel_is_made_of_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="operand"):
        dialect.kernel(Core(kind=TENSOR_CORE, lanes=8), '%r = "arith.addf"(%n, %m) : (I, I) -> I')
