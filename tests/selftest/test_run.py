"""What of the corpus is chosen, what a trial makes of a verdict, and attacks on a tree."""

import dataclasses
import threading

import pytest

from ratchet.process.sandbox.child import PACKAGE_ROOT
from ratchet.selftest import corpus as corpora
from ratchet.selftest import run, trees
from ratchet.selftest.corpus import Planted
from ratchet.selftest.kernels import FILE, Bases, judge_cheat, judge_honest
from ratchet.values import Conditions, Score, Step, Verdict
from ratchet.values.status import Refusal, Status

CORPUS = corpora.read(PACKAGE_ROOT)
ROWS = CORPUS.honest["rows_attention"]
STALE = next(one for one in CORPUS.cheats if one.name == "c13_stale_buffer")
NO_GAIN = next(one for one in CORPUS.cheats if one.name == "c45_donates_inside")


class Judge:
    """Answers as it is given, and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        self.lock = threading.Lock()

    def __call__(self, request, *, workers=None):
        with self.lock:
            self.asked.append(request)
            return self.answers.pop(0)


def verdict(status=Status.PASS, *, step="correctness", reason="", latency_ms=1.0):
    score = Score(score=1.0, latency_ms=latency_ms, util_pct=1.0, tflops=1.0, regime="compute-bound", bw_util_pct=1.0)
    return Verdict(
        status=status,
        reason=f"{step}: {reason}",
        kernel=FILE,
        kernel_name="rows",
        conditions=Conditions(evaluator="v5e-model", chip="v5e", compiler="", seal="", problem=""),
        score=score if status is Status.PASS else None,
        steps=(Step(name=step, status=status, seconds=0.0, summary=reason),),
        source_sha256="",
        seconds=1.0,
    )


def tried(cheat, tmp_path, *answers):
    judge = Judge(*answers)
    bases = Bases(CORPUS.honest, tmp_path, judge)
    return judge_cheat(cheat, bases, None, judge, tmp_path / "one"), judge


def test_a_cheat_that_is_caught_by_its_defence(tmp_path):
    caught = verdict(Status.MEMORY_HAZARD, reason="uninitialised_memory: output 0")
    trial, judge = tried(STALE, tmp_path, verdict(), caught)
    assert (trial.got, trial.defence, trial.as_expected) == ("MEMORY_HAZARD", "unwritten memory", True)
    honest, cheat = judge.asked
    assert honest.root == cheat.root, "judged by the honest kernel's problem"
    assert cheat.kernel.read_text() == f"{ROWS.source}\n\n{STALE.text}"


@pytest.mark.parametrize(
    ("status", "reason", "defence"),
    [(Status.MEMORY_HAZARD, "order_of_parallel_steps: …", "step order"), (Status.PASS, "", "")],
)
def test_a_cheat_that_another_defence_catches_or_none_is_not_as_expected(tmp_path, status, reason, defence):
    trial, _ = tried(STALE, tmp_path, verdict(), verdict(status, reason=reason))
    assert (trial.got, trial.defence, trial.as_expected) == (status.name, defence, False)


@pytest.mark.parametrize(("latency_ms", "got"), [(1.0, "NO_GAIN"), (1.1, "NO_GAIN"), (0.99, "PASS")])
def test_a_cheat_that_may_pass_must_not_be_faster(tmp_path, latency_ms, got):
    trial, _ = tried(NO_GAIN, tmp_path, verdict(), verdict(latency_ms=latency_ms))
    assert trial.got == got
    assert trial.as_expected == (got == "NO_GAIN")
    assert (trial.seen, trial.defence) == (got != "NO_GAIN", "")


def test_an_honest_kernel_is_judged_once(tmp_path):
    judge = Judge(verdict())
    bases = Bases(CORPUS.honest, tmp_path, judge)
    assert judge_honest(ROWS, bases, None).as_expected
    assert judge_honest(ROWS, bases, None).got == "PASS"
    assert len(judge.asked) == 1


def test_an_honest_kernel_that_is_refused_is_not_as_expected(tmp_path):
    refused = verdict(Status.WRONG_VALUES, reason="one element is off")
    trial = judge_honest(ROWS, Bases(CORPUS.honest, tmp_path, Judge(refused)), None)
    assert not trial.as_expected
    assert trial.reason == "correctness: one element is off"


def test_quick_takes_one_of_each_kind():
    chosen = run.choose(CORPUS, quick=True, pattern="")
    kinds = [one.kind for one in chosen.entries if not isinstance(one, corpora.Honest)]
    assert len(kinds) == len(set(kinds))
    fast = {one.kind for one in (*CORPUS.cheats, *CORPUS.planted) if "quick" not in one.left_out_of}
    assert set(kinds) == fast
    honest = [one.name for one in chosen.entries if isinstance(one, corpora.Honest)]
    assert sorted(honest) == sorted(run.QUICK_HONEST)
    every = run.choose(CORPUS, quick=False, pattern="")
    assert (every.left_out, len(chosen.entries) + chosen.left_out) == (0, len(every.entries))


def test_a_pattern_is_part_of_a_name_or_of_a_kind():
    assert [one.name for one in run.choose(CORPUS, quick=False, pattern="c13_stale").entries] == ["c13_stale_buffer"]
    assert STALE in run.choose(CORPUS, quick=False, pattern="memory never").entries
    assert STALE in run.choose(CORPUS, quick=False, pattern="c13*").entries
    with pytest.raises(Refusal, match="no entry of the corpus matches nonsense"):
        run.choose(CORPUS, quick=False, pattern="nonsense")


def planted(**changes):
    first = next(one for one in CORPUS.planted if one.name == "c19_sitecustomize")
    return dataclasses.replace(first, **changes)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    tree = tmp_path_factory.mktemp("trees") / "clean"
    trees.new_tree(PACKAGE_ROOT, tree, ROWS.source)
    return tree


def test_what_is_planted_and_does_not_run_has_no_effect(clean, tmp_path):
    trial = trees.play(planted(), clean, tmp_path / "one")
    assert (trial.got, trial.as_expected, trial.defence) == ("NO_EFFECT", True, "")
    assert not (clean / "sitecustomize.py").exists()


def test_what_is_planted_and_runs_is_seen(clean, tmp_path):
    attack = planted(replaced={"ratchet.sh": ("set -eu", f"set -eu; echo {trees.MARK}")})
    trial = trees.play(attack, clean, tmp_path / "one")
    assert (trial.got, trial.as_expected) == (trees.MARK, False)


def test_a_command_that_fails_is_an_effect(clean, tmp_path):
    trial = trees.play(planted(runs=(("show", "nothing"),)), clean, tmp_path / "one")
    assert (trial.got, trial.as_expected) == ("NOT_FOUND", False)


def test_a_command_that_ends_is_not_said_to_hang(clean, tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "SECONDS", 0.01)
    assert trees.play(planted(), clean, tmp_path / "one").got == trees.HANGS


def test_all_that_can_be_planted_is_there(clean, tmp_path):
    attack = Planted(
        name="all", number=19, what="", kind="", expected=("PASS",), caught_by=("plain git",), said="", left_out_of=(),
        runs=(), files={"evil/a{extension}": "{tree}"}, appended={"kernel.py": "# more"},
        replaced={"prepare.py": ("The judge.", "A judge.")}, bytecode={"ratchet/commands/options.py": "value = 1"},
        links={"link": "/etc/passwd"}, pipes=("pipe",), git=(("config", "a.b", "c"),),
    )  # fmt: skip
    tree = tmp_path / "tree"
    trees.new_tree(PACKAGE_ROOT, tree, ROWS.source)
    before = (tree / "ratchet" / "commands" / "options.py").read_bytes()
    trees.plant(attack, tree)
    (extension,) = (tree / "evil").iterdir()
    assert extension.read_text() == str(tree)
    assert (tree / "kernel.py").read_text().endswith("# more")
    assert (tree / "prepare.py").read_text().startswith('"""A judge.')
    assert (tree / "ratchet" / "commands" / "options.py").read_bytes() == before
    assert (tree / "ratchet" / "commands" / "options.pyc").exists()
    assert (tree / "link").is_symlink()
    assert (tree / "pipe").is_fifo()
    with pytest.raises(ValueError, match="there is no 'A judge, once'"):
        trees.plant(dataclasses.replace(attack, replaced={"prepare.py": ("A judge, once", "")}, pipes=()), tree)
