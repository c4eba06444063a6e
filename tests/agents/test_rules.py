"""When an agent's run stops."""

from __future__ import annotations

import pytest

from ratchet.agents.agent import stop
from ratchet.values.agent import Ending, Rules, Stop, Turn

RULES = Rules(budget=10, plateau=3, repeats=2, failures=2)
ENDINGS = {
    "k": (Ending.JUDGED, "kept"),
    "r": (Ending.JUDGED, "reverted"),
    "n": (Ending.NOTHING, ""),
    "o": (Ending.REPEATED, "kept"),
    "c": (Ending.CRASHED, ""),
    "t": (Ending.TIMED_OUT, ""),
    "x": (Ending.TRESPASS, ""),
}


def turns(text: str) -> list[Turn]:
    return [
        Turn(number=number, ending=ENDINGS[one][0], decision=ENDINGS[one][1], seconds=1.0, exit_code=0)
        for number, one in enumerate(text, 1)
    ]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", None),
        ("kkkkkkkkk", None),
        ("kkkkkkkkkk", Stop.BUDGET),
        ("krr", None),
        ("krrr", Stop.PLATEAU),
        ("krncrr", Stop.PLATEAU),  # turns without a verdict say nothing of a plateau
        ("krrkrr", None),
        ("n", None),
        ("no", Stop.REPEATS),
        ("nko", None),
        ("nc", None),
        ("ct", Stop.FAILURES),
        ("tx", Stop.FAILURES),
        ("ckc", None),
    ],
)
def test_a_run_stops(text, end):
    assert stop(turns(text), RULES) is end
