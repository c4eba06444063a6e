"""Kernels that write in place are compiled as their callers use them: without a copy of what they overwrite."""

import jax
import jax.numpy as jnp
import pytest

from ratchet.tpu.dump.files import load_hlo
from tests.exam.judge.programs import artefact, blocked, double

IN_PLACE = blocked(double, input_output_aliases={0: 0})
X = ((1024, 128), jnp.float32)


@pytest.mark.parametrize(
    ("function", "aliases"),
    [
        (IN_PLACE, (((), 0),)),
        (jax.jit(IN_PLACE), (((), 0),)),
        (lambda x: IN_PLACE(x.reshape(1024, 128)), (((), 0),)),
        (blocked(double), ()),
        (lambda x: IN_PLACE(x) + 1, ()),
        (lambda x: (IN_PLACE(x), x + 1), (((0,), 0),)),
        (lambda x: IN_PLACE(x + 1), ()),
    ],
    ids=["direct", "in a function", "reshaped", "not in place", "result used", "read elsewhere", "computed"],
)
def test_only_what_a_kernel_overwrites_itself_is_donated(compiled, function, aliases):
    program = compiled(artefact(function, X))
    assert load_hlo(program.dump_dir).aliases == aliases


def test_a_donated_parameter_is_not_copied(compiled):
    before = compiled(artefact(lambda x: IN_PLACE(x) + 1, X)).copies
    assert sum(copy.size_bytes for copy in before) == 1024 * 128 * 4
    assert compiled(artefact(IN_PLACE, X)).copies == ()
