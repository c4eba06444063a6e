"""A modelled run has to be like those on other draws of what steers it, or the kernel knows the public one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from ratchet.exam.judge import control
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.values import Timeline
from ratchet.values.control import ControlFlow
from ratchet.values.status import Status
from ratchet.values.tokens import TokenTable
from tests.exam.judge.programs import examined
from tests.kernels import HONEST, edited

GATHER = HONEST["embedding_gather"]


def run(cycles: int = 1000, **flow: Any) -> Timeline:
    """A modelled run of which cycles and control flow are given."""
    empty: dict[str, Any] = dict.fromkeys(Timeline.__dataclass_fields__, 0)
    known = {"branches": {"t:1": (3, 5)}, "loops": {"t:2": 12}, "copies": {"t:3": 4}}
    return Timeline(**{**empty, "chips": (), "cycles": cycles, "control": ControlFlow(**{**known, **flow})})


def keys(source: str) -> list[bytes]:
    artefact, problem = examined(source)
    code = Loaded(tokenise(artefact.program)[0], Options()).program.sha256
    return list(itertools.chain.from_iterable(control.seeds(problem, code)))


def test_draws_follow_from_the_program_and_not_from_its_comments() -> None:
    first = keys(GATHER)
    assert len(set(first)) == len(first) == sum(control.BATCHES)
    assert bytes(control.SEED_BYTES) not in first, "that of the public draw"
    assert keys(GATHER.replace("\nimport jax\n", "\n# A comment,\n# and another.\nimport jax\n", 1)) == first
    assert not set(
        keys(edited(GATHER, ("def kernel_fn(ids, table):\n", "def kernel_fn(ids, table):\n    ids = ids + 0\n")))
    ) & set(first)


SLOWER = 1500


@pytest.mark.parametrize(("other", "what"), [
    ({}, []),
    ({"branches": {"t:1": (2, 7)}, "loops": {"t:2": 20}, "copies": {"t:3": 1}}, []),
    ({"branches": {"t:1": (0, 8)}}, ["branch"]),
    ({"branches": {"t:1": (6, 0)}}, ["other branch"]),
    ({"loops": {"t:2": 0}}, ["loop"]),
    ({"loops": {"t:2": 25}}, ["loop"]),
    ({"copies": {"t:3": 4, "t:4": 1}}, ["copy"]),
])  # fmt: skip
def test_what_few_other_draws_do_is_named_where_they_are_slower(other: dict[str, Any], what: list[str]) -> None:
    assert [one.what for one in control.unlike(run(), [run(SLOWER, **other)] * 8)] == [*what, "cycles"]
    assert control.unlike(run(), [run(1015, **other)] * 8) == [], "no gain"
    assert control.unlike(run(), [run(10, **other)] * 8) == []


@pytest.mark.parametrize(("alike", "count"), [(4, 8), (6, 24), (15, 60)])
def test_one_draw_in_four_has_to_go_the_same_way(alike: int, count: int) -> None:
    """As many of the others are as fast as they have to be."""

    def places(alike: int) -> list[str]:
        fast = [run(1000, loops={"t:2": 90})] * 3
        others = [*fast, *[run(SLOWER)] * alike, *[run(SLOWER, loops={"t:2": 90})] * (count - alike - 3)]
        return [one.what for one in control.unlike(run(), others)]

    assert places(alike) == []
    assert places(alike - 1) == ["loop"]


@pytest.mark.parametrize(("fast", "count", "said"), [
    (1, 8, []), (0, 8, ["cycles"]), (2, 24, []), (1, 24, ["cycles"]), (3, 60, []), (2, 60, ["cycles"]),
])  # fmt: skip
def test_one_draw_in_twenty_has_to_be_as_fast(fast: int, count: int, said: list[str]) -> None:
    others = [run(1010)] * fast + [run(SLOWER)] * (count - fast)
    assert [one.what for one in control.unlike(run(), others)] == said


def test_three_draws_settle_a_kernel_that_is_as_slow_on_all() -> None:
    assert control.unlike(run(), [run(1000), run(1015), run(990)]) == []
    assert control.unlike(run(), [run(1000), run(1015), run(1030)]) != [], "more are asked for"


def test_who_meets_the_public_draw_by_chance_is_still_unlike() -> None:
    """A special case that one input in sixty falls into, too."""
    public = run(500, loops={"t:2": 0})
    others = [run(1000)] * 59 + [public]
    assert [one.what for one in control.unlike(public, others)] == ["loop", "cycles"]


def test_branches_that_nobody_knows_are_not_compared_but_cycles_are() -> None:
    public, other = (replace(run(cycles), control=None) for cycles in (1000, 2000))
    assert [one.what for one in control.unlike(public, [other] * 8)] == ["cycles"]


def test_a_refusal_names_the_place_and_what_differs() -> None:
    tokens = TokenTable(sources=(None, ("kernel.py", 40, 5)))
    others = [run(SLOWER, branches={"t:1": (then, 0)}) for then in (7, 8)] * 4
    refusal = control.refuse(control.unlike(run(branches={"t:1": (0, 8)}), others), tokens)
    assert refusal.status is Status.CONTROL_FLOW_DIFFERS
    what = (
        "the branch at kernel.py:40:5 is executed never with the public inputs, and mostly 8 times with 8 other draws"
    )
    assert refusal.message.startswith(what)
    slower = control.refuse(control.unlike(run(1000), [run(1300), run(1200)] * 4), tokens)
    assert "1,000 cycles with the public inputs, and mostly 1,250 or so with 8 other draws" in slower.message
