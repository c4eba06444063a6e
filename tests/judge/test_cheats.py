"""Every cheat is rejected with the status that its file names, and every honest kernel passes, by the whole judge.

A file in ``tests/candidates/cheats`` is put behind the honest kernel ``rows_attention.py``: what it defines replaces
what is there. It says how it has to end, whether it comes with a problem of its own, and which wall of the jail has to
catch it.
"""

import os
import re
import subprocess
import sys

import pytest

from prepare import judge
from ratchet.candidate import room
from ratchet.candidate.problem import encode, lock_path
from ratchet.child import Limits
from ratchet.judge.request import Request
from ratchet.judge.workers import Workers
from ratchet.values import Conditions
from ratchet.values.status import Status
from tests.judge.programs import examined
from tests.kernels import CANDIDATES
from tests.walls import lacking

HONEST = sorted((CANDIDATES / "honest").glob("*.py"))
QUICK = (
    *("adam", "all_gather", "block_mask", "conv1d", "embedding_gather", "input_fusion", "int8_matmul"),
    *("layernorm_gain", "named_send", "quantized_matmul", "row_softmax", "rows_attention", "split_decode"),
)
"""One of each way through the judge; the others are slow tests."""
CHEATS = sorted((CANDIDATES / "cheats").glob("*.py"))
BASE = (CANDIDATES / "honest" / "rows_attention.py").read_text()
CONDITIONS = Conditions(evaluator="v5e-model", chip="v5e", compiler="", seal="", problem="")


def judged(root, source, workers, **options):
    kernel = root / "kernel.py"
    kernel.write_text(source)
    return judge(
        Request(kernel=kernel, root=root, kernel_rel="kernel.py", conditions=CONDITIONS, **options), workers=workers
    )


def files(root):
    """All but the kernel itself and the judge's cached references."""
    return {
        p: p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != "kernel.py" and ".ratchet" not in str(p)
    }


NEED_THE_JAIL = {"IMPORT_FAILED", "OUT_OF_MEMORY", "TIMEOUT"}


@pytest.fixture(scope="module")
def frozen_root(tmp_path_factory):
    """A folder with the honest kernel's problem frozen in it."""
    root = tmp_path_factory.mktemp("frozen")
    lock_path(root / "kernel.py").write_bytes(encode(examined(BASE)[1]))
    return root


@pytest.fixture
def without_jail(monkeypatch):
    """Traces in this process what does no harm at import: a child's start is most of what a small verdict costs."""

    def step(source, name, *, child, freeze, platform="tpu", chip=None, again=False):
        artefact, problem = examined(source.decode(), name)
        return (artefact, problem if freeze else None), "traced without a jail"

    monkeypatch.setattr(room, "step", step)
    monkeypatch.setattr(Workers, "candidate", lambda self: None)
    monkeypatch.setattr(Workers, "prepare_next", lambda self: None)


@pytest.mark.usefixtures("without_jail")
@pytest.mark.parametrize(
    "path",
    [path if path.stem in QUICK else pytest.param(path, marks=pytest.mark.slow) for path in HONEST],
    ids=lambda path: path.stem,
)
def test_honest_kernels_pass(path, tmp_path, workers):
    verdict = judged(tmp_path, path.read_text(), workers, evidence=tmp_path / "evidence", deep=True)
    assert verdict.status is Status.PASS, verdict.reason
    assert [step.status for step in verdict.steps] == [Status.PASS] * len(verdict.steps)
    assert verdict.score is not None
    assert 0 < verdict.score.util_pct <= 100
    chips = len(verdict.timeline.chips) or 1
    assert len(verdict.parity.checks) == 3 + (chips if chips > 1 else 1)
    assert verdict.parity.worst_error < 1
    assert all(claim.agrees for claim in verdict.claims), verdict.claims
    assert lock_path(tmp_path / "kernel.py").exists()
    assert (tmp_path / "evidence" / "optimized.hlo").exists()


@pytest.mark.usefixtures("without_jail")
def test_the_same_kernel_has_the_same_score(frozen_root, workers):
    verdicts = [judged(frozen_root, BASE + tail, workers) for tail in ("", "\n\n# a comment\n")]
    assert [verdict.status for verdict in verdicts] == [Status.PASS] * 2, verdicts[0].reason
    assert verdicts[0].score == verdicts[1].score, "a model has no noise"
    assert verdicts[0].source_sha256 != verdicts[1].source_sha256


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_cheats_are_rejected(path, tmp_path, frozen_root, workers, monkeypatch, request):
    cheat = path.read_text()
    if (wall := re.search(r"^# wall: (.+)$", cheat, re.MULTILINE)) and lacking(wall[1]):
        pytest.skip(lacking(wall[1]))
    wanted = re.search(r"^# rejected as: (.+)$", cheat, re.MULTILINE)[1].split(", ")
    own = "# problem: its own" in cheat
    if not NEED_THE_JAIL & set(wanted) and "jax.config" not in cheat and "# jail: needed" not in cheat:
        request.getfixturevalue("without_jail")
    if "TIMEOUT" in wanted:
        monkeypatch.setitem(room.examine.__kwdefaults__, "limits", Limits(seconds=10, memory_bytes=8 << 30))
    root = tmp_path if own else frozen_root
    before = files(root)
    verdict = judged(root, BASE + "\n\n" + cheat, workers)
    assert verdict.status.name in wanted, verdict.reason
    assert verdict.score is None
    if said := re.search(r"^# said: (.+)$", cheat, re.MULTILINE):
        assert said[1] in verdict.reason
    assert "\n" not in verdict.reason
    assert not (own and lock_path(root / "kernel.py").exists()), "a problem of a kernel that failed was kept"
    if not own:
        assert files(root) == before
    if "# python: right" in cheat:
        failed = [step.name for step in verdict.steps if step.status is not Status.PASS]
        assert failed == ["correctness"], "judged by its program alone"


CALL_IT = """
import sys
import jax, numpy as np
largest, limit = np.max, 0.02
for path in sys.argv[2:]:
    names = {}
    exec(open(sys.argv[1]).read() + open(path).read(), names)
    q, k, v = names["generate_inputs"](jax.random.key(0))
    got, want = (np.asarray(names[f](q, k, v), np.float64) for f in ("kernel_fn", "reference_fn"))
    print(path, float(largest(abs(got - want))) <= limit * float(largest(abs(want))))
"""


def test_what_fools_a_caller_of_its_python_does_give_the_right_answer_there():
    """The cheats that only their program gives away: called as Python, they pass for honest."""
    paths = [str(path) for path in CHEATS if "# python: right" in path.read_text()]
    assert len(paths) == 3
    command = [sys.executable, "-c", CALL_IT, str(CANDIDATES / "honest" / "rows_attention.py"), *paths]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    assert said.stdout.splitlines() == [f"{path} True" for path in paths]


def test_every_cheat_says_what_it_is():
    numbers = set()
    for path in CHEATS:
        found = re.match(r'"""Cheat (\d+): .+\."""\n# rejected as: [A-Z_, 0-9]+\n', path.read_text())
        assert found or path.stem == "out_of_bounds", path
        if found:
            assert path.stem.startswith(f"c{int(found[1]):02}_")
            numbers.add(int(found[1]))
    # The others need a device that is timed (2, 3, 8, 25), have no file to be (5, 16, 26), or are no file's.
    assert numbers >= {1, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 27, 28, 29, 30}
