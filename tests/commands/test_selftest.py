"""The self-test's table, rates and document."""

import json

from ratchet.commands.selftest import rates, trials_json, trials_table
from ratchet.values.trial import Trial

CAUGHT = Trial(
    name="c13_stale", group="cheat", kind="stale output", expected=("MEMORY_HAZARD",), got="MEMORY_HAZARD",
    defence="unwritten memory", wanted=("unwritten memory",), reason="correctness: …", seconds=2.0,
)  # fmt: skip
THROUGH = Trial(
    name="c99_new", group="cheat", kind="new", expected=("WRONG_VALUES",), got="PASS", wanted=("allowance",),
    reason="correct\x1b[2J and\ntimed",
)  # fmt: skip
SKIPPED = Trial(
    name="c41_a", group="cheat", kind="jail", expected=("IMPORT_FAILED",), wanted=("landlock",), reason="no landlock"
)
HONEST = Trial(name="adam", group="honest", kind="adam", expected=("PASS",), got="PASS")
REFUSED = Trial(name="rope", group="honest", kind="rope", expected=("PASS",), got="WRONG_VALUES", reason="one is off")


def test_the_table_names_what_differs_and_what_was_left_out():
    text = trials_table([CAUGHT, THROUGH, SKIPPED, HONEST, REFUSED], left_out=3, seconds=12.4)
    lines = text.splitlines()
    assert lines[0].split() == ["cheat", "kind", "expected", "got", "defence"]
    assert lines[1].split("  ")[1:] != []
    assert lines[1].startswith("   c13_stale")
    assert lines[2].startswith("!  c99_new")
    assert lines[3].startswith("-  c41_a")
    assert "! rope is honest and ended as WRONG_VALUES: one is off" in lines
    assert "! c99_new (allowance): correct and timed" in lines
    assert "skipped: c41_a, because no landlock" in lines
    assert "cheats caught: 1 of 2, of 2 kinds; honest kernels passed: 1 of 2; skipped: 1" in lines
    assert lines[-2:] == ["3 entries of the corpus were not asked for", "12 s"]


def test_defences_that_were_not_seen_are_in_parentheses():
    harmless = Trial(
        name="c19_a", group="planted", kind="code", expected=("NO_EFFECT",), got="NO_EFFECT",
        wanted=("isolated start", "plain git"), seen=False,
    )  # fmt: skip
    assert harmless.as_expected
    assert trials_table([harmless], left_out=0, seconds=1).splitlines()[1].endswith("  (isolated start, plain git)")
    assert trials_table([THROUGH], left_out=0, seconds=1).splitlines()[1].endswith("  none")


def test_rates_of_what_is_all_as_it_has_to_be():
    assert rates([CAUGHT, HONEST]) == "cheats caught: 1 of 1, of 1 kinds; honest kernels passed: 1 of 1"


def test_the_document_has_every_trial():
    document = json.loads(trials_json([CAUGHT, THROUGH, SKIPPED, HONEST, REFUSED], left_out=3, seconds=12.4))
    assert document["rates"] == {"cheats": {"as_expected": 1, "of": 2}, "honest": {"as_expected": 1, "of": 2}}
    assert [one["as_expected"] for one in document["trials"]] == [True, False, False, True, False]
    assert [one["skipped"] for one in document["trials"]] == [False, False, True, False, False]
