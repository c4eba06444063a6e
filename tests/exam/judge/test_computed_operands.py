"""Tables and bounds that XLA computes beside a kernel steer the modelled run, too."""

import numpy as np
import pytest

from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.modelled import Modelled
from ratchet.tpu.computed_operands import computed_operands
from ratchet.tpu.dump.files import load_hlo
from ratchet.values import Timeline
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Status
from tests.exam.judge.programs import examined, request_of
from tests.kernels import edited
from tests.refusals import refused

ROWS = '''
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "rows"
PROBLEM_DESCRIPTION = "rows of some blocks doubled"
N, B = 1024, 128
BLOCK = pl.BlockSpec((B, 128), lambda i, table: (table[i], 0))


def _kernel(table, x, o):
    o[...] = x[...] * 2


def doubled(steps, table, x):
    """Those blocks of x whose numbers the table holds; others are left as they are."""
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(steps,), in_specs=[BLOCK], out_specs=BLOCK)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_kernel, out_shape=shape, grid_spec=grid, input_output_aliases={1: 0})(table, x)


def chosen(x, flags):
    return jnp.argsort(flags == 0), jnp.sum(flags != 0)


def kernel_fn(x, flags):
    table, count = chosen(x, flags)
    return doubled(count, table.astype(jnp.int32), x)


def reference_fn(x, flags):
    table, count = chosen(x, flags)
    wanted = jnp.zeros(N // B).at[table].set(jnp.arange(N // B) < count)
    return jnp.where(jnp.repeat(wanted, B)[:, None] > 0, x * 2, x)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, 128), jnp.float32), jax.random.bernoulli(b, 0.5, (N // B,)).astype(jnp.int32)


def compute_flops():
    return N * 128


def get_tiling_meta():
    return {"grid": [1], "buffers": [], "inputs": [], "outputs": [], "vreg_estimate_bytes": 0}
'''


def judged(workers, root, source: str, *, values: bool = True) -> Timeline:
    """Modelled as in a verdict, in a clone of its own; checked for its values first."""
    root.mkdir()
    artefact, problem = examined(source)
    exam = Examiner(workers=workers, root=root)
    work = workers.folder("program")
    request = request_of(root, source)
    model = Modelled(request=request, workers=workers, exam=exam, work=work, freeze=False)
    program, _ = model.compile(artefact)
    parity, _ = model.values(problem, artefact) if values else (None, "")
    timeline, _ = model.latency(problem, program)
    if parity is not None:
        model.control(problem, program, timeline, parity)
    return timeline


def public_flags() -> np.ndarray:
    import jax

    return np.asarray(
        jax.random.bernoulli(jax.random.split(jax.random.wrap_key_data(np.zeros(2, np.uint32)))[1], 0.5, (8,))
    )


def test_a_grid_bound_and_a_table_are_those_of_the_public_inputs_in_every_clone(workers, tmp_path):
    first, second = judged(workers, tmp_path / "one", ROWS), judged(workers, tmp_path / "two", ROWS, values=False)
    assert first.grid_steps == public_flags().sum()
    assert first.cycles == second.cycles, "two secrets"
    assert Unmodelled.FLOAT_TABLES not in first.not_modelled


FLOATS = edited(
    ROWS, ("jnp.argsort(flags == 0), jnp.sum(flags != 0)", "jnp.argsort(x[::B, 0] < 0), jnp.sum(x[::B, 0] >= 0)")
)


@pytest.mark.slow
def test_tables_from_floats_are_those_of_the_public_inputs_and_the_timeline_says_so(workers, tmp_path):
    first, second = judged(workers, tmp_path / "one", FLOATS), judged(workers, tmp_path / "two", FLOATS, values=False)
    assert Unmodelled.FLOAT_TABLES in first.not_modelled
    assert first.cycles == second.cycles


def test_a_kernel_that_is_wrong_on_the_public_inputs_alone_is_refused(workers, tmp_path):
    public = "x[0, 0] == generate_inputs(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)))[0][0, 0]"
    lazy = edited(FLOATS, ("return doubled(count,", f"return doubled(jnp.where({public}, 1, count),"))
    with refused(Status.WRONG_VALUES, "public inputs"):
        judged(workers, tmp_path / "lazy", lazy)


TWICE = """
    again, table = jax.jit(doubled), table.astype(jnp.int32)
    return again(count, table, again(count, table, x) * 0.5)
"""


@pytest.mark.slow
def test_a_call_that_is_executed_twice_by_the_same_table(workers, tmp_path):
    source = edited(
        ROWS, ("\n    return doubled(count, table.astype(jnp.int32), x)\n", TWICE), ("x * 2, x)", "x * 2, x * 0.5)")
    )
    assert judged(workers, tmp_path / "twice", source).grid_steps == 2 * public_flags().sum()


LOOP = """
    body = lambda i, y: doubled(count, jnp.roll(table, i).astype(jnp.int32), y)
    return jax.lax.fori_loop(0, 3, body, x)
"""


def test_a_call_that_is_executed_by_other_tables_in_a_loop(workers, tmp_path):
    source = edited(ROWS, ("\n    return doubled(count, table.astype(jnp.int32), x)\n", LOOP))
    timeline = judged(workers, tmp_path / "loop", source, values=False)
    flags = public_flags()
    assert timeline.grid_steps == 3 * flags.sum()


GROWING = """
    body = lambda i, y: doubled(count * (i % 2) + i, table.astype(jnp.int32), y)
    return jax.lax.fori_loop(0, TURNS, body, x)
"""


def test_each_turn_has_its_own_bound(workers, tmp_path):
    source = edited(ROWS, ("\n    return doubled(count, table.astype(jnp.int32), x)\n", GROWING), ("TURNS", "3"))
    timeline = judged(workers, tmp_path / "loop", source, values=False)
    assert timeline.grid_steps == 0 + (public_flags().sum() + 1) + 2


def test_more_turns_than_are_kept_are_refused_by_name(workers, tmp_path):
    source = edited(ROWS, ("\n    return doubled(count, table.astype(jnp.int32), x)\n", GROWING), ("TURNS", "1025"))
    with refused(Status.SCHEDULE_UNKNOWN, "kernel _kernel is executed 1025 times"):
        judged(workers, tmp_path / "loop", source, values=False)


def test_only_what_xla_computes_is_asked_for(workers, tmp_path, compiled):
    source = edited(
        ROWS, ("table.astype(jnp.int32)", "jnp.where(flags != 0, 0, flags)"), ("doubled(count", "doubled(N // B")
    )
    program = compiled(examined(source)[0])
    assert [(one.place, str(one.type)) for one in computed_operands(load_hlo(program.dump_dir))] == [(0, "s32[8]")]
    given = edited(source, ("jnp.where(flags != 0, 0, flags)", "flags"))
    assert computed_operands(load_hlo(compiled(examined(given)[0]).dump_dir)) == ()
