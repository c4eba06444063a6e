"""A project's problem in the candidate's jail: the reference is traced, and the kernel comes from another process."""

import dataclasses

import pytest

from ratchet.exam.candidate import target, tracer
from ratchet.exam.candidate.source_closure import SourceClosure
from ratchet.exam.judge import freezing
from ratchet.exam.problem import problem
from ratchet.project.table import described, read
from ratchet.values.status import Status
from tests.project.projects import made
from tests.refusals import refused


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return read(made(tmp_path_factory.mktemp("given") / "a repository"))


@pytest.fixture(scope="module")
def exported(project):
    return target.export(project.kernel, project.cases[0])


def given(project, exported, **changed):
    reference = target.parse("pkg.reference:twice", folders=[project.source])
    problem = {**described(project, project.cases[0]), "jax_version": exported.jax_version, **changed}
    return tracer.ProjectKernel(program=exported.program, problem=problem, files=target.closure(reference))


def examined(tmp_path, made, **more):
    return tracer.examine(b"", "kernels.py", child=tracer.start(tmp_path / "work"), project=made, **more)


def frozen_of(tmp_path, made, artefact):
    wanted = tracer.TraceRequest(source=b"", name="kernels.py", project=made)
    defined = tracer.definition(wanted, tracer.start(tmp_path / "author"))
    return freezing.frozen(artefact, defined, freezing.start(tmp_path / "judge"))


def test_the_problem_is_the_references_and_the_program_the_kernels(tmp_path, project, exported):
    artefact = examined(tmp_path, given(project, exported))
    frozen = frozen_of(tmp_path, given(project, exported), artefact)
    assert artefact.program == exported.program
    assert artefact.kernel_name == frozen.kernel_name == "twice_small"
    assert [str(spec) for spec in (*frozen.inputs, *frozen.outputs)] == ["float32[8,128]"] * 2
    assert problem.decode(problem.encode(frozen), "lock") == frozen
    problem.check_unchanged(artefact, frozen)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"inputs": [{"shape": [16, 128], "dtype": "float32"}]}, Status.WRONG_SHAPE, r"exported for float32\[8,128\]"),
        ({"inputs": [{"shape": [8, 128], "dtype": "int32"}]}, Status.CONTRACT, "give inputs as a function of a key"),
        (
            {"reference": ["pkg.reference", "fails"]},
            Status.IMPORT_FAILED,
            r"pkg/reference\.py:10: .*no reference today",
        ),
        ({"reference": ["pkg.helper", "double"]}, Status.IMPORT_FAILED, "not among the files"),
        ({"generator": ["pkg.reference", "make"], "reference": ["pkg.reference", "of_tree"]}, None, ""),
    ],
    ids=["another-shape", "integers", "reference-fails", "not-in-the-jail", "pytrees"],
)
def test_what_does_not_fit_is_said(tmp_path, project, exported, changed, status, said):
    made = given(project, exported, **changed)
    if status is None:
        artefact = examined(tmp_path, made)
        assert [str(spec) for spec in artefact.inputs] == ["float32[8,128]"]
        return
    with refused(status, said):
        examined(tmp_path, made)


def test_a_program_that_cannot_be_read_is_refused(tmp_path, project, exported):
    made = dataclasses.replace(given(project, exported), program=b"no program", files=SourceClosure(files={}))
    problem_of_jax = {**made.problem, "reference": ["jax.nn", "relu"]}
    with refused(Status.LOWERING_FAILED, r"the program of JAX \S+ cannot be read"):
        examined(tmp_path, dataclasses.replace(made, problem=problem_of_jax))
