"""A short fuzz with a fixed seed: ``python -m benchmarks.fuzz`` is the long one. And that each part of it can fail."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz import damage, expressions, kernels, parsers, programs, scalars
from benchmarks.fuzz.rounds import added
from benchmarks.fuzz.samples import made
from ratchet.exam.judge.workers import Workers
from ratchet.tpu import scalar
from ratchet.values.status import Refusal, Status

ROUNDS = 40


def test_single_operations_and_random_kernels_agree_on_all_sides() -> None:
    one = scalars.scalars(0, count=512)
    assert one.differences == ()
    assert one.steps > 30 * 512
    one = programs.scalars(3, count=4, grid=128)
    assert one.differences == ()
    assert one.steps > 128
    two = kernels.blocks(3)
    assert two.differences == ()
    assert [line["area"] for line in added([one, two, one])] == [one.area, two.area]
    assert added([one, one])[0]["equal"] == 2 * one.outcomes["equal"]


def test_a_shift_that_wraps_at_64_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapping = scalars.Operation(
        "i", 2, lambda a, b: scalar.wrap(a << (b & 63)), scalars.OPERATIONS["shift left"].wanted
    )
    monkeypatch.setattr(scalars, "OPERATIONS", {"shift left": wrapping})
    (difference,) = scalars.scalars(0, count=512).differences
    assert "shift left" in difference


def test_a_wrong_definition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, one in expressions.OPERATIONS.items():
        wrong = expressions.Operation(one.operands, one.result, lambda *words: 12345, one.written)
        monkeypatch.setitem(expressions.OPERATIONS, name, wrong)
    sides = {what.partition(":")[0] for what in programs.scalars(3, count=4, grid=128).differences}
    assert {"executor", "interpret mode"} <= sides


# --- parsers ---


def test_no_reader_of_the_judge_breaks_on_damage(workers: Workers, tmp_path: Path) -> None:
    for reader in parsers.readers(made(workers), tmp_path):
        seen: Counter[str] = Counter()
        for seed in range(ROUNDS):  # a lenient reader refuses one damaged file in ten: one round may hold none
            one = parsers.checked(reader, seed=seed, count=25)
            assert one.differences == ()
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
    one = parsers.checked(parsers.Reader("x", b"x", read), seed=0, count=0)
    assert any(what in difference for difference in one.differences)


def test_a_refusal_is_no_difference() -> None:
    def refuse(data: bytes) -> object:
        if data != b"sound":
            raise Refusal(Status.CANNOT_VERIFY, "no")
        return data

    one = parsers.checked(parsers.Reader("x", b"sound", refuse), seed=0, count=20)
    assert one.differences == ()
    assert one.outcomes["refused"] > 10


def test_damage_is_of_every_kind_and_repeats() -> None:
    document = json.dumps({"a": [1, 2, {"b": "text"}], "c": 1.5}).encode()
    for kind in (damage.damaged, damage.damaged_json):
        first, again = ([kind(document, np.random.default_rng(seed)) for seed in range(50)] for _ in range(2))
        assert first == again
        assert len(set(first)) > 30
