"""Frozen programs, as they are called."""

import os
import subprocess
import sys

import pytest

from tests.imports import HERE
from tests.tiers import slow_but

CALLS = """
from types import SimpleNamespace
import jax, numpy as np
from jax import export, numpy as jnp
from ratchet.exam.problem.programs import Programs

def drawn(key):
    given = jax.random.normal(jax.random.wrap_key_data(key), (8, 64, 64))
    tied = lambda scale: scale * given + 64 * jnp.eye(64)
    return [{call} for scale in range(1, 25)]

program = export.export(jax.jit(drawn), platforms=["cpu", "tpu"])(jax.ShapeDtypeStruct((2,), jnp.uint32)).serialize()
programs, problem = Programs(), SimpleNamespace(inputs_program=bytes(program))
for number in range(10):
    made = programs.drawn(problem, np.array([0, number], np.uint32))
    assert len(made) == 24 and all(np.isfinite(array).all() for array in made)
"""


@pytest.mark.parametrize("call", slow_but(1, ["jnp.linalg.qr(tied(scale))[0]", "jnp.linalg.inv(tied(scale))"]))
def test_calls_of_lapack_that_run_at_once_do_not_wait_for_each_other(call):
    """On a device of XLA's default they do, for ever: more of them than threads, each waiting for others' threads."""
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as a judge's child has it; more spin against each other
    subprocess.run([sys.executable, "-c", CALLS.format(call=call)], cwd=HERE, env=alone, timeout=120, check=True)
