"""It is the named defence that catches a cheat, and not luck: without it the cheat gets further.

A defence is switched off in a copy of the tree, by an edit of the one place where it is; the copy's own self-test then
runs one cheat.
"""

import json
import shutil
import subprocess

import pytest

from ratchet.process.sandbox.child import NAMES, PACKAGE_ROOT
from ratchet.selftest import corpus as corpora
from ratchet.selftest import trees
from ratchet.selftest.defences import BY_NAME
from tests.selftest.switches import SWITCHES, WITHOUT
from tests.walls import lacking

CORPUS = {one.name: one for one in (*corpora.read(PACKAGE_ROOT).cheats, *corpora.read(PACKAGE_ROOT).planted)}


def defence(name):
    """Of a switch."""
    return name.partition(":")[0]


def edited_tree(tmp_path, edits):
    """A copy of the tree with its corpus, changed."""
    tree = tmp_path / "tree"
    trees.new_tree(PACKAGE_ROOT, tree, "")
    for name in (corpora.FOLDER, "examples"):  # an honest kernel may be an example with changes
        shutil.copytree(PACKAGE_ROOT / name, tree / name)
    for name, old, new in edits:
        before = (tree / name).read_text()
        assert old in before, f"nothing to switch off in {name}: {old!r}"
        (tree / name).write_text(before.replace(old, new))
    return tree


def tried(tree, cheats):
    """What the self-test of a tree says of cheats."""
    out = tree.parent / "trials.json"
    command = [str(tree / "ratchet.sh"), "selftest", "--only", ",".join(cheats), "--json", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert out.exists(), done.stderr
    return json.loads(out.read_text())["trials"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SWITCHES)
def test_without_its_defence_a_cheat_gets_further(name, tmp_path):
    switch = SWITCHES[name]
    if name in NAMES and lacking(name):
        pytest.skip(lacking(name))
    trials = tried(edited_tree(tmp_path, switch.edits), (switch.cheat, *switch.also))
    assert len(trials) == 1 + len(switch.also)
    for trial in trials:
        assert trial["got"] in switch.then, trial
        assert trial["defence"] != name
        assert not trial["as_expected"]


def test_every_defence_has_a_switch_or_a_reason():
    with_one = set(map(defence, SWITCHES))
    assert with_one | set(WITHOUT) == set(BY_NAME)
    assert not with_one & set(WITHOUT)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_shows_a_cheat_that_this_defence_catches(name):
    for cheat in (SWITCHES[name].cheat, *SWITCHES[name].also):
        assert defence(name) in CORPUS[cheat].caught_by, cheat


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_finds_what_it_changes(name):
    for path, old, new in SWITCHES[name].edits:
        assert old in (PACKAGE_ROOT / path).read_text(), path
        assert old != new
