"""A search on real nodes of a Ray cluster: the driver is killed twice, then a node, and it ends as on one machine."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from ratchet.loop import log
from ratchet.loop.experiment import Idea
from tests.extras import needs
from tests.loop.stage import Stage
from tests.search import fakes
from tests.search.nodes import driver, kill, nodes

pytestmark = [needs("optuna", "ray"), pytest.mark.slow]  # four processes of Ray's for each node


SEARCH = "fakes.search(root, budget=16, cluster=made)"


def ended(stage: Stage) -> tuple[list[tuple[str, ...]], str]:
    return [(row.note, row.status, row.median_ms, row.decision) for row in stage.rows()], stage.read()


def wait_for(stage: Stage, rows: int, process) -> None:  # type: ignore[no-untyped-def]
    while len(stage.rows()) < rows:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def judged(root: Path) -> Stage:
    made = fakes.stage(root)
    made.run(idea=Idea(message="baseline"), judge=fakes.judge(made.root))
    return made


@pytest.mark.timeout(600)
def test_three_nodes_and_what_is_killed(tmp_path: Path) -> None:
    alone = judged(tmp_path / "alone")
    fakes.search(alone.root, budget=16)
    stage = judged(tmp_path / "stage")
    folder = tmp_path / "cluster"
    folder.mkdir()
    with nodes(folder, 3, FAKE_NODE_SECONDS="0.4") as (address, three):
        for rows in (3, 6):
            process = driver(stage.root, address, folder, lanes=3, does=SEARCH)
            wait_for(stage, rows, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        process = driver(stage.root, address, folder, lanes=3, does=SEARCH)
        wait_for(stage, 9, process)
        kill(three[0])
        said, _ = process.communicate()
        assert process.returncode == 0, said
    assert ended(stage) == ended(alone)
    assert len({row.kernel_blob for row in stage.rows()}) == len(stage.rows())
    assert log.verify(stage.root) == ()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lies", [(), (10.0,)])
def test_what_a_node_measured_is_measured_by_another_before_it_is_kept(tmp_path: Path, lies: tuple[float, ...]) -> None:
    """Slower it is; a node of the two calls it ten times faster."""
    stage, folder = fakes.stage(tmp_path / "stage"), tmp_path / "cluster"
    folder.mkdir()
    faster, slower = (fakes.KERNEL.replace("BKV = 64", f"BKV = {value}") for value in (128, 512))
    does = f"print([row.decision for row in fakes.timed_rows(root, made, {slower!r}, {faster!r})])"
    with nodes(folder, 2, measures="cpu", lies=lies) as (address, _):
        process = driver(stage.root, address, folder, lanes=2, does=does, measures="cpu")
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "['baseline', 'reverted', 'kept']" in said
    assert stage.read() == faster
    assert log.verify(stage.root) == ()
