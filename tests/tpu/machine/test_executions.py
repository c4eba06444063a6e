"""What a run says of the author's own copies, waits, loops and branches, by source line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.machine.run import run
from tests.tpu.machine.golden_dumps import COMPILERS, unpack


def executions(compiler: str, program: str, folder: Path, inputs: dict[int | str, np.ndarray]) -> dict[str, int]:
    """Times by kind, over all source lines; the lines are checked to be of the golden programs."""
    folder = unpack(compiler, program, folder)
    done = run(folder, hlo=load_hlo(folder), chip=V5E, compiler=compiler, scalar_inputs=[inputs])
    found: dict[str, int] = {}
    for (source, kind), times in done.slowest.executions().items():
        assert source.file == "programs.py"
        found[kind] = found.get(kind, 0) + times
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
def test_copies_and_waits_by_hand(compiler: str, tmp_path: Path) -> None:
    """Four blocks are copied in. Each is copied out again, by a ``sync_copy`` that the compiler gives no line."""
    found = executions(compiler, "manual", tmp_path, {})
    assert (found["copy"], found["wait"]) == (4, 4)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("taken", "times"), [((3, 0, 2, 1), 2), ((0, 0, 0, 0), 0), ((2, 2, 2, 2), 4)])
def test_branches_of_the_author(compiler: str, taken: tuple[int, ...], times: int, tmp_path: Path) -> None:
    """In each of four steps one branch, over the body where ``which`` is at most 1."""
    found = executions(compiler, "prefetch", tmp_path, {0: np.array(taken, np.int32)})
    assert (found["branch"], found["branch"] - found["branch taken"]) == (4, times)
