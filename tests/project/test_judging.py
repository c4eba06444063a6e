"""Several problems of one kernel: one verdict, one lock, one score, and no problem may pay for another.

Latencies are those that a comment in the kernel's file names; nothing is compiled.
"""

import dataclasses
import json
import math
import re

import pytest

from ratchet.commands.experiment import from_head
from ratchet.exam.candidate import target
from ratchet.exam.candidate.source_closure import work_tree
from ratchet.exam.candidate.target import Exported
from ratchet.exam.judge.steps import Silent
from ratchet.exam.problem.problem import Problem, encode
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.project import table
from ratchet.project.judging import ProjectJudge, mean, read_locks
from ratchet.values import ArraySpec, Band, Conditions, Decision, Mesh, Score, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import RepositoryJudge
from tests.project.projects import TABLE, git, made

SPEC = ArraySpec(shape=(8, 128), dtype="float32")


def score(latency_ms, **more):
    known = {"util_pct": 50.0, "tflops": 1.0, "regime": "memory-bound", "bw_util_pct": 50.0, "wait_ms": latency_ms / 4}
    return Score(score=5000 / latency_ms, latency_ms=latency_ms, **{**known, **more})


def problem(name):
    return Problem(
        kernel_name=name,
        description=name,
        inputs=(SPEC,),
        outputs=(SPEC,),
        mesh=Mesh(),
        flops=0,
        jax_version="0",
        reference_sha256="",
        inputs_sha256="",
        inputs_program=b"i",
        reference_program=b"r",
        reference64_program=b"e",
        mixed_axes=((),),
    )


def judged(request, *, workers=None, progress=None):
    """A judge that believes the file."""
    source = request.kernel.read_text()
    name = request.project.problem["name"].removeprefix("twice_")
    named = dict(re.findall(r"(\w+)=([\d.]+|WRONG)", source))
    passed = named.get(name, "1.0") != "WRONG"
    if passed and not request.lock.exists():
        request.lock.write_bytes(encode(problem(name)))
    return Verdict(
        status=Status.PASS if passed else Status.WRONG_VALUES,
        reason="as said",
        kernel=request.kernel_rel,
        kernel_name=name,
        conditions=request.conditions,
        score=score(float(named.get(name, "1.0"))) if passed else None,
        steps=(),
        source_sha256="0" * 64,
        seconds=0.0,
    )


@pytest.fixture(autouse=True)
def nothing_is_traced(monkeypatch):
    def export(kernel, case, *, files, python=None):
        return Exported(
            program=b"program", inputs=(SPEC,), outputs=(SPEC,), files=files.sha256, imported=(), jax_version="0",
            jail="", seconds=0.0,
        )  # fmt: skip

    monkeypatch.setattr(target, "export", export)


@pytest.fixture
def root(tmp_path):
    folder = made(tmp_path / "a repository")
    (folder / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "ignore")
    return folder


class OneProblem(RepositoryJudge):
    """Asks for no compiler and reads no installed package."""

    def conditions(self, kernel_rel):
        return Conditions(evaluator="v5e-model", chip="v5e", compiler="libtpu 0", seal="s", problem="")

    def seal(self):
        return "s"


def judge_of(root, read=None):
    own = OneProblem(
        root=root,
        function=judged,
        evaluator="v5e-model",
        budget_s=1.0,
        deep=False,
        new_problem=False,
        progress=Silent(),
    )
    return ProjectJudge(project=table.read(root), own=own, read=read or from_head(root))


def turn(root, comment, message="try"):
    kernel = root / "src" / "pkg" / "kernels.py"
    text = kernel.read_text().partition("\n# ")[0].rstrip("\n")
    kernel.write_text(f"{text}\n# {comment}\n")
    return run_experiment(Idea(message=message), root=root, kernel=kernel, judge=judge_of(root))


def test_experiments_are_kept_by_the_geometric_mean(root):
    kept = turn(root, "small=0.5 large=0.8")
    assert (kept.status, kept.decision) == (Status.PASS, Decision.KEPT)
    assert float(kept.row.median_ms) == pytest.approx(math.sqrt(0.4))
    assert kept.baseline is not None
    assert float(kept.baseline.median_ms) == 1
    assert kept.reason.startswith(
        "faster: mean of 2 problems: time -36.8 % (1 -> 0.6325 ms, modelled), worst large -20 % (1 -> 0.8 ms); "
    )
    worse = turn(root, "small=0.51 large=0.81")
    assert (worse.status, worse.decision) == (Status.NOT_BETTER, Decision.REVERTED)
    assert "0.81" not in (root / "src" / "pkg" / "kernels.py").read_text()


def test_no_problem_may_pay_for_another(root):
    turn(root, "small=1.0 large=1.0")
    paid = turn(root, "small=0.2 large=1.03")
    assert (paid.status, paid.decision) == (Status.NOT_BETTER, Decision.REVERTED)
    assert paid.reason.startswith(
        "slower than HEAD's file at 1 of 2 problems: large +3 % (1 -> 1.03 ms), at most 2 % is allowed"
    )
    assert float(paid.row.median_ms) == pytest.approx(math.sqrt(0.2 * 1.03)), "a loser has its numbers"
    within = turn(root, "small=0.2 large=1.01")
    assert within.decision == Decision.KEPT


def test_one_wrong_problem_is_enough(root):
    wrong = turn(root, "small=0.2 large=WRONG")
    assert (wrong.status, wrong.decision) == (Status.WRONG_VALUES, Decision.REVERTED)
    assert "large: as said" in wrong.reason
    assert [(one.name, one.status, one.latency_ms) for one in wrong.verdict.problems] == [
        ("small", Status.PASS, 0.2),
        ("large", Status.WRONG_VALUES, None),
    ]


def test_problems_after_one_that_is_refused_are_named(root):
    wrong = turn(root, "small=WRONG")
    assert "not begun: large" in wrong.verdict.notes


def test_a_changed_helper_is_no_experiment_and_once_committed_a_new_series(root):
    turn(root, "small=0.5 large=0.5")
    before = judge_of(root).conditions("src/pkg/kernels.py")
    helper = root / "src" / "pkg" / "helper.py"
    helper.write_text(helper.read_text() + "\n")
    with pytest.raises(Refusal, match=r"src/pkg/helper\.py") as refused:
        turn(root, "small=0.4 large=0.4")
    assert refused.value.status is Status.DIRTY
    assert judge_of(root).conditions("src/pkg/kernels.py") == before, "HEAD's files are judged"
    git(root, "commit", "-qm", "another helper", "src/pkg/helper.py")
    assert judge_of(root).conditions("src/pkg/kernels.py").problem != before.problem


def test_a_file_that_git_ignores_is_not_in_the_jail(root):
    package = root / "src" / "pkg"
    (root / ".gitignore").write_text("planted.py\nhlo_dumps/\nprofile_data/\n")
    git(root, "commit", "-qam", "ignore")
    (package / "planted.py").write_text("")
    assert from_head(root)("src/pkg/planted.py") is None
    assert work_tree(root)("src/pkg/planted.py") == b""
    (package / "helper.py").write_text("edited")
    assert b"edited" not in from_head(root)("src/pkg/helper.py")


@pytest.mark.parametrize(
    "planted", ["import pkg.kernels\n", "from . import kernels\n", "def f():\n    from pkg.kernels import twice\n"]
)
def test_the_reference_never_imports_what_may_be_edited(root, planted):
    reference = root / "src" / "pkg" / "reference.py"
    reference.write_text(reference.read_text() + planted)
    git(root, "commit", "-qam", "another reference")
    refused = turn(root, "small=0.1 large=0.1")
    assert (refused.status, refused.decision) == (Status.FORBIDDEN, Decision.REVERTED)
    assert "may be edited, and the reference" in refused.reason


def test_a_kernel_cannot_bring_a_module_of_pythons(root):
    (root / "src" / "json.py").write_text("")
    git(root, "add", ".")
    git(root, "commit", "-qm", "shadow")
    kernel = root / "src" / "pkg" / "kernels.py"
    kernel.write_text(kernel.read_text() + "import json\n")
    with pytest.raises(Refusal, match="json of the source folder would shadow") as refused:
        judge_of(root, work_tree(root)).conditions("src/pkg/kernels.py")
    assert refused.value.status is Status.FORBIDDEN


def test_problems_are_frozen_in_one_file_that_cannot_be_edited(root):
    turn(root, "small=0.5 large=0.5")
    lock = root / "src" / "pkg" / "kernels.py.lock.json"
    assert set(read_locks(lock)) == {"small", "large"}
    document = json.loads(lock.read_bytes())
    lock.write_text(json.dumps(document))
    with pytest.raises(Refusal, match="reformatted") as refused:
        read_locks(lock)
    assert refused.value.status is Status.PROBLEM_CHANGED
    document["problems"]["small"]["flops"] = "many"
    lock.write_text(json.dumps(document))
    with pytest.raises(Refusal, match=r"kernels\.py\.lock\.json"):
        read_locks(lock)


def test_another_table_is_another_problem(root):
    before = judge_of(root).conditions("src/pkg/kernels.py")
    assert before.problem == "", "nothing is frozen yet"
    turn(root, "small=0.5 large=0.5")
    one = judge_of(root).conditions("src/pkg/kernels.py").problem
    (root / "pyproject.toml").write_text(TABLE.replace("f32[16,128]", "f32[32,128]"))
    assert judge_of(root).conditions("src/pkg/kernels.py").problem not in ("", one)


def test_means_are_geometric_and_keep_the_share_of_waiting():
    one = score(1.0, band=Band(bound_by="bandwidth", low_ms=0.9, high_ms=1.1), wait_ms=0.5)
    other = score(4.0, band=Band(bound_by="compute", low_ms=3.6, high_ms=4.4), wait_ms=1.0)
    both = mean([one, other])
    assert both.latency_ms == pytest.approx(2)
    assert both.score == pytest.approx(math.sqrt(one.score * other.score))
    assert both.wait_ms == pytest.approx(2 * (0.5 + 0.25) / 2)
    assert both.band.bound_by == "bandwidth and compute"
    assert (both.band.low_ms, both.band.high_ms) == (pytest.approx(1.8), pytest.approx(2.2))
    assert mean([one, dataclasses.replace(other, band=None)]).band is None
