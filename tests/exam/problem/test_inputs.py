"""The inputs of instances: what they are made of, and what is kept of them."""

from pathlib import Path

import numpy as np
import pytest

from ratchet.exam.problem import inputs as module
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.programs import Programs
from tests.exam.judge.programs import examined
from tests.kernels import HONEST

KINDS = ("random", "probe", "mixed", "signed")


def instance(name: str, cache: Path, kind: str = "random", secret: bytes = b"secret") -> Instance:
    _, problem = examined(HONEST[name])
    return Instance(problem=problem, kind=kind, secret=secret, cache=cache)


def inputs() -> Inputs:
    return Inputs(Programs())


def as_bytes(arrays):
    return [array.tobytes() for array in arrays]


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


@pytest.mark.parametrize("name", ["segment_sum", "rope"])
def test_a_probe_of_the_kept_draw_is_that_of_one_that_is_not_kept(tmp_path, monkeypatch, name):
    kept, made = instance(name, tmp_path, "probe"), inputs()
    draw = as_bytes(made.of(kept.of_kind("mixed")))
    probe = made.of(kept)
    assert as_bytes(inputs().of(kept.of_kind("mixed"))) == draw, "a probe changed what is kept"
    monkeypatch.setattr(module, "DRAWN_BYTES", 0)
    assert as_bytes(inputs().of(instance(name, tmp_path / "none", "probe"))) == as_bytes(probe)


def refusing_other_draws(drawn):
    """What steers is drawn, of a public key."""

    def draw(problem, key, *, only=None):
        assert not np.any(key), "inputs were drawn that are kept"
        return drawn(problem, key, only=only)

    return draw
