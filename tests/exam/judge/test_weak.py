"""When an answer that computes nothing would pass: asked of a problem whose output is one number."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ratchet.exam.judge.comparison import Comparer
from ratchet.exam.problem.problem import ArraySpec
from ratchet.exam.problem.reference import Instance, Reference
from ratchet.values.status import Status

ROUNDING = 1e-6


class Given:
    """One number for each draw of the inputs, in the place of ``Given`` and of ``References``."""

    def __init__(self, numbers):
        self._numbers = numbers

    def inputs(self, _problem, kind, _secret):
        return [np.full((8, 128), self._numbers[kind])]

    def public(self, _problem):
        return self.inputs(None, "public", b"")

    def exact(self, _problem, arrays, _numbers):
        return [arrays[0][:1, :1], np.zeros((1, 1))]

    def of(self, instance):
        exact = self.inputs(None, instance.kind, b"")[0][:1, :1]
        return Reference(exact=[exact], losses=[exact * ROUNDING], counts=[])


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
    comparer = Comparer(Given({"random": 10.0, "public": public, "fresh-mean": other}))
    comparer.references = comparer._given
    monkeypatch.setattr(comparer, "_check_other_secrets", lambda *_: None)
    problem = SimpleNamespace(outputs=(ArraySpec(shape=(1, 1), dtype="float32"),), output_splits=(), rows=None)
    answer = comparer.problem(Instance(problem=problem, kind="random", secret=b"", cache=Path()))
    assert answer["status"] == status.name
    assert ("the reference's mean would pass" in answer["message"]) == (status is Status.WEAK_PROBLEM)
