"""The product as it is used: the real commands in a real repository, with the real compiler.

The repository is in a path with a space and a letter beyond ASCII, and every command is called from elsewhere.
"""

import json
import os
import re
import signal
import subprocess
import sys

import jsonschema
import pytest
from filelock import FileLock

from ratchet.exam.judge.evidence import KEEP_NEWEST
from ratchet.exam.problem.problem import lock_path
from ratchet.values import Decision
from ratchet.values.status import Status
from tests.loop.stage import Stage
from tests.tiers import slow
from tests.workspaces import BETTER, HERE, WORSE, Workspace, last_line

SCHEMA = json.loads((HERE / "ratchet" / "view" / "verdict.schema.json").read_text())
RESULT = re.compile(
    r"RESULT: score=(\d+\.?\d*) latency=(\d+\.\d+)ms util=(\d+\.\d+)% tflops=(\d+\.\d+)"
    r" decision=([a-z-]+)(?: status=([A-Z_]+))?(?: why=\"[^\"]+\")?"
)
NO_RESULT = re.compile(
    r"RESULT: score=none latency=none util=none tflops=none decision=([a-z-]+) status=([A-Z_]+) why=\"[^\"]+\""
)


@pytest.fixture(autouse=True, scope="module")
def _own_settings(tmp_path_factory):
    """The machine's git settings and terminal decide nothing."""
    settings = tmp_path_factory.mktemp("settings") / "gitconfig"
    settings.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(settings))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "PYTHONPATH"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A repository after ``./ratchet.sh "baseline"``, and what that said. Nobody changes it.

    The processes of one test session share it.
    """
    shared = tmp_path_factory.getbasetemp()
    shared = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "end to end"
    space, said = Workspace(root=shared / "räτchet repo"), shared / "said.json"
    with FileLock(f"{shared}.lock"):
        if not said.exists():
            done = Workspace.new(space.root).ratchet("baseline")
            said.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    return space, subprocess.CompletedProcess("baseline", *json.loads(said.read_text()))


@pytest.fixture
def space(judged, tmp_path):
    """A copy of that repository for one test."""
    return judged[0].copy(tmp_path / "a cöpy")


def document(done):
    """Standard output as one valid JSON document."""
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["outcome"]["exit_code"] == done.returncode
    return found


def refused(done, status):
    """A refusal: one line that says why, the RESULT line, the exit code."""
    assert done.returncode == status.exit_code, done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith(f"{status.name}: "))
    assert NO_RESULT.fullmatch(last_line(done))[2] == status.name
    return line


# --- one turn -----------------------------------------------------------------------------------


def test_baseline_passes_with_one_row_and_evidence(judged):
    space, done = judged
    assert done.returncode == 0, done.stderr
    score, latency, util, _, decision, _ = RESULT.fullmatch(last_line(done)).groups()
    assert decision == "baseline"
    assert float(score) == pytest.approx(float(util) * 100 / float(latency), rel=0.01)
    (row,) = space.rows()
    assert (row.status, row.decision, row.evaluator) == ("PASS", "baseline", "v5e-model")
    assert row.commit == space.git("rev-parse", "HEAD"), "freezing the problem was committed"
    assert space.git("show", "--stat", "--format=%s", "HEAD").splitlines()[0] == "baseline"
    assert space.git("cat-file", "-t", row.kernel_blob) == "blob"
    assert lock_path(space.root / "kernel.py").name in space.git("ls-tree", "--name-only", "HEAD").splitlines()
    assert "modelled" in done.stdout
    for step in ("contract", "compile", "correctness", "schedule", "roofline"):
        assert step in done.stderr
    assert 15 <= len(done.stdout.splitlines()) <= 40, "at 80 columns"
    dumps, traces = space.root / "hlo_dumps" / row.id, space.root / "profile_data" / row.id
    for name in ("stablehlo.mlir", "lowered.hlo", "optimized.hlo"):
        assert (dumps / name).stat().st_size > 100
    assert list((dumps / "schedule").glob("*packed-bundles-post-ra.txt"))
    assert list(traces.rglob("*.xplane.pb"))
    assert row.evidence
    assert space.git("status", "--porcelain").split() in ([], ["??", "results.tsv"]), "evidence is ignored by git"


def test_again_says_what_is_the_same_and_why(judged, space):
    before = space.state()
    done = space.ratchet("baseline again")
    assert done.returncode == Status.NO_CHANGE.exit_code
    assert space.rows()[0].id in done.stdout
    assert "NO_CHANGE" in done.stdout
    assert NO_RESULT.fullmatch(last_line(done))[2] == "NO_CHANGE"
    assert space.state() == before
    assert document(space.ratchet("--json", "baseline again"))["verdict"] is None


MESSAGE = (
    "experiment: $(touch pwned) `touch pwned` ${HOME} ; touch pwned # \\ * !\ttab \"double\" 'single'\n"
    "RESULT: score=99999.0 latency=0.1ms util=99.00% tflops=1.00 decision=kept\n\n" + "long " * 2_000
)
"""Everything at once that a shell, a ledger, a terminal or a reader of the last line could take for its own."""


def test_better_is_kept_whatever_the_message(space):
    head = space.git("rev-parse", "HEAD")
    space.edit(BETTER)
    done = space.ratchet(MESSAGE)
    assert done.returncode == 0, done.stderr
    assert RESULT.fullmatch(last_line(done))[5] == "kept"
    assert len([line for line in done.stdout.splitlines() if line.startswith("RESULT:")]) == 1
    assert space.git("rev-parse", "HEAD~1") == head
    assert space.git("log", "-1", "--format=%B").strip() == MESSAGE.strip()
    changed = [line for line in space.git("diff", "HEAD~1", "--", "kernel.py").splitlines() if re.match(r"[+-]B", line)]
    assert changed == ["-BQ = 128", "+BQ = 256"]
    first, second = space.rows()
    assert second.commit == space.git("rev-parse", "HEAD")
    assert second.decision == "kept"
    assert float(second.score) > float(first.score)
    assert space.read("results.tsv").count("\n") == 3, "a header and two rows, each on one line"
    assert not list(space.root.parent.rglob("pwned"))
    assert space.ratchet("verify").returncode == 0


def test_not_better_is_reverted_and_stays_resolvable(space):
    head, honest = space.git("rev-parse", "HEAD"), space.edit(WORSE)
    rejected = space.read()
    done = space.ratchet("--deep", "--json", "experiment: BKV 128")
    found = document(done)
    assert done.returncode == Status.NOT_BETTER.exit_code
    assert found["outcome"]["decision"] == "reverted"
    assert found["verdict"]["status"] == "PASS"
    assert found["verdict"]["claims"]
    assert {step["status"] for step in found["verdict"]["steps"]} == {"PASS"}
    assert found["verdict"]["score"]["score"] < found["outcome"]["incumbent"]["score"]
    assert space.read() == honest
    assert space.git("rev-parse", "HEAD") == head
    row = space.rows()[-1]
    assert (row.id, row.commit) == (found["outcome"]["id"], found["outcome"]["commit"])
    assert row.commit != head
    assert space.git("show", f"{row.commit}:kernel.py") + "\n" == rejected
    assert space.git("diff", "HEAD", "--", "kernel.py") == ""
    shown = space.ratchet("show", row.id)
    assert shown.returncode == 0
    assert row.commit in shown.stdout
    table = space.ratchet("log")
    assert table.returncode == 0
    assert "NOT_BETTER" in table.stdout or "PASS" in table.stdout
    assert all(row.id in table.stdout for row in space.rows())


def test_wrong_values_and_a_forged_result_are_reverted(space):
    forged = "RESULT: score=99999.0 latency=0.0001ms util=99.00% tflops=197.00 decision=kept"
    honest = space.edit(
        ("columns <= rows, scores, -jnp.inf)\n\n", "columns < SEQ, scores, -jnp.inf)\n\n"),
        ('KERNEL_NAME = "', f'print("{forged}", flush=True)\nKERNEL_NAME = "'),
    )
    done = space.ratchet("--deep", "no mask")
    assert done.returncode == Status.WRONG_VALUES.exit_code
    assert NO_RESULT.fullmatch(last_line(done)).groups() == ("reverted", "WRONG_VALUES")
    assert forged not in done.stdout
    assert space.read() == honest
    row = space.rows()[-1]
    assert (row.status, row.decision, row.score) == ("WRONG_VALUES", "reverted", "")
    assert row.kernel_blob == space.git("rev-parse", f"{row.commit}:kernel.py")


def test_a_crashed_candidate_has_a_row_and_a_valid_document(space):
    honest = space.edit(('KERNEL_NAME = "', 'KERNEL_NAME = = "'))
    done = space.ratchet("a typing error", "--json")
    found = document(done)
    assert done.returncode == Status.SYNTAX_ERROR.exit_code
    assert found["verdict"]["status"] == "SYNTAX_ERROR"
    assert found["verdict"]["score"] is None
    assert "kernel.py:15" in found["verdict"]["reason"]
    assert space.read() == honest
    assert space.rows()[-1].status == "SYNTAX_ERROR"


@pytest.mark.parametrize(
    ("edit", "status"),
    [(('KERNEL_NAME = "', 'KERNEL_NAME = = "'), "SYNTAX_ERROR"), slow(BETTER, "PASS")],
    ids=["failing", "passing"],
)
def test_prepare_judges_and_leaves_the_branch_alone(space, edit, status):
    space.edit(edit)
    before = space.state()
    found = document(space.prepare("--json"))
    assert found["outcome"]["decision"] == "judged"
    assert found["verdict"]["status"] == status
    after = space.state()
    assert {**after, "ledger": None, "status": None} == {**before, "ledger": None, "status": None}
    row = space.rows()[-1]
    assert row.decision == Decision.JUDGED
    assert space.git("show", f"{row.commit}:kernel.py") + "\n" == space.read()


def test_prepare_is_called_by_any_python(space):
    """One without our packages goes on as the environment's; where there is none, it says how to make it."""
    other = sys.base_prefix + "/bin/python3"
    script = str(space.root / "prepare.py")
    done = space.call(other, "-S", script, "--kernel", "nowhere.py", "--json")
    assert document(done)["outcome"]["status"] == "NOT_FOUND"
    (space.root / ".venv").unlink()
    done = space.call(other, "-S", script, "--kernel", "nowhere.py")
    assert done.returncode == Status.INFRASTRUCTURE.exit_code
    assert "`./ratchet.sh --help` makes it" in done.stderr


def test_another_problem_on_purpose(space):
    """Without the option it is PROBLEM_CHANGED: see the cheats with a frozen problem."""
    space.edit(("SEQ = 1024", "SEQ = 512"), ("[1024, 128]", "[512, 128]"))
    other = space.read()
    done = space.ratchet("--new-problem", "half the length, on purpose")
    assert done.returncode == 0, done.stderr
    assert RESULT.fullmatch(last_line(done))[5] == "kept"
    assert space.read() == other
    lock = lock_path(space.root / "kernel.py").name
    assert lock in space.git("diff", "--name-only", "HEAD~1").splitlines()
    assert len({row.problem for row in space.rows() if row.status == "PASS"}) == 2


# --- refusals: nothing is changed ---------------------------------------------------------------


def test_help_lists_every_exit_code(space):
    done = space.ratchet("--help")
    assert done.returncode == 0
    for status in Status:
        assert re.search(rf"^ +{status.exit_code} +{status.name} +\S", done.stdout, re.MULTILINE), status
    assert len({status.exit_code for status in Status}) == len(Status)


@pytest.mark.parametrize("arguments", [(), ("",), ("a", "b")])
def test_a_wrong_command_line(space, arguments):
    before = space.state()
    line = refused(space.ratchet(*arguments), Status.USAGE)
    assert "\n" not in line
    assert space.state() == before


def test_an_edited_judge_file_breaks_the_seal(space):
    space.edit(BETTER)
    names = ("ratchet/exam/problem/parity.py", "ratchet/loop/decide.py", "prepare.py", "ratchet.sh", "environment.sh")
    for name in names:
        with (space.root / name).open("a") as file:
            file.write("\n# easier\n")
    before = space.state()
    line = refused(space.ratchet("better"), Status.SEAL_BROKEN)
    assert [name for name in names if name not in line] == []
    assert space.state() == before


def test_a_kernel_that_is_not_there(space):
    before = space.state()
    refused(space.ratchet("x", "--kernel", "nowhere.py"), Status.NOT_FOUND)
    refused(space.ratchet("show", "no-such-experiment"), Status.NOT_FOUND)
    assert space.state() == before


def test_a_broken_ledger_is_refused_found_and_rebuilt(space):
    good = space.ledger.read_bytes()
    space.ledger.write_bytes(good.replace(b"PASS", b"pass"))
    space.edit(BETTER)
    before = space.state()
    assert "rebuild" in refused(space.ratchet("better"), Status.LEDGER_BROKEN)
    verified = space.ratchet("verify")
    assert verified.returncode == Status.LEDGER_BROKEN.exit_code
    assert space.state() == before
    rebuilt = space.ratchet("rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert space.ledger.read_bytes() == good
    assert space.ratchet("verify").returncode == 0


def test_no_space_left_for_the_judges_temporary_files(space, small_disk):
    """A child that cannot write must not be taken for a kernel that fails."""
    space.edit(BETTER)
    before = space.state()
    assert "TMPDIR" in refused(space.ratchet("better", TMPDIR=str(small_disk)), Status.NO_SPACE)
    assert space.state() == before


# --- interruption and company -------------------------------------------------------------------


def wait_for(process, text):
    """Read a process's standard error up to a line that holds ``text``."""
    read = []
    for line in process.stderr:
        read.append(line)
        if text in line:
            return
    raise AssertionError("".join(read))


def test_ctrl_c_while_judging_leaves_all_as_it_was(space):
    space.edit(BETTER)
    before = space.state()
    process = space.start(str(space.root / "ratchet.sh"), "better")
    wait_for(process, "] compile")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == Status.INTERRUPTED.exit_code == 130, out + err
    assert "nothing was kept or lost" in err
    assert NO_RESULT.fullmatch(out.splitlines()[-1])[2] == "INTERRUPTED"
    assert "Traceback" not in err
    assert space.state() == before
    verified = space.ratchet("verify")
    assert verified.returncode == 0


INTERRUPTED_AT = """
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
runpy.run_module("ratchet", run_name="__main__", alter_sys=True)
"""
"""``python -m ratchet``, interrupted as it begins to import the module that is named first."""


@pytest.mark.parametrize("imported", ["ratchet.loop.ledger", "rich.console", "numpy.version"])
def test_ctrl_c_while_it_starts_is_one_line(space, imported):
    space.edit(BETTER)
    before = space.state()
    python = str(space.root / ".venv" / "bin" / "python")
    done = space.call(python, "-P", "-c", INTERRUPTED_AT, imported, "better", PYTHONPATH=str(space.root))
    assert done.returncode == Status.INTERRUPTED.exit_code
    assert done.stderr.splitlines() == [f"INTERRUPTED: {Status.INTERRUPTED.meaning}"]
    assert space.state() == before


def test_a_second_run_is_refused_or_waits(space):
    """The first one fails early, and does not move before the others know of it."""
    space.edit(("jnp.exp(", "jnp.no_such_function("))
    first = space.start(str(space.root / "ratchet.sh"), "the first one")
    wait_for(first, "] contract")
    os.killpg(first.pid, signal.SIGSTOP)
    line = refused(space.ratchet("the second one"), Status.BUSY)
    assert "the first one" in line
    assert str(first.pid) in line
    patient = space.start(str(space.root / "ratchet.sh"), "the patient one", "--wait", "200")
    wait_for(patient, "waiting for")
    os.killpg(first.pid, signal.SIGCONT)
    first.communicate()
    assert first.returncode not in (Status.PASS.exit_code, Status.NOT_BETTER.exit_code)
    patient.communicate()
    assert patient.returncode == Status.NO_CHANGE.exit_code, "the first one put the kernel back"
    assert len(space.rows()) == 2


# --- history and evidence -----------------------------------------------------------------------


def test_verify_names_edited_evidence(space):
    row = space.rows()[0]
    assert "evidence" not in space.ratchet("verify").stdout
    with (space.root / "hlo_dumps" / row.id / "blame.txt").open("a") as file:
        file.write("a better story\n")
    done = space.ratchet("verify")
    assert done.returncode == 0
    assert f"note: row {row.id}: the evidence on the disk is not what the judge left" in done.stdout


def test_a_reader_that_goes_away_is_no_error(space):
    for command in ("log", "--help"):
        done = space.call(
            "bash", "-c", f'"$1" {command} | true; exit "${{PIPESTATUS[0]}}"', "-", str(space.root / "ratchet.sh")
        )
        assert done.returncode == 0
        assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("log > /dev/full", Status.NO_SPACE),
        ("verify > /dev/full", Status.NO_SPACE),
        ("again > /dev/full", Status.NO_CHANGE),
        ("again --json > /dev/full 2> /dev/full", Status.NO_CHANGE),
        ("again --json | true; exit ${PIPESTATUS[0]}", Status.NO_CHANGE),
        ("again --kernel nowhere.py 2> /dev/full", Status.NOT_FOUND),
        ("again --kernel nowhere.py >&- 2>&- <&-", Status.NOT_FOUND),
        ("log >&-", Status.PASS),
    ],
)
def test_output_that_cannot_be_written_changes_no_exit_code(space, command, status):
    before = space.state()
    done = space.call("bash", "-c", f'"$0" {command}', str(space.root / "ratchet.sh"))
    assert done.returncode == status.exit_code, done.stderr
    if "2>" not in command:
        assert ("NO_SPACE: " in done.stderr) == (status is Status.NO_SPACE)
        assert (f"the exit code is {status.exit_code}" in done.stderr) == ("again > /dev/full" in command)
    assert space.state() == before


def test_a_terminal_without_our_characters(space):
    for command in (["log"], ["show", space.rows()[0].id], ["again"]):
        done = space.ratchet(*command, PYTHONIOENCODING="ascii", TERM="dumb", COLUMNS="40")
        assert done.returncode == (Status.NO_CHANGE.exit_code if command == ["again"] else 0), done.stderr
        assert done.stdout.isascii()


def test_a_kernel_file_where_the_caller_stands_is_not_ours(space):
    """Calls come from the folder above; only a file that was named is looked for there."""
    (space.root.parent / "kernel.py").write_text("another\n")
    before = space.state()
    assert space.ratchet("again").returncode == Status.NO_CHANGE.exit_code
    line = refused(space.ratchet("again", "--kernel", "kernel.py"), Status.USAGE)
    assert str(space.root.parent / "kernel.py") in line
    assert space.state() == before


@pytest.mark.slow
@pytest.mark.usefixtures("without_flushing")
def test_old_evidence_is_pruned_and_no_row_is(space):
    """The baseline is the incumbent: its evidence stays although it is the oldest."""
    baseline = space.rows()[0].id
    stage = Stage(root=space.root)
    stage.write("SCORE = 0\n")
    for number in range(KEEP_NEWEST + 2):
        stage.write(f"SCORE = 0.{number}\n")
        name = stage.run(f"attempt {number}").row.id
        for folder in ("hlo_dumps", "profile_data"):
            (space.root / folder / name).mkdir()
            (space.root / folder / name / "file").write_text("evidence")
    names = [row.id for row in space.rows()]
    done = space.ratchet("again")
    assert done.returncode == Status.NO_CHANGE.exit_code, done.stderr
    assert [row.id for row in space.rows()] == names
    for folder in ("hlo_dumps", "profile_data"):
        left = sorted(path.name for path in (space.root / folder).iterdir() if path.is_dir())
        assert left == sorted([baseline, *names[-KEEP_NEWEST:]])
