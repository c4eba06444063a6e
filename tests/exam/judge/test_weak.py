"""When an answer that computes nothing would pass: asked of a problem whose output is one number."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ratchet.exam.judge.comparison import Comparer
from ratchet.exam.problem.inputs import Instance
from ratchet.exam.problem.problem import ArraySpec
from ratchet.exam.problem.reference import Reference
from ratchet.values.status import Status

ROUNDING = 1e-6


def with_draws(**numbers):
    """Values whose inputs are one number for each draw, and so is the reference."""

    def drawn(kind):
        return [np.full((8, 128), numbers[kind])]

    exact = np.full((1, 1), numbers["random"])
    inputs = SimpleNamespace(
        of=lambda instance: drawn(instance.kind.replace("-", "_")),
        public=lambda _: drawn("public"),
        programs=SimpleNamespace(exact=lambda _, arrays, __: [arrays[0][:1, :1], np.zeros((1, 1))]),
    )
    reference = Reference(exact=[exact], losses=[exact * ROUNDING], counts=[])
    comparer = Comparer(inputs)
    comparer.references = SimpleNamespace(of=lambda _: reference)
    return comparer


@pytest.mark.parametrize(
    ("public", "other", "status"),
    [
        (12.0, 9.0, Status.PASS),
        (10.0, 9.0, Status.PASS),  # near by chance: so no secret makes an honest problem a weak one
        (12.0, 10.0, Status.PASS),
        (10.0, 10.0, Status.WEAK_PROBLEM),
    ],
)
def test_a_number_is_weak_where_it_is_the_same_in_every_draw(monkeypatch, public, other, status):
    comparer = with_draws(random=10.0, public=public, fresh_mean=other)
    monkeypatch.setattr(comparer, "_check_other_secrets", lambda *_: None)
    problem = SimpleNamespace(outputs=(ArraySpec(shape=(1, 1), dtype="float32"),), output_splits=(), rows=None)
    answer = comparer.problem(Instance(problem=problem, kind="random", secret=b"", cache=Path()))
    assert answer["status"] == status.name
    assert ("the reference's mean would pass" in answer["message"]) == (status is Status.WEAK_PROBLEM)
