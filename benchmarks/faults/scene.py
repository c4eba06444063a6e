"""Turns of the ratchet to be struck, and what has to hold of the repository after the next one.

Git, ledger, files and processes are real. The verdict is read from the kernel file (``tests/loop/stage.py``), so that a
turn takes a tenth of a second of a processor; what a verdict itself writes is struck by ``states.py``.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lib.command import say
from ratchet.loop import ledger, log
from ratchet.loop.judge_only import judge_only
from ratchet.values.row import Origin
from ratchet.values.status import Refusal, Status
from tests.loop.stage import Stage, StageJudge, kernel_text

PRECIOUS = {"other.txt": "other\n", "precious.txt": "ignored and precious\n"}
"""Files of the user's: one that git has, one that it ignores."""
OLD, BETTER, WORSE = kernel_text(1000.0), kernel_text(1500.0), kernel_text(900.0)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A turn that begins in a state of its own."""

    name: str
    kernel: str
    """The candidate."""
    decisions: tuple[tuple[str, ...], ...]
    """What the rows may say in the end."""
    baseline: bool = True
    """Whether HEAD has been judged before."""
    only: bool = False
    """Judges the work tree (``prepare.py``) and leaves the branch alone."""
    cut_off: str = ""
    """The turn begins where an earlier one was cut off: after its first change of this file."""

    def make(self, root: Path) -> Stage:
        """The repository before the turn."""
        stage = Stage.new(root)
        stage.freezes = not self.baseline
        (root / ".gitignore").write_text("hlo_dumps/\nprecious.txt\n")
        stage.git("commit", "-q", "--amend", "--no-edit", "-a")
        (root / "precious.txt").write_text(PRECIOUS["precious.txt"])
        if self.baseline:
            stage.run("baseline")
        stage.write(self.kernel)
        return stage

    def turn(self, stage: Stage) -> Status:
        """The turn; the status of a refusal where it is refused."""
        try:
            if self.only:
                return judge_only(root=stage.root, kernel=Path(stage.kernel), judge=StageJudge(stage)).status
            return stage.run("an idea").status
        except Refusal as refusal:
            return refusal.status


KEPT = Scene(name="kept", kernel=BETTER, decisions=(("baseline", "kept"),))
SCENES = (
    KEPT,
    Scene(name="reverted", kernel=WORSE, decisions=(("baseline", "reverted"),)),
    Scene(name="first of all", kernel=BETTER, decisions=(("baseline", "kept"),), baseline=False),
    Scene(
        name="judged", kernel=BETTER, only=True, decisions=(("baseline", "judged"), ("baseline", "judged", "judged"))
    ),
    Scene(name="finishing", kernel=BETTER, decisions=(("baseline", "kept"),), cut_off=".git/ratchet/pending.json"),
)


@dataclass(frozen=True, kw_only=True)
class State:
    """What must not be lost of a repository."""

    rows: tuple[bytes, ...]
    """Whole lines of the ledger, without its header."""
    commits: dict[str, str]
    """By ref: experiments, and the branch."""

    @classmethod
    def of(cls, stage: Stage) -> State:
        lines = stage.ledger.read_bytes().split(b"\n")[1:-1] if stage.ledger.exists() else []
        refs = stage.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/ratchet/experiments")
        return cls(rows=tuple(lines), commits=dict(line.split(" ") for line in refs.splitlines()))


@dataclass(kw_only=True)
class Tally:
    """What went wrong, counted over strikes of one kind."""

    strikes: int = 0
    rows_lost: int = 0
    commits_lost: int = 0
    files_changed: int = 0
    verify_failures: int = 0
    unfinished: int = 0

    said: list[str] = field(default_factory=list, compare=False)
    """What went wrong, in words."""

    def note(self, what: str, text: str, count: int = 1) -> None:
        """Counts a fault, and says it."""
        setattr(self, what, getattr(self, what) + count)
        if count:
            self.said.append(text)
            say(text)

    @property
    def counts(self) -> dict[str, int]:
        """By name, as in the table."""
        return {name.replace("_", " "): value for name, value in vars(self).items() if name != "said"}

    @property
    def faults(self) -> int:
        return sum(self.counts.values()) - self.strikes

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def aftermath(scene: Scene, stage: Stage, before: State, *, where: str) -> Tally:
    """Runs the next turn, as a user would, and says what is lost of ``before``, the state after the strike."""
    tally = Tally(strikes=1)
    status = scene.turn(stage)
    if status not in (Status.PASS, Status.NOT_BETTER, Status.NO_CHANGE):
        tally.note("unfinished", f"{where}: the next turn ends as {status.name}")
    now = State.of(stage)
    for line in before.rows:
        tally.note("rows_lost", f"{where}: a row is gone: {line[:120]!r}", line not in now.rows)
    tally.note("commits_lost", f"{where}: commits are gone", lost_commits(stage, before, now))
    changed = changed_files(scene, stage)
    tally.note("files_changed", f"{where}: changed: {changed}", len(changed))
    findings = verified(scene, stage, finished=not tally.unfinished)
    tally.note("verify_failures", f"{where}: verify: {findings}", bool(findings))
    return tally


def verified(scene: Scene, stage: Stage, *, finished: bool) -> list[str]:
    """What is wrong with the ledger: nothing, with every row signed here and the decisions that the scene has."""
    said = log.verify(stage.root)
    findings = [finding.text for finding in said]
    if not any(finding.broken for finding in said):
        origins, decisions = log.verify_origins(stage.root).by_id, tuple(row.decision for row in stage.rows())
        findings += [f"row {name} is {one}" for name, one in origins.items() if one is not Origin.HERE]
        findings += [f"the rows say {decisions}"] if finished and decisions not in scene.decisions else []
    return findings


def lost_commits(stage: Stage, before: State, now: State) -> int:
    """Commits that had a name and have none any more, or do not resolve."""
    lost = 0
    for ref, commit in before.commits.items():
        resolves = not _fails(stage, "cat-file", "-e", f"{commit}^{{tree}}")
        if ref.startswith("refs/heads/"):
            lost += not resolves or _fails(stage, "merge-base", "--is-ancestor", commit, ref)
        else:  # the ref of an experiment points at HEAD until its commit is made
            lost += not resolves or ref not in now.commits
    return lost


def changed_files(scene: Scene, stage: Stage) -> list[str]:
    """Files of the user's that are not as they were, or that nobody but the ratchet can have put there."""
    changed = [name for name, text in PRECIOUS.items() if (stage.root / name).read_text() != text]
    wanted = OLD if scene.name == "reverted" else scene.kernel
    allowed = {stage.kernel, ledger.NAME, stage.lock.name}
    return [
        *changed,
        *([] if stage.read() == wanted else ["kernel.py"]),
        *(line for line in stage.status() if line[3:] not in allowed or (line[3:] == stage.kernel and not scene.only)),
    ]


def _fails(stage: Stage, *arguments: str) -> bool:
    return subprocess.run(["git", *arguments], cwd=stage.root, check=False, capture_output=True).returncode != 0


def degrade(root: Path, unsynced: dict[str, int], chance: random.Random) -> None:
    """What a power cut does to files written since they were flushed: nothing, or their new part is cut anywhere.

    ``unsynced``: how many bytes were on the disk, by path; the rest, or all of a new file, may be lost.
    """
    for path, safe in unsynced.items():
        file = root / path
        if file.is_file() and not file.is_symlink():
            size = file.stat().st_size
            os.truncate(file, chance.choice((size, min(safe, size), chance.randint(min(safe, size), size))))


def copied(stage: Stage, root: Path) -> Stage:
    """A copy of a stage, to be struck."""
    shutil.copytree(stage.root, root, symlinks=True)
    return Stage(root=root, kernel=stage.kernel, freezes=stage.freezes)
