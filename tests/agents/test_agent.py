"""``ratchet agent``: a scripted agent through the real command line, loop and git. The verdicts are prepared ones."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agents.agent import stop
from ratchet.agents.proposal import MOST_BYTES
from ratchet.loop import log
from ratchet.process import key
from ratchet.process.sandbox import landlock
from ratchet.values.agent import Ending, Rules, Stop, Turn
from ratchet.values.status import Status
from tests.agents import prepared, scripted
from tests.loop.stage import Stage, kernel_text


def agent(stage: Stage, script: list[list[list[str]]], *options: str) -> subprocess.CompletedProcess[str]:
    """A run of a script, or of the command that ``options`` name."""
    path = stage.root.parent / "script.json"
    path.write_text(json.dumps(script))
    command = shlex.join([sys.executable, scripted.__file__, str(path)])
    words = ["agent", "--json", "--command", command, "--budget", str(len(script)), *options]
    done = prepared.started(stage.root, *words)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def status(name: str) -> str:
    return f'STATUS = "{name}"\n'


BETTER = [["note", "--a better one"], ["write", kernel_text(1100.0)]]
WRONG = [["write", status("WRONG_VALUES")]]  # a cheat that the values give away
BESIDE = [["beside", "other.txt", "mine"], ["allow", "other.txt"], ["write", "#" * (MOST_BYTES + 1)]]
WORSE = [["write", kernel_text(900.0)]]


@pytest.mark.slow
def test_crashes_a_hang_and_nothing_have_no_row(stage: Stage) -> None:
    script = [[["crash"]], [*BETTER, ["leave", "3"]], [["hang"]], [["leave", "0"]]]
    done = agent(stage, script, "--turn-seconds", "60")  # what does not hang is done long before
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [turn["ending"] for turn in document["turns"]] == ["crashed", "judged", "timed_out", "nothing"]
    assert document["stopped"] == "budget"
    assert [(row.note, row.decision) for row in stage.rows()] == [("baseline", "baseline"), ("--a better one", "kept")]
    assert log.verify(stage.root) == ()
    assert stage.read() == kernel_text(1100.0)
    hung = stage.root / document["folder"] / "turn-003"
    assert json.loads((hung / "turn.json").read_text())["exit_code"] is None
    left = int((hung / "transcript.txt").read_text().split("left ")[1].split()[0])
    assert not Path(f"/proc/{left}").exists(), "a hanging command leaves no process behind"


def test_its_proposals_are_turns_like_any_and_nothing_else_counts(stage: Stage) -> None:
    done = agent(stage, [BETTER, WRONG, BESIDE, WORSE, WORSE], "--repeats", "1")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert [turn["ending"] for turn in document["turns"]] == ["judged", "judged", "trespass", "judged", "repeated"]
    assert document["stopped"] == "budget"
    assert [(row.note, row.status, row.decision) for row in stage.rows()] == [
        ("baseline", "PASS", "baseline"),
        ("--a better one", "PASS", "kept"),
        ("agent: turn 2", "WRONG_VALUES", "reverted"),
        ("agent: turn 4", "NOT_BETTER", "reverted"),
    ]
    assert log.verify(stage.root) == ()
    assert (stage.read(), (stage.root / "other.txt").read_text()) == (kernel_text(1100.0), "other\n")
    assert len(stage.git("worktree", "list").splitlines()) == 1
    folder = stage.root / document["folder"]
    briefs = [(folder / f"turn-00{number}" / "brief.md").read_text() for number in (1, 2)]
    assert "no file can be made beside it" in briefs[0]
    assert "--a better one" not in briefs[0]
    assert "--a better one" in briefs[1]
    assert "write" in (folder / "turn-001" / "transcript.txt").read_text()
    assert (folder / "turn-002" / "kernel.py").read_text() == status("WRONG_VALUES")
    turn = json.loads((folder / "turn-003" / "turn.json").read_text())
    assert (turn["ending"], turn["note"]) == ("changed other files", "kernel.py is no file of at most 1 MiB any more")


@pytest.mark.parametrize("where", ["ledger", "ref"])
def test_a_command_that_reaches_the_repository_ends_the_run(stage: Stage, where: str) -> None:
    """With write access that it was given on purpose; no wall is in its way."""
    steps = {
        "ledger": [["beside", str(stage.root / "results.tsv"), "forged"]],
        "ref": [["git", "-C", str(stage.root), "branch", "forged"]],
    }
    done = agent(stage, [steps[where] + BETTER], "--budget", "3", "--writable", str(stage.root))
    assert done.returncode == Status.BRANCH_MOVED.exit_code
    assert "nothing of it was judged" in done.stderr
    assert {"ledger": "results.tsv", "ref": "refs/heads/forged"}[where] in done.stderr
    assert len(stage.git("worktree", "list").splitlines()) == 1
    assert stage.git("log", "-1", "--format=%s") == "first"


HOSTILE = r"""
exec 2>&1
key=$(eval echo ~$(id -un))/.config/pallas-ratchet/key
for file in "$key" "$(dirname "$key")"/*; do cat "$file" && echo KEY-READ; done
for place in "$MINE/rc" "$REPOSITORY/results.tsv" "$REPOSITORY/.git/ratchet/pending.json" "$REPOSITORY/kernel.py"; do
    echo evil > "$place" && echo WROTE; ln -sf /etc/passwd "$place" && echo LINKED
    rm --interactive=never "$place" && echo REMOVED
done
for place in "$RATCHET_BRIEF" "$(dirname "$RATCHET_BRIEF")/transcript.txt" "$(dirname "$RATCHET_BRIEF")/turn.json"; do
    (: > "$place") && echo CUT
done
git -C "$REPOSITORY" branch evil && echo BRANCHED; git -C "$REPOSITORY" config core.hooksPath /evil && echo SET
here=$(dirname "$RATCHET_KERNEL")
ln -s "$MINE" "$here/out" && echo PLANTED; mkfifo "$here/pipe" && echo PLANTED
mv "$RATCHET_KERNEL" "$RATCHET_KERNEL.old" && echo MOVED
echo "SCORE = $((2000 + RATCHET_TURN)).0" > "$RATCHET_KERNEL"
ln -sf "$MINE/rc" "$RATCHET_MESSAGE"
(setsid sleep 600 &)
truncate -s 0 /proc/self/fd/1; echo END-OF-TURN
"""
TURNS = 3


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_a_hostile_command_changes_and_reads_nothing_outside_of_its_work_tree(stage: Stage, tmp_path: Path) -> None:
    """In the first turn and in those after it; all that it gets is what it leaves in the kernel file."""
    key.load()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "rc").write_text("the user's")
    script = tmp_path / "hostile.sh"
    script.write_text(f"MINE={mine}; REPOSITORY={stage.root}\n{HOSTILE}")
    kept = stage.git("config", "--list", "--local")
    done = agent(stage, [[]] * TURNS, "--command", f"sh {script}")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [turn["ending"] for turn in document["turns"]] == ["judged"] * TURNS
    assert [row.score for row in stage.rows()] == ["1000.0", *(f"{2001.0 + turn}" for turn in range(TURNS))]
    assert {row.note for row in stage.rows()[1:]} == {f"agent: turn {1 + turn}" for turn in range(TURNS)}
    for number in range(1, TURNS + 1):
        said = (stage.root / document["folder"] / f"turn-{number:03d}" / "transcript.txt").read_text()
        assert "END-OF-TURN" in said
        for got in ("KEY-READ", "WROTE", "LINKED", "REMOVED", "CUT", "BRANCHED", "SET\n", "PLANTED", "MOVED"):
            assert got not in said
    assert {path.name: path.read_text() for path in mine.iterdir()} == {"rc": "the user's"}
    assert stage.git("config", "--list", "--local") == kept
    assert log.verify(stage.root) == ()


CHANGES = "open,openat,openat2,creat,truncate,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat"
MORE = "mkdir,mkdirat,rmdir,mknod,mknodat"
CALL = re.compile(r"\d+ +(\w+)\((.*)\) += \d")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace") or not landlock.version(), reason="needs strace, and Landlock")
def test_what_a_hostile_command_opens_and_changes_as_seen_from_outside(stage: Stage, tmp_path: Path) -> None:
    """Every call that succeeded, in ten turns; what it leaves running would be waited for, and has a test above."""
    key.load()
    seen, mine = tmp_path / "seen", tmp_path / "mine"
    seen.mkdir()
    mine.mkdir()
    (mine / "rc").write_text("the user's")
    script = tmp_path / "hostile.sh"
    script.write_text(f"MINE={mine}; REPOSITORY={stage.root}\n{HOSTILE.replace('(setsid sleep 600 &)', '')}")
    command = f"strace -f -z -qq -e trace={CHANGES},{MORE} -o {seen}/calls.$RATCHET_TURN sh {script}"
    words = shlex.join(["sh", "-c", f"exec {command}"])
    limits = ("--budget", "10", "--plateau", "11", "--repeats", "11", "--failures", "11")
    done = agent(stage, [[]] * 10, "--command", words, "--writable", str(seen), *limits)
    assert [turn["ending"] for turn in json.loads(done.stdout)["turns"]] == ["judged"] * 10, done.stderr
    calls = [CALL.match(line) for file in seen.iterdir() for line in file.read_text().splitlines()]
    made = [(call[1], call[2]) for call in calls if call]
    assert len([one for one in made if one[0].startswith("open")]) > 100
    read = [said for _, said in made if str(key.path().parent) in said and "O_DIRECTORY" not in said]
    assert read == [], "names are listed there, nothing is read"
    writes = re.compile("O_(WR|RDWR|CREAT)")
    changed = [f"{name} {said}" for name, said in made if not name.startswith("open") or writes.search(said)]
    own = re.compile(r'"[^"]*/ratchet-agent-[^"]*/(tree/kernel\.py|scratch/[^"]*)"|"/dev/(null|tty)"|"/proc/self/fd/1"')
    assert [said for said in changed if not own.search(said)] == []
    assert any("tree/kernel.py" in said for said in changed)


def test_a_command_that_cannot_be_started_is_refused(stage: Stage) -> None:
    done = agent(stage, [[]], "--command", "/no/such/agent")
    assert done.returncode == Status.NOT_FOUND.exit_code
    assert "cannot be started" in done.stderr
    assert len(stage.git("worktree", "list").splitlines()) == 1


RULES = Rules(budget=10, plateau=3, repeats=2, failures=2)
ENDINGS = {
    "k": (Ending.JUDGED, "kept"),
    "r": (Ending.JUDGED, "reverted"),
    "n": (Ending.NOTHING, ""),
    "o": (Ending.REPEATED, "kept"),
    "c": (Ending.CRASHED, ""),
    "t": (Ending.TIMED_OUT, ""),
    "x": (Ending.TRESPASS, ""),
}


def turns(text: str) -> list[Turn]:
    return [
        Turn(number=number, ending=ENDINGS[one][0], decision=ENDINGS[one][1], seconds=1.0, exit_code=0)
        for number, one in enumerate(text, 1)
    ]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", None),
        ("kkkkkkkkk", None),
        ("kkkkkkkkkk", Stop.BUDGET),
        ("krr", None),
        ("krrr", Stop.PLATEAU),
        ("krncrr", Stop.PLATEAU),  # turns without a verdict say nothing of a plateau
        ("krrkrr", None),
        ("n", None),
        ("no", Stop.REPEATS),
        ("nko", None),
        ("nc", None),
        ("ct", Stop.FAILURES),
        ("tx", Stop.FAILURES),
        ("ckc", None),
    ],
)
def test_a_run_stops(text, end):
    assert stop(turns(text), RULES) is end
