"""What ``python -m benchmarks.tune --check`` says of a shape."""

import pytest

from benchmarks.lib.attention.cases import TRAINING, ours_at
from benchmarks.tune import checked, chosen
from pallas_flash import tuned

NAME = "llama-3 8b"
SHAPE = TRAINING[NAME]


class Programs:
    """Every block of queries has a time of its own; those of ``failed`` do not compile."""

    def __init__(self, ms, failed=()):
        self.ms, self.failed, self.recipes = ms, failed, []

    def made(self, recipes, _say):
        self.recipes += recipes
        return [self._record(recipe["config"]["forward"]["block_q"]) for recipe in recipes]

    def _record(self, block):
        ops = [["flash_forward.1", self.ms[block]], ["copy.1", 7.0]]
        return {"error": "VMEM"} if block in self.failed else {"ms": self.ms[block] + 7, "ops": ops}


@pytest.fixture(autouse=True)
def table(monkeypatch):
    blocks = ours_at(SHAPE, "v5e", grad=False)[0]["forward"]
    entry = {"direction": "forward", "seq": 8192, "dim": 128, "causal": True, "best": [{"blocks": blocks}]}
    monkeypatch.setattr(tuned, "table", lambda: {"v5e": {"entries": [entry]}})


def test_blocks_of_the_table_are_compared_with_the_best_by_their_kernel_alone():
    programs = Programs({2048: 1.02, 4096: 1.0, 1024: 3.0})
    row = checked(programs, NAME, "forward", "v5e")
    assert (row["table's ms"], row["best ms"], row["tried"]) == (1.02, 1.0, 4)
    assert row["more %"] == pytest.approx(2)
    assert len(programs.recipes) == 4, "the table's blocks are one of those that are tried"


def test_what_does_not_compile_is_not_the_best_and_the_tables_own_has_to():
    programs = Programs({2048: 1.0, 4096: 0.5, 1024: 3.0}, failed=[4096])
    assert checked(programs, NAME, "forward", "v5e")["more %"] == 0
    with pytest.raises(RuntimeError, match="VMEM"):
        checked(Programs(programs.ms, failed=[2048]), NAME, "forward", "v5e")


def test_a_way_without_an_entry_has_the_defaults():
    assert chosen(SHAPE, "backward", "v5e") == {**ours_at(SHAPE, "v5e", grad=True)[0], "backward": {}}
