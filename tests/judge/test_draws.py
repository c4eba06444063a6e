"""A modelled run has to be like those on other draws of what steers it, or the kernel knows the public one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from ratchet.compiler.tokens import tokenise
from ratchet.judge import draws
from ratchet.mosaic.run import Loaded, Options
from ratchet.values import Timeline
from ratchet.values.control import ControlFlow
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from tests.judge.programs import examined
from tests.kernels import CANDIDATES, edited

GATHER = (CANDIDATES / "honest" / "embedding_gather.py").read_text()


def run(cycles: int = 1000, **flow: Any) -> Timeline:
    """A modelled run of which cycles and control flow are given."""
    empty: dict[str, Any] = dict.fromkeys(Timeline.__dataclass_fields__, 0)
    known = {"branches": {"t:1": (3, 5)}, "loops": {"t:2": 12}, "copies": {"t:3": 4}}
    return Timeline(**{**empty, "chips": (), "cycles": cycles, "control": ControlFlow(**{**known, **flow})})


def keys(source: str) -> list[bytes]:
    artefact, problem = examined(source)
    code = Loaded(tokenise(artefact.program)[0], Options()).sha256
    return list(itertools.chain.from_iterable(draws.seeds(problem, code)))


def test_draws_follow_from_the_program_and_not_from_its_comments() -> None:
    first = keys(GATHER)
    assert len(set(first)) == len(first) == sum(draws.BATCHES)
    assert bytes(draws.SEED_BYTES) not in first, "that of the public draw"
    assert keys(GATHER.replace("\nimport jax\n", "\n# A comment,\n# and another.\nimport jax\n", 1)) == first
    assert not set(
        keys(edited(GATHER, ("def kernel_fn(ids, table):\n", "def kernel_fn(ids, table):\n    ids = ids + 0\n")))
    ) & set(first)


@pytest.mark.parametrize(("other", "what"), [
    ({}, []),
    ({"branches": {"t:1": (1, 7)}, "loops": {"t:2": 90}, "copies": {"t:3": 1}}, []),
    ({"branches": {"t:1": (0, 8)}}, ["branch"]),
    ({"branches": {"t:1": (8, 0)}}, ["other branch"]),
    ({"loops": {"t:2": 0}}, ["loop"]),
    ({"copies": {"t:3": 4, "t:4": 1}}, ["copy"]),
    ({"cycles": 1015}, []),
    ({"cycles": 1050}, ["cycles"]),
    ({"cycles": 10}, []),
])  # fmt: skip
def test_what_no_other_draw_does_is_named(other: dict[str, Any], what: list[str]) -> None:
    assert [one.what for one in draws.unlike(run(), [run(**other)])] == what


def test_one_draw_that_is_like_it_is_enough_for_each_place() -> None:
    others = [run(1500, branches={"t:1": (0, 8)}), run(1500, loops={"t:2": 0}), run(999)]
    assert [one.what for one in draws.unlike(run(), others[:1])] == ["branch", "cycles"]
    assert [one.what for one in draws.unlike(run(), others[:2])] == ["cycles"]
    assert draws.unlike(run(), others) == []


def test_branches_that_nobody_knows_are_not_compared_but_cycles_are() -> None:
    public, other = (replace(run(cycles), control=None) for cycles in (1000, 2000))
    assert [one.what for one in draws.unlike(public, [other])] == ["cycles"]


def test_a_refusal_names_the_place_and_what_differs() -> None:
    tokens = TokenTable(sources=(None, ("kernel.py", 40, 5)))
    others = [run(branches={"t:1": (then, 0)}) for then in (7, 8)]
    refusal = draws.refuse(draws.unlike(run(branches={"t:1": (0, 8)}), others), tokens)
    assert refusal.status is Status.CONTROL_FLOW_DIFFERS
    what = "the branch at kernel.py:40:5 is executed never with the public inputs, and 7 to 8 times with 2 other draws"
    assert refusal.message.startswith(what)
    slower = draws.refuse(draws.unlike(run(1000), [run(1300), run(1200)]), tokens)
    assert "1,000 cycles with the public inputs, and 1,200 or more with 2 other draws" in slower.message
