"""The inputs of instances: what they are made of, and what is kept of them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ratchet.exam.problem import inputs as module
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.programs import Programs
from tests.exam.judge.programs import examined
from tests.kernels import CANDIDATES

KINDS = ("random", "probe", "mixed", "signed")


def instance(name: str, cache: Path, kind: str = "random", secret: bytes = b"secret") -> Instance:
    _, problem = examined((CANDIDATES / "honest" / f"{name}.py").read_text())
    return Instance(problem=problem, kind=kind, secret=secret, cache=cache)


def inputs() -> Inputs:
    return Inputs(Programs())


def as_bytes(arrays):
    return [array.tobytes() for array in arrays]


def test_inputs_that_are_begun_are_those_that_are_made_when_asked_for(tmp_path):
    ahead = inputs()
    random = instance("rows_attention", tmp_path / "ahead")
    ahead.begin([random.of_kind(kind) for kind in KINDS])
    for kind, secret in (("signed", b"secret"), ("probe", b"another"), ("mixed", b"secret"), ("random", b"secret")):
        one = ahead.of(instance("rows_attention", tmp_path / "ahead", kind, secret))
        other = inputs().of(instance("rows_attention", tmp_path / "alone", kind, secret))
        assert as_bytes(one) == as_bytes(other)


def test_large_inputs_are_made_one_instance_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FEW_BYTES", 0)
    ahead, alone, count = inputs(), inputs(), Counter()
    made = ahead._made

    def counted(one):
        count[one.kind] += 1
        return made(one)

    monkeypatch.setattr(ahead, "_made", counted)
    every = [instance("rows_attention", tmp_path, kind) for kind in KINDS]
    for number, one in enumerate(every):
        got = ahead.of(one)
        ahead.begin(every[number + 1 :])
        assert as_bytes(got) == as_bytes(alone.of(one))
    assert count == dict.fromkeys(KINDS, 1)


def test_what_steers_is_public_where_the_modelled_run_is_checked_and_secret_elsewhere(tmp_path):
    random, made = instance("segment_sum", tmp_path), inputs()
    problem = random.problem
    public, whole = made.steering(problem), made.programs.drawn(problem, module.PUBLIC)
    assert public
    for position, array in public.items():
        assert array.tobytes() == whole[position].tobytes() == made.public(problem)[position].tobytes()
        for kind in ("random", "probe"):
            assert made.of(random.of_kind(kind))[position].tobytes() == array.tobytes()
        secret = made.of(random.of_kind("mixed"))[position]
        assert secret.tobytes() != array.tobytes()
        assert made.of(instance("segment_sum", tmp_path, "mixed", b"another"))[position].tobytes() != secret.tobytes()


def test_which_inputs_are_tables_is_kept_with_the_references(tmp_path, monkeypatch):
    mixed, first, later = instance("rope", tmp_path, "mixed"), inputs(), inputs()
    made = first.of(mixed)
    monkeypatch.setattr(later, "public", lambda problem: pytest.fail("another draw of all inputs"))
    assert as_bytes(later.of(mixed)) == as_bytes(made)
    public = first.public(mixed.problem)
    assert [a.tobytes() == b.tobytes() for a, b in zip(made, public, strict=True)].count(True) == 2, "sine and cosine"


def test_the_draw_of_a_key_is_kept_with_the_references_and_is_not_that_of_another_key(tmp_path, monkeypatch):
    random, first, later = instance("segment_sum", tmp_path), inputs(), inputs()
    made = {kind: first.of(random.of_kind(kind)) for kind in KINDS}
    another = instance("segment_sum", tmp_path, "mixed", b"another")
    other = first.of(another)
    assert as_bytes(later.of(another)) == as_bytes(other) != as_bytes(made["mixed"])
    monkeypatch.setattr(later.programs, "drawn", refusing_other_draws(later.programs.drawn))
    for kind, arrays in made.items():
        again = later.of(random.of_kind(kind))
        assert [(a.shape, a.dtype.name) for a in again] == [(s.shape, s.dtype) for s in random.problem.inputs]
        assert as_bytes(again) == as_bytes(arrays)
        assert as_bytes(again) == as_bytes(inputs().of(instance("segment_sum", tmp_path / "alone", kind)))


def refusing_other_draws(drawn):
    """What steers is drawn, of a public key."""

    def draw(problem, key, *, only=None):
        assert not np.any(key), "inputs were drawn that are kept"
        return drawn(problem, key, only=only)

    return draw
