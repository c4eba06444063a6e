"""A short fuzz with a fixed seed: ``python -m benchmarks.fuzz`` is the long one. And that each part of it can fail."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.fuzzing import damage, expressions, kernels, parsers, programs, scalars
from benchmarks.lib.fuzzing.corpus import Corpus, made
from benchmarks.lib.fuzzing.outcome import Difference, Round, added
from ratchet.exam.judge.workers import Workers
from ratchet.tpu import scalar
from ratchet.values.status import Refusal, Status

ROUNDS = 40


def test_scalars_agree_on_all_sides() -> None:
    one = scalars.scalars(0, count=512)
    assert one.differences == ()
    assert one.steps > 30 * 512


def test_a_shift_that_wraps_at_64_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapping = scalars.Operation(
        "i", 2, lambda a, b: scalar.wrap(a << (b & 63)), scalars.OPERATIONS["shift left"].wanted
    )
    monkeypatch.setattr(scalars, "OPERATIONS", {"shift left": wrapping})
    (difference,) = scalars.scalars(0, count=512).differences
    assert "shift left" in difference.what


def test_random_scalar_kernels_agree() -> None:
    one = programs.scalars(3, count=4, grid=128)
    assert one.differences == ()
    assert one.steps > 128


def test_a_wrong_definition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, one in expressions.OPERATIONS.items():
        wrong = expressions.Operation(one.operands, one.result, lambda *words: 12345, one.written)
        monkeypatch.setitem(expressions.OPERATIONS, name, wrong)
    sides = {difference.what.partition(":")[0] for difference in programs.scalars(3, count=4, grid=128).differences}
    assert "executor" in sides
    assert "interpret mode" in sides


def test_random_block_kernels_agree() -> None:
    assert kernels.blocks(3).differences == ()


def test_rounds_are_summed_by_area() -> None:
    difference = Difference(area="a", seed=1, what="x")
    rounds = [
        Round(area="a", cases=1, steps=2, outcomes={"equal": 2}),
        Round(area="a", cases=1, steps=3, differences=(difference,)),
        Round(area="b", cases=1, steps=1),
    ]
    assert added(rounds) == [
        {"area": "a", "cases": 2, "steps": 5, "differences": 1, "equal": 2},
        {"area": "b", "cases": 1, "steps": 1, "differences": 0},
    ]


# --- parsers ---


@pytest.fixture(scope="module")
def corpus(workers: Workers) -> Corpus:
    return made(workers)


def test_no_reader_of_the_judge_breaks_on_damage(corpus: Corpus, tmp_path: Path) -> None:
    for reader in parsers.readers(corpus, tmp_path):
        seen: Counter[str] = Counter()
        for seed in range(ROUNDS):  # a lenient reader refuses one damaged file in ten: one round may hold none
            one = parsers.checked(reader, seed=seed, count=25)
            assert [difference.what for difference in one.differences] == []
            seen.update(one.outcomes)
            if seen["refused"] or "error" in one.area:
                break
        assert seen["refused"] or "error" in reader.name, f"{reader.name}: damage is noticed"


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda data: data.index(b"no such thing"), "ValueError"),
        (lambda data: [None for _ in itertools.count()], "no end in 1 s"),
        (lambda data: np.ones(1 << 25, np.float32).sum(), "took"),
    ],
    ids=["another exception", "a hang", "memory"],
)
def test_a_reader_that_breaks_is_noticed(read, what, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(parsers, "DEADLINE_SECONDS", 1 if "no end" in what else 250)
    monkeypatch.setattr(parsers, "MEMORY_BYTES", 64 << 20)
    one = parsers.checked(parsers.Reader(name="x", sample=b"x", read=read), seed=0, count=0)
    assert any(what in difference.what for difference in one.differences)


def test_a_refusal_is_no_difference() -> None:
    def refuse(data: bytes) -> object:
        if data != b"sound":
            raise Refusal(Status.CANNOT_VERIFY, "no")
        return data

    one = parsers.checked(parsers.Reader(name="x", sample=b"sound", read=refuse), seed=0, count=20)
    assert one.differences == ()
    assert one.outcomes["refused"] > 10


def test_damage_is_of_every_kind_and_repeats() -> None:
    document = json.dumps({"a": [1, 2, {"b": "text"}], "c": 1.5}).encode()
    for kind in (damage.damaged, damage.damaged_json):
        first, again = ([kind(document, np.random.default_rng(seed)) for seed in range(50)] for _ in range(2))
        assert first == again
        assert len(set(first)) > 30
