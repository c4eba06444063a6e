"""Every cheat is rejected with the status that its file names, and every honest kernel passes, by the whole judge.

A file in ``tests/candidates/cheats`` is put behind an honest kernel: what it defines replaces what is there. It says
how it has to end, by which defence, whether it comes with a problem of its own, and which wall of the jail it is for.
"""

import functools
import os
import subprocess
import sys

import pytest

from prepare import judge
from ratchet.exam.problem.problem import lock_path
from ratchet.process.sandbox.child import PACKAGE_ROOT, Limits
from ratchet.selftest import corpus as corpora
from ratchet.selftest.corpus import NO_BASE
from ratchet.selftest.defences import caught_by
from ratchet.values.status import Status
from ratchet.values.trial import NO_GAIN
from tests.exam.judge.programs import freeze, request_of
from tests.kernels import CANDIDATES, HONEST
from tests.tiers import cases
from tests.walls import lacking

QUICK = ("all_gather", "embedding_gather", "input_fusion", "rows_attention")
"""Ways through the judge that no other test goes; the others are slow tests, and in the self-test."""
CHEATS = [one for one in corpora.read(PACKAGE_ROOT).cheats if one.on == corpora.MODEL and NO_GAIN not in one.expected]
"""Those that a verdict refuses. `./ratchet.sh selftest` has the others: measured ones, those that gain nothing."""
BASE = HONEST["rows_attention"]


def judged(root, source, workers, **options):
    return judge(request_of(root, source, **options), workers=workers)


def files(root):
    """All but the kernel itself and the judge's cached references."""
    return {
        p: p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != "kernel.py" and ".ratchet" not in str(p)
    }


NEED_THE_JAIL = {"IMPORT_FAILED", "OUT_OF_MEMORY", "TIMEOUT"}
CHANGE_THE_PROCESS = ("sys.modules", "jax.config")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Folders with an honest kernel's problem frozen in each."""

    @functools.cache
    def folder(name):
        root = tmp_path_factory.mktemp(f"frozen-{name}")
        freeze(root, HONEST[name])
        return root

    return folder


@pytest.mark.usefixtures("without_jail")
@pytest.mark.parametrize("name", cases(QUICK, HONEST))
def test_honest_kernels_pass(name, tmp_path, workers):
    verdict = judged(tmp_path, HONEST[name], workers, evidence=tmp_path / "evidence", deep=True)
    assert verdict.status is Status.PASS, verdict.reason
    assert [step.status for step in verdict.steps] == [Status.PASS] * len(verdict.steps)
    assert verdict.score is not None
    assert 0 < verdict.score.util_pct <= 100
    chips = len(verdict.timeline.chips) or 1
    kinds = [check.partition(":")[0] for check in verdict.parity.checks]
    assert len(set(kinds)) == len(kinds)
    assert {"random", "mixed", "repeat"} < set(kinds)
    assert sum(kind.startswith("probe") for kind in kinds) == chips
    assert verdict.parity.worst_error < 1
    assert all(claim.agrees for claim in verdict.claims), verdict.claims
    assert lock_path(tmp_path / "kernel.py").exists()
    assert (tmp_path / "evidence" / "optimized.hlo").exists()


@pytest.mark.usefixtures("without_jail")
def test_the_same_kernel_has_the_same_score(frozen, workers):
    verdicts = [judged(frozen("rows_attention"), BASE + tail, workers) for tail in ("", "\n\n# a comment\n")]
    assert [verdict.status for verdict in verdicts] == [Status.PASS] * 2, verdicts[0].reason
    assert verdicts[0].score == verdicts[1].score, "a model has no noise"
    assert verdicts[0].source_sha256 != verdicts[1].source_sha256


@pytest.mark.parametrize(
    "cheat",
    [pytest.param(one, id=one.name, marks=pytest.mark.slow if "tests" in one.left_out_of else ()) for one in CHEATS],
)
def test_cheats_are_rejected(cheat, tmp_path, frozen, workers, request):
    if cheat.wall and lacking(cheat.wall):
        pytest.skip(lacking(cheat.wall))
    if not NEED_THE_JAIL & set(cheat.expected) and not any(words in cheat.text for words in CHANGE_THE_PROCESS):
        request.getfixturevalue("without_jail")
    root = tmp_path if cheat.own_problem else frozen(cheat.base)
    before = files(root)
    source = cheat.text if cheat.base == NO_BASE else HONEST[cheat.base] + "\n\n" + cheat.text
    limits = {"limits": Limits(seconds=10, memory_bytes=8 << 30)} if "TIMEOUT" in cheat.expected else {}
    verdict = judged(root, source, workers, **limits)
    assert verdict.status.name in cheat.expected, verdict.reason
    assert verdict.score is None
    assert caught_by(verdict.steps) in cheat.caught_by, verdict.reason
    assert cheat.said in verdict.reason
    assert "\n" not in verdict.reason
    assert not (cheat.own_problem and lock_path(root / "kernel.py").exists()), "a problem of a kernel that failed"
    if not cheat.own_problem:
        assert files(root) == before
    if "python: right" in cheat.marks:
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
    paths = [str(CANDIDATES / "cheats" / f"{one.name}.py") for one in CHEATS if "python: right" in one.marks]
    assert len(paths) == 3
    command = [sys.executable, "-c", CALL_IT, str(CANDIDATES / "honest" / "rows_attention.py"), *paths]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    assert said.stdout.splitlines() == [f"{path} True" for path in paths]
