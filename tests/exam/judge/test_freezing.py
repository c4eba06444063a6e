"""A problem is frozen from data: what a file does to its own process decides nothing but what its reference is."""

import contextlib
import json
import types
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from benchmarks.lib.programs import of_source
from prepare import judge
from ratchet.exam.candidate import tracer
from ratchet.exam.judge import freezing, freezing_worker
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import jaxpr_file, problem
from ratchet.process.sandbox.child import Ending
from ratchet.tpu.chips import V5E
from ratchet.values.status import Status
from tests.exam.judge.programs import freeze, request_of
from tests.kernels import HONEST, edited
from tests.refusals import refused

HALF = "def reference_fn(x):\n    return 0.5 * x\n\n\ndef _kernel(x, o):\n    o[...] = 0.5 * x[...]\n"
PATCHED = """
import dataclasses

_main = dataclasses.sys.modules["__main__"]
_exported, _jaxpr = _main.exported, jax.make_jaxpr


def _half(function, avals):
    return (lambda x: [0.5 * x]) if [a.shape for a in avals] == [(N, D)] else function


_main.exported = lambda function, avals, platform: _exported(_half(function, avals), avals, platform)
_main.jax.make_jaxpr = lambda function: lambda *avals: _jaxpr(_half(function, avals))(*avals)


def _kernel(x, o):
    o[...] = 0.5 * x[...]
"""
"""It says in all processes that its reference is another."""


def test_a_lock_says_of_which_reference_it_is(tmp_path):
    softmax, lock = HONEST["row_softmax"], problem.lock_path(tmp_path / "kernel.py")
    with Workers(V5E) as workers:
        forged = judge(request_of(tmp_path, f"{softmax}\n{PATCHED}"), workers=workers)
        assert forged.status is Status.PASS, forged.reason
        frozen = problem.read(lock)
        _, half = of_source(f"{softmax}\n\n{HALF}")
        assert frozen.reference_sha256 == half.reference_sha256, "not that of the softmax which the file shows"
        clean = edited(softmax, ("o[...] = e / jnp.sum(e, axis=1, keepdims=True)", "o[...] = 0.5 * x[...]"))
        verdict = judge(request_of(tmp_path, clean), workers=workers)
    assert verdict.status is Status.PROBLEM_CHANGED
    assert "reference_fn is" in verdict.reason


@pytest.fixture
def defined():
    """A file's artefact, and its problem as data."""
    artefact, _ = of_source(HONEST["row_softmax"], freeze=False)

    def written(function, *avals):
        return jaxpr_file.encode(jax.make_jaxpr(function)(*avals))

    key, rows = jax.ShapeDtypeStruct((2,), jnp.uint32), jax.ShapeDtypeStruct((256, 1024), jnp.float32)
    draw = written(lambda data: [jax.random.normal(jax.random.wrap_key_data(data), (256, 1024))], key)
    return artefact, {tracer.INPUTS: draw, tracer.REFERENCE: written(lambda x: [jax.nn.softmax(x)], rows)}


def test_the_process_of_the_kernel_has_the_same_problem(tmp_path, defined):
    with refused(Status.NON_DETERMINISTIC, r"generate_inputs is \w{12} in the process that traces kernel_fn and"):
        freezing.frozen(*defined, freezing.start(tmp_path / "judge"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({tracer.REFERENCE: b"{}"}, "reference_fn: .*no jaxpr"),
        ({tracer.INPUTS: b"["}, "generate_inputs: .*no jaxpr"),
        ({tracer.REFERENCE: tracer.INPUTS}, "wanted a function of the inputs that are generated"),
        ({tracer.INPUTS: tracer.REFERENCE}, "wanted a function of the data of one key"),
    ],
    ids=["no reference", "no inputs", "a reference of a key", "inputs of an array"],
)
def test_data_that_does_not_fit_is_refused(tmp_path, defined, changed, said):
    artefact, files = defined
    for name, content in (files | {name: files.get(other, other) for name, other in changed.items()}).items():
        (tmp_path / name).write_bytes(content)
    with refused(Status.CONTRACT, said):
        freezing_worker.made(json.loads(freezing.request(artefact)), tmp_path)


class Died(contextlib.nullcontext):
    """A child that ended while it was asked."""

    directory, folder = None, types.SimpleNamespace(write=lambda *_: None)

    def ask(self, *_):
        return Ending(how="died", answer="", returncode=1, tail="Traceback\nValueError: no", seconds=1.0)


def test_a_child_that_ends_is_refused(defined):
    with refused(Status.IMPORT_FAILED, "freezing the problem: .*ValueError: no"):
        freezing.frozen(*defined, Died())


def test_a_record_that_is_none_is_refused(tmp_path):
    artefact, frozen = of_source(HONEST["row_softmax"])
    record = {"work": {"products": {}, "input_bytes": [1], "output_bytes": ["2"]}}
    folder = types.SimpleNamespace(read=lambda name, _limit: json.dumps(record).encode())
    with refused(Status.IMPORT_FAILED, "work holds"):
        freezing.read(folder, artefact)
    assert frozen.work["output_bytes"] == [256 * 1024 * 4]


def test_a_problem_that_another_jax_froze_is_compared_by_what_it_computes(tmp_path):
    softmax, lock = HONEST["row_softmax"], freeze(tmp_path, HONEST["row_softmax"])
    other = replace(problem.read(lock), jax_version="0.1.0", reference_sha256="0" * 64, inputs_sha256="1" * 64)
    lock.write_bytes(problem.encode(other))
    written = edited(softmax, ("jax.nn.softmax(x, axis=-1)", "jnp.exp(x) / jnp.sum(jnp.exp(x), -1, keepdims=True)"))
    another = edited(softmax, ("jax.nn.softmax(x, axis=-1)", "jax.nn.softmax(1.01 * x, axis=-1)"))
    drawn = edited(softmax, ("jax.random.normal(key", "1.01 * jax.random.normal(key"))
    named = edited(softmax, ("KERNEL_NAME = ", 'KERNEL_NAME = "not " + '))
    with Workers(V5E) as workers:
        verdicts = [judge(request_of(tmp_path, one), workers=workers) for one in (softmax, softmax, written)]
        refused = [judge(request_of(tmp_path, one), workers=workers) for one in (another, drawn, named)]
    assert [one.status for one in verdicts] == [Status.PASS] * 3, [one.reason for one in verdicts]
    assert "(frozen under jax 0.1.0, " in verdicts[0].steps[1].summary
    assert verdicts[0].conditions.problem == other.short
    assert [one.status for one in refused] == [Status.PROBLEM_CHANGED] * 3, [one.reason for one in refused]
    assert "reference_fn computes something else" in refused[0].reason
    assert "generate_inputs draws another input 0" in refused[1].reason
    assert "KERNEL_NAME is 'not " in refused[2].reason
    assert problem.read(lock) == other
